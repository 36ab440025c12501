/* The working directory. */
#include "probe.h"

static void where(const char *what) {
    char path[PATH_MAX];
    say_path(what, getcwd(path, sizeof path));
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
