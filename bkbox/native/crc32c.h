/* CRC32C (Castagnoli, reflected 0x82f63b78) for the compiled kernel: the processor's instruction where it has one
 * (SSE 4.2, or ARMv8 where the compiler is told that it is there), eight tables where it has none. */

#ifndef BKBOX_CRC32C_H
#define BKBOX_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define BKBOX_CRC_TARGET __attribute__((target("sse4.2")))
#define BKBOX_CRC_BYTE(crc, value) _mm_crc32_u8((crc), (value))
#define BKBOX_CRC_WORD(crc, value) ((uint32_t)_mm_crc32_u64((crc), (value)))
#define BKBOX_CRC_IS_THERE() __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define BKBOX_CRC_TARGET
#define BKBOX_CRC_BYTE(crc, value) __crc32cb((crc), (value))
#define BKBOX_CRC_WORD(crc, value) __crc32cd((crc), (value))
#define BKBOX_CRC_IS_THERE() 1
#endif

static uint32_t bkbox_crc_tables[8][256];
static int bkbox_crc_has_instruction;

__attribute__((constructor)) static void bkbox_crc_prepare(void)
{
    for (uint32_t octet = 0; octet < 256; octet++) {
        uint32_t crc = octet;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        bkbox_crc_tables[0][octet] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int octet = 0; octet < 256; octet++) {
            uint32_t before = bkbox_crc_tables[table - 1][octet];
            bkbox_crc_tables[table][octet] = before >> 8 ^ bkbox_crc_tables[0][before & 0xff];
        }
#ifdef BKBOX_CRC_TARGET
    bkbox_crc_has_instruction = BKBOX_CRC_IS_THERE();
#endif
}

/* Both walk over the data once; `room` may be NULL, where nothing is copied. `crc` is the inner state. */

static inline uint32_t bkbox_crc_by_table(uint32_t crc, unsigned char *room, const unsigned char *data, size_t size)
{
    if (room != NULL)
        memcpy(room, data, size);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = bkbox_crc_tables[7][word & 0xff] ^ bkbox_crc_tables[6][word >> 8 & 0xff] ^
              bkbox_crc_tables[5][word >> 16 & 0xff] ^ bkbox_crc_tables[4][word >> 24 & 0xff] ^
              bkbox_crc_tables[3][word >> 32 & 0xff] ^ bkbox_crc_tables[2][word >> 40 & 0xff] ^
              bkbox_crc_tables[1][word >> 48 & 0xff] ^ bkbox_crc_tables[0][word >> 56];
    }
#endif
    for (; size > 0; size--, data++)
        crc = crc >> 8 ^ bkbox_crc_tables[0][(crc ^ *data) & 0xff];
    return crc;
}

#ifdef BKBOX_CRC_TARGET
BKBOX_CRC_TARGET
static inline uint32_t
bkbox_crc_by_instruction(uint32_t crc, unsigned char *room, const unsigned char *data, size_t size)
{
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = BKBOX_CRC_WORD(crc, word);
        if (room != NULL) {
            memcpy(room, &word, 8);
            room += 8;
        }
    }
    for (; size > 0; size--, data++) {
        crc = BKBOX_CRC_BYTE(crc, *data);
        if (room != NULL)
            *room++ = *data;
    }
    return crc;
}
#endif

static inline uint32_t
bkbox_copy_crc32c(uint32_t crc, unsigned char *room, const unsigned char *data, size_t size)
{
#ifdef BKBOX_CRC_TARGET
    if (bkbox_crc_has_instruction)
        return ~bkbox_crc_by_instruction(~crc, room, data, size);
#endif
    return ~bkbox_crc_by_table(~crc, room, data, size);
}

static inline uint32_t bkbox_crc32c(uint32_t crc, const unsigned char *data, size_t size)
{
    return bkbox_copy_crc32c(crc, NULL, data, size);
}

#endif
