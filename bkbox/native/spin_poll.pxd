cdef long long _SPIN_NS
cdef object _now_ns
cdef object _let_others

cpdef list poll_events(object poll, object wait_s)
