cimport cython

from bkbox.native cimport memory
from bkbox.storage.index.memtable cimport Memtable
from bkbox.storage.log.ledger_counts cimport LedgerCounts

cdef Py_ssize_t _HEADER_BYTES
cdef Py_ssize_t _BODY_BYTES_MAX
cdef unsigned char _MARK
cdef unsigned char _ENTRY
cdef unsigned char _SYNCED
cdef unsigned char _KIND_MAX
cdef Py_ssize_t _IDS_BYTES
cdef Py_ssize_t _BOUND_BYTES
cdef Py_ssize_t _SYNCED_BYTES


@cython.final
cdef class LogScan:
    cdef readonly Py_ssize_t entries
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t needed_bytes
    cdef readonly long long bound
    cdef readonly long long filled
    cdef readonly long long synced_ms
    cdef unsigned int _seed
    cdef unsigned int _segment
    cdef unsigned char[::1] _scratch

    @cython.locals(
        data="const unsigned char[::1]",
        scratch="unsigned char[::1]",
        size=Py_ssize_t,
        at=Py_ssize_t,
        seed="unsigned int",
        segment="unsigned int",
        counted="long long",
        count="long long",
        total="long long",
        kind="unsigned char",
        length=Py_ssize_t,
        crc="unsigned int",
        body=Py_ssize_t,
        ledger="long long",
        entry="long long",
    )
    cpdef Py_ssize_t walk(
        self,
        bytes chunk,
        Py_ssize_t base,
        Py_ssize_t start,
        Memtable recent,
        LedgerCounts counts,
        object other,
    ) except -1
