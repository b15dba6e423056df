cimport cython


@cython.final
cdef class _Count:
    cdef long long entries
    cdef long long size


@cython.final
cdef class LedgerCounts:
    cdef dict _counts

    @cython.locals(found=_Count)
    cpdef count(self, long long ledger, long long entries, long long size)

    @cython.locals(found=_Count)
    cpdef list items(self)

    cpdef clear(self)
