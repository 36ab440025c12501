/* System calls past libc on stacks without room for a signal: threads, fibers, handlers, children; and alternate signal
 * stacks as the program sets and sees them. */
#include "probe.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>

static long raw(long number, long a, long b, long c, long d) {
    long result;
    register long r10 asm("r10") = d;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

static void say_stack(const char *what) {
    stack_t past, by_libc;
    memset(&past, 1, sizeof past);
    memset(&by_libc, 1, sizeof by_libc);
    long result = raw(SYS_sigaltstack, 0, (long)&past, 0, 0);
    sigaltstack(NULL, &by_libc);
    printf("%s: %ld flags %d bytes %zu, by libc flags %d bytes %zu\n", what, result, past.ss_flags, past.ss_size,
           by_libc.ss_flags, by_libc.ss_size);
}

/* A file written, read, renamed and removed by calls past libc; what went wrong first, or 0. Needs next to no stack. */
static char from[64][PATH_MAX], to[64][PATH_MAX], bytes[64][8192];
static long files(int number) {
    char *a = from[number], *b = to[number];
    long fd = raw(SYS_openat, AT_FDCWD, (long)a, O_RDWR | O_CREAT, 0644);
    if (fd < 0)
        return fd;
    long n = raw(SYS_pwrite64, fd, (long)bytes[number], sizeof bytes[number], 0);
    if (n != sizeof bytes[number])
        return n ? n : -1;
    n = raw(SYS_pread64, fd, (long)bytes[number], sizeof bytes[number], 0);
    if (n != sizeof bytes[number])
        return n ? n : -2;
    if ((n = raw(SYS_close, fd, 0, 0, 0)))
        return n;
    if ((n = raw(SYS_rename, (long)a, (long)b, 0, 0)))
        return n;
    return raw(SYS_unlink, (long)b, 0, 0, 0);
}

static volatile int handled;
static long in_handler;
static void on_signal(int signal) {
    handled++;
    in_handler = files(1);
}
static void on_signal_that_asks(int signal) { say_stack("in a handler"); }

static ucontext_t here, there;
static long on_fiber_result;
static void on_fiber(void) { on_fiber_result = files(2); }

static void *on_thread(void *number) {
    for (int round = 0; round < 20; round++) {
        long result = files((long)number);
        if (result)
            return (void *)result;
    }
    if ((long)number % 2)
        pthread_exit(NULL);
    return NULL;
}

static int maps(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    int lines = 0, c;
    while ((c = getc(file)) != EOF)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static void threads(void) {
    pthread_attr_t least;
    pthread_attr_init(&least);
    pthread_attr_setstacksize(&least, 16384);
    pthread_t all[8];
    for (long i = 0; i < 8; i++)
        pthread_create(&all[i], &least, on_thread, (void *)(10 + i));
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(all[i], &result);
        if (result)
            printf("a thread: %ld\n", (long)result);
    }
}

static void child(const char *what, pid_t pid) {
    int status = -1;
    if (pid == 0)
        _exit(files(3) ? 1 : 0);
    waitpid(pid, &status, 0);
    printf("%s: %d\n", what, status);
}

static void probe(void) {
    for (int i = 0; i < 64; i++) {
        snprintf(from[i], PATH_MAX, "%s/a%d", root, i);
        snprintf(to[i], PATH_MAX, "%s/b%d", root, i);
    }
    say_stack("at first");
    printf("files: %ld\n", files(0));

    /* A stack without a guard and with little room: what lies below it stays. */
    static char region[65536] __attribute__((aligned(4096)));
    memset(region, 0x5a, sizeof region);
    getcontext(&there);
    there.uc_stack.ss_sp = region + 32768, there.uc_stack.ss_size = 2048, there.uc_link = &here;
    makecontext(&there, on_fiber, 0);
    swapcontext(&here, &there);
    int touched = 0;
    for (int i = 0; i < 32768; i++)
        touched += region[i] != 0x5a;
    printf("on a fiber of 2 KiB: %ld, %d bytes touched below\n", on_fiber_result, touched);

    /* The program's own alternate stack, of the size that was usual. */
    static char own[8192] __attribute__((aligned(16))), other[8192] __attribute__((aligned(16)));
    stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
    printf("set: %ld\n", raw(SYS_sigaltstack, (long)&stack, 0, 0, 0));
    say_stack("set");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_signal_that_asks;
    sigaction(SIGUSR2, &action, NULL);
    action.sa_flags = 0;
    sigaction(SIGURG, &action, NULL);
    printf("files with it: %ld\n", files(0));
    for (int i = 0; i < 100; i++)
        raise(SIGUSR1);
    printf("handled %d, files in a handler: %ld\n", handled, in_handler);
    static char large[65536] __attribute__((aligned(16)));
    stack.ss_sp = large, stack.ss_size = sizeof large;
    printf("larger: %ld\n", raw(SYS_sigaltstack, (long)&stack, 0, 0, 0));
    raise(SIGUSR2);
    raise(SIGURG);
    threads();
    say_stack("after threads");
    int before = maps();
    for (int i = 0; i < 10; i++)
        threads();
    printf("as many maps as before: %d\n", maps() <= before + 16);

    /* Errors, and the end of it. */
    stack.ss_sp = other, stack.ss_size = 100;
    printf("too small: %ld\n", raw(SYS_sigaltstack, (long)&stack, 0, 0, 0));
    stack.ss_size = sizeof other, stack.ss_flags = 77;
    printf("flags: %ld\n", raw(SYS_sigaltstack, (long)&stack, 0, 0, 0));
    stack.ss_flags = 0;
    OK(sigaltstack(&stack, NULL));
    say_stack("by libc");
    stack.ss_flags = SS_DISABLE;
    printf("disable: %ld\n", raw(SYS_sigaltstack, (long)&stack, 0, 0, 0));
    say_stack("disabled");
    printf("files: %ld\n", files(0));
    raise(SIGUSR2);

    /* The mask that a call past libc sets lasts. */
    unsigned long mask = 1ul << (SIGUSR1 - 1);
    printf("block: %ld\n", raw(SYS_rt_sigprocmask, SIG_BLOCK, (long)&mask, 0, 8));
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    printf("blocked: %d\n", sigismember(&now, SIGUSR1));
    printf("unblock: %ld\n", raw(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&mask, 0, 8));
    sigprocmask(SIG_BLOCK, NULL, &now);
    printf("blocked: %d\n", sigismember(&now, SIGUSR1));

    child("fork", fork());
    child("by number", raw(SYS_fork, 0, 0, 0, 0));
    child("clone", raw(SYS_clone, SIGCHLD, 0, 0, 0));
    printf("system: %d\n", system("true"));
    printf("files: %ld\n", files(0));
}
