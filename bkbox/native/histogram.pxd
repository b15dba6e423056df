# The compiled form's types of histogram.py.

cimport cython


@cython.final
cdef class Histogram:
    cdef long long[::1] counts
    cdef readonly long long count
    cdef readonly long long total
    cdef readonly long long max

    @cython.locals(base=long)
    cpdef void record(self, long long value, long long times=*) noexcept

    @cython.locals(bucket=Py_ssize_t)
    cpdef void merge(self, Histogram other) noexcept
