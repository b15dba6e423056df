cimport cython

from bkbox.native cimport memory

cdef Py_ssize_t _BYTES
cdef Py_ssize_t _INBOX_BYTES


@cython.final
cdef class LinkSocket:
    cdef readonly object sock
    cdef unsigned char[::1] inbox
    cdef object _view
    cdef bytearray _outgoing

    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t receive(self, int flags) except -1

    @cython.locals(outgoing="unsigned char[::1]")
    cdef send(
        self,
        unsigned int kind,
        unsigned int flag,
        unsigned int slot,
        unsigned int used,
        unsigned int mask,
        unsigned int group,
        long long opened_us,
    )


cpdef int lowest_bit(unsigned int mask) noexcept
