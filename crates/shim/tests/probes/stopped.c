/* Writers of records are stopped: what they have begun stays whole, others need not wait for them to go on, and who was stopped
 * goes on when it is told to, not before. */
#include "probe.h"
#include <pthread.h>
#include <sys/prctl.h>

enum { LONG = 4 << 20, MIDDLE = 8 << 10, SHORT = 16 };

static void *sleeps(void *unused) {
    pause();
    return unused;
}

static void write_records(int len, int count, bool beside_thread) {
    pthread_t thread;
    if (beside_thread) pthread_create(&thread, NULL, sleeps, NULL);
    /* As of a program whose name was cut in the middle of a letter. */
    prctl(PR_SET_NAME, "writer \xc3");
    char *record = malloc(len);
    memset(record, 'A', len);
    int fd = open(at("log"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int n = 0; n < count; n++)
        if (write(fd, record, len) != len) _exit(1);
    _exit(0);
}

static char state_of(pid_t pid) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    char *end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    return end ? end[2] : 0;
}

/* Whether it is stopped, or has ended, after a while at most. */
static bool comes_to_rest(pid_t pid) {
    for (int n = 0; n < 5000; n++) {
        if (strchr("TZ", state_of(pid))) return true;
        usleep(1000);
    }
    return false;
}

/* `pauses`: whether each stop is waited for before the writer is told to go on. */
static void stop_writer(const char *name, int signal, int len, int count, bool beside_thread, bool pauses) {
    int fd = open(at("log"), O_RDWR | O_CREAT | O_APPEND, 0644), status, shorts = 0;
    pid_t pid = fork();
    if (!pid) {
        setpgid(0, 0);
        write_records(len, count, beside_thread);
    }
    for (int pause = 500;; pause = pause * 7 % 5003 + 300) {
        usleep(pause);
        kill(pid, signal);
        waitpid(pid, &status, WUNTRACED);
        if (write(fd, "BBBBBBBBBBBBBBBB", SHORT) != SHORT) puts("a short record was not written");
        shorts++;
        if (!WIFSTOPPED(status)) break;
        if (pauses && !comes_to_rest(pid)) puts("a stopped writer runs on");
        /* It was stopped once more, perhaps, and has ended, perhaps, when the others need not wait. */
        while (waitpid(pid, &status, WUNTRACED | WNOHANG) > 0 && WIFSTOPPED(status)) {}
        if (!WIFSTOPPED(status)) break;
        kill(pid, SIGCONT);
    }
    printf("%s: ended with %d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    struct stat st;
    fstat(fd, &st);
    char *all = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int whole = 0, torn = 0;
    for (off_t pos = 0; pos < st.st_size;) {
        off_t record = all[pos] == 'A' ? len : SHORT;
        for (off_t i = pos; i < pos + record && i < st.st_size; i++)
            if (all[i] != all[pos]) { torn++; break; }
        whole += record == len;
        shorts -= record == SHORT;
        pos += record;
    }
    printf("%d records, %d short ones missing, %d torn\n", whole, shorts, torn);
    munmap(all, st.st_size);
    close(fd);
    unlink(at("log"));
}

static void probe(void) {
    stop_writer("by the terminal", SIGTSTP, LONG, 8, false, false);
    stop_writer("by the terminal, with a thread", SIGTSTP, LONG, 8, true, true);
    stop_writer("by force", SIGSTOP, LONG, 16, false, true);
    stop_writer("by force, with a thread", SIGSTOP, LONG, 16, true, true);
    stop_writer("and told to go on at once", SIGSTOP, LONG, 16, false, false);
    stop_writer("in writes of one piece", SIGSTOP, MIDDLE, 2000, false, true);
}
