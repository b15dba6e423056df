cimport cython

from bkbox.frontend.loop.request_sender cimport RequestSender
from bkbox.native.spin_poll cimport SpinPoll
from bkbox.frontend.loop.connection cimport SharedState, Connection

cdef int _SLOW_PATH_COOLDOWN_FACTOR
cdef int _FAST_TURNS


@cython.final
cdef class EventLoop:
    cdef readonly object poll
    cdef readonly SharedState common
    cdef readonly dict streams
    cdef dict _handlers
    cdef readonly list links
    cdef object _end
    cdef object _now_s
    cdef SpinPoll _spin
    cdef readonly int recent_fast_turns
    cdef double _throttled_until_s

    @cython.locals(common=SharedState, stream=Connection)
    cpdef turn(self, object wait_s)

    @cython.locals(common=SharedState, stream=Connection, throttle_s=double)
    cdef double _go_on_yielded(self, object wait_s) except -1

    @cython.locals(common=SharedState, stream=Connection, link=RequestSender)
    cdef _end_turn(self)

    @cython.locals(common=SharedState)
    cdef _share_next_turn(self)
