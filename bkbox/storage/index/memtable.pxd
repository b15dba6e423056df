cimport cython

from bkbox.storage.index.extents cimport Extent, ExtentEncoder

cdef int _FOUND
cdef int _MISSING
cdef int _VOID
cdef int _FIRST_ROWS
cdef int _PAGE_ROWS
cdef int _PAGE_SHIFT
cdef Py_ssize_t _RUN_BYTES


@cython.final
cdef class EntryLocation:
    cdef public long long segment
    cdef public long long offset
    cdef public unsigned int length


@cython.final
cdef class _Ledger:
    cdef long long first
    cdef long long last
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t head
    cdef list pages
    cdef Py_ssize_t tail
    cdef int free_rows
    cdef bint void
    cdef readonly dict odd


@cython.final
cdef class Memtable:
    cdef readonly Py_ssize_t entries
    cdef dict _ledgers
    cdef Py_ssize_t _odd
    cdef Py_ssize_t _voids
    cdef Py_ssize_t _rows
    cdef Py_ssize_t _capacity
    cdef long long _current_id
    cdef _Ledger _current
    cdef long long[::1] _ids
    cdef long long[::1] _offsets
    cdef unsigned int[::1] _lengths
    cdef unsigned int[::1] _segments

    cpdef clear(self)

    @cython.locals(found=_Ledger, row=Py_ssize_t)
    cpdef put(
        self, long long ledger, long long entry, long long segment, long long offset, long long length
    )

    @cython.locals(found=_Ledger)
    cpdef forget(self, long long ledger)

    @cython.locals(found=_Ledger)
    cdef _enter(self, long long ledger)

    @cython.locals(rows=int, row=Py_ssize_t)
    cdef Py_ssize_t _new_row(self, _Ledger found) except -1

    @cython.locals(capacity=Py_ssize_t)
    cdef _grow(self)

    cpdef bint find(self, long long ledger, long long entry, EntryLocation place) except -1

    @cython.locals(found=_Ledger, row=Py_ssize_t)
    cpdef int look_up(self, long long ledger, long long entry, EntryLocation place) except -2

    @cython.locals(found=_Ledger)
    cpdef bint forgets(self, long long ledger) except -1

    @cython.locals(found=_Ledger)
    cpdef Py_ssize_t last(self, long long ledger) except? -1

    @cython.locals(page=Py_ssize_t)
    cdef Py_ssize_t _at(self, _Ledger found, Py_ssize_t number) except -1

    @cython.locals(number=Py_ssize_t)
    cdef Py_ssize_t _row_of(self, _Ledger found, long long entry) except -2

    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t _number_of(self, _Ledger found, long long entry) except -1

    cpdef list ledgers(self)

    cpdef list forgotten(self)

    @cython.locals(row=Py_ssize_t)
    cdef Py_ssize_t _encode(
        self, ExtentEncoder encoder, _Ledger found, Py_ssize_t number, Py_ssize_t end
    ) except -1


@cython.final
cdef class EntryLookup:
    cdef public Memtable active
    cdef public Memtable frozen
    cdef object _load
    cdef dict _runs
    cdef Py_ssize_t _bytes
    cdef Py_ssize_t _bytes_max

    @cython.locals(outcome=int)
    cpdef bint find(self, long long ledger, long long entry, EntryLocation place) except -1

    @cython.locals(runs=list, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, run=Extent, loaded=Extent)
    cdef bint _find_stored(self, long long ledger, long long entry, EntryLocation place) except -1

    @cython.locals(runs=list)
    cdef _keep(self, Extent run, Py_ssize_t at)

    @cython.locals(runs=list, run=Extent)
    cpdef drop(self, long long ledger)

    cpdef drop_all(self)


@cython.locals(index=Py_ssize_t)
cdef bint _find_in(Extent run, long long entry, EntryLocation place) except -1
