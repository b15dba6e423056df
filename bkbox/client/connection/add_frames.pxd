cimport cython

from bkbox.native cimport memory

from bkbox.wire cimport v3_fast_path

cdef Py_ssize_t _PREFIX
cdef Py_ssize_t _V2_HEAD
cdef int _V2_ADD
cdef Py_ssize_t _KEY_BYTES
cdef Py_ssize_t _HEADER
cdef Py_ssize_t _CRC32C


@cython.final
cdef class AddFramer:
    cdef long long _ledger
    cdef const unsigned char[::1] _key
    cdef int _flags
    cdef Py_ssize_t _digest_size
    cdef object _digest
    cdef public object offsets

    @cython.locals(
        extra=Py_ssize_t,
        size=Py_ssize_t,
        at=Py_ssize_t,
        number=Py_ssize_t,
        payload=bytes,
        offsets="long long[::1]",
        buffer="unsigned char[::1]",
    )
    cpdef object v2(self, long long first, long long lac, long long length, list payloads)

    @cython.locals(
        extra=Py_ssize_t,
        size=Py_ssize_t,
        entry_bytes=Py_ssize_t,
        at=Py_ssize_t,
        number=Py_ssize_t,
        payload=bytes,
        offsets="long long[::1]",
        buffer="unsigned char[::1]",
    )
    cpdef object v3(
        self, unsigned long long txn, long long first, long long lac, long long length, list payloads
    )

    cdef object _new_offsets(self, Py_ssize_t count)

    @cython.locals(body=Py_ssize_t, data="const unsigned char[::1]", crc="unsigned int")
    cdef Py_ssize_t _put_entry(
        self,
        unsigned char[::1] buffer,
        Py_ssize_t at,
        long long entry,
        long long lac,
        long long length,
        bytes payload,
    ) except -1
