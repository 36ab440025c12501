/* All descriptors are in use: what a program can do natively without one it can do on a volume. */
#include "probe.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void child(int number) {
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct stat st;
        int bad = stat(at("f"), &st) != 0;
        close(number);
        int fd = open(at("f"), O_RDONLY);
        char text[8] = "";
        bad |= 2 * (fd < 0 || read(fd, text, 7) != 7);
        _exit(bad);
    }
    printf("fork: %d\n", pid > 0);
    OK(waitpid(pid, &status, 0));
    printf("child: %d %d\n", WIFEXITED(status), WEXITSTATUS(status));
}

static rlim_t wanted;
static atomic_int bad_children;

/* Children of one thread have the program's limit, whatever is done for those of the others meanwhile. */
static void *fork_often(void *argument) {
    (void)argument;
    for (int round = 0; round < 60; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct rlimit limit;
            _exit(getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur != wanted);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) bad_children++;
    }
    return NULL;
}

static void forks_of_threads(void) {
    pthread_t threads[4];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    wanted = limit.rlim_cur;
    for (int i = 0; i < 4; i++) OK(pthread_create(&threads[i], NULL, fork_often, NULL));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("threads: %d children with another limit, limit %lld\n", bad_children, (long long)limit.rlim_cur);
}

static void probe(void) {
    struct rlimit limit;
    put_file("f", "content");
    int fd = open(at("f"), O_RDWR);
    getrlimit(RLIMIT_NOFILE, &limit);
    for (rlim_t most = 40; most <= 43; most++) {
        limit.rlim_cur = most;
        TRY(setrlimit(RLIMIT_NOFILE, &limit));
        int last = -1, next;
        while ((next = open("/dev/null", O_RDONLY)) >= 0) last = next;
        printf("full: %s\n", strerror(errno));
        child(last);
        char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        printf("map: %s\n", map == MAP_FAILED ? strerror(errno) : "made");
        if (map != MAP_FAILED) {
            map[0] = 'C';
            child(last);
            munmap(map, 4096);
        }
        getrlimit(RLIMIT_NOFILE, &limit);
        printf("limit: %lld\n", (long long)limit.rlim_cur);
    }
    forks_of_threads();
    close_range(fd + 1, ~0U, 0);
    say_file("f");
}
