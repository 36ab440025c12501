/* A signal's handler leaves the call that it interrupted, or makes calls of its own; threads are cancelled in the middle. */
#include "probe.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/uio.h>

static sigjmp_buf back;
static void jump(int number) { (void)number; siglongjmp(back, 1); }

static void alarm_in(long us, long interval) {
    struct itimerval time = {{0, interval}, {0, us}};
    setitimer(ITIMER_REAL, &time, NULL);
}

static char data[100000];

static void call(int what, int fd) {
    struct stat st;
    struct iovec parts[2] = {{data, 3000}, {data, 9}};
    switch (what) {
    case 0: pwrite(fd, data, 100, 0); break;
    case 1: pwrite(fd, data, sizeof data, 0); break;
    case 2: pread(fd, data, 5000, 0); break;
    case 3: stat(at("f"), &st); break;
    case 4: fsync(fd); break;
    case 5: close(open(at("f"), O_RDONLY)); break;
    case 6: lseek(fd, 1, SEEK_SET); break;
    case 7: lseek(fd, 0, SEEK_END), writev(fd, parts, 2), ftruncate(fd, 5000); break;
    case 8: rename(at("f"), at("g")), rename(at("g"), at("f")); break;
    case 9: lseek(fd, 0, SEEK_SET), read(fd, data, 100); break;
    }
}

/* However often that happens, all goes on working. */
static void leaves(int what, int fd) {
    for (volatile int round = 0; round < 400; round++) {
        if (!sigsetjmp(back, 1)) {
            alarm_in(20 + round * 37 % 300, 0);
            for (;;) call(what, fd);
        }
    }
    rename(at("g"), at("f"));
    struct stat st;
    printf("call %d was left: ", what);
    printf("%d %d %zd %d ", fstat(fd, &st), stat(at("f"), &st), pwrite(fd, "abc", 3, 0), fsync(fd));
    printf("%zd\n", pread(fd, data, 3, 0));
}

/* The time limit of a wait. */
static void leaves_waits(int fd) {
    int other = open(at("f"), O_RDWR);
    flock(other, LOCK_EX);
    struct flock all = {.l_type = F_WRLCK};
    OK(fcntl(other, F_OFD_SETLK, &all));
    for (volatile int round = 0; round < 5; round++) {
        if (!sigsetjmp(back, 1)) {
            alarm_in(20000, 0);
            flock(fd, LOCK_EX);
            puts("locked");
        }
        if (!sigsetjmp(back, 1)) {
            alarm_in(20000, 0);
            fcntl(fd, F_OFD_SETLKW, &all);
            puts("locked");
        }
    }
    close(other);
    OK(flock(fd, LOCK_EX | LOCK_NB));
    OK(fcntl(fd, F_OFD_SETLK, &all));
}

static int log_fd;
static volatile int logged, failed;
static void log_it(int number) {
    int error = errno;
    struct stat st;
    (void)number;
    logged++;
    failed += write(log_fd, "l", 1) != 1 || fstat(log_fd, &st) != 0;
    errno = error;
}

/* A handler's log loses no line. */
static void handler_writes(int fd) {
    log_fd = open(at("log"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    signal(SIGALRM, log_it);
    alarm_in(200, 200);
    int bad = 0;
    for (int i = 0; i < 3000; i++) {
        bad += write(fd, data, 5000) != 5000;
        struct stat st;
        bad += fstat(fd, &st) != 0;
    }
    alarm_in(0, 0);
    printf("handler: %d, lost %lld, failed %d, bad %d\n", logged > 0,
           (long long)(logged - lseek(log_fd, 0, SEEK_END)), failed, bad);
}

/* sigaction returns the handler that the program set, and this handler runs. */
static volatile int taken, code;
static volatile long value;
static void take(int number, siginfo_t *info, void *context) {
    (void)context;
    taken += number;
    code = info->si_code;
    value = info->si_value.sival_int;
}
static void nothing(int number) { taken += number; }

static void tells(void) {
    struct sigaction action = {.sa_sigaction = take, .sa_flags = SA_SIGINFO | SA_RESTART}, old;
    sigaddset(&action.sa_mask, SIGUSR2);
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(sigaction(SIGUSR1, NULL, &old));
    printf("%d %x %d\n", old.sa_sigaction == take, old.sa_flags & (SA_SIGINFO | SA_RESTART), sigismember(&old.sa_mask, SIGUSR2));
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 77});
    printf("%d %d %ld\n", taken, code == SI_QUEUE, value);
    printf("%d\n", signal(SIGUSR1, nothing) == (void *)take);
    printf("%d\n", signal(SIGUSR1, SIG_DFL) == nothing);
    printf("%d\n", signal(SIGUSR1, SIG_IGN) == SIG_DFL);
    action = (struct sigaction){.sa_handler = nothing, .sa_flags = SA_RESETHAND};
    OK(sigaction(SIGUSR1, &action, &old));
    printf("%d %x\n", old.sa_handler == SIG_IGN, old.sa_flags & SA_SIGINFO);
    OK(sigaction(SIGUSR1, NULL, &old));
    printf("%d %x\n", old.sa_handler == nothing, old.sa_flags & (SA_RESETHAND | SA_SIGINFO));
    taken = 0;
    raise(SIGUSR1);
    OK(sigaction(SIGUSR1, NULL, &old));
    printf("%d %d\n", taken, old.sa_handler == SIG_DFL);
    TRY(sigaction(SIGKILL, &action, NULL));
    TRY(sigaction(65, &action, NULL));
}

/* A fault's handler runs at once. */
static void fault(int number) { (void)number; siglongjmp(back, 2); }
static void faults(int fd) {
    signal(SIGSEGV, fault);
    volatile int turn = sigsetjmp(back, 1);
    if (!turn) *(volatile int *)8 = 1;
    printf("fault: %d, %zd\n", turn, pwrite(fd, "abc", 3, 0));
    signal(SIGSEGV, SIG_DFL);
}

static int shared;
static void *works(void *unused) {
    char mine[5000];
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) {
        pwrite(shared, mine, sizeof mine, 0);
        pread(shared, mine, sizeof mine, 3);
    }
    return unused;
}

static void cancels(int fd) {
    shared = fd;
    int ended = 0;
    for (int round = 0; round < 100; round++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, works, NULL);
        usleep(300 + round * 13);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        ended += result == PTHREAD_CANCELED;
    }
    printf("cancelled: %d, then %zd\n", ended, pwrite(fd, "abc", 3, 0));
}

static int calls_for_ever(void *unused) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int fd = open("/dev/null", O_RDONLY);
        dup2(fd, 900);
        close(fd);
    }
    return unused != NULL;
}

/* Two threads of the kernel with one thread-local memory: a signal of one is not lost while the other calls. */
static void shares_thread_memory(void) {
    static _Alignas(16) char stack[65536];
    const char *path = at("pipe");
    OK(mkfifo(path, 0600));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        struct sigaction action = {.sa_handler = nothing};
        sigaction(SIGALRM, &action, NULL);
        pid_t other = clone(calls_for_ever, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
        int interrupted = 0;
        for (int round = 0; round < 200; round++) {
            alarm_in(1000, 1000);
            interrupted += open(path, O_RDONLY) == -1 && errno == EINTR;
        }
        kill(other, SIGKILL);
        _exit(interrupted);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("interrupted: %d\n", WEXITSTATUS(status));
}

static void probe(void) {
    int fd = open(at("f"), O_RDWR | O_CREAT, 0600);
    tells();
    faults(fd);
    signal(SIGALRM, jump);
    for (int what = 0; what < 10; what++) leaves(what, fd);
    leaves_waits(fd);
    handler_writes(fd);
    signal(SIGALRM, SIG_DFL);
    cancels(fd);
    shares_thread_memory();
}
