/* All descriptors are in use: what a program can do natively without one it can do on a volume. */
#include "probe.h"
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
    close_range(fd + 1, ~0U, 0);
    say_file("f");
}
