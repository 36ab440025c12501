/* Reading and writing in all forms, sizes, holes, preallocation. */
#include "probe.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

static char big[3 << 20], back[3 << 20];

static void probe(void) {
    int fd = OK(open(at("f"), O_CREAT | O_RDWR, 0644));
    struct iovec parts[40];
    for (int i = 0; i < 40; i++) parts[i] = (struct iovec){"abcdefghij" + i % 10, 1 + i % 3 ? 1 : 1};
    TRY(writev(fd, parts, 40));
    TRY(writev(fd, parts, 0));
    TRY(writev(fd, parts, -1));
    TRY(writev(fd, parts, 5000));
    TRY(pwritev(fd, parts, 3, 100));
    TRY(pwritev2(fd, parts, 2, -1, 0));
    TRY(pwritev2(fd, parts, 2, 5, RWF_DSYNC));
    TRY(lseek(fd, 0, SEEK_CUR));
    TRY(lseek(fd, 0, SEEK_END));
    char a[10] = "", b[60] = "";
    struct iovec into[2] = {{a, 9}, {b, 50}};
    TRY(preadv(fd, into, 2, 0));
    printf("%s %s\n", a, b);
    TRY(lseek(fd, 30, SEEK_SET));
    TRY(readv(fd, into, 2));
    TRY(preadv2(fd, into, 1, -1, 0));
    TRY(pread(fd, a, 5, 1000));
    TRY(pread(fd, a, 5, -1));
    TRY(pwrite(fd, "z", 1, -1));
    TRY(pread(fd, a, 0, 0));
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 131 >> 7);
    int large = OK(open(at("large"), O_CREAT | O_RDWR | O_TRUNC, 0644));
    TRY(write(large, big, sizeof big));
    TRY(pread(large, back, sizeof back, 0));
    printf("same %d\n", !memcmp(big, back, sizeof big));
    for (int i = 0; i < 500; i++) {
        size_t place = (size_t)i * 7919 % (sizeof big - 5000), len = 1 + i * 37 % 5000;
        memset(big + place, i, len);
        if (pwrite(large, big + place, len, place) != (ssize_t)len) puts("short");
    }
    TRY(pread(large, back, sizeof back, 0));
    printf("same %d\n", !memcmp(big, back, sizeof big));
    TRY(fsync(large));
    TRY(fdatasync(large));
    TRY(sync_file_range(large, 0, 4096, SYNC_FILE_RANGE_WRITE));
    TRY(sync_file_range(large, -1, 4096, 0));
    TRY(posix_fadvise(large, 0, 0, POSIX_FADV_SEQUENTIAL));
    TRY(posix_fadvise(large, 0, 0, 99));
    TRY(readahead(large, 0, 4096));
    TRY(syncfs(large));
    int sparse = OK(open(at("sparse"), O_CREAT | O_RDWR, 0644));
    TRY(pwrite(sparse, "end", 3, 1 << 20));
    struct stat st;
    TRY(fstat(sparse, &st));
    printf("%lld bytes, few blocks %d\n", (long long)st.st_size, st.st_blocks < 1000);
    TRY(pread(sparse, a, 4, 4096));
    printf("%d\n", a[0] | a[1] | a[2] | a[3]);
    TRY(lseek(sparse, 0, SEEK_DATA));
    TRY(lseek(sparse, 0, SEEK_HOLE));
    TRY(ftruncate(sparse, 100));
    TRY(ftruncate(sparse, 5000));
    TRY(lseek(sparse, 0, SEEK_END));
    TRY(ftruncate(sparse, -1));
    TRY(truncate(at("sparse"), 50));
    TRY(truncate(at("missing"), 50));
    TRY(truncate(root, 50));
    TRY(fstat(sparse, &st));
    printf("%lld\n", (long long)st.st_size);
    TRY(fallocate(sparse, FALLOC_FL_KEEP_SIZE, 0, 1 << 16));
    TRY(lseek(sparse, 0, SEEK_END));
    TRY(posix_fallocate(sparse, 0, 1 << 16));
    TRY(lseek(sparse, 0, SEEK_END));
    TRY(posix_fallocate(sparse, -1, 10));
    TRY(pwrite(sparse, big, 10000, 0));
    TRY(fallocate(sparse, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
    TRY(pread(sparse, back, 10000, 0));
    memset(big + 4096, 0, 4096);
    printf("same %d\n", !memcmp(big, back, 10000));
    /* Between files. */
    int copy = OK(open(at("copy"), O_CREAT | O_RDWR, 0644));
    off_t from = 10, to = 0;
    TRY(copy_file_range(large, &from, copy, &to, 100000, 0));
    printf("%lld %lld\n", (long long)from, (long long)to);
    TRY(pread(large, big, 100000, 10));
    TRY(pread(copy, back, 100000, 0));
    printf("same %d\n", !memcmp(big, back, 100000));
    int pipes[2];
    pipe(pipes);
    from = 5;
    TRY(sendfile(pipes[1], fd, &from, 10));
    TRY(read(pipes[0], a, 9));
    printf("%.9s %lld\n", a, (long long)from);
    TRY(lseek(fd, 0, SEEK_SET));
    TRY(sendfile(copy, fd, NULL, 20));
    TRY(lseek(fd, 0, SEEK_CUR));
    TRY(dprintf(copy, "%s %d\n", "printed", 42) < 0 ? 11 : 11);
    TRY(open(at("f"), O_CREAT | O_EXCL));
    TRY(creat(at("f"), 0600));
    say_file("f");
    TRY(lockf(fd, F_TLOCK, 0));
    TRY(lockf(fd, F_TEST, 0));
    TRY(lockf(fd, F_ULOCK, 0));
    unsigned long long hint = 3;
    TRY(fcntl(fd, 1036 /* F_SET_RW_HINT */, &hint));
    hint = 77;
    TRY(fcntl(fd, 1036, &hint));
    /* Lengths that no memory has. */
    char small[8] = "abcdefg";
    struct iovec much[2] = {{small, -1}, {small, 1}}, late[2] = {{small, 3}, {small, -5}}, wrong[2] = {{small, 3}, {(void *)-9, 5}};
    struct iovec wide[2] = {{small, 3}, {small, 1l << 62}};
    for (int round = 0; round < 4; round++) {
        struct iovec *parts = round == 0 ? much : round == 1 ? late : round == 2 ? wrong : wide;
        TRY(writev(fd, parts, 2));
        TRY(readv(fd, parts, 2));
        TRY(pwritev(fd, parts, 2, 0));
        TRY(preadv(fd, parts, 2, 0));
        TRY(pwritev2(fd, parts, 2, -1, 0));
    }
    TRY(write(fd, small, -1));
    TRY(read(fd, small, -1));
    TRY(pwrite(fd, small, -1, 0));
    TRY(pread(fd, small, -1, 0));
    TRY(write(fd, (void *)-9, 5));
    TRY(read(fd, (void *)-9, 5));
    symlink("target", at("link"));
    TRY(readlink(at("link"), small, -1));
    say_file("f");
}
