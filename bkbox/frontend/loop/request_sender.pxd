cimport cython

from bkbox.frontend.loop.connection cimport Connection, deliver
from bkbox.frontend.loop.routing cimport DiskQueue
from bkbox.ipc.frame_spans cimport segments
from bkbox.ipc.link_socket cimport LinkSocket, lowest_bit
from bkbox.native cimport memory

cdef int _BATCH
cdef int _RESPONSES
cdef int _RELEASE
cdef int _NO_SLOT
cdef Py_ssize_t _BYTES
cdef object _stopwatch


cdef class RequestSender:
    cdef readonly DiskQueue lane
    cdef public bint closed
    cdef readonly bint writable
    cdef public bint watches_done
    cdef readonly LinkSocket _socket
    cdef dict _streams
    cdef list _requests
    cdef list _responses
    cdef unsigned int _free
    cdef unsigned int _sent
    cdef long long[::1] _used
    cdef int _slot
    cdef long long _opened_us
    cdef unsigned int _read
    cdef unsigned int _released

    @cython.locals(slot=Py_ssize_t)
    cpdef list pending_requests(self)

    cpdef _next_slot(self)

    @cython.locals(slot=int, used=Py_ssize_t, released="unsigned int")
    cdef _send_batch(self)

    cdef _send(self, unsigned int kind, unsigned int slot, unsigned int used, unsigned int mask)

    cpdef hand_over(self)

    @cython.locals(released="unsigned int")
    cdef end_turn(self)

    @cython.locals(
        size=Py_ssize_t,
        at=Py_ssize_t,
        inbox="unsigned char[::1]",
        kind=int,
        flag=int,
        slot=int,
        used=Py_ssize_t,
        mask="unsigned int",
        group="unsigned int",
    )
    cpdef receive(self)

    cdef _done(self, unsigned int mask, unsigned int group, int flag)

    cpdef go_on(self)


cdef int _count(unsigned int mask) noexcept
