cimport cython

from bkbox.native cimport memory

cdef Py_ssize_t _HEADER_BYTES
cdef Py_ssize_t _FRAMES_AT
cdef Py_ssize_t _BYTES_AT
cdef Py_ssize_t _FILL_BYTES


@cython.final
cdef class ResponseWriter:
    cdef object _more
    cdef public object view
    cdef public unsigned char[::1] slot
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t limit
    cdef Py_ssize_t _segment
    cdef unsigned int _connection
    cdef unsigned int _frames
    cdef Py_ssize_t _marked_used
    cdef Py_ssize_t _marked_segment
    cdef unsigned int _marked_connection
    cdef unsigned int _marked_frames

    cdef void _mark_beginning(self) noexcept

    @cython.locals(at=Py_ssize_t)
    cpdef Py_ssize_t reserve(
        self, unsigned int connection, Py_ssize_t size, unsigned int frames
    ) except -1

    cdef void _begin(self, unsigned int connection) noexcept

    cdef int _next_slot(self, Py_ssize_t size) except -1

    @cython.locals(at=Py_ssize_t)
    cpdef put(self, unsigned int connection, const unsigned char[::1] data, unsigned int frames)

    cpdef Py_ssize_t space(self, unsigned int connection) noexcept

    cpdef void mark(self) noexcept

    cpdef void rewind(self) noexcept

    @cython.locals(used=Py_ssize_t)
    cpdef Py_ssize_t finish(self) noexcept
