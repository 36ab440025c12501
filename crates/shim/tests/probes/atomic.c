/* RWF_ATOMIC on files that are open with O_DIRECT: says what is wrong, and nothing else. */
#include "probe.h"
#include <linux/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define ATOMIC 0x40
#define ASKS 0x10000u

static char bytes[4 << 20];

static ssize_t put(int fd, size_t len, off_t at, int flags) {
    struct iovec part = {bytes, len};
    return pwritev2(fd, &part, 1, at, flags);
}

static off_t size_of(int fd) {
    struct stat stat;
    return fstat(fd, &stat) ? -1 : stat.st_size;
}

/* Whether a file has so many bytes of this kind at an offset. */
static bool has(int fd, off_t at, size_t len, char byte) {
    static char found[1 << 20];
    if (pread(fd, found, len, at) != (ssize_t)len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (found[i] != byte)
            return false;
    return true;
}

static void refusals(int fd) {
    FAILS(put(fd, 4096, 1024, ATOMIC), EINVAL);
    FAILS(put(fd, 8192, 4096, ATOMIC), EINVAL);
    FAILS(put(fd, 12288, 0, ATOMIC), EINVAL);
    FAILS(put(fd, 512, 0, ATOMIC), EINVAL);
    FAILS(put(fd, 2 << 20, 0, ATOMIC), EINVAL);
    FAILS(put(fd, 4096, 0, ATOMIC | 0x4000), EOPNOTSUPP);
    struct iovec two[] = {{bytes, 4096}, {bytes, 4096}};
    FAILS(pwritev2(fd, two, 2, 0, ATOMIC), EINVAL);
    FAILS(preadv2(fd, two, 1, 0, ATOMIC), EOPNOTSUPP);
    struct iovec nowhere = {NULL, 4096};
    FAILS(pwritev2(fd, &nowhere, 1, 0, ATOMIC), EFAULT);
    int reader = open(at("file"), O_RDONLY | O_DIRECT), buffered = open(at("file"), O_RDWR);
    FAILS(put(reader, 4096, 0, ATOMIC), EBADF);
    FAILS(put(buffered, 4096, 0, ATOMIC), EOPNOTSUPP);
    WANT(size_of(fd) == 0);
    close(reader);
    close(buffered);
}

static void writes(int fd) {
    memset(bytes, 'a', sizeof bytes);
    WANT(put(fd, 16384, 0, ATOMIC) == 16384 && size_of(fd) == 16384);
    memset(bytes, 'b', sizeof bytes);
    WANT(put(fd, 8192, 8192, ATOMIC | RWF_DSYNC) == 8192);
    WANT(has(fd, 0, 8192, 'a') && has(fd, 8192, 8192, 'b'));
    WANT(lseek(fd, 0, SEEK_CUR) == 0);
    /* At the file offset, which moves. */
    memset(bytes, 'c', sizeof bytes);
    WANT(put(fd, 4096, -1, ATOMIC) == 4096 && lseek(fd, 0, SEEK_CUR) == 4096);
    WANT(has(fd, 0, 4096, 'c') && has(fd, 4096, 4096, 'a'));
    WANT(put(fd, 1 << 20, 1 << 20, ATOMIC) == 1 << 20 && size_of(fd) == 2 << 20);
    WANT(has(fd, 1 << 20, 1 << 20, 'c') && has(fd, 16384, 4096, 0));
    /* Plain writes come before and after. */
    WANT(pwrite(fd, "plain", 5, 100) == 5);
    memset(bytes, 'd', sizeof bytes);
    WANT(put(fd, 4096, 0, ATOMIC) == 4096 && has(fd, 0, 4096, 'd'));
    WANT(pwrite(fd, "e", 1, 0) == 1 && has(fd, 0, 1, 'e') && has(fd, 1, 4095, 'd'));
    /* A map shows it. */
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[4096] = 'm';
    memset(bytes, 'f', sizeof bytes);
    WANT(put(fd, 4096, 0, ATOMIC) == 4096 && map[0] == 'f' && map[4096] == 'm' && has(fd, 4096, 1, 'm'));
    munmap(map, 8192);
}

static void appends(void) {
    int fd = open(at("log"), O_WRONLY | O_CREAT | O_APPEND | O_DIRECT, 0644);
    for (int i = 0; i < 8; i++)
        WANT(put(fd, 4096, 0, ATOMIC) == 4096);
    WANT(size_of(fd) == 32768);
    WANT(put(fd, 65536, 0, ATOMIC) == -1 && errno == EINVAL);
    close(fd);
}

static void told(int fd) {
    struct statx stat = {0};
    WANT(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | ASKS, (void *)&stat) == 0);
    unsigned *words = (unsigned *)((char *)&stat + 0xa8);
    WANT(stat.stx_mask & ASKS && words[0] == 4096 && words[1] == 1 << 20 && words[2] == 1);
    WANT(stat.stx_attributes & 0x400000);
    WANT(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, (void *)&stat) == 0 && !(stat.stx_mask & ASKS));
    WANT(statx(AT_FDCWD, root, 0, ASKS, (void *)&stat) == 0 && !(stat.stx_mask & ASKS));
}

static void probe(void) {
    int fd = open(at("file"), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
    WANT(fd >= 0);
    refusals(fd);
    writes(fd);
    appends();
    told(fd);
    puts("done");
}
