from libc.stdint cimport uint32_t

from bkbox.native cimport memory

cpdef uint32_t crc32c(const unsigned char[::1] data, uint32_t crc=*)
