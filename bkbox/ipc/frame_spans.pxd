cimport cython

from bkbox.native cimport memory

cdef Py_ssize_t _HEADER_BYTES
cdef Py_ssize_t _HEAD_BYTES


cpdef list segments(object slot, Py_ssize_t used)

@cython.locals(
    copied=bytearray,
    data="const unsigned char[::1]",
    target="unsigned char[::1]",
    at=Py_ssize_t,
    to=Py_ssize_t,
    end=Py_ssize_t,
    segment=Py_ssize_t,
    length=Py_ssize_t,
    size=Py_ssize_t,
)
cpdef bytes heads(object slot, Py_ssize_t used)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t)
cpdef locate(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t used, list found)
