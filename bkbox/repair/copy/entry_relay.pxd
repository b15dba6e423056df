cimport cython

from bkbox.native cimport memory

cdef Py_ssize_t _PREFIX
cdef Py_ssize_t _V2_HEAD
cdef int _V2_ADD
cdef Py_ssize_t _KEY_BYTES
cdef Py_ssize_t _HEADER
cdef Py_ssize_t _CRC32C


@cython.locals(
    data="const unsigned char[::1]",
    end=Py_ssize_t,
    found="long long",
    at=Py_ssize_t,
    payload=Py_ssize_t,
    crc="unsigned int",
)
cpdef long long count_right(
    bytes body, Py_ssize_t start, long long ledger, long long first, long long count, Py_ssize_t digest_size
)

@cython.locals(
    data="const unsigned char[::1]",
    master_key="const unsigned char[::1]",
    places="long long[::1]",
    buffer="unsigned char[::1]",
    size=Py_ssize_t,
    at=Py_ssize_t,
    number=Py_ssize_t,
    entry_bytes=Py_ssize_t,
    begin=Py_ssize_t,
)
cpdef tuple add_frames(bytes body, Py_ssize_t start, Py_ssize_t count, bytes key, int flags)
