cimport cython

from bkbox.native cimport memory
from bkbox.wire.v3_fast_path cimport FastResponseV3

cdef Py_ssize_t _PREFIX
cdef Py_ssize_t _V2_ADD_RESPONSE_BYTES
cdef unsigned int _V2_LENGTH
cdef int _V2_ADD
cdef int _V3_ADD
cdef Py_ssize_t _SLOTS


@cython.final
cdef class OutstandingAdds:
    cdef public object sends
    cdef long long[::1] _keys
    cdef unsigned char[::1] _done
    cdef long long _mask
    cdef long long _head
    cdef readonly long long tail
    cdef long long _next
    cdef long long _highest
    cdef bint _sorted

    @cython.locals(key="long long")
    cpdef void push(self, long long first, Py_ssize_t count)

    @cython.locals(key="long long")
    cpdef void push_each(self, tuple keys)

    cdef void _push(self, long long key) noexcept

    @cython.locals(
        capacity="long long", slot="long long", keys="long long[::1]", done="unsigned char[::1]"
    )
    cdef void _grow(self, Py_ssize_t count)

    cpdef bint is_open(self, long long slot) noexcept

    @cython.locals(slot="long long")
    cpdef void close(self, long long first, long long last) noexcept

    @cython.locals(slot="long long")
    cpdef long long pop(self, long long key) noexcept

    cdef void _close(self, long long slot) noexcept

    @cython.locals(slot="long long")
    cdef long long _find(self, long long key) noexcept

    @cython.locals(low="long long", high="long long", middle="long long")
    cdef long long _lower(self, long long key) noexcept


@cython.final
cdef class _Runs:
    cdef list found
    cdef OutstandingAdds outstanding
    cdef long long first
    cdef long long last
    cdef int code

    cdef void add(self, OutstandingAdds outstanding, long long slot, int code)

    cdef void end(self)


@cython.locals(runs=_Runs, outstanding=OutstandingAdds, ledger="long long", entry="long long", slot="long long")
cpdef Py_ssize_t match_v2(
    const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end, dict adds, list found
) except -1

@cython.locals(runs=_Runs, outstanding=OutstandingAdds, ledger="long long", size=Py_ssize_t, slot="long long")
cpdef Py_ssize_t match_v3(
    const unsigned char[::1] data,
    Py_ssize_t start,
    Py_ssize_t end,
    dict adds,
    list found,
    FastResponseV3 response,
) except -1

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t whole_frames(
    const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t limit
) except -1
