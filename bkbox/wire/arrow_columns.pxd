cimport cython

from bkbox.native cimport memory

cdef Py_ssize_t _PREFIX
cdef Py_ssize_t _HEADER
cdef Py_ssize_t _CRC32C


@cython.locals(
    data="const unsigned char[::1]",
    end=Py_ssize_t,
    before=Py_ssize_t,
    rows=Py_ssize_t,
    size=Py_ssize_t,
    at=Py_ssize_t,
    entry_bytes=Py_ssize_t,
    id_at="long long[::1]",
    lac_at="long long[::1]",
    length_at="long long[::1]",
    offset_at="int[::1]",
    view="unsigned char[::1]",
    number=Py_ssize_t,
    put=Py_ssize_t,
    payload=Py_ssize_t,
    crc="unsigned int",
)
cpdef tuple columns(
    bytes body, Py_ssize_t start, long long ledger, long long first, long long count, Py_ssize_t digest_size
)
