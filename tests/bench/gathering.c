/* Two ways from entries that lie apart in a slot to the log, and what each takes per entry: copy them together, with the
   checksum in the same pass, and one pwrite; or the checksum alone, and one pwritev that gathers headers and entries
   from where they are. Called by gathering.py with the bytes of an entry and a file to write to. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ENTRIES = 512, HEAD = 16, FRAME_HEAD = 28, ROUNDS = 300, PLACES = 64, REPEATS = 5 };

static double seconds(void) {
    struct timespec found;
    clock_gettime(CLOCK_MONOTONIC, &found);
    return found.tv_sec + found.tv_nsec * 1e-9;
}

static uint32_t checksum(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t value = crc, word;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        value = _mm_crc32_u64(value, word);
    }
    while (size--) value = _mm_crc32_u8(value, *data++);
    return value;
}

static uint32_t copy_checksum(uint32_t crc, unsigned char *to, const unsigned char *data, size_t size) {
    uint64_t value = crc, word;
    for (; size >= 8; size -= 8, data += 8, to += 8) {
        memcpy(&word, data, 8);
        memcpy(to, &word, 8);
        value = _mm_crc32_u64(value, word);
    }
    while (size--) value = _mm_crc32_u8(value, *to++ = *data++);
    return value;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t size = strtoul(argv[1], NULL, 10), frame = FRAME_HEAD + size, record = HEAD + size;
    unsigned char *slot = malloc(ENTRIES * frame), *room = malloc(ENTRIES * record), *heads = malloc(ENTRIES * HEAD);
    struct iovec *parts = malloc(2 * ENTRIES * sizeof *parts);
    memset(slot, 7, ENTRIES * frame);
    memset(room, 1, ENTRIES * record);
    memset(heads, 1, ENTRIES * HEAD);
    int file = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0) return 1;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double taken[2];
        for (int gathers = 0; gathers < 2; gathers++) {
            double begin = seconds();
            for (int round = 0; round < ROUNDS; round++) {
                off_t at = (off_t)(round % PLACES) * ENTRIES * record;
                ssize_t written;
                for (int i = 0; i < ENTRIES; i++) {
                    const unsigned char *entry = slot + i * frame + FRAME_HEAD;
                    unsigned char *head = gathers ? heads + i * HEAD : room + i * record;
                    uint32_t crc = checksum(i, head + 4, HEAD - 6);
                    crc = gathers ? checksum(crc, entry, size) : copy_checksum(crc, head + HEAD, entry, size);
                    memcpy(head, &crc, 4);
                    parts[2 * i] = (struct iovec){head, HEAD};
                    parts[2 * i + 1] = (struct iovec){(void *)entry, size};
                }
                written = gathers ? pwritev(file, parts, 2 * ENTRIES, at) : pwrite(file, room, ENTRIES * record, at);
                if (written < 0) return 1;
            }
            taken[gathers] = (seconds() - begin) / ROUNDS / ENTRIES * 1e9;
        }
        printf("%.0f %.0f\n", taken[0], taken[1]);
    }
    return 0;
}
