cimport cython

from bkbox.native cimport memory

cdef int _VERSION
cdef Py_ssize_t _ENTRIES_MAX
cdef Py_ssize_t _HEAD_BYTES
cdef Py_ssize_t _RECORD_HEADER_BYTES
cdef int _IDS
cdef int _OFFSETS
cdef int _LENGTHS
cdef unsigned int _LENGTH_MAX
cdef long long _REACH_MAX
cdef unsigned int _OFFSET_HIGH_MAX
cdef long long _ID_MAX


@cython.final
cdef class Extent:
    cdef readonly long long ledger
    cdef readonly long long first
    cdef readonly long long last
    cdef readonly long long offset
    cdef readonly unsigned int segment
    cdef readonly Py_ssize_t count
    cdef readonly bytes value
    cdef const unsigned char *_data
    cdef int _columns

    @cython.locals(at=Py_ssize_t, index=Py_ssize_t, longest="unsigned int")
    cdef bint _is_plausible(self) noexcept

    cdef unsigned int _id(self, Py_ssize_t index) noexcept

    @cython.locals(distance="long long", low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t index_of(self, long long entry) except -2

    @cython.locals(columns=int, at=Py_ssize_t, offset="long long", number=Py_ssize_t)
    cpdef Py_ssize_t offset_of(self, Py_ssize_t index) except -1

    @cython.locals(columns=int, at=Py_ssize_t)
    cpdef Py_ssize_t length_of(self, Py_ssize_t index) except -1

    @cython.locals(offset="long long", index=Py_ssize_t, length=Py_ssize_t)
    cpdef list entries(self)

    @cython.locals(index=Py_ssize_t, start="long long", last="long long", entry="long long")
    cpdef list ranges(self)


@cython.locals(high="unsigned int")
cdef unsigned int _u32(const unsigned char *data, Py_ssize_t at) noexcept


@cython.final
cdef class ExtentEncoder:
    cdef readonly Py_ssize_t count
    cdef int _columns
    cdef long long _segment
    cdef long long _offset
    cdef unsigned int _length
    cdef long long _first
    cdef long long _last
    cdef long long _end
    cdef unsigned int[::1] _ids
    cdef unsigned int[::1] _offsets
    cdef unsigned int[::1] _lengths

    @cython.locals(index=Py_ssize_t)
    cpdef bint add(self, long long entry, long long segment, long long offset, long long length) except -1

    @cython.locals(columns=int, wide=int, view="unsigned char[::1]", at=Py_ssize_t, index=Py_ssize_t)
    cpdef Extent end(self, long long ledger)
