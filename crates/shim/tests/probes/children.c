/* Children that are made in less usual ways, and what they leave. */
#include "probe.h"
#include <mntent.h>
#include <pty.h>
#include <sched.h>
#include <sys/syscall.h>
#include <utmp.h>

static int fd;
static char seen[32];

static int work(void *text) {
    int own = open(at("made"), O_CREAT | O_WRONLY | O_APPEND, 0644);
    dprintf(own, "%s\n", (char *)text);
    close(own);
    return pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text) ? 7 : 8;
}

static void end(const char *what, pid_t pid) {
    int status = -1;
    printf("%s: %d", what, waitpid(pid, &status, __WALL) == pid);
    memset(seen, 0, sizeof seen);
    pread(fd, seen, sizeof seen - 1, 0);
    printf(", status %d, %s\n", WEXITSTATUS(status), seen);
}

static void probe(void) {
    fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    char *stack = (char *)mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + (1 << 20);
    end("clone", clone(work, stack, SIGCHLD, "one"));
    end("clone as vfork", clone(work, stack, SIGCHLD | CLONE_VM | CLONE_VFORK, "three"));
    pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!pid) syscall(SYS_exit_group, work("four"));
    end("clone by number", pid);
    /* A terminal of its own. */
    int master;
    fflush(stdout);
    pid = forkpty(&master, NULL, NULL, NULL);
    if (!pid) {
        printf("tty %d\n", isatty(0) && isatty(1) && isatty(2) && getsid(0) == getpid());
        fflush(stdout);
        _exit(work("five"));
    }
    char line[32] = "";
    read(master, line, sizeof line - 1);
    printf("said %.5s\n", line);
    end("forkpty", pid);
    /* The standard streams lead to files; then to a terminal. */
    int slave;
    openpty(&master, &slave, NULL, NULL, NULL);
    fflush(stdout);
    pid = fork();
    if (!pid) {
        for (int number = 0; number <= 2; number++) dup2(fd, number);
        lseek(fd, 0, SEEK_END);
        if (login_tty(slave)) _exit(9);
        _exit(write(1, "terminal", 8) == 8 && work("six") == 7 ? 7 : 9);
    }
    memset(line, 0, sizeof line);
    read(master, line, sizeof line - 1);
    printf("terminal says %s\n", line);
    end("login_tty", pid);
    say_file("made");
    /* What a map holds is kept when the process ends at once. */
    ftruncate(fd, 4096);
    pid = fork();
    if (!pid) {
        char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        strcpy(map, "quick");
        quick_exit(7);
    }
    end("quick_exit", pid);
    /* Files that libc opens for the program. */
    put_file("mtab", "# comment\n/dev/a /mnt/a ext4 rw,noatime 0 1\n");
    FILE *table = setmntent(at("mtab"), "r+");
    printf("cloexec %d\n", fcntl(fileno(table), F_GETFD));
    struct mntent *entry = getmntent(table), added = {"/dev/b", "/mnt/b", "xfs", "ro", 2, 3};
    printf("%s %s %s %s %d %d\n", entry->mnt_fsname, entry->mnt_dir, entry->mnt_type, entry->mnt_opts, entry->mnt_freq,
           entry->mnt_passno);
    TRY(addmntent(table, &added));
    TRY(endmntent(table));
    say_file("mtab");
    printf("none %d\n", setmntent(at("none"), "r") == NULL);
    unsetenv("TMPDIR");
    char *name = tempnam(root, "prefix");
    printf("name %d %zu\n", !strncmp(name, root, strlen(root)), strlen(name) - strlen(root));
    TRY(access(name, F_OK));
    free(name);
    /* The old way to read a directory. */
    int dir = open(root, O_RDONLY | O_DIRECTORY);
    char entries[4096];
    off_t base = 77;
    printf("entries %d\n", getdirentries(dir, entries, sizeof entries, &base) > 0);
    printf("base %lld\n", (long long)base);
}
