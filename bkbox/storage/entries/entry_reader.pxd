cimport cython

from bkbox.native cimport memory
from bkbox.storage.index.memtable cimport EntryLocation

cdef int _BROKEN
cdef int _FETCHED
cdef int _COLD
cdef Py_ssize_t _RECORD_HEADER_BYTES
cdef unsigned char _RECORD_MARK
cdef unsigned char _RECORD_ENTRY
cdef Py_ssize_t _ENTRY_IDS_BYTES
cdef Py_ssize_t _TOGETHER_MAX
cdef Py_ssize_t _STAGE_BYTES
cdef Py_ssize_t _HOLE_BYTES


@cython.final
cdef class Fetch:
    cdef object _source
    cdef object _follower
    cdef public Py_ssize_t count
    cdef readonly long long fetched
    cdef public bint waited
    cdef unsigned char[::1] _stage
    cdef object _stage_view
    cdef Py_ssize_t _run_bytes
    cdef unsigned char[::1] _scratch
    cdef long long _seed_segment
    cdef unsigned int _seed
    cdef long long[::1] _ledger
    cdef long long[::1] _entry
    cdef long long[::1] _segment
    cdef long long[::1] _offset
    cdef long long[::1] _length
    cdef long long[::1] _at
    cdef long long[::1] _key
    cdef long long[::1] _order
    cdef long long[::1] _spare_order

    @cython.locals(index=Py_ssize_t)
    cpdef void add(self, long long ledger, long long entry, EntryLocation place, Py_ssize_t at) noexcept

    @cython.locals(done=int)
    cpdef int fetch(self, unsigned char[::1] slot, list cold=*) except -1

    cpdef bint is_cold(self, Py_ssize_t number) noexcept

    @cython.locals(start=Py_ssize_t, end=Py_ssize_t)
    cdef int _load(self, unsigned char[::1] buffer, list cold) except -1

    @cython.locals(index=Py_ssize_t, number=Py_ssize_t)
    cdef int _defer_run(self, Py_ssize_t start, Py_ssize_t end, list cold) except -1

    @cython.locals(
        index=Py_ssize_t,
        segment="long long",
        first="long long",
        offset="long long",
        record_end="long long",
        end=Py_ssize_t,
    )
    cdef Py_ssize_t _run_end(self, Py_ssize_t start) noexcept

    @cython.locals(
        index=Py_ssize_t, size=Py_ssize_t, segment="long long", offset="long long", stage=object
    )
    cdef bint _read_run(self, Py_ssize_t start, bint wait) except -1

    @cython.locals(index=Py_ssize_t, segment="long long", first="long long", number=Py_ssize_t)
    cdef bint _check_run(self, unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(
        stage="unsigned char[::1]",
        length=Py_ssize_t,
        to=Py_ssize_t,
        crc="unsigned int",
        body=Py_ssize_t,
    )
    cdef bint _copy(self, unsigned char[::1] buffer, Py_ssize_t index, Py_ssize_t at) noexcept

    @cython.locals(
        number=Py_ssize_t,
        index=Py_ssize_t,
        ledger="long long",
        segment="long long",
        begin="long long",
        first="long long",
        last="long long",
        entry="long long",
        reach="long long",
    )
    cdef int _report(self, Py_ssize_t start, Py_ssize_t end, bint waited) except -1

    @cython.locals(count=Py_ssize_t, width=Py_ssize_t, number=Py_ssize_t, start=Py_ssize_t)
    cdef void _sort(self) noexcept

    @cython.locals(one=Py_ssize_t, other=Py_ssize_t, to=Py_ssize_t)
    cdef void _merge(self, Py_ssize_t start, Py_ssize_t middle, Py_ssize_t end) noexcept


cdef long long[::1] _column()
