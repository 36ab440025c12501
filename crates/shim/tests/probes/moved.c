/* Paths of open files and of the working directory after renames. */
#include "probe.h"

static void say_fd(const char *what, int fd) {
    char link[64], target[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) < 0) printf("%s\n", strerrorname_np(errno));
    say_path(what, target);
}

static void say_cwd(const char *what) {
    char path[PATH_MAX];
    errno = 0;
    if (getcwd(path, sizeof path)) say_path(what, path);
    else printf("%s: %s\n", what, strerrorname_np(errno));
}

static void probe(void) {
    mkdir(at("a"), 0755), mkdir(at("a/b"), 0755), mkdir(at("a/b/c"), 0755);
    put_file("a/b/f", "f"), put_file("other", "o");
    symlink("a", at("link"));
    int f = open(at("a/b/f"), O_RDWR), c = open(at("a/b/c"), O_RDONLY | O_DIRECTORY), through = open(at("link/b/f"), O_RDONLY);
    say_fd("opened", f), say_fd("opened by a symlink", through);
    TRY(rename(at("a/b/f"), at("a/b/g")));
    say_fd("renamed", f), say_fd("renamed", through);
    TRY(rename(at("a/b"), at("moved")));
    say_fd("in a renamed directory", f), say_fd("directory", c);
    TRY(renameat2(AT_FDCWD, at("moved/g"), AT_FDCWD, at("other"), RENAME_EXCHANGE));
    say_fd("exchanged", f);
    int other = open(at("moved/g"), O_RDONLY);
    say_fd("the other", other);
    char resolved[PATH_MAX];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", c);
    say_path("realpath", realpath(link, resolved));
    /* Names that go. */
    link[0] = 0;
    TRY(linkat(AT_FDCWD, at("other"), AT_FDCWD, at("second"), 0));
    TRY(unlink(at("other")));
    say_fd("unlinked", f);
    TRY(rename(at("second"), at("third")));
    say_fd("still", f);
    put_file("x", "x"), put_file("y", "y");
    int x = open(at("x"), O_RDONLY), y = open(at("y"), O_RDONLY);
    TRY(rename(at("x"), at("y")));
    say_fd("replacing", x), say_fd("replaced", y);
    put_file("z", "z");
    int z = open(at("z"), O_RDONLY);
    TRY(rename(at("z"), at("zz")));
    TRY(unlink(at("zz")));
    say_fd("renamed and unlinked", z);
    /* The working directory. */
    TRY(chdir(at("moved/c")));
    say_cwd("cwd");
    TRY(rename(at("moved"), at("a/deep")));
    say_cwd("moved deeper");
    TRY(access("../g", F_OK));
    put_file("up", "u");
    TRY(access("../../../up", F_OK));
    TRY(rename(at("a/deep/c"), at("top")));
    say_cwd("moved up");
    TRY(access("../up", F_OK));
    fflush(stdout);
    system("pwd | sed 's/.*\\///'");
    pid_t child = fork();
    if (!child) {
        say_cwd("a child's");
        exit(0);
    }
    waitpid(child, NULL, 0);
    TRY(rmdir(at("top")));
    say_cwd("removed");
    say_fd("removed", c);
    TRY(get_current_dir_name() ? 0 : -1);
    TRY(chdir(root));
    say_cwd("back");
}
