/*
 * A layer between a program and its disk, loaded with LD_PRELOAD.
 *
 * It watches the files below $MAINSTAY_DISK_ROOT as far as SQLite's unix VFS and Rust's std::fs touch them, and
 *  - writes what happens, in the order in which it happened, to $MAINSTAY_DISK_TRACE;
 *  - makes chosen writes or syncs fail, as $MAINSTAY_DISK_FAULT says;
 *  - keeps the number of writes and syncs so far in $MAINSTAY_DISK_COUNT.
 *
 * Not watched, because neither uses it on these files: memory maps, duplicated descriptors, stdio, hard links,
 * vectored writes at an offset, fallocate, copy_file_range.
 *
 * The real work is done with raw system calls, which need no lookup of the functions replaced here and cannot
 * come back into them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The numbers and the header are read by trace.rs. */
enum operation { CREATE = 1, OPEN, WRITE, TRUNCATE, SYNC, SYNC_FOLDER, UNLINK, RENAME };
struct header { uint32_t operation, name_length; uint64_t offset, length; };

enum { DESCRIPTORS = 65536 };
enum fault { NONE, FAIL_WRITE, SHORT_WRITE, FAIL_SYNC };
#define AT_POSITION INT64_MIN /* write where the descriptor stands */

static char *root;
static size_t root_length;
static char *names[DESCRIPTORS]; /* of watched descriptors, relative to the root; NULL for all others */
static int trace = -1, count = -1;
static enum fault fault = NONE;
static int fault_errno;
static long fault_first, fault_last, writes, syncs;

/* Held around an operation and its record, so that the order in the trace is the true one. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* A trace or a fault that is silently incomplete would let a test pass that should not. */
static void give_up(const char *why) {
    static const char prefix[] = "mainstay disk shim: ";
    syscall(SYS_write, 2, prefix, sizeof prefix - 1);
    syscall(SYS_write, 2, why, strlen(why));
    syscall(SYS_write, 2, "\n", 1);
    abort();
}

static int open_output(const char *variable, int flags) {
    const char *path = getenv(variable);
    if (!path) return -1;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    if (fd < 0) give_up(variable);
    return fd;
}

/* kind@first, kind@first+count, or kind@first+ for all from the first on */
static void read_fault(const char *text) {
    char kind[16];
    int used = 0;
    if (sscanf(text, "%15[^@]@%ld%n", kind, &fault_first, &used) != 2) give_up("MAINSTAY_DISK_FAULT");
    if (!strcmp(kind, "eio")) fault = FAIL_WRITE, fault_errno = EIO;
    else if (!strcmp(kind, "enospc")) fault = FAIL_WRITE, fault_errno = ENOSPC;
    else if (!strcmp(kind, "short")) fault = SHORT_WRITE, fault_errno = ENOSPC;
    else if (!strcmp(kind, "eio-sync")) fault = FAIL_SYNC, fault_errno = EIO;
    else give_up("MAINSTAY_DISK_FAULT has an unknown kind");
    long times = text[used] == '+' ? (text[used + 1] ? atol(text + used + 1) : LONG_MAX / 2) : 1;
    /* The short write itself succeeds in part; what fails are the writes after it. */
    fault_last = fault_first + times - (fault == SHORT_WRITE ? 0 : 1);
}

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("MAINSTAY_DISK_ROOT");
    if (!folder) return;
    trace = open_output("MAINSTAY_DISK_TRACE", O_APPEND);
    count = open_output("MAINSTAY_DISK_COUNT", O_TRUNC);
    if (getenv("MAINSTAY_DISK_FAULT")) read_fault(getenv("MAINSTAY_DISK_FAULT"));
    root_length = strlen(folder);
    root = strdup(folder);
}

static void lock(void) { pthread_mutex_lock(&mutex); }

/* Returns `result` with errno as the operation left it. */
static long unlock(long result, int error) {
    pthread_mutex_unlock(&mutex);
    errno = error;
    return result;
}

static void record(enum operation operation, const char *name, uint64_t offset, const void *bytes, uint64_t length) {
    if (trace < 0) return;
    struct header header = { operation, strlen(name), offset, length };
    struct iovec parts[] = {
        { &header, sizeof header }, { (void *)name, header.name_length }, { (void *)bytes, bytes ? length : 0 },
    };
    ssize_t whole = sizeof header + header.name_length + parts[2].iov_len;
    if (syscall(SYS_writev, trace, parts, 3) != whole) give_up("the trace cannot be written");
}

static void publish_counts(void) {
    char line[64];
    if (count < 0) return;
    int length = snprintf(line, sizeof line, "%ld %ld\n", writes, syncs);
    syscall(SYS_pwrite64, count, line, length, 0L);
}

static int is_ack(const char *name) { return !strcmp(name, "ack"); }

/* The name of `path` relative to the root, in `buffer`; NULL when it lies elsewhere. */
static const char *watched_name(int folder, const char *path, char buffer[2 * PATH_MAX]) {
    char base[PATH_MAX] = "", link[64];
    if (!root) return NULL;
    if (path[0] != '/' && folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return NULL;
    } else if (path[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return NULL;
        base[length] = 0;
    }
    snprintf(buffer, 2 * PATH_MAX, "%s%s%s", base, base[0] ? "/" : "", path);
    if (strncmp(buffer, root, root_length)) return NULL;
    if (!buffer[root_length]) return buffer + root_length;
    return buffer[root_length] == '/' ? buffer + root_length + 1 : NULL;
}

static const char *name_of(int fd) {
    return fd < 0 || fd >= DESCRIPTORS ? NULL : __atomic_load_n(&names[fd], __ATOMIC_ACQUIRE);
}

static void remember(int fd, const char *name) {
    if (fd >= DESCRIPTORS) give_up("too many open files");
    char *copy = name ? strdup(name) : NULL;
    free(__atomic_exchange_n(&names[fd], copy, __ATOMIC_ACQ_REL));
}

/* Descriptors of `from` now belong to `to`, or to no name any more when that is NULL. */
static void rename_descriptors(const char *from, const char *to) {
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (names[fd] && !strcmp(names[fd], from)) remember(fd, to);
}

static int do_open(int folder, const char *path, int flags, mode_t mode) {
    char buffer[2 * PATH_MAX];
    struct stat status;
    const char *name = watched_name(folder, path, buffer);
    if (!name) return syscall(SYS_openat, folder, path, flags, mode);
    lock();
    int existed = syscall(SYS_faccessat, folder, path, F_OK) == 0;
    int fd = syscall(SYS_openat, folder, path, flags, mode);
    int error = errno;
    if (fd >= 0) {
        remember(fd, name);
        int regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
        if (regular && !existed) record(CREATE, name, 0, NULL, 0);
        else if (regular && (flags & O_ACCMODE) != O_RDONLY) record(OPEN, name, 0, NULL, 0);
        if (regular && existed && (flags & O_TRUNC)) record(TRUNCATE, name, 0, NULL, 0);
    }
    return unlock(fd, error);
}

static ssize_t real_write(int fd, const void *bytes, size_t length, int64_t offset) {
    if (offset == AT_POSITION) return syscall(SYS_write, fd, bytes, length);
    return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

static int64_t position(int fd) {
    struct stat status;
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    return appends && fstat(fd, &status) == 0 ? status.st_size : lseek(fd, 0, SEEK_CUR);
}

static ssize_t do_write(int fd, const void *bytes, size_t length, int64_t offset) {
    if (!name_of(fd)) return real_write(fd, bytes, length, offset);
    lock();
    const char *name = name_of(fd);
    if (name && !is_ack(name)) {
        writes++;
        publish_counts();
        int chosen = writes >= fault_first && writes <= fault_last;
        int shortened = fault == SHORT_WRITE && writes == fault_first && length > 1;
        if (shortened) length /= 2;
        else if (chosen && (fault == FAIL_WRITE || fault == SHORT_WRITE)) return unlock(-1, fault_errno);
    }
    int64_t start = offset == AT_POSITION ? position(fd) : offset;
    ssize_t written = real_write(fd, bytes, length, offset);
    int error = errno;
    if (name && written > 0) record(WRITE, name, start, bytes, written);
    return unlock(written, error);
}

static int do_truncate(int fd, int64_t length) {
    if (!name_of(fd)) return syscall(SYS_ftruncate, fd, length);
    lock();
    int result = syscall(SYS_ftruncate, fd, length), error = errno;
    if (result == 0 && name_of(fd)) record(TRUNCATE, name_of(fd), length, NULL, 0);
    return unlock(result, error);
}

static int do_sync(int fd, long call) {
    struct stat status;
    if (!name_of(fd)) return syscall(call, fd);
    lock();
    const char *name = name_of(fd);
    if (name && !is_ack(name)) {
        syncs++;
        publish_counts();
        if (fault == FAIL_SYNC && syncs >= fault_first && syncs <= fault_last) return unlock(-1, fault_errno);
    }
    int result = syscall(call, fd), error = errno;
    int folder = fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
    if (result == 0 && name) record(folder ? SYNC_FOLDER : SYNC, name, 0, NULL, 0);
    return unlock(result, error);
}

static int do_unlink(int folder, const char *path, int flags) {
    char buffer[2 * PATH_MAX];
    const char *name = flags & AT_REMOVEDIR ? NULL : watched_name(folder, path, buffer);
    if (!name) return syscall(SYS_unlinkat, folder, path, flags);
    lock();
    int result = syscall(SYS_unlinkat, folder, path, flags), error = errno;
    if (result == 0) {
        record(UNLINK, name, 0, NULL, 0);
        rename_descriptors(name, NULL);
    }
    return unlock(result, error);
}

static int do_rename(int from_folder, const char *from, int to_folder, const char *to) {
    char from_buffer[2 * PATH_MAX], to_buffer[2 * PATH_MAX];
    const char *old = watched_name(from_folder, from, from_buffer);
    const char *new = watched_name(to_folder, to, to_buffer);
    if (!old && new && trace >= 0) give_up("a rename into the watched folder cannot be traced");
    if (!old) return syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
    lock();
    int result = syscall(SYS_renameat2, from_folder, from, to_folder, to, 0), error = errno;
    if (result == 0) {
        if (new) record(RENAME, old, 0, new, strlen(new));
        else record(UNLINK, old, 0, NULL, 0);
        if (new) rename_descriptors(new, NULL);
        rename_descriptors(old, new);
    }
    return unlock(result, error);
}

/* From here on: the functions that are replaced. */

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN_AS(function)                                                                                             \
    int function(const char *path, int flags, ...) {                                                                  \
        va_list rest;                                                                                                 \
        va_start(rest, flags);                                                                                        \
        mode_t mode = mode_of(flags, rest);                                                                           \
        va_end(rest);                                                                                                 \
        return do_open(AT_FDCWD, path, flags, mode);                                                                  \
    }
#define OPENAT_AS(function)                                                                                           \
    int function(int folder, const char *path, int flags, ...) {                                                      \
        va_list rest;                                                                                                 \
        va_start(rest, flags);                                                                                        \
        mode_t mode = mode_of(flags, rest);                                                                           \
        va_end(rest);                                                                                                 \
        return do_open(folder, path, flags, mode);                                                                    \
    }
OPEN_AS(open)
OPEN_AS(open64)
OPENAT_AS(openat)
OPENAT_AS(openat64)

int creat(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

ssize_t write(int fd, const void *bytes, size_t length) { return do_write(fd, bytes, length, AT_POSITION); }
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return do_write(fd, bytes, length, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) { return do_write(fd, bytes, length, at); }

ssize_t writev(int fd, const struct iovec *parts, int number) {
    /* Only the first part that holds anything: a caller must be ready for a short write, and so one is enough. */
    if (!name_of(fd)) return syscall(SYS_writev, fd, parts, number);
    while (number > 1 && parts->iov_len == 0) parts++, number--;
    return number > 0 ? do_write(fd, parts->iov_base, parts->iov_len, AT_POSITION) : 0;
}

int ftruncate(int fd, off_t length) { return do_truncate(fd, length); }
int ftruncate64(int fd, off64_t length) { return do_truncate(fd, length); }
int fsync(int fd) { return do_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return do_sync(fd, SYS_fdatasync); }

int close(int fd) {
    /* Before the real close, since after it another thread may be given the same number. */
    if (name_of(fd)) {
        lock();
        remember(fd, NULL);
        unlock(0, 0);
    }
    return syscall(SYS_close, fd);
}

int unlink(const char *path) { return do_unlink(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return do_unlink(folder, path, flags); }
int rename(const char *from, const char *to) { return do_rename(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return do_rename(from_folder, from, to_folder, to);
}
