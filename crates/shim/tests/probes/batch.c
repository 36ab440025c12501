/* Atomic writes of one file by the requests of F2FS, of which only the volume knows: says what is wrong, and nothing else. */
#include "probe.h"
#include <linux/f2fs.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#define START(fd) ioctl(fd, F2FS_IOC_START_ATOMIC_WRITE)
#define COMMIT(fd) ioctl(fd, F2FS_IOC_COMMIT_ATOMIC_WRITE)
#define ABORT(fd) ioctl(fd, F2FS_IOC_ABORT_ATOMIC_WRITE)

static off_t size_of(int fd) {
    struct stat stat;
    return fstat(fd, &stat) ? -1 : stat.st_size;
}

/* Whether a file holds this text at an offset. */
static bool has(int fd, off_t at, const char *text) {
    char bytes[64] = "";
    size_t len = strlen(text);
    return pread(fd, bytes, len, at) == (ssize_t)len && !memcmp(bytes, text, len);
}

static void requests(int fd, int reader) {
    unsigned features = 0;
    WANT(ioctl(fd, F2FS_IOC_GET_FEATURES, &features) == 0 && features & 4);
    FAILS(ioctl(fd, F2FS_IOC_GET_FEATURES, NULL), EFAULT);
    FAILS(COMMIT(fd), EINVAL);
    WANT(ABORT(fd) == 0);
    FAILS(START(reader), EBADF);
    FAILS(COMMIT(reader), EBADF);
    int name = open(at("file"), O_PATH);
    FAILS(START(name), EBADF);
    close(name);
}

static void visibility(int fd, int reader) {
    WANT(pwrite(fd, "0123456789", 10, 0) == 10);
    WANT(START(fd) == 0);
    WANT(pwrite(fd, "AB", 2, 4) == 2);
    struct iovec parts[] = {{"cd", 2}, {"ef", 2}};
    WANT(pwritev(fd, parts, 2, 20) == 4);
    int twin = dup(fd);
    WANT(has(twin, 2, "23AB67"));
    WANT(has(twin, 18, "cdef") == false && has(twin, 20, "cdef"));
    WANT(size_of(twin) == 24 && lseek(twin, 0, SEEK_END) == 24);
    WANT(has(reader, 0, "0123456789") && size_of(reader) == 10);
    struct stat stat_;
    WANT(stat(at("file"), &stat_) == 0 && stat_.st_size == 10);
    /* The file offset, and the end. */
    WANT(write(fd, "end", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 27);
    WANT(write(fd, "!", 1) == 1);
    WANT(lseek(fd, 24, SEEK_SET) == 24);
    char bytes[8];
    WANT(read(fd, bytes, 8) == 4 && !memcmp(bytes, "end!", 4));
    FAILS(fallocate(fd, 0, 0, 4096), EBUSY);
    WANT(COMMIT(twin) == 0);
    WANT(size_of(reader) == 28 && has(reader, 0, "0123AB6789") && has(reader, 20, "cdefend!"));
    FAILS(COMMIT(fd), EINVAL);
    close(twin);
    /* Where an append goes is known only when it is made. */
    WANT(fcntl(fd, F_SETFL, O_APPEND) == 0);
    FAILS(START(fd), EINVAL);
    WANT(fcntl(fd, F_SETFL, 0) == 0 && START(fd) == 0 && pwrite(fd, "lost", 4, 0) == 4);
    WANT(fcntl(fd, F_SETFL, O_APPEND) == 0);
    FAILS(write(fd, "!", 1), EINVAL);
    FAILS(COMMIT(fd), EFBIG);
    WANT(fcntl(fd, F_SETFL, 0) == 0 && has(reader, 0, "0123AB6789") && size_of(reader) == 28);
}

static void dropped(int fd, int reader) {
    WANT(START(fd) == 0 && pwrite(fd, "drop", 4, 0) == 4 && ABORT(fd) == 0);
    WANT(has(fd, 0, "0123") && has(reader, 0, "0123"));
    WANT(START(fd) == 0 && pwrite(fd, "drop", 4, 0) == 4);
    WANT(START(fd) == 0 && has(fd, 0, "0123") && COMMIT(fd) == 0 && has(reader, 0, "0123"));
    int other = open(at("file"), O_RDWR), twin = dup(other);
    WANT(START(other) == 0 && pwrite(other, "drop", 4, 0) == 4 && close(other) == 0);
    WANT(has(twin, 0, "drop") && has(fd, 0, "0123"));
    WANT(dup2(fd, twin) == twin && has(twin, 0, "0123"));
    close(twin);
    WANT(has(reader, 0, "0123"));
}

static void sizes(int fd, int reader) {
    WANT(ftruncate(fd, 0) == 0 && pwrite(fd, "0123456789", 10, 0) == 10);
    WANT(START(fd) == 0 && ftruncate(fd, 4) == 0 && size_of(fd) == 4);
    WANT(pwrite(fd, "x", 1, 6) == 1 && ftruncate(fd, 12) == 0);
    char bytes[16];
    WANT(pread(fd, bytes, 16, 0) == 12 && !memcmp(bytes, "0123\0\0x\0\0\0\0", 12));
    WANT(size_of(reader) == 10 && COMMIT(fd) == 0);
    WANT(pread(reader, bytes, 16, 0) == 12 && !memcmp(bytes, "0123\0\0x\0\0\0\0", 12));
    WANT(START(fd) == 0 && ftruncate(fd, 2) == 0 && COMMIT(fd) == 0 && size_of(reader) == 2);
    /* What others do meanwhile stays. */
    int other = open(at("file"), O_WRONLY);
    WANT(START(fd) == 0 && pwrite(fd, "A", 1, 0) == 1 && pwrite(other, "zz", 2, 2) == 2);
    WANT(size_of(fd) == 4 && COMMIT(fd) == 0 && has(reader, 0, "A1zz"));
    close(other);
}

static void limits(int fd, int reader) {
    static char block[1 << 20];
    memset(block, 'b', sizeof block);
    WANT(START(fd) == 0);
    for (int i = 0; i < 4; i++)
        WANT(pwrite(fd, block, sizeof block, (off_t)i << 20) == sizeof block);
    WANT(pwrite(fd, block, 100, 4096) == 100);
    FAILS(pwrite(fd, block, 1, 4 << 20), EFBIG);
    FAILS(COMMIT(fd), EFBIG);
    WANT(size_of(reader) == 4 && size_of(fd) == 4);
    WANT(START(fd) == 0);
    int taken = 0;
    while (taken < 100 && pwrite(fd, "s", 1, 10 * taken) == 1)
        taken++;
    WANT(errno == EFBIG || taken == 57);
    WANT(taken == 57 && COMMIT(fd) == -1 && size_of(reader) == 4);
    /* As much as there may be. */
    WANT(START(fd) == 0);
    for (int i = 0; i < 57; i++)
        WANT(pwrite(fd, block, 70000, i * 100000) == 70000);
    WANT(COMMIT(fd) == 0 && size_of(reader) == 56 * 100000 + 70000 && has(reader, 5600000, "bbb"));
    WANT(ftruncate(fd, 4) == 0);
    int many[17];
    for (int i = 0; i < 17; i++) {
        many[i] = open(at("file"), O_RDWR);
        WANT(i < 16 ? START(many[i]) == 0 : START(many[i]) == -1 && errno == ENOMEM);
    }
    for (int i = 0; i < 17; i++)
        close(many[i]);
    WANT(START(fd) == 0 && ABORT(fd) == 0);
}

static void maps(int fd) {
    WANT(START(fd) == 0);
    WANT(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EBUSY);
    WANT(ABORT(fd) == 0);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    WANT(map != MAP_FAILED);
    FAILS(START(fd), EBUSY);
    munmap(map, 4096);
    /* A map that is made meanwhile, by another open file, shows the commit. */
    int other = open(at("file"), O_RDWR);
    WANT(START(fd) == 0 && pwrite(fd, "map", 3, 0) == 3);
    char *seen = mmap(NULL, 4096, PROT_READ, MAP_SHARED, other, 0);
    WANT(seen != MAP_FAILED && seen[0] == 'b');
    WANT(COMMIT(fd) == 0 && !memcmp(seen, "map", 3));
    munmap(seen, 4096);
    close(other);
}

static void children(int fd, int reader) {
    WANT(pwrite(fd, "parent", 6, 0) == 6 && START(fd) == 0 && pwrite(fd, "forked", 6, 0) == 6);
    fflush(stdout);
    int status;
    pid_t child = fork();
    if (!child) {
        WANT(has(fd, 0, "parent"));
        FAILS(COMMIT(fd), EINVAL);
        WANT(START(fd) == 0 && pwrite(fd, "P", 1, 0) == 1 && COMMIT(fd) == 0);
        /* The program that comes next has none. */
        WANT(START(fd) == 0 && pwrite(fd, "exec", 4, 0) == 4);
        fflush(stdout);
        char number[16];
        snprintf(number, sizeof number, "%d", fd);
        setenv("PROBE_INHERITED", number, 1);
        execl("/proc/self/exe", "batch", root, NULL);
        _exit(9);
    }
    WANT(waitpid(child, &status, 0) == child && status == 0);
    WANT(has(reader, 0, "Parent") && has(fd, 0, "forked"));
    WANT(COMMIT(fd) == 0 && has(reader, 0, "forked"));
}

static void probe(void) {
    const char *inherited = getenv("PROBE_INHERITED");
    if (inherited) {
        WANT(has(atoi(inherited), 0, "Parent"));
        FAILS(COMMIT(atoi(inherited)), EINVAL);
        return;
    }
    int fd = open(at("file"), O_RDWR | O_CREAT, 0644), reader = open(at("file"), O_RDONLY);
    requests(fd, reader);
    visibility(fd, reader);
    dropped(fd, reader);
    sizes(fd, reader);
    limits(fd, reader);
    maps(fd);
    children(fd, reader);
    puts("done");
}
