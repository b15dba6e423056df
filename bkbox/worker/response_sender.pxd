cimport cython

from bkbox.bookie.response_writer cimport ResponseWriter
from bkbox.ipc.frame_spans cimport locate
from bkbox.ipc.link_socket cimport LinkSocket, lowest_bit
from bkbox.native cimport memory

cdef int _BATCH
cdef int _RESPONSES
cdef int _POLLED
cdef int _NO_SLOT
cdef Py_ssize_t _BYTES
cdef int _DONT_WAIT


@cython.final
cdef class RequestGroup:
    cdef readonly unsigned int number
    cdef readonly unsigned int slots
    cdef readonly object area
    cdef readonly long long opened_us
    cdef readonly list segments


cdef class ResponseSender:
    cdef readonly LinkSocket _socket
    cdef const unsigned char[::1] _octets
    cdef object _requests
    cdef Py_ssize_t _slot_bytes
    cdef list _responses
    cdef unsigned int _free
    cdef RequestGroup _next
    cdef unsigned int _last
    cdef ResponseWriter _writer
    cdef int _kind
    cdef unsigned int _writing
    cdef int _slot
    cdef readonly bint is_stuck

    cpdef pop_group(self)

    @cython.locals(
        size=Py_ssize_t,
        at=Py_ssize_t,
        start=Py_ssize_t,
        inbox="unsigned char[::1]",
        slot=int,
        group=RequestGroup,
    )
    cdef _receive(self, int flags)

    cpdef ResponseWriter responses(self, RequestGroup group)
    cpdef ResponseWriter poll_responses(self)
    cpdef flush(self)
    cdef _write_for(self, int kind, unsigned int group)
    cpdef _more(self, Py_ssize_t used)
    cdef _send_open(self, unsigned int mask, bint flag)

    @cython.locals(slot=int)
    cdef _send_slot(self, Py_ssize_t used, unsigned int mask, bint flag)

    @cython.locals(slot=int)
    cpdef int acquire_slot(self) except -1

    cpdef send(
        self, int kind, bint flag, unsigned int slot, unsigned int used, unsigned int mask, unsigned int group
    )
