cdef long long _SPIN_NS
cdef int _SPINS_IN_VAIN
cdef int _SPIN_EVERY
cdef object _now_ns

cdef class SpinPoll:
    cdef object _poll
    cdef object _let_others
    cdef int _in_vain
    cdef unsigned int _waits

    cpdef list events(self, object wait_s)
