/* Waiting for locks: signals, deadlocks, descriptors closed meanwhile, programs executed meanwhile. */
#include "probe.h"
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/time.h>

static int lock(int fd, int command, int type, off_t start, off_t len) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, command, &l);
}

static void handler(int number) { (void)number; }

static void handle(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static void alarm_every(long us) {
    struct itimerval every = {.it_interval = {0, us}, .it_value = {0, us}};
    setitimer(ITIMER_REAL, &every, NULL);
}

/* Runs `block` in a child. The parent waits until `ready` was called in it, or it has ended. */
static int pipes[2];
static void ready(void) { write(pipes[1], "r", 1); }
#define START(block)                \
    ({                              \
        char c_;                    \
        fflush(stdout);             \
        pid_t child_ = fork();      \
        if (!child_) {              \
            block;                  \
            fflush(stdout);         \
            _exit(0);               \
        }                           \
        read(pipes[0], &c_, 1);     \
        child_;                     \
    })

static int end(pid_t child) {
    int status;
    kill(child, SIGKILL);
    return waitpid(child, &status, 0) == child;
}

static int waits(pid_t child) {
    usleep(50000);
    return waitpid(child, NULL, WNOHANG) == 0;
}

static int shared_fd;
static int done_with;
static void *wait_in_flock(void *unused) {
    (void)unused;
    ready();
    done_with = flock(shared_fd, LOCK_EX);
    return NULL;
}
static void *wait_for_record(void *unused) {
    (void)unused;
    ready();
    done_with = lock(shared_fd, F_SETLKW, F_WRLCK, 0, 1) ? errno : 0;
    return NULL;
}

static void signals(void) {
    int fd = open(at("signals"), O_CREAT | O_RDWR, 0644);
    pid_t holder = START({
        lock(fd, F_SETLK, F_WRLCK, 0, 0);
        int other = open(at("signals"), O_RDWR);
        flock(other, LOCK_EX);
        ready();
        pause();
    });
    /* Without SA_RESTART the wait ends, and leaves nothing behind. */
    handle(0);
    alarm_every(30000);
    TRY(lock(fd, F_SETLKW, F_WRLCK, 0, 1));
    TRY(lock(fd, F_OFD_SETLKW, F_WRLCK, 0, 1));
    TRY(flock(fd, LOCK_EX));
    TRY(lockf(fd, F_LOCK, 5));
    TRY(flock(fd, LOCK_SH | LOCK_NB));
    alarm_every(0);
    printf("holder %d\n", end(holder));
    TRY(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    TRY(flock(fd, LOCK_EX | LOCK_NB));
    close(fd);
    /* With it the wait goes on, whatever comes. */
    handle(SA_RESTART);
    fd = open(at("signals"), O_RDWR);
    lock(fd, F_SETLK, F_WRLCK, 0, 0);
    flock(fd, LOCK_EX);
    pid_t waiter = START({
        handle(SA_RESTART);
        ready();
        int got = lock(fd, F_SETLKW, F_WRLCK, 0, 0);
        int other = open(at("signals"), O_RDWR);
        got += flock(other, LOCK_EX);
        _exit(got == 0 ? 0 : 1);
    });
    usleep(20000);
    for (int i = 0; i < 5; i++) {
        kill(waiter, SIGUSR1);
        usleep(5000);
    }
    lock(fd, F_SETLK, F_UNLCK, 0, 0);
    for (int i = 0; i < 5; i++) {
        usleep(5000);
        kill(waiter, SIGUSR1);
    }
    flock(fd, LOCK_UN);
    int status;
    waitpid(waiter, &status, 0);
    printf("waiter ended with %d\n", status);
}

static void deadlocks(void) {
    int fd = open(at("ring"), O_CREAT | O_RDWR, 0644);
    lock(fd, F_SETLK, F_WRLCK, 0, 1);
    pid_t child = START({
        lock(fd, F_SETLK, F_WRLCK, 1, 1);
        ready();
        lock(fd, F_SETLKW, F_WRLCK, 0, 1);
    });
    printf("child waits %d\n", waits(child));
    TRY(lock(fd, F_SETLKW, F_WRLCK, 1, 1));
    TRY(lock(fd, F_SETLKW, F_RDLCK, 1, 1));
    TRY(lock(fd, F_SETLK, F_WRLCK, 1, 1));
    TRY(lock(fd, F_SETLKW, F_WRLCK, 2, 1));
    printf("child %d\n", end(child));
    TRY(lock(fd, F_SETLKW, F_WRLCK, 1, 1));
    close(fd);
}

static void closing(void) {
    /* The last descriptor closed while a thread waits in flock: it gets the lock, which ends at once. */
    int fd = open(at("closing"), O_CREAT | O_RDWR, 0644);
    flock(fd, LOCK_EX);
    shared_fd = open(at("closing"), O_RDWR);
    pthread_t thread;
    char c;
    done_with = 77;
    pthread_create(&thread, NULL, wait_in_flock, NULL);
    read(pipes[0], &c, 1);
    usleep(30000);
    close(shared_fd);
    usleep(30000);
    printf("still waits %d\n", done_with == 77);
    flock(fd, LOCK_UN);
    pthread_join(thread, NULL);
    printf("flock of a closed descriptor = %d\n", done_with);
    TRY(flock(fd, LOCK_EX | LOCK_NB));
    close(fd);
    /* The same with a record lock: the descriptor is gone, and so is what it might have locked. */
    fd = open(at("closing"), O_RDWR);
    pid_t holder = START({
        lock(fd, F_SETLK, F_WRLCK, 0, 0);
        ready();
        pause();
    });
    shared_fd = open(at("closing"), O_RDWR);
    pthread_create(&thread, NULL, wait_for_record, NULL);
    read(pipes[0], &c, 1);
    usleep(30000);
    close(shared_fd);
    printf("holder %d\n", end(holder));
    pthread_join(thread, NULL);
    printf("record lock of a closed descriptor: %d\n", done_with == EBADF);
    pid_t other = START({
        printf("free %d\n", lock(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
        fflush(stdout);
        ready();
    });
    waitpid(other, NULL, 0);
    close(fd);
}

/* A program keeps the record locks of the one it replaces, but those of files that exec closes. */
static void executing(void) {
    int fd = open(at("kept"), O_CREAT | O_RDWR, 0644);
    int gone = open(at("gone"), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    pid_t child = START({
        lock(fd, F_SETLK, F_WRLCK, 0, 1);
        lock(gone, F_SETLK, F_WRLCK, 0, 1);
        flock(fd, LOCK_EX);
        char number[16];
        snprintf(number, sizeof number, "%d", pipes[1]);
        setenv("READY", number, 1);
        execl("/bin/sh", "sh", "-c", "printf r >&$READY; exec sleep 60", NULL);
    });
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    usleep(50000);
    TRY(fcntl(fd, F_GETLK, &l));
    printf("held by the program %d\n", l.l_type == F_WRLCK && l.l_pid == child);
    TRY(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    TRY(lock(gone, F_SETLK, F_WRLCK, 0, 1));
    int other = open(at("kept"), O_RDWR);
    TRY(flock(other, LOCK_SH | LOCK_NB));
    printf("child %d\n", end(child));
    /* A failed exec changes nothing. */
    child = START({
        lock(fd, F_SETLKW, F_WRLCK, 0, 1);
        execl("/nonexistent", "x", NULL);
        printf("still mine %d\n", lock(fd, F_SETLK, F_WRLCK, 0, 1));
        fflush(stdout);
        ready();
        pause();
    });
    TRY(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    printf("child %d\n", end(child));
    TRY(lock(fd, F_SETLKW, F_WRLCK, 0, 1));
    close(fd);
}

static void probe(void) {
    pipe(pipes);
    signals();
    deadlocks();
    closing();
    executing();
}
