cimport cython

from bkbox.native cimport memory
from bkbox.bookie.add_group cimport AddBatch, AdmittedLedger
from bkbox.bookie.read_group cimport ReadBatch
from bkbox.wire.v3_fast_path cimport FastRequestV3

cdef Py_ssize_t _PREFIX_BYTES
cdef unsigned char _V3_FIRST_BYTE_MIN
cdef unsigned int _V2_ADD
cdef unsigned int _V2_READ
cdef unsigned int _V2_RECOVERY_ADD
cdef Py_ssize_t _V2_KEY_AT
cdef Py_ssize_t _V2_ENTRY_AT
cdef Py_ssize_t _V2_READ_BYTES
cdef Py_ssize_t _ENTRY_BYTES_MIN
cdef unsigned long long _NO_TXN
cdef unsigned long long _NO_RESPONSE
cdef int _FAST_ADD
cdef int _FAST_READ


@cython.final
cdef class FrameDispatcher:
    cdef readonly dict hot
    cdef readonly dict filled
    cdef FastRequestV3 _fast_request

    @cython.locals(
        data="const unsigned char[::1]",
        request=FastRequestV3,
        body=Py_ssize_t,
        head="unsigned int",
        kind=int,
    )
    cpdef dispatch(
        self,
        object area,
        Py_ssize_t start,
        Py_ssize_t end,
        long long connection,
        AddBatch adds,
        ReadBatch reads,
        object slow,
    )

    @cython.locals(group=AdmittedLedger)
    cdef bint _add(
        self,
        const unsigned char[::1] data,
        AddBatch adds,
        long long connection,
        unsigned long long txn,
        Py_ssize_t key_at,
        Py_ssize_t entry_at,
        Py_ssize_t entry_end,
        bint recovers,
    ) except -1
