cimport cython

from bkbox.native cimport memory
from bkbox.bookie.response_writer cimport ResponseWriter
from bkbox.storage.entries.entry_reader cimport Fetch
from bkbox.storage.index.memtable cimport EntryLookup, EntryLocation
from bkbox.wire.v3_fast_path cimport put_read_head, put_read_tail, read_head_size, read_tail_size

cdef int _BROKEN
cdef int _FETCHED
cdef int _COLD
cdef Py_ssize_t _V2_HEAD_BYTES
cdef unsigned int _V2_READ
cdef Py_ssize_t _V2_BATCH_HEAD_BYTES
cdef unsigned int _V2_BATCH_READ
cdef Py_ssize_t _SIZE_BYTES
cdef Py_ssize_t _TOGETHER_MAX


@cython.final
cdef class ReadBatch:
    cdef EntryLookup _finder
    cdef Fetch _fetch
    cdef object _lac_of
    cdef object _slow
    cdef EntryLocation _place
    cdef public list ranges
    cdef dict _lacs
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _used
    cdef Py_ssize_t _begin
    cdef long long[::1] _connection
    cdef long long[::1] _version
    cdef unsigned long long[::1] _txn
    cdef long long[::1] _ledger
    cdef long long[::1] _entry

    @cython.locals(capacity=Py_ssize_t)
    cdef _grow(self)

    cpdef int add_v2(self, long long connection, int version, long long ledger, long long entry) except -1

    cpdef int add_v3(
        self, long long connection, unsigned long long txn, long long ledger, long long entry
    ) except -1

    @cython.locals(index=Py_ssize_t)
    cdef int _add(
        self,
        long long connection,
        int version,
        unsigned long long txn,
        long long ledger,
        long long entry,
    ) except -1

    cpdef clear(self)

    @cython.locals(
        fetch=Fetch, index=Py_ssize_t, connection="long long", size=Py_ssize_t, at=Py_ssize_t
    )
    cpdef serve(self, ResponseWriter out, ReadBatch cold=*)

    cdef bint _find(self, long long ledger, long long entry) except -1

    cdef _slow_response(self, Py_ssize_t index)

    cdef long long _lac(self, long long ledger) except *

    @cython.locals(length=Py_ssize_t, ledger="long long", lac="long long", head=Py_ssize_t)
    cdef Py_ssize_t _response_size(self, Py_ssize_t index) except -1

    @cython.locals(
        buffer="unsigned char[::1]",
        length=Py_ssize_t,
        ledger="long long",
        entry="long long",
        lac="long long",
    )
    cdef Py_ssize_t _put_head(self, ResponseWriter out, Py_ssize_t index, Py_ssize_t at) except -1

    @cython.locals(index=Py_ssize_t, done=int, end_here=Py_ssize_t)
    cdef int _fill(self, ResponseWriter out, Py_ssize_t end, ReadBatch cold) except -1

    @cython.locals(
        fetch=Fetch,
        number=Py_ssize_t,
        remaining=Py_ssize_t,
        index=Py_ssize_t,
        connection="long long",
        size=Py_ssize_t,
        at=Py_ssize_t,
    )
    cdef Py_ssize_t _defer_cold(self, ResponseWriter out, Py_ssize_t end, ReadBatch cold) except -1

    cdef void _move(self, Py_ssize_t index, Py_ssize_t to) noexcept

    @cython.locals(
        fetch=Fetch,
        count="long long",
        size="long long",
        with_it="long long",
        at=Py_ssize_t,
        number="long long",
        entry="long long",
        done=int,
        any_cold=bint,
    )
    cpdef int serve_batch(
        self,
        ResponseWriter out,
        long long connection,
        long long ledger,
        long long first,
        long long request_id,
        long long count_max,
        long long size_max,
        list cold=*,
    ) except -1


@cython.locals(wide="long long[::1]")
cdef long long[::1] _wider(long long[::1] column, Py_ssize_t capacity)

@cython.locals(wide="unsigned long long[::1]")
cdef unsigned long long[::1] _wider_unsigned(unsigned long long[::1] column, Py_ssize_t capacity)
