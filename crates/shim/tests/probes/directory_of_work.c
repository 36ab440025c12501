/* The working directory. */
#include "probe.h"
#include <dlfcn.h>
#include <ftw.h>
#include <mntent.h>
#include <spawn.h>

static void where(const char *what) {
    char path[PATH_MAX];
    say_path(what, getcwd(path, sizeof path));
}

static int visited(const char *path, const struct stat *st, int kind, struct FTW *at) { return 7; }

/* A child reads a file and enters a directory, both by way of `out`. */
static void spawned(const char *out) {
    extern char **environ;
    char file[PATH_MAX + 32];
    snprintf(file, sizeof file, "%s/passwd", out);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, file, O_RDONLY, 0);
    posix_spawn_file_actions_addchdir_np(&actions, out);
    char *arguments[] = {"sh", "-c", "test $(pwd) = /etc && test -r passwd && test $(wc -l) -gt 2", NULL};
    pid_t child;
    int status = -1;
    TRY(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ));
    waitpid(child, &status, 0);
    printf("spawned %d\n", status);
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "/nowhere:%.*s/bin", (int)strlen(out) - 4, out);
    char *old = strdup(getenv("PATH"));
    setenv("PATH", path, 1);
    char *exit_9[] = {"sh", "-c", "exit 9", NULL};
    TRY(posix_spawnp(&child, "sh", NULL, NULL, exit_9, environ));
    waitpid(child, &status, 0);
    setenv("PATH", old, 1);
    printf("searched %d\n", WEXITSTATUS(status));
}

static void probe(void) {
    mkdir(at("a"), 0755);
    mkdir(at("a/b"), 0755);
    put_file("a/f", "in a");
    int status;
    TRY(chdir(root));
    where("root");
    struct stat st;
    TRY(stat("a/f", &st));
    TRY(stat("f", &st));
    TRY(chdir("a"));
    where("a");
    TRY(stat("f", &st));
    TRY(stat("../a/f", &st));
    TRY(chdir("b"));
    where("b");
    TRY(stat("../f", &st));
    int fd = OK(open("made", O_CREAT | O_WRONLY, 0644));
    close(fd);
    TRY(access("made", F_OK));
    TRY(rename("made", "../moved"));
    TRY(chdir(".."));
    where("up");
    TRY(unlink("moved"));
    TRY(chdir("nothing"));
    TRY(chdir("f"));
    where("still");
    char small[3];
    TRY(getcwd(small, sizeof small) ? 1 : -1);
    char *allocated = getcwd(NULL, 0);
    say_path("allocated", allocated);
    free(allocated);
    allocated = get_current_dir_name();
    say_path("name", allocated);
    free(allocated);
    char resolved[PATH_MAX];
    say_path("realpath", realpath("b/../f", resolved));
    int dir = open("b", O_RDONLY | O_DIRECTORY);
    TRY(fchdir(dir));
    where("by descriptor");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        TRY(chdir(".."));
        where("child");
        execl("/bin/sh", "sh", "-c", "test \"$(cat f)\" = 'in a' && cd b && echo shell > made && cd / && ls etc > /dev/null", (char *)NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    printf("shell %d\n", WEXITSTATUS(status));
    where("parent stays");
    say_file("a/b/made");
    /* Out of the directory, and out of the volume. */
    TRY(chdir("/etc"));
    where("outside");
    TRY(access("passwd", R_OK));
    TRY(chdir(at("a")));
    int depth = 1;
    for (const char *c = root; *c; c++) depth += *c == '/';
    char out[PATH_MAX] = "";
    for (int i = 0; i < depth; i++) strcat(out, "../");
    strcat(out, "etc");
    TRY(chdir(out));
    where("outside");
    /* libc gets a path out of the volume by its inner functions, too. */
    TRY(chdir(at("a")));
    char file[PATH_MAX + 32];
    snprintf(file, sizeof file, "%.*s/tmp/weft-XXXXXX", (int)strlen(out) - 4, out);
    fd = OK(mkstemp(file));
    TRY(unlink(file));
    close(fd);
    snprintf(file, sizeof file, "%s/passwd", out);
    FILE *other = fopen("/dev/null", "r");
    TRY(freopen(file, "r", other) ? getc(other) >= 0 : -1);
    fclose(other);
    other = setmntent(file, "r");
    TRY(other ? endmntent(other) : -1);
    snprintf(file, sizeof file, "%.*s/dev/fd", (int)strlen(out) - 4, out);
    struct dirent **names;
    TRY(scandir(file, &names, NULL, NULL) > 2);
    TRY(nftw(file, visited, 9, FTW_PHYS));
    TRY(access(out, R_OK));
    snprintf(file, sizeof file, "%.*s/lib64/../nothing/libc.so.6", (int)strlen(out) - 4, out);
    TRY(dlopen(file, RTLD_NOW) ? 1 : -1);
    spawned(out);
    where("still there");
    TRY(fchdir(dir));
    where("back");
    DIR *here = opendir(".");
    int count = 0;
    while (readdir(here)) count++;
    printf("%d entries\n", count);
    closedir(here);
    FILE *f = fopen("stream", "w");
    fputs("relative", f);
    fclose(f);
    say_file("a/b/stream");
    char template[] = "tmpXXXXXX";
    fd = OK(mkstemp(template));
    TRY(write(fd, "t", 1));
    TRY(access(template, F_OK));
    TRY(unlink(template));
    char directory[] = "dirXXXXXX";
    OK(mkdtemp(directory) ? 0 : -1);
    TRY(stat(directory, &st));
    printf("%o\n", st.st_mode);
    TRY(rmdir(directory));
    char suffixed[] = "tmpXXXXXX.txt";
    OK(mkstemps(suffixed, 4));
    printf("%s\n", suffixed + 9);
    char wrong[] = "tmpXXX";
    TRY(mkstemp(wrong));
}
