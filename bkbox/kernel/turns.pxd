cimport cython

from bkbox.kernel.batches cimport RequestEnd
from bkbox.kernel.patience cimport next_events
from bkbox.kernel.stream cimport Common, Stream


@cython.final
cdef class Turns:
    cdef readonly object poll
    cdef readonly Common common
    cdef readonly dict streams
    cdef dict _handlers
    cdef readonly list links
    cdef object _end

    @cython.locals(stream=Stream)
    cpdef turn(self, object wait_s)

    @cython.locals(common=Common, stream=Stream, link=RequestEnd)
    cdef _end_turn(self)
