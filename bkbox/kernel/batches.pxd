cimport cython

from bkbox.kernel cimport octets
from bkbox.kernel.answers cimport AnswerWriter
from bkbox.kernel.routes cimport Lane
from bkbox.kernel.stream cimport Stream, deliver

cdef int _BATCH
cdef int _ANSWER
cdef int _POLLED
cdef int _RELEASE
cdef int _NO_SLOT
cdef Py_ssize_t _BYTES
cdef Py_ssize_t _INBOX_BYTES
cdef Py_ssize_t _HEADER_BYTES
cdef Py_ssize_t _HEAD_BYTES
cdef object _stopwatch
cdef int _DONT_WAIT


@cython.final
cdef class Post:
    cdef readonly object sock
    cdef unsigned char[::1] _inbox
    cdef object _inbox_view
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


cdef class RequestEnd:
    cdef readonly Lane lane
    cdef public bint closed
    cdef readonly bint writable
    cdef public bint watches_done
    cdef readonly Post _post
    cdef dict _streams
    cdef list _requests
    cdef list _answers
    cdef unsigned int _free
    cdef unsigned int _sent
    cdef long long[::1] _used
    cdef int _slot
    cdef long long _opened_us
    cdef unsigned int _read
    cdef unsigned int _released

    @cython.locals(slot=Py_ssize_t)
    cpdef list unanswered(self)

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


@cython.final
cdef class Group:
    cdef readonly unsigned int number
    cdef readonly unsigned int slots
    cdef readonly object area
    cdef readonly long long opened_us
    cdef readonly list segments


cdef class AnswerEnd:
    cdef readonly Post _post
    cdef const unsigned char[::1] _octets
    cdef object _requests
    cdef Py_ssize_t _slot_bytes
    cdef list _answers
    cdef unsigned int _free
    cdef Group _next
    cdef unsigned int _last
    cdef AnswerWriter _writer
    cdef int _kind
    cdef unsigned int _writing
    cdef int _slot

    cpdef take(self)

    @cython.locals(
        size=Py_ssize_t,
        at=Py_ssize_t,
        start=Py_ssize_t,
        inbox="unsigned char[::1]",
        slot=int,
        group=Group,
    )
    cdef _receive(self, int flags)

    cpdef AnswerWriter answers(self, Group group)
    cpdef AnswerWriter polled(self)
    cpdef flush(self)
    cdef _write_for(self, int kind, unsigned int group)
    cpdef _more(self, Py_ssize_t used)
    cdef _send_open(self, unsigned int mask, bint flag)

    @cython.locals(slot=int)
    cdef _send_slot(self, Py_ssize_t used, unsigned int mask, bint flag)

    @cython.locals(slot=int)
    cpdef int take_slot(self) except -1

    cpdef send(
        self, int kind, bint flag, unsigned int slot, unsigned int used, unsigned int mask, unsigned int group
    )


cpdef list segments(object slot, Py_ssize_t used)

@cython.locals(
    kept=bytearray,
    data="const unsigned char[::1]",
    room="unsigned char[::1]",
    at=Py_ssize_t,
    to=Py_ssize_t,
    end=Py_ssize_t,
    segment=Py_ssize_t,
    length=Py_ssize_t,
    size=Py_ssize_t,
)
cpdef bytes heads(object slot, Py_ssize_t used)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t)
cdef _locate(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t used, list found)

cdef int _lowest(unsigned int mask) noexcept

cdef int _count(unsigned int mask) noexcept
