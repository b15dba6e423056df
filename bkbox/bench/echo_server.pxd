cimport cython

from bkbox.native cimport memory

cdef Py_ssize_t _ADD_RESPONSE_BYTES
cdef int _OP_ADD


@cython.final
cdef class Sink:
    cdef object link
    cdef int file
    cdef unsigned char[::1] requests
    cdef object requests_view
    cdef Py_ssize_t limit
    cdef Py_ssize_t filled
    cdef Py_ssize_t read_response_bytes
    cdef Py_ssize_t responses_limit
    cdef unsigned char[::1] responses
    cdef object responses_view
    cdef Py_ssize_t start
    cdef Py_ssize_t end

    @cython.locals(size=Py_ssize_t)
    cpdef bint receive(self) except? False

    @cython.locals(done=Py_ssize_t)
    cpdef bint store(self) except? False

    cpdef bint send(self) except? False

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t _process(self) except -1
