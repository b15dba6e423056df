/* Loaded into a process (LD_PRELOAD) to write down every call that changes a watched folder, and to kill at one of them.
 *
 * Environment:
 *
 *   POINTS_ROOT   the watched folder, absolute, without symbolic links
 *   POINTS_LOG    file outside of it, which gets the log; POINTS_LOG.state is shared by all processes that are watched
 *   POINTS_NOTES  number of a file descriptor: what is written to it goes into the log as well, between the calls
 *   POINTS_KILL   "N before", "N after" or "N BYTES": SIGKILL to the process group before call N (counted from 0),
 *                 after it, or, for a write, when it has written that many bytes
 *   POINTS_LIE    "data" and/or "names": syncs of files, of folders do nothing and say that all is well; with either,
 *                 syncs of the whole file system, too
 *
 * A call is carried out and written down under one lock, so the log has the order in which things happened, across
 * threads and processes. Log record, little-endian, packed:
 *
 *   kind u8 | inode u64 | a i64 | b i64 | length of path u16 | of second path u16 | of data u32 | path, path, data
 *
 *   kind        path            second path  a         b        data
 *   'C' create  the file        -            -         -        -        a regular file came into being
 *   'W' write   -               -            offset    -        what was written
 *   'T' resize  -               -            size      -        -        truncate, O_TRUNC
 *   'A' reserve -               -            offset    length   -        fallocate, default mode
 *   'S' sync    -               -            -         -        -        fsync, fdatasync of a file or folder
 *   'F' all     -               -            -         -        -        syncfs: all of the watched folder
 *   'B' begin   -               -            offset    length   -        sync_file_range: makes nothing durable
 *   'R' rename  from            to           -         -        -
 *   'L' link    from            to           -         -        -
 *   'U' unlink  the name        -            -         -        -
 *   'M' mkdir   the name        -            -         -        -        inode is the new folder's
 *   'D' rmdir   the name        -            -         -        -
 *   'N' note    -               -            -         -        what was noted; no call, not counted
 *
 * Only what was done is written down: a call that failed is not there, a short write has what it wrote. Not seen are
 * stdio streams (LevelDB's LOG) and mapped memory (SQLite's -shm), which nothing durable depends on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BEFORE = -1, AFTER = -2 };

static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1, state_fd = -1, notes_fd = -1;
static volatile uint64_t *calls;
static int64_t kill_at = -1, kill_how;
static int lies_about_data, lies_about_names;
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;

struct record {
    uint8_t kind;
    uint64_t inode;
    int64_t a, b;
    uint16_t path, second;
    uint32_t data;
} __attribute__((packed));

/* ---- the log ---------------------------------------------------------------------------------------- */

static void die(void) {
    syscall(SYS_kill, 0, SIGKILL);
    for (;;) pause();
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("POINTS_ROOT"), *log = getenv("POINTS_LOG");
    const char *notes = getenv("POINTS_NOTES"), *when = getenv("POINTS_KILL"), *lie = getenv("POINTS_LIE");
    char name[PATH_MAX], how[32];
    if (!folder || !log) return;
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    snprintf(name, sizeof name, "%s.state", log);
    log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    state_fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (log_fd < 0 || state_fd < 0 || syscall(SYS_ftruncate, state_fd, 4096)) abort();
    /* Out of the way of whoever counts on getting low numbers. */
    log_fd = fcntl(log_fd, F_DUPFD_CLOEXEC, 900);
    state_fd = fcntl(state_fd, F_DUPFD_CLOEXEC, 900);
    calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
    if (calls == MAP_FAILED) abort();
    if (notes) notes_fd = atoi(notes);
    if (lie) lies_about_data = !!strstr(lie, "data"), lies_about_names = !!strstr(lie, "names");
    if (when && sscanf(when, "%ld %31s", &kill_at, how) == 2)
        kill_how = !strcmp(how, "before") ? BEFORE : !strcmp(how, "after") ? AFTER : atol(how);
}

static void lock_range(short type) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    while (syscall(SYS_fcntl, state_fd, F_OFD_SETLKW, &range) && errno == EINTR) {}
}

/* Enter a call: from here on until leave() nobody else is in one. */
static void enter(void) {
    pthread_mutex_lock(&threads);
    lock_range(F_WRLCK);
    if (kill_how == BEFORE && (int64_t)*calls == kill_at) die();
}

static void put(uint8_t kind, uint64_t inode, int64_t a, int64_t b, const char *path, const char *second,
                const struct iovec *data, int count, size_t size) {
    struct record head = {kind, inode, a, b, path ? strlen(path) : 0, second ? strlen(second) : 0, size};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)second, head.second}};
    syscall(SYS_writev, log_fd, parts, 3);
    for (int i = 0; i < count && size; i++) {
        size_t part = data[i].iov_len < size ? data[i].iov_len : size;
        syscall(SYS_write, log_fd, data[i].iov_base, part);
        size -= part;
    }
}

static void leave(int done) {
    int was = errno;
    if (done && kill_how == AFTER && (int64_t)*calls == kill_at) die();
    if (done) ++*calls;
    lock_range(F_UNLCK);
    pthread_mutex_unlock(&threads);
    errno = was;
}

/* ---- what is watched --------------------------------------------------------------------------------- */

static int is_below(const char *path) {
    return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* Whether the file behind a descriptor is watched, whatever its name was when it was opened. */
static int is_watched(int fd) {
    char link[64], path[PATH_MAX];
    if (log_fd < 0 || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static int resolve(int folder, const char *path, char *out) {
    char base[PATH_MAX], link[64];
    if (log_fd < 0 || !path) return 0;
    if (path[0] == '/') return snprintf(out, PATH_MAX, "%s", path), is_below(out);
    if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
    if (length <= 0) return 0;
    base[length] = 0;
    return snprintf(out, PATH_MAX, "%.2000s/%.2000s", base, path), is_below(out);
}

static uint64_t inode_of(int fd) {
    struct stat found;
    return syscall(SYS_fstat, fd, &found) ? 0 : found.st_ino;
}

static uint64_t inode_at(const char *path) {
    struct stat found;
    return syscall(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : found.st_ino;
}

/* ---- files ------------------------------------------------------------------------------------------ */

static int do_open(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(folder, path, full))
        return syscall(SYS_openat, folder, path, flags, mode);
    enter();
    int is_new = !inode_at(full);
    int fd = syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && is_new) put('C', inode_of(fd), 0, 0, full, NULL, NULL, 0, 0);
    else if (fd >= 0 && flags & O_TRUNC) put('T', inode_of(fd), 0, 0, NULL, NULL, NULL, 0, 0);
    leave(fd >= 0 && (is_new || flags & O_TRUNC));
    return fd;
}

#define MODE_OF(flags)                            \
    mode_t mode = 0;                              \
    if ((flags) & (O_CREAT | O_TMPFILE)) {        \
        va_list arguments;                        \
        va_start(arguments, flags);               \
        mode = va_arg(arguments, int);            \
        va_end(arguments);                        \
    }

int open(const char *path, int flags, ...) { MODE_OF(flags) return do_open(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return do_open(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE_OF(flags) return do_open(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE_OF(flags) return do_open(folder, path, flags, mode); }
int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return do_open(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return do_open(folder, path, flags, 0); }
int creat(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Only that there is such a file: what is written to a stream is not seen. */
static FILE *do_fopen(const char *symbol, const char *path, const char *mode) {
    char full[PATH_MAX];
    FILE *(*plain)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, symbol);
    if (mode[0] == 'r' || !resolve(AT_FDCWD, path, full)) return plain(path, mode);
    enter();
    int is_new = !inode_at(full);
    FILE *file = plain(path, mode);
    if (file && is_new) put('C', inode_of(fileno(file)), 0, 0, full, NULL, NULL, 0, 0);
    leave(file && is_new);
    return file;
}
FILE *fopen(const char *path, const char *mode) { return do_fopen("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return do_fopen("fopen64", path, mode); }

/* offset < 0: where the file stands, or its end if it appends. */
static ssize_t do_write(int fd, const struct iovec *data, int count, off_t offset) {
    size_t size = 0;
    if (!is_watched(fd)) {
        ssize_t plain = offset < 0 ? syscall(SYS_writev, fd, data, count)
                                   : syscall(SYS_pwritev, fd, data, count, offset, 0);
        return plain;
    }
    for (int i = 0; i < count; i++) size += data[i].iov_len;
    enter();
    int flags = syscall(SYS_fcntl, fd, F_GETFL);
    off_t at = offset;
    if (flags & O_APPEND) {
        struct stat found;
        syscall(SYS_fstat, fd, &found);
        at = found.st_size;
    } else if (offset < 0) {
        at = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    }
    if (kill_at >= 0 && kill_how >= 0 && (int64_t)*calls == kill_at) {
        size_t left = kill_how;
        off_t here = at;
        for (int i = 0; i < count && left; i++) {
            size_t part = data[i].iov_len < left ? data[i].iov_len : left;
            syscall(SYS_pwrite64, fd, data[i].iov_base, part, here);
            here += part, left -= part;
        }
        put('W', inode_of(fd), at, 0, NULL, NULL, data, count, here - at);
        die();
    }
    ssize_t done = offset < 0 ? syscall(SYS_writev, fd, data, count)
                              : syscall(SYS_pwritev, fd, data, count, offset, 0);
    if (done > 0) put('W', inode_of(fd), at, 0, NULL, NULL, data, count, done);
    leave(done > 0);
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    struct iovec part = {(void *)data, size};
    if (fd == notes_fd && fd >= 0) {
        enter();
        put('N', 0, 0, 0, NULL, NULL, &part, 1, size);
        leave(0);
    }
    if (!is_watched(fd)) return syscall(SYS_write, fd, data, size);
    return do_write(fd, &part, 1, -1);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    return do_write(fd, &part, 1, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }
ssize_t writev(int fd, const struct iovec *data, int count) { return do_write(fd, data, count, -1); }
ssize_t pwritev(int fd, const struct iovec *data, int count, off_t offset) { return do_write(fd, data, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *data, int count, off_t offset) { return do_write(fd, data, count, offset); }
ssize_t pwritev2(int fd, const struct iovec *data, int count, off_t offset, int flags) {
    if (flags) return errno = EOPNOTSUPP, -1; /* nobody here uses any, and none must pass unseen */
    return do_write(fd, data, count, offset);
}
ssize_t pwritev64v2(int fd, const struct iovec *data, int count, off_t offset, int flags) {
    return pwritev2(fd, data, count, offset, flags);
}

int ftruncate(int fd, off_t size) {
    if (!is_watched(fd)) return syscall(SYS_ftruncate, fd, size);
    enter();
    int failed = syscall(SYS_ftruncate, fd, size);
    if (!failed) put('T', inode_of(fd), size, 0, NULL, NULL, NULL, 0, 0);
    leave(!failed);
    return failed;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int truncate(const char *path, off_t size) {
    char full[PATH_MAX];
    if (!resolve(AT_FDCWD, path, full)) return syscall(SYS_truncate, path, size);
    enter();
    int failed = syscall(SYS_truncate, path, size);
    if (!failed) put('T', inode_at(full), size, 0, NULL, NULL, NULL, 0, 0);
    leave(!failed);
    return failed;
}
int truncate64(const char *path, off_t size) { return truncate(path, size); }

int fallocate(int fd, int mode, off_t offset, off_t length) {
    if (!is_watched(fd)) return syscall(SYS_fallocate, fd, mode, offset, length);
    if (mode) return errno = EOPNOTSUPP, -1;
    enter();
    int failed = syscall(SYS_fallocate, fd, mode, offset, length);
    if (!failed) put('A', inode_of(fd), offset, length, NULL, NULL, NULL, 0, 0);
    leave(!failed);
    return failed;
}
int fallocate64(int fd, int mode, off_t offset, off_t length) { return fallocate(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return fallocate(fd, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int fd, off_t offset, off_t length) { return posix_fallocate(fd, offset, length); }

/* ---- making durable --------------------------------------------------------------------------------- */

static int do_sync(long number, int fd) {
    struct stat found;
    if (!is_watched(fd)) return syscall(number, fd);
    enter();
    int failed = syscall(SYS_fstat, fd, &found);
    int lies = S_ISDIR(found.st_mode) ? lies_about_names : lies_about_data;
    if (!failed && !lies) {
        failed = syscall(number, fd);
        if (!failed) put('S', found.st_ino, 0, 0, NULL, NULL, NULL, 0, 0);
    }
    leave(!failed && !lies);
    return failed;
}

int fsync(int fd) { return do_sync(SYS_fsync, fd); }
int fdatasync(int fd) { return do_sync(SYS_fdatasync, fd); }

int syncfs(int fd) {
    if (!is_watched(fd)) return syscall(SYS_syncfs, fd);
    enter();
    int lies = lies_about_data || lies_about_names;
    int failed = lies ? 0 : syscall(SYS_syncfs, fd);
    if (!failed && !lies) put('F', inode_of(fd), 0, 0, NULL, NULL, NULL, 0, 0);
    leave(!failed && !lies);
    return failed;
}

int sync_file_range(int fd, off_t offset, off_t length, unsigned flags) {
    if (!is_watched(fd)) return syscall(SYS_sync_file_range, fd, offset, length, flags);
    enter();
    int failed = syscall(SYS_sync_file_range, fd, offset, length, flags);
    if (!failed) put('B', inode_of(fd), offset, length, NULL, NULL, NULL, 0, 0);
    leave(!failed);
    return failed;
}

/* ---- names ------------------------------------------------------------------------------------------ */

static int do_name(uint8_t kind, long number, const char *first, const char *second, long a, long b, long c, long d,
                   long e) {
    enter();
    uint64_t inode = kind == 'M' ? 0 : inode_at(first);
    int failed = syscall(number, a, b, c, d, e);
    if (!failed) put(kind, kind == 'M' ? inode_at(first) : inode, 0, 0, first, second, NULL, 0, 0);
    leave(!failed);
    return failed;
}

static int do_pair(uint8_t kind, long number, int from, const char *path, int to, const char *target, int flags) {
    char first[PATH_MAX], second[PATH_MAX];
    int below = resolve(from, path, first), also = resolve(to, target, second);
    if (below != also && log_fd >= 0) return errno = EXDEV, -1; /* what comes from outside has no history */
    if (!below) return syscall(number, from, path, to, target, flags);
    return do_name(kind, number, first, second, from, (long)path, to, (long)target, flags);
}

int rename(const char *from, const char *to) { return do_pair('R', SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return do_pair('R', SYS_renameat2, a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    return do_pair('R', SYS_renameat2, a, from, b, to, flags);
}
int link(const char *from, const char *to) { return do_pair('L', SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int a, const char *from, int b, const char *to, int flags) { return do_pair('L', SYS_linkat, a, from, b, to, flags); }

static int do_one(uint8_t kind, long number, int folder, const char *path, long argument) {
    char full[PATH_MAX];
    if (!resolve(folder, path, full)) return syscall(number, folder, path, argument);
    return do_name(kind, number, full, NULL, folder, (long)path, argument, 0, 0);
}

int unlinkat(int folder, const char *path, int flags) {
    return do_one(flags & AT_REMOVEDIR ? 'D' : 'U', SYS_unlinkat, folder, path, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat found;
    int is_folder = !syscall(SYS_newfstatat, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) && S_ISDIR(found.st_mode);
    return unlinkat(AT_FDCWD, path, is_folder ? AT_REMOVEDIR : 0);
}
int mkdirat(int folder, const char *path, mode_t mode) { return do_one('M', SYS_mkdirat, folder, path, mode); }
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
