/* The terminal stops a writer of long records: they stay whole, and others need not wait for it to go on. */
#include "probe.h"

enum { LONG = 4 << 20, COUNT = 8, SHORT = 16 };

static void write_records(void) {
    char *record = malloc(LONG);
    memset(record, 'A', LONG);
    int fd = open(at("log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int n = 0; n < COUNT; n++)
        if (write(fd, record, LONG) != LONG) _exit(1);
    _exit(0);
}

static void probe(void) {
    int fd = open(at("log"), O_RDWR | O_CREAT | O_APPEND, 0644), status, shorts = 0;
    pid_t pid = fork();
    if (!pid) {
        setpgid(0, 0);
        write_records();
    }
    for (int pause = 500;; pause = pause * 7 % 5003 + 300) {
        usleep(pause);
        kill(pid, SIGTSTP);
        waitpid(pid, &status, WUNTRACED);
        if (write(fd, "BBBBBBBBBBBBBBBB", SHORT) != SHORT) puts("a short record was not written");
        shorts++;
        if (!WIFSTOPPED(status)) break;
        kill(pid, SIGCONT);
    }
    printf("ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    struct stat st;
    fstat(fd, &st);
    char *all = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int whole = 0, torn = 0;
    for (off_t pos = 0; pos < st.st_size;) {
        off_t len = all[pos] == 'A' ? LONG : SHORT;
        for (off_t i = pos; i < pos + len && i < st.st_size; i++)
            if (all[i] != all[pos]) { torn++; break; }
        whole += len == LONG;
        shorts -= len == SHORT;
        pos += len;
    }
    printf("%d long records, %d short ones missing, %d torn\n", whole, shorts, torn);
    munmap(all, st.st_size);
    close(fd);
    unlink(at("log"));
}
