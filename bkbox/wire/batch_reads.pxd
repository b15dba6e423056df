cimport cython

from bkbox.native cimport memory, objects

cdef Py_ssize_t _PREFIX
cdef Py_ssize_t _HEADER
cdef Py_ssize_t _CRC32C
cdef Py_ssize_t _PAYLOAD


@cython.locals(data="const unsigned char[::1]", end=Py_ssize_t, at=Py_ssize_t, size=Py_ssize_t)
cpdef check_sizes(bytes body, Py_ssize_t start)

@cython.locals(
    data="const unsigned char[::1]",
    entries=list,
    fields=tuple,
    end=Py_ssize_t,
    entry="long long",
    at=Py_ssize_t,
    payload=Py_ssize_t,
    crc="unsigned int",
    lac="long long",
    length="long long",
)
cpdef list verified(
    bytes body,
    Py_ssize_t start,
    long long ledger,
    long long first,
    long long count,
    Py_ssize_t digest_size,
    object kind,
)


@cython.locals(payload=bytes, largest=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t largest_payload(list entries)
