from libc.stdint cimport uint32_t

from bkbox.kernel cimport octets

cpdef uint32_t crc32c(const unsigned char[::1] data, uint32_t crc=*)
