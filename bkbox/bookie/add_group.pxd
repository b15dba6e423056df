cimport cython

from bkbox.native cimport memory
from bkbox.bookie.response_writer cimport ResponseWriter
from bkbox.storage.index.memtable cimport Memtable
from bkbox.storage.log.ledger_counts cimport LedgerCounts
from bkbox.wire.v3_fast_path cimport add_response_size, put_add_response

cdef unsigned long long NO_TXN
cdef unsigned long long NO_RESPONSE
cdef Py_ssize_t _RECORD_HEADER_BYTES
cdef int _RECORD_MARK
cdef int _RECORD_ENTRY
cdef Py_ssize_t _V2_RESPONSE_BYTES
cdef unsigned int _V2_ADD
cdef Py_ssize_t _TOGETHER_MAX
cdef Py_ssize_t _CAPACITY


@cython.final
cdef class AdmittedLedger:
    cdef readonly long long ledger
    cdef long long key_start
    cdef long long key_middle
    cdef int key_end
    cdef readonly long long lac
    cdef readonly Py_ssize_t count
    cdef readonly long long bytes
    cdef Py_ssize_t first
    cdef Py_ssize_t last


@cython.final
cdef class AddBatch:
    cdef readonly list groups
    cdef readonly Py_ssize_t entries
    cdef readonly Py_ssize_t record_bytes
    cdef readonly Py_ssize_t recovered
    cdef const unsigned char[::1] _data
    cdef object _own
    cdef Py_ssize_t _used
    cdef Py_ssize_t _capacity
    cdef long long[::1] _at
    cdef long long[::1] _size
    cdef long long[::1] _after
    cdef long long[::1] _connection
    cdef unsigned long long[::1] _txn
    cdef long long[::1] _offset

    cpdef begin(self, object area)

    @cython.locals(group=AdmittedLedger)
    cpdef ungroup(self)

    @cython.locals(capacity=Py_ssize_t)
    cdef _grow(self)

    cpdef add_from_area(self, AdmittedLedger group, long long connection, unsigned long long txn, Py_ssize_t at, Py_ssize_t size)

    @cython.locals(at=Py_ssize_t)
    cpdef put(self, AdmittedLedger group, object entry)

    @cython.locals(index=Py_ssize_t)
    cdef _link(
        self, AdmittedLedger group, long long connection, unsigned long long txn, Py_ssize_t at, Py_ssize_t size, long long lac
    )

    @cython.locals(index=Py_ssize_t)
    cpdef mark(self, long long connection, unsigned long long number)

    @cython.locals(
        out="unsigned char[::1]",
        area="const unsigned char[::1]",
        own="const unsigned char[::1]",
        group=AdmittedLedger,
        index=Py_ssize_t,
        source="long long",
        size=Py_ssize_t,
        body=Py_ssize_t,
        crc="unsigned int",
    )
    cpdef Py_ssize_t pack(
        self, object buffer, Py_ssize_t at, unsigned int seed, unsigned int segment, long long offset
    ) except -1

    @cython.locals(group=AdmittedLedger, index=Py_ssize_t)
    cpdef index(self, Memtable recent, LedgerCounts counts, long long segment)

    @cython.locals(source="long long")
    cpdef Py_ssize_t entry_id(self, Py_ssize_t index) except -2

    @cython.locals(source="long long")
    cpdef Py_ssize_t ledger_id(self, Py_ssize_t index) except -2

    @cython.locals(
        index=Py_ssize_t,
        end=Py_ssize_t,
        at=Py_ssize_t,
        size=Py_ssize_t,
        connection="long long",
        txn="unsigned long long",
        ledger="long long",
        entry="long long",
        buffer="unsigned char[::1]",
    )
    cpdef respond(self, ResponseWriter out, int code_v2, int code_v3, object marked)
