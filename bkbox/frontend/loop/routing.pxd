cimport cython

from bkbox.native cimport memory

cdef Py_ssize_t _HEADER_BYTES
cdef Py_ssize_t _BYTES_AT
cdef Py_ssize_t _FRAMES_AT
cdef Py_ssize_t _FILL_BYTES
cdef unsigned long long _GOLDEN
cdef unsigned long long _MASK
cdef int _BITS_LEAST


@cython.final
cdef class LedgerTable:
    cdef readonly Py_ssize_t count
    cdef int _shift
    cdef Py_ssize_t _size
    cdef long long[::1] _keys
    cdef int[::1] _disks

    cdef int _make(self, int bits) except -1

    @cython.locals(unsigned="unsigned long long", at=Py_ssize_t)
    cdef Py_ssize_t _find(self, long long ledger) noexcept

    cpdef int get(self, long long ledger) noexcept

    @cython.locals(at=Py_ssize_t, before=int)
    cpdef int put(self, long long ledger, int disk) except? -2

    @cython.locals(keys="long long[::1]", disks="int[::1]", size=Py_ssize_t, old=Py_ssize_t, at=Py_ssize_t)
    cdef int _grow(self) except -1


@cython.final
cdef class DiskQueue:
    cdef object _more
    cdef readonly list waiting
    cdef unsigned char[::1] _slot
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t used
    cdef Py_ssize_t _segment
    cdef unsigned int _connection
    cdef unsigned int _frames

    @cython.locals(size=Py_ssize_t, needed=Py_ssize_t)
    cpdef bint put(
        self, unsigned int connection, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
    ) except? False

    cpdef bint put_closed(self, unsigned int connection) except? False

    cdef void _begin(self, unsigned int connection) noexcept

    cdef bint _next_slot(self, Py_ssize_t needed) except? False

    @cython.locals(used=Py_ssize_t)
    cpdef Py_ssize_t finish(self) noexcept


@cython.final
cdef class Routes:
    cdef readonly LedgerTable table
    cdef readonly list lanes
    cdef public LedgerTable over

    cpdef bint is_over(self, long long ledger) noexcept

    @cython.locals(disk=int)
    cdef DiskQueue lane(self, long long ledger)
