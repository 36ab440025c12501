/* The limit on the size of files: who is refused, who writes less, and the signal. */
#include "probe.h"
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <ulimit.h>

static volatile sig_atomic_t signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void limit(rlim_t bytes) {
    struct rlimit now;
    getrlimit(RLIMIT_FSIZE, &now);
    now.rlim_cur = bytes;
    printf("limit %lld: %d\n", (long long)bytes, setrlimit(RLIMIT_FSIZE, &now));
}

#define SIGNALLED(expression)                  \
    do {                                       \
        signals = 0;                           \
        TRY(expression);                       \
        printf("  signals: %d\n", (int)signals); \
    } while (0)

static void probe(void) {
    static char bytes[20000];
    struct stat st;
    memset(bytes, 'b', sizeof bytes);
    signal(SIGXFSZ, count);
    int fd = open(at("f"), O_RDWR | O_CREAT, 0644);
    int large = open(at("large"), O_RDWR | O_CREAT, 0644);
    TRY(ftruncate(large, 50000));
    limit(10000);
    SIGNALLED(write(fd, bytes, 6000));
    SIGNALLED(write(fd, bytes, 6000));
    SIGNALLED(write(fd, bytes, 6000));
    SIGNALLED(write(fd, bytes, 0));
    SIGNALLED(pwrite(fd, bytes, 100, 9950));
    SIGNALLED(pwrite(fd, bytes, 100, 10000));
    SIGNALLED(pwrite(fd, bytes, 100, 12000));
    SIGNALLED(pwrite(fd, bytes, 100, 0));
    struct iovec parts[3] = {{bytes, 3000}, {bytes, 0}, {bytes, 3000}};
    SIGNALLED(pwritev(fd, parts, 3, 8000));
    SIGNALLED(pwritev(fd, parts, 3, 5000));
    TRY(ftruncate(fd, 7000));
    TRY(lseek(fd, 0, SEEK_END));
    SIGNALLED(writev(fd, parts, 3));
    SIGNALLED(writev(fd, parts, 3));
    SIGNALLED(ftruncate(fd, 10000));
    SIGNALLED(ftruncate(fd, 10001));
    SIGNALLED(truncate(at("f"), 20000));
    SIGNALLED(truncate(at("f"), 5));
    SIGNALLED(truncate(at("nothing"), 20000));
    SIGNALLED(fallocate(fd, 0, 0, 10000));
    SIGNALLED(fallocate(fd, 0, 5000, 5001));
    SIGNALLED(fallocate(fd, FALLOC_FL_KEEP_SIZE, 5000, 50000));
    SIGNALLED(posix_fallocate(fd, 5000, 50000));
    /* What is too large already may shrink, but not be written behind the limit. */
    SIGNALLED(ftruncate(large, 40000));
    SIGNALLED(pwrite(large, bytes, 10, 30000));
    SIGNALLED(pwrite(large, bytes, 10, 300));
    int append = open(at("f"), O_WRONLY | O_APPEND);
    TRY(ftruncate(fd, 9990));
    SIGNALLED(write(append, bytes, 100));
    SIGNALLED(write(append, bytes, 100));
    SIGNALLED(pwrite(append, bytes, 100, 0));
    int target = open(at("target"), O_RDWR | O_CREAT, 0644);
    off_t from = 0;
    SIGNALLED(sendfile(target, large, &from, 8000));
    SIGNALLED(sendfile(target, large, &from, 8000));
    SIGNALLED(sendfile(target, large, &from, 8000));
    loff_t in = 0, out = 9000;
    SIGNALLED(copy_file_range(large, &in, target, &out, 5000, 0));
    SIGNALLED(copy_file_range(large, &in, target, &out, 5000, 0));
    SIGNALLED(write(open(at("f"), O_RDONLY), bytes, sizeof bytes));
    FILE *stream = fopen(at("stream"), "w");
    signals = 0;
    size_t written = fwrite(bytes, 1, sizeof bytes, stream);
    int closed = fclose(stream);
    printf("stream: %s, signals: %d\n", written == sizeof bytes && !closed ? "written" : "refused", signals > 0);
    printf("size %lld\n", stat(at("stream"), &st) ? -1LL : (long long)st.st_size);
    printf("ulimit %ld\n", ulimit(UL_SETFSIZE, 30));
    SIGNALLED(ftruncate(fd, 30 * 512));
    SIGNALLED(ftruncate(fd, 30 * 512 + 1));
    struct rlimit both = {.rlim_cur = 12000, .rlim_max = 20000};
    TRY(prlimit(0, RLIMIT_FSIZE, &both, NULL));
    SIGNALLED(pwrite(fd, bytes, 100, 12000));
    SIGNALLED(pwrite(fd, bytes, 100, 11950));
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        signal(SIGXFSZ, SIG_DFL);
        pwrite(fd, bytes, 10, 15000);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child: %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "lives");
    /* What is ignored is an error alone; an executed program finds the limit. */
    signal(SIGXFSZ, SIG_IGN);
    TRY(pwrite(fd, bytes, 10, 15000));
    fflush(stdout);
    setenv("HERE", root, 1);
    system("head -c 30000 /dev/zero > $HERE/by_shell 2> /dev/null; echo $?; stat -c %s $HERE/by_shell");
}
