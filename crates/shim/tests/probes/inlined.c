/* System calls that the program makes by itself. */
#include "probe.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>

static long raw6(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define RAW(number, a, b, c, d) raw6(SYS_##number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
/* Prints a result, or the name of the error. */
#define SAY(call)                                                                            \
    ({                                                                                       \
        errno = 1000;                                                                        \
        long result_ = call;                                                                 \
        printf("%s = %s", #call, result_ < 0 ? strerrorname_np(-result_) : "");              \
        if (result_ >= 0) printf("%ld", result_);                                            \
        printf("%s\n", errno == 1000 ? "" : " (errno changed)");                             \
        result_;                                                                             \
    })

static volatile int caught;
static void handler(int number) {
    (void)number;
    /* Also when nothing but this signal may come in. */
    if (RAW(access, at("d/g"), R_OK, 0, 0) == 0) caught++;
}

static void *thread(void *name) {
    char text[32] = "";
    long fd = RAW(openat, AT_FDCWD, at(name), O_RDONLY, 0);
    RAW(read, fd, text, 5, 0);
    RAW(close, fd, 0, 0, 0);
    return strdup(text);
}

static void probe(void) {
    char text[64] = "", path[PATH_MAX];
    long fd = RAW(openat, AT_FDCWD, at("f"), O_CREAT | O_RDWR, 0644);
    printf("opened %d\n", fd >= 0);
    SAY(RAW(write, fd, "0123456789", 10, 0));
    SAY(RAW(pread64, fd, text, 4, 3));
    puts(text);
    SAY(RAW(lseek, fd, -2, SEEK_END, 0));
    SAY(RAW(read, fd, text, 10, 0));
    struct stat st;
    SAY(RAW(fstat, fd, &st, 0, 0));
    printf("size %lld\n", (long long)st.st_size);
    /* The same descriptor by libc. */
    TRY(pwrite(fd, "x", 1, 0));
    SAY(RAW(open, at("none"), O_RDONLY, 0, 0));
    SAY(RAW(read, 999, text, 1, 0));
    SAY(RAW(mkdir, at("d"), 0755, 0, 0));
    SAY(RAW(rename, at("f"), at("d/g"), 0, 0));
    SAY(RAW(stat, at("d/g"), &st, 0, 0));
    SAY(RAW(unlink, at("f"), 0, 0, 0));
    strcpy(path, at("d"));
    SAY(RAW(chdir, path, 0, 0, 0));
    memset(path, 0, sizeof path);
    long len = RAW(getcwd, path, sizeof path, 0, 0);
    printf("cwd %d\n", len == (long)strlen(path) + 1);
    say_path("cwd", path);
    SAY(RAW(access, "g", R_OK, 0, 0));
    char *map = (char *)raw6(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("mapped %.4s\n", map);
    SAY(RAW(munmap, map, 4096, 0, 0));
    /* Threads, children, programs. */
    pthread_t one;
    void *said;
    pthread_create(&one, NULL, thread, "d/g");
    pthread_join(one, &said);
    printf("thread %s\n", (char *)said);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        long own = RAW(openat, AT_FDCWD, at("d/g"), O_RDONLY, 0);
        RAW(read, own, text, 3, 0);
        printf("child %.3s\n", text);
        fflush(stdout);
        RAW(exit_group, 5, 0, 0, 0);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("status %d\n", WEXITSTATUS(status));
    fflush(stdout);
    pid = RAW(fork, 0, 0, 0, 0);
    if (!pid) {
        strcpy(path, at("d/g"));
        char *arguments[] = {"cat", path, NULL};
        RAW(execve, "/bin/cat", arguments, environ, 0);
        RAW(exit_group, 6, 0, 0, 0);
    }
    waitpid(pid, &status, 0);
    printf(", status %d\n", WEXITSTATUS(status));
    /* Signals: all blocked, by libc and by number; handlers that make calls; calls that a handler interrupts. */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    SAY(RAW(access, "g", R_OK, 0, 0));
    sigprocmask(SIG_SETMASK, &before, NULL);
    unsigned long mask = ~0ul, old;
    SAY(RAW(rt_sigprocmask, SIG_SETMASK, &mask, &old, 8));
    SAY(RAW(access, "g", R_OK, 0, 0));
    RAW(rt_sigprocmask, SIG_SETMASK, &old, NULL, 8);
    /* A child that gives every signal its default, as shells and git do before they execute. */
    fflush(stdout);
    pid = fork();
    if (!pid) {
        for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
        SAY(RAW(access, "g", R_OK, 0, 0));
        sigset(SIGSYS, SIG_HOLD);
        sighold(SIGSYS);
        sigignore(SIGSYS);
        sigblock(~0);
        sigsetmask(~0);
        SAY(RAW(access, "g", R_OK, 0, 0));
        fflush(stdout);
        RAW(exit_group, 7, 0, 0, 0);
    }
    waitpid(pid, &status, 0);
    printf("status %d, signal %d\n", WEXITSTATUS(status), WTERMSIG(status));
    struct sigaction action = {.sa_handler = handler};
    sigfillset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    ualarm(20000, 0);
    int pipes[2];
    pipe(pipes);
    SAY(RAW(read, pipes[0], text, 1, 0));
    printf("caught %d\n", caught);
    SAY(RAW(access, "g", R_OK, 0, 0));
    /* Waits with a mask. */
    sigset_t but_this;
    sigfillset(&but_this);
    sigdelset(&but_this, SIGALRM);
    caught = 0;
    ualarm(20000, 0);
    TRY(sigsuspend(&but_this));
    ualarm(20000, 0);
    TRY(ppoll(NULL, 0, NULL, &but_this));
    ualarm(20000, 0);
    TRY(pselect(0, NULL, NULL, NULL, NULL, &but_this));
    int epoll = epoll_create1(0);
    struct epoll_event event;
    ualarm(20000, 0);
    TRY(epoll_pwait(epoll, &event, 1, -1, &but_this));
    printf("caught %d\n", caught);
    /* Elsewhere. */
    long null = RAW(openat, AT_FDCWD, "/dev/null", O_WRONLY, 0);
    SAY(RAW(write, null, "x", 1, 0));
    SAY(RAW(dup2, fd, null, 0, 0) == null);
    SAY(RAW(pread64, null, text, 2, 1));
    SAY(RAW(close_range, 3, ~0u, 0, 0));
    SAY(RAW(read, fd, text, 1, 0));
}
