# The compiled form of memory.py: the same functions, inline.

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

cdef extern from *:
    uint16_t __builtin_bswap16(uint16_t) noexcept nogil
    uint32_t __builtin_bswap32(uint32_t) noexcept nogil
    uint64_t __builtin_bswap64(uint64_t) noexcept nogil

cdef extern from "crc32c.h":
    uint32_t bkbox_crc32c(uint32_t crc, const unsigned char *data, size_t size) noexcept nogil
    uint32_t bkbox_copy_crc32c(
        uint32_t crc, unsigned char *buffer, const unsigned char *data, size_t size
    ) noexcept nogil


cdef inline uint16_t u16(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, &data[at], 2)
    return __builtin_bswap16(value)


cdef inline uint32_t u32(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, &data[at], 4)
    return __builtin_bswap32(value)


cdef inline int32_t i32(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    return <int32_t>u32(data, at)


cdef inline int64_t i64(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, &data[at], 8)
    return <int64_t>__builtin_bswap64(value)


cdef inline void put_u16(unsigned char[::1] buffer, Py_ssize_t at, uint16_t value) noexcept nogil:
    value = __builtin_bswap16(value)
    memcpy(&buffer[at], &value, 2)


cdef inline void put_u32(unsigned char[::1] buffer, Py_ssize_t at, uint32_t value) noexcept nogil:
    value = __builtin_bswap32(value)
    memcpy(&buffer[at], &value, 4)


cdef inline void put_i32(unsigned char[::1] buffer, Py_ssize_t at, int32_t value) noexcept nogil:
    put_u32(buffer, at, <uint32_t>value)


cdef inline void put_i64(unsigned char[::1] buffer, Py_ssize_t at, int64_t value) noexcept nogil:
    cdef uint64_t swapped = __builtin_bswap64(<uint64_t>value)
    memcpy(&buffer[at], &swapped, 8)


cdef inline void copy(
    unsigned char[::1] buffer, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
) noexcept nogil:
    if end > start:
        memcpy(&buffer[at], &data[start], end - start)


cdef inline void move(unsigned char[::1] buffer, Py_ssize_t at, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    if end > start:
        memmove(&buffer[at], &buffer[start], end - start)


cdef inline bint same(
    const unsigned char[::1] one, Py_ssize_t at, const unsigned char[::1] other, Py_ssize_t start, Py_ssize_t end
) noexcept nogil:
    return end <= start or memcmp(&one[at], &other[start], end - start) == 0


cdef inline uint32_t crc32c(
    const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end, uint32_t crc
) noexcept nogil:
    return bkbox_crc32c(crc, &data[start], end - start) if end > start else crc


cdef inline uint32_t copy_crc32c(
    unsigned char[::1] buffer,
    Py_ssize_t at,
    const unsigned char[::1] data,
    Py_ssize_t start,
    Py_ssize_t end,
    uint32_t crc,
) noexcept nogil:
    return bkbox_copy_crc32c(crc, &buffer[at], &data[start], end - start) if end > start else crc
