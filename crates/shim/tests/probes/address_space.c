/* Limits on the address space, set after files were used: what is open goes on, there is room for the program, and it executes
 * others. */
#include "probe.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#define MIB (1024 * 1024l)

static void limit(long mib) {
    struct rlimit now = {mib * MIB, mib * MIB};
    TRY(setrlimit(RLIMIT_AS, &now));
}

static void end(const char *what, pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    printf("%s: %d\n", what, status);
}

/* What is open and new, under a limit. */
static void use(int log, int data) {
    char bytes[6000];
    TRY(write(log, "a line\n", 7));
    TRY(pread(data, bytes, sizeof bytes, 0));
    TRY(bytes[5000]);
    TRY(pwrite(data, "overwritten", 11, 4000));
    TRY(lseek(log, 0, SEEK_CUR));
    int new = open(at("new"), O_RDWR | O_CREAT | O_APPEND, 0600);
    TRY(write(new, "some", 4));
    TRY(fsync(new));
    TRY(close(new));
    struct stat st;
    TRY(stat(at("log"), &st));
    TRY(st.st_size);
}

static void probe(void) {
    char bytes[6000];
    memset(bytes, 'x', sizeof bytes);
    int log = open(at("log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    int data = open(at("data"), O_RDWR | O_CREAT, 0600);
    TRY(write(log, "first\n", 6));
    TRY(pwrite(data, bytes, sizeof bytes, 0));
    TRY(pwrite(data, bytes, 100, 4096));
    say_file("log");
    fflush(stdout);
    for (int round = 0; round < 4; round++) {
        pid_t pid = fork();
        if (!pid) {
            if (round & 1)
                TRY(write(log, "the child\n", 10));
            limit(round & 2 ? 700 : 200);
            void *room = mmap(NULL, 100 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            printf("room: %d\n", room != MAP_FAILED);
            use(log, data);
            fflush(stdout);
            if (chdir(root))
                _exit(2);
            execl("/bin/sh", "sh", "-c", "cat log new; echo more >> log; wc -c < data; mv new newer", NULL);
            perror("execl");
            _exit(1);
        }
        end("child", pid);
    }
    /* With nothing left at all, and by system calls. */
    pid_t pid = fork();
    if (!pid) {
        struct rlimit none = {4096, 4096};
        TRY(syscall(SYS_prlimit64, 0, RLIMIT_AS, &none, NULL));
        TRY(write(log, "none left\n", 10));
        fflush(stdout);
        none.rlim_cur = none.rlim_max = 4096;
        execl("/bin/true", "true", NULL);
        printf("%s\n", strerrorname_np(errno));
        fflush(stdout);
        _exit(3);
    }
    end("without room", pid);
    /* Without a free descriptor. */
    pid = fork();
    if (!pid) {
        struct rlimit few = {64, 64}, much = {1l << 42, 1l << 42};
        TRY(write(log, "all descriptors\n", 16));
        setrlimit(RLIMIT_NOFILE, &few);
        while (dup(0) >= 0) {}
        TRY(setrlimit(RLIMIT_AS, &much));
        TRY(write(log, "are in use\n", 11));
        fflush(stdout);
        _exit(0);
    }
    end("without descriptors", pid);
    /* The process itself goes on, and makes children. */
    limit(200);
    use(log, data);
    fflush(stdout);
    pid = fork();
    if (!pid) {
        use(log, data);
        fflush(stdout);
        execl("/bin/echo", "echo", "by a child of the limited process", NULL);
        _exit(1);
    }
    end("child of the limited", pid);
    say_file("log");
    say_file("new");
}
