/* fork, exec, spawn, and what children inherit. */
#include "probe.h"
#include <spawn.h>

extern char **environ;

static void say_status(const char *what, int status) {
    printf("%s: exited %d status %d signal %d\n", what, WIFEXITED(status), WEXITSTATUS(status), WIFSIGNALED(status));
}

/* Parent and child read through one file offset, more at once than fits into a message: each byte is read once, and no read is
 * short before the end. */
static void share_an_offset(void) {
    enum { PIECE = 300000, PIECES = 40 };
    static char buffer[PIECE];
    int status, ends[2], fd = open(at("shared"), O_CREAT | O_RDWR | O_TRUNC, 0644);
    OK(ftruncate(fd, (off_t)PIECE * PIECES));
    pipe(ends);
    fflush(stdout);
    pid_t child = fork();
    long seen[2] = {0, 0}; /* bytes, short reads */
    ssize_t n;
    while ((n = read(fd, buffer, PIECE)) > 0)
        seen[0] += n, seen[1] += n < PIECE;
    if (!child) {
        write(ends[1], seen, sizeof seen);
        _exit(0);
    }
    long childs[2] = {0, 0};
    read(ends[0], childs, sizeof childs);
    waitpid(child, &status, 0);
    printf("together: %ld bytes, %ld short\n", seen[0] + childs[0], seen[1] + childs[1]);
    printf("at the end: %lld\n", (long long)lseek(fd, 0, SEEK_CUR));
    close(fd), close(ends[0]), close(ends[1]);
}

static void probe(void) {
    int status;
    share_an_offset();
    char text[64] = "";
    int fd = open(at("f"), O_CREAT | O_RDWR | O_TRUNC, 0644);
    write(fd, "parent ", 7);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        write(fd, "child ", 6);
        int own = open(at("own"), O_CREAT | O_RDWR, 0644);
        write(own, "x", 1);
        close(fd);
        _exit(lseek(own, 0, SEEK_CUR) == 1 ? 3 : 4);
    }
    waitpid(child, &status, 0);
    say_status("fork", status);
    write(fd, "parent", 6);
    say_file("f");
    child = vfork();
    if (!child) _exit(5);
    waitpid(child, &status, 0);
    say_status("vfork", status);

    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    const char *script = "echo from the shell >&$1; cat \"$2\"; exit 6";
    fflush(stdout);
    child = fork();
    if (!child) execl("/bin/sh", "sh", "-c", script, "sh", number, at("own"), (char *)NULL);
    waitpid(child, &status, 0);
    say_status("execl", status);
    say_file("f");
    child = fork();
    if (!child) execlp("sh", "sh", "-c", "exit 7", (char *)NULL);
    waitpid(child, &status, 0);
    say_status("execlp", status);
    child = fork();
    char *few[] = {"GREETING=good day", NULL};
    if (!child) execle("/bin/sh", "sh", "-c", "echo \"$GREETING\" > \"$1\"; exit 8", "sh", at("greeting"), (char *)NULL, few);
    waitpid(child, &status, 0);
    say_status("execle", status);
    say_file("greeting");
    char *arguments[] = {"sh", "-c", "cat < \"$1\" > \"$2\"; echo $# >> \"$2\"", "sh", NULL, NULL, NULL};
    arguments[4] = (char *)at("greeting");
    arguments[5] = (char *)at("copy");
    child = fork();
    if (!child) execve("/bin/sh", arguments, environ);
    waitpid(child, &status, 0);
    say_status("execve", status);
    say_file("copy");
    child = fork();
    if (!child) {
        TRY(execvp("no-such-program", arguments));
        TRY(execv(root, arguments));
        TRY(execv(at("f"), arguments));
        write(fd, " kept", 5);
        fflush(stdout);
        _exit(9);
    }
    waitpid(child, &status, 0);
    say_status("failed exec", status);
    say_file("f");

    /* Closed on exec. */
    int closed = open(at("f"), O_RDONLY | O_CLOEXEC);
    snprintf(number, sizeof number, "%d", closed);
    child = fork();
    if (!child) execl("/bin/sh", "sh", "-c", "test -e /proc/self/fd/$1", "sh", number, (char *)NULL);
    waitpid(child, &status, 0);
    say_status("close on exec", status);

    /* Programs that lie here. */
    put_file("script", "#!/bin/sh -e\necho \"script got $1\" > \"$2\"\nexit 11\n");
    TRY(chmod(at("script"), 0755));
    child = fork();
    if (!child) execl(at("script"), "script", "one", at("said"), (char *)NULL);
    waitpid(child, &status, 0);
    say_status("script", status);
    say_file("said");
    TRY(system(at("script")) >> 8);
    snprintf(text, sizeof text, "cp /bin/echo %s", at("echo"));
    TRY(system(text));
    fflush(stdout);
    child = fork();
    if (!child) {
        dup2(open(at("echoed"), O_CREAT | O_WRONLY, 0644), 1);
        execl(at("echo"), "echo", "a binary", (char *)NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    say_status("binary", status);
    say_file("echoed");
    TRY(chmod(at("echo"), 0644));
    TRY(execl(at("echo"), "echo", (char *)NULL));

    /* By descriptor, and with an environment that drops everything. */
    put_file("by descriptor", "");
    TRY(chmod(at("echo"), 0755));
    int program = open(at("echo"), O_RDONLY | O_CLOEXEC), shell_file = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    char *empty[] = {NULL}, *say[] = {"echo", "by descriptor", NULL};
    fflush(stdout);
    child = fork();
    if (!child) {
        dup2(open(at("by descriptor"), O_WRONLY), 1);
        fexecve(program, say, empty);
        _exit(99);
    }
    waitpid(child, &status, 0);
    say_status("fexecve", status);
    say_file("by descriptor");
    char *cat[] = {"sh", "-c", "cat \"$0\"", (char *)at("by descriptor"), NULL};
    fflush(stdout);
    child = fork();
    if (!child) {
        execveat(shell_file, "", cat, empty, AT_EMPTY_PATH);
        _exit(99);
    }
    waitpid(child, &status, 0);
    say_status("execveat", status);

    /* posix_spawn with files. */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, at("greeting"), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, at("spawned"), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    char *shell[] = {"sh", "-c", "cat; echo error >&2; exit 12", NULL};
    TRY(posix_spawn(&child, "/bin/sh", &actions, NULL, shell, environ));
    waitpid(child, &status, 0);
    say_status("spawn", status);
    say_file("spawned");
    posix_spawn_file_actions_destroy(&actions);
    TRY(posix_spawnp(&child, "sh", NULL, NULL, shell, environ) || waitpid(child, &status, 0) != child);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, at("missing"), O_RDONLY, 0);
    TRY(posix_spawn(&child, "/bin/sh", &actions, NULL, shell, environ));
    TRY(posix_spawn(&child, at("missing"), NULL, NULL, shell, environ));
    char *said[] = {"script", "spawned script", (char *)at("said"), NULL};
    TRY(posix_spawn(&child, at("script"), NULL, NULL, said, environ));
    waitpid(child, &status, 0);
    say_status("spawned script", status);
    say_file("said");

    snprintf(text, sizeof text, "cat %s", at("greeting"));
    FILE *from = popen(text, "r");
    char line[64] = "";
    fgets(line, sizeof line, from);
    printf("popen: %s", line);
    TRY(pclose(from));
    snprintf(text, sizeof text, "cat > %s; exit 3", at("piped"));
    FILE *to = popen(text, "w");
    fputs("through a pipe", to);
    TRY(pclose(to) >> 8);
    say_file("piped");
    snprintf(text, sizeof text, "test -s %s", at("greeting"));
    TRY(system(text));
    TRY(system("exit 13") >> 8);
    TRY(system(NULL) != 0);

    /* Output of an executed program, by libc's streams. */
    child = fork();
    if (!child) {
        int out = open(at("listing"), O_CREAT | O_WRONLY, 0644);
        dup2(out, 1);
        close(out);
        execl("/bin/sh", "sh", "-c", "printf '%s\\n' one two | sort -r", (char *)NULL);
    }
    waitpid(child, &status, 0);
    say_file("listing");
    child = fork();
    if (!child) {
        dup2(open(at("listing"), O_RDONLY), 0);
        execl("/usr/bin/sort", "sort", "-o", at("sorted"), (char *)NULL);
    }
    waitpid(child, &status, 0);
    say_file("sorted");
    child = fork();
    if (!child) {
        dup2(open(at("listing"), O_RDONLY), 0);
        dup2(open(at("through"), O_CREAT | O_WRONLY, 0644), 1);
        execl("/bin/cat", "cat", "/dev/stdin", (char *)NULL);
    }
    waitpid(child, &status, 0);
    say_file("through");
}
