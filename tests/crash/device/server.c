/* A disk with a volatile write cache: a FUSE file system that is one regular file, to be put under a loop device.
 *
 *     server FOLDER BYTES SECTOR
 *
 * The image is mounted over FOLDER/image, an empty regular file; FOLDER/mounted is where its file system is going to be
 * mounted. FOLDER is a mount that is shared. The kernel's FUSE protocol is spoken directly, by one
 * thread, so requests have one order. The image is in memory, twice: `now` is what a read finds, `safe` is what a power
 * cut cannot take away. Between them lies the cache: all writes since the last flush (FSYNC: what a loop device makes of
 * a flush or FUA), in order. SECTOR: of so many bytes a power cut takes all or nothing.
 *
 * Standard input is a socket. A command is a line, each is answered with a line, "ok ..." or "error ...":
 *
 *     cut SEED         power cut: part of the cache is lost (see settle), every request fails from now on; as after
 *                      `vanish`, loop devices that exist now fail for good
 *     arm COUNT SEED   cut as the COUNTth write or flush from now on arrives; then the line "cut" is sent, unasked
 *     eio              writes and flushes fail from now on, reads do not
 *     vanish           every request fails from now on; the cache is kept; loop devices that exist now fail for good
 *     heal             requests succeed again
 *     lie 0|1          flushes are answered and make nothing durable
 *     snapshot         remember the image as it is now
 *     restore          put the remembered image in its place; nothing may be in use
 *     save PATH        write the image to a file
 *     counters         "ok" and NAME=NUMBER ...
 *
 * When the socket is closed, every request fails, FOLDER and all in it is unmounted lazily, and the process ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_WRITE = 1 << 20, BUFFER = MAX_WRITE + PAGE, CONTROL = 0 };

/* ---- the disk ------------------------------------------------------------------------------------------------------ */

struct write {
    uint64_t offset;
    uint64_t length;
    uint8_t data[];
};

static uint64_t size;
static uint64_t sector_bytes;
static uint8_t *now, *safe, *remembered;

static uint8_t *cache; /* struct write, one behind the other, each at a multiple of eight */
static size_t cache_used, cache_room;

static bool powered = true, write_fails, read_fails, lying;
static uint64_t connection = 1; /* file handle of the loop devices that are connected still */
static uint64_t armed, armed_seed; /* writes and flushes left until the cut; 0: not armed */

static struct {
    uint64_t reads, writes, flushes, failed, cuts, cached_sectors, lost_sectors, lost_writes;
} count;

static void die(const char *what) {
    fprintf(stderr, "block device: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint8_t *memory(void) {
    uint8_t *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) die("memory for the image");
    return found;
}

/* Copies without touching memory that need not be: most of an image is zeros. */
static void copy_image(uint8_t *to, const uint8_t *from) {
    for (uint64_t at = 0; at < size; at += PAGE)
        if (memcmp(to + at, from + at, PAGE)) memcpy(to + at, from + at, PAGE);
}

static struct write *next_write(size_t *at) {
    if (*at >= cache_used) return NULL;
    struct write *found = (struct write *)(cache + *at);
    *at += (sizeof *found + found->length + 7) & ~(size_t)7;
    return found;
}

static void put(uint64_t offset, const void *data, uint64_t length) {
    size_t room = (sizeof(struct write) + length + 7) & ~(size_t)7;
    if (cache_used + room > cache_room) {
        cache_room = 2 * (cache_used + room);
        cache = realloc(cache, cache_room);
        if (!cache) die("memory for the cache");
    }
    struct write *made = (struct write *)(cache + cache_used);
    made->offset = offset, made->length = length;
    memcpy(made->data, data, length);
    cache_used += room;
    memcpy(now + offset, data, length);
}

static void flush(void) {
    if (lying) return;
    size_t at = 0;
    for (struct write *each; (each = next_write(&at));)
        memcpy(safe + each->offset, now + each->offset, each->length);
    cache_used = 0;
}

static uint64_t dice_state;

static uint64_t dice(uint64_t sides) { /* splitmix64 */
    uint64_t z = dice_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % sides;
}

/* Decides what of the cache has reached the medium. A sector is written whole or not at all. What is lost:
 * everything, all writes from one on (which is torn), any writes, or any sectors; so a sector ends up as it was at the
 * last flush, or as any write since then left it. */
static void settle(uint64_t seed) {
    dice_state = seed;
    enum { ALL, LATEST, WRITES, SECTORS } kind = dice(4);
    uint64_t writes = 0, index = 0, odds = 1 + dice(9); /* of ten sectors or writes this many stay */
    size_t at = 0;
    while (next_write(&at)) writes++;
    uint64_t torn = dice(writes + 1);
    at = 0;
    for (struct write *each; (each = next_write(&at)); index++) {
        bool whole = kind == LATEST ? index < torn : kind == WRITES ? dice(10) < odds : false;
        bool tears = kind == SECTORS || (kind == LATEST && index == torn);
        uint64_t lost = 0;
        for (uint64_t at = 0, length; at < each->length; at += length) {
            length = sector_bytes - (each->offset + at) % sector_bytes;
            if (length > each->length - at) length = each->length - at;
            count.cached_sectors++;
            if (whole || (tears && dice(10) < odds))
                memcpy(safe + each->offset + at, each->data + at, length);
            else
                lost++;
        }
        count.lost_sectors += lost;
        count.lost_writes += lost > 0;
    }
    at = 0;
    for (struct write *each; (each = next_write(&at));)
        memcpy(now + each->offset, safe + each->offset, each->length);
    cache_used = 0;
}

static void cut(uint64_t seed) {
    if (powered) settle(seed);
    count.cuts += powered;
    powered = false;
    connection++;
    armed = 0;
}

/* Whether a write or a flush that has come fails. */
static bool change_fails(uint64_t handle) {
    if (armed && --armed == 0) {
        cut(armed_seed);
        if (write(CONTROL, "cut\n", 4) != 4) exit(0);
    }
    bool fails = !powered || write_fails || handle != connection;
    count.failed += fails;
    return fails;
}

/* ---- commands ------------------------------------------------------------------------------------------------------ */

static void answer(const char *format, ...) {
    char line[512];
    va_list rest;
    va_start(rest, format);
    int length = vsnprintf(line, sizeof line - 1, format, rest);
    va_end(rest);
    line[length] = '\n';
    if (write(CONTROL, line, length + 1) != length + 1) exit(0);
}

static const char *save(const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file) return strerror(errno);
    static const uint8_t zeros[PAGE];
    for (uint64_t at = 0; at < size; at += PAGE)
        if (memcmp(now + at, zeros, PAGE)) fseeko(file, at, SEEK_SET), fwrite(now + at, 1, PAGE, file);
    bool failed = fflush(file) || ftruncate(fileno(file), size);
    return fclose(file) || failed ? strerror(errno) : NULL;
}

static void command(char *line) {
    uint64_t first = 0, second = 0;
    char *rest = strchr(line, ' ');
    const char *error = NULL;
    if (rest) {
        *rest++ = 0;
        sscanf(rest, "%" SCNu64 " %" SCNu64, &first, &second);
    }
    if (!strcmp(line, "cut")) cut(first);
    else if (!strcmp(line, "arm")) armed = first, armed_seed = second;
    else if (!strcmp(line, "eio")) write_fails = true;
    else if (!strcmp(line, "vanish")) write_fails = read_fails = true, connection++;
    else if (!strcmp(line, "heal")) powered = true, write_fails = read_fails = false, armed = 0;
    else if (!strcmp(line, "lie")) lying = first;
    else if (!strcmp(line, "snapshot")) copy_image(remembered ? remembered : (remembered = memory()), now);
    else if (!strcmp(line, "restore") && remembered) cache_used = 0, copy_image(now, remembered), copy_image(safe, remembered);
    else if (!strcmp(line, "save") && rest) error = save(rest);
    else if (strcmp(line, "counters")) error = "no such command, or nothing to restore";
    if (error) return answer("error %s", error);
    answer("ok reads=%" PRIu64 " writes=%" PRIu64 " flushes=%" PRIu64 " failed=%" PRIu64 " cuts=%" PRIu64
           " cached_sectors=%" PRIu64 " lost_sectors=%" PRIu64 " lost_writes=%" PRIu64, count.reads, count.writes,
           count.flushes, count.failed, count.cuts, count.cached_sectors, count.lost_sectors, count.lost_writes);
}

/* False: the other side is gone. */
static bool commands(void) {
    static char lines[8192];
    static size_t held;
    ssize_t got = read(CONTROL, lines + held, sizeof lines - 1 - held);
    if (got <= 0) return got < 0 && errno == EINTR;
    held += got;
    for (char *end; (end = memchr(lines, '\n', held));) {
        *end++ = 0;
        command(lines);
        held -= end - lines;
        memmove(lines, end, held);
    }
    return held < sizeof lines - 1;
}

/* ---- FUSE ---------------------------------------------------------------------------------------------------------- */

static void reply(int device, uint64_t unique, int error, const void *body, size_t length) {
    struct fuse_out_header head = {sizeof head + (error ? 0 : length), -error, unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, length}};
    if (writev(device, parts, error || !length ? 1 : 2) < 0 && errno != ENOENT && errno != ENODEV && errno != EINTR)
        die("reply"); /* ENOENT: the request was interrupted */
}

static struct fuse_attr attributes(void) {
    return (struct fuse_attr){.ino = FUSE_ROOT_ID, .size = size, .blocks = size / 512, .mode = S_IFREG | 0600, .nlink = 1, .blksize = PAGE};
}

static void request(int device, const struct fuse_in_header *head) {
    const void *body = head + 1;
    uint64_t unique = head->unique;
    switch (head->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *in = body;
        struct fuse_init_out out = {
            .major = FUSE_KERNEL_VERSION,
            .minor = in->minor < FUSE_KERNEL_MINOR_VERSION ? in->minor : FUSE_KERNEL_MINOR_VERSION,
            .max_readahead = in->max_readahead,
            .flags = in->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO | FUSE_MAX_PAGES),
            .max_background = 64,
            .congestion_threshold = 48,
            .max_write = MAX_WRITE,
            .time_gran = 1,
            .max_pages = MAX_WRITE / PAGE,
        };
        return reply(device, unique, 0, &out, sizeof out);
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
        struct fuse_attr_out out = {.attr_valid = 3600, .attr = attributes()};
        return reply(device, unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.fh = connection, .open_flags = FOPEN_DIRECT_IO}; /* nothing may wait in the page cache of the image */
        return reply(device, unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
        const struct fuse_read_in *in = body;
        count.reads++;
        if (!powered || read_fails || in->fh != connection) return count.failed++, reply(device, unique, EIO, NULL, 0);
        uint64_t left = in->offset < size ? size - in->offset : 0;
        return reply(device, unique, 0, now + in->offset, in->size < left ? in->size : left);
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *in = body;
        count.writes++;
        if (in->offset > size || in->size > size - in->offset) return reply(device, unique, ENOSPC, NULL, 0);
        if (powered && !write_fails && in->fh == connection)
            put(in->offset, in + 1, in->size); /* before the cut: one that comes with it may tear it */
        if (change_fails(in->fh)) return reply(device, unique, EIO, NULL, 0);
        struct fuse_write_out out = {.size = in->size};
        return reply(device, unique, 0, &out, sizeof out);
    }
    case FUSE_FSYNC:
        count.flushes++;
        if (change_fails(((const struct fuse_fsync_in *)body)->fh)) return reply(device, unique, EIO, NULL, 0);
        flush();
        return reply(device, unique, 0, NULL, 0);
    case FUSE_FLUSH: /* of a descriptor: nothing to do with the medium */
    case FUSE_RELEASE:
    case FUSE_ACCESS:
        return reply(device, unique, 0, NULL, 0);
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.bsize = PAGE, .frsize = PAGE, .blocks = size / PAGE, .namelen = 255}};
        return reply(device, unique, 0, &out, sizeof out);
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
    case FUSE_DESTROY:
        return;
    default: /* FALLOCATE among them: the loop device writes zeros instead */
        return reply(device, unique, ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: %s FOLDER BYTES SECTOR\n", argv[0]), 2;
    const char *folder = argv[1];
    char image[4096];
    snprintf(image, sizeof image, "%s/image", folder);
    size = strtoull(argv[2], NULL, 10) / PAGE * PAGE;
    sector_bytes = strtoull(argv[3], NULL, 10);
    now = memory(), safe = memory();
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the tests, which then clean up */
    signal(SIGPIPE, SIG_IGN);
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) die("/dev/fuse");
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=100000,user_id=0,group_id=0", device);
    if (mount("bkbox-block-device", image, "fuse", MS_NOSUID | MS_NODEV, options) < 0) die("mount");
    uint8_t *buffer = aligned_alloc(PAGE, BUFFER);
    if (!buffer) die("memory for requests");
    answer("ok");
    pid_t ending = 0;
    while (!ending || waitpid(ending, NULL, WNOHANG) == 0) {
        struct pollfd both[] = {{.fd = device, .events = POLLIN}, {.fd = ending ? -1 : CONTROL, .events = POLLIN}};
        if (poll(both, 2, ending ? 10 : -1) < 0) continue;
        if (both[1].revents && !commands()) {
            powered = false;
            ending = fork(); /* an unmount waits for requests, which are answered here */
            if (ending < 0) return 1;
            if (ending == 0) return close(device), umount2(folder, MNT_DETACH), 0;
        }
        if (both[0].revents & POLLIN) {
            ssize_t got = read(device, buffer, BUFFER);
            if (got >= (ssize_t)sizeof(struct fuse_in_header)) request(device, (struct fuse_in_header *)buffer);
            else if (got < 0 && errno == ENODEV) break; /* unmounted */
        } else if (both[0].revents & (POLLERR | POLLHUP)) {
            break;
        }
    }
    while (ending && wait(NULL) > 0) {}
    return 0;
}
