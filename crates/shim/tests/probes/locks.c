/* Record locks, locks of open files, flock. */
#include "probe.h"
#include <sys/file.h>

static int lock(int fd, int command, int type, off_t start, off_t len) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, command, &l);
}

static void ask(int fd, int type, off_t start, off_t len, pid_t holder) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    TRY(fcntl(fd, F_GETLK, &l));
    printf("type %d start %lld len %lld by holder %d\n", l.l_type, (long long)l.l_start, (long long)l.l_len,
           l.l_type != F_UNLCK && l.l_pid == holder);
}

/* Runs in a child, which reports by its exit status. */
#define CHILD(block)                          \
    ({                                        \
        fflush(stdout);                       \
        pid_t child_ = fork();                \
        if (!child_) {                        \
            block;                            \
            fflush(stdout);                   \
            _exit(0);                         \
        }                                     \
        int status_;                          \
        waitpid(child_, &status_, 0);         \
        status_;                              \
    })

static void probe(void) {
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    write(fd, "0123456789", 10);
    pid_t me = getpid();
    TRY(lock(fd, F_SETLK, F_WRLCK, 0, 5));
    ask(fd, F_WRLCK, 0, 5, me);
    CHILD({
        ask(fd, F_WRLCK, 0, 0, me);
        ask(fd, F_RDLCK, 5, 5, me);
        TRY(lock(fd, F_SETLK, F_RDLCK, 2, 1));
        TRY(lock(fd, F_SETLK, F_WRLCK, 5, 1));
    });
    TRY(lock(fd, F_SETLK, F_UNLCK, 0, 2));
    CHILD({
        TRY(lock(fd, F_SETLK, F_WRLCK, 0, 2));
        TRY(lock(fd, F_SETLK, F_WRLCK, 1, 2));
    });
    struct flock end = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -3, .l_len = 3};
    TRY(fcntl(fd, F_SETLK, &end));
    CHILD({
        TRY(lock(fd, F_SETLK, F_WRLCK, 7, 1));
        TRY(lock(fd, F_SETLK, F_WRLCK, 10, 1));
    });
    /* Closing any descriptor of the file gives them all back. */
    int other = open(at("f"), O_RDONLY);
    close(other);
    CHILD(TRY(lock(fd, F_SETLK, F_WRLCK, 0, 0)));
    /* Waiting. */
    TRY(lock(fd, F_SETLK, F_WRLCK, 0, 0));
    int pipes[2];
    pipe(pipes);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        write(pipes[1], "r", 1);
        int got = lock(fd, F_SETLKW, F_WRLCK, 0, 0);
        _exit(got == 0 ? 21 : 22);
    }
    char c;
    read(pipes[0], &c, 1);
    usleep(20000);
    TRY(lock(fd, F_SETLK, F_UNLCK, 0, 0));
    int status;
    waitpid(child, &status, 0);
    printf("waited %d\n", WEXITSTATUS(status));
    TRY(lock(open(at("f"), O_RDONLY), F_SETLK, F_WRLCK, 0, 0));
    TRY(lock(fd, F_SETLK, F_RDLCK, -5, 1));
    /* Of open files. */
    int one = open(at("f"), O_RDWR), two = open(at("f"), O_RDWR);
    TRY(lock(one, F_OFD_SETLK, F_WRLCK, 0, 1));
    TRY(lock(two, F_OFD_SETLK, F_WRLCK, 0, 1));
    close(one);
    TRY(lock(two, F_OFD_SETLK, F_WRLCK, 0, 1));
    one = open(at("f"), O_RDWR);
    TRY(flock(one, LOCK_SH));
    TRY(flock(two, LOCK_SH | LOCK_NB));
    TRY(flock(two, LOCK_EX | LOCK_NB));
    TRY(flock(one, LOCK_UN));
    TRY(flock(two, LOCK_EX | LOCK_NB));
    int copy = dup(two);
    close(two);
    TRY(flock(one, LOCK_SH | LOCK_NB));
    close(copy);
    TRY(flock(one, LOCK_SH | LOCK_NB));
    TRY(flock(one, 77));
    TRY(flock(one, 99));
    /* Ranges that end nowhere, and owners that locks of open files do not have. */
    TRY(lock(fd, F_SETLK, F_WRLCK, LLONG_MAX, 1));
    TRY(lock(fd, F_SETLK, F_WRLCK, LLONG_MAX, 2));
    TRY(lock(fd, F_SETLK, F_WRLCK, 10, LLONG_MAX));
    TRY(lock(fd, F_SETLK, F_WRLCK, 10, LLONG_MAX - 9));
    TRY(lock(fd, F_SETLK, F_WRLCK, 10, LLONG_MIN));
    TRY(lock(fd, F_SETLK, F_WRLCK, 10, -11));
    TRY(lock(fd, F_OFD_SETLK, F_RDLCK, 10, LLONG_MAX));
    struct flock owned = {.l_type = F_RDLCK, .l_len = 1, .l_pid = 7};
    TRY(fcntl(fd, F_OFD_SETLK, &owned));
    TRY(fcntl(fd, F_OFD_GETLK, &owned));
    TRY(fcntl(fd, F_SETLK, &owned));
}
