/* Renames of a mount point, which is the directory, and of its surroundings. */
#include "probe.h"

static const char *beside(const char *name) {
    static char paths[4][PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, PATH_MAX, "%.*s/%s", (int)(strrchr(root, '/') - root), root, name);
    return path;
}

static void probe(void) {
    mkdir(at("sub"), 0755);
    put_file("f", "content");
    mkdir(beside("d"), 0755);
    mkdir(beside("d/e"), 0755);
    close(open(beside("f"), O_CREAT | O_WRONLY, 0644));
    const char *ends[] = {"", "/", "//", "/.", "/sub/..", "/../mnt"};
    for (int i = 0; i < 6; i++) {
        char mount[PATH_MAX];
        snprintf(mount, sizeof mount, "%s%s", root, ends[i]);
        printf("spelled '%s'\n", ends[i]);
        TRY(rename(mount, beside("new")));
        TRY(rename(mount, beside("d")));
        TRY(rename(mount, beside("f")));
        TRY(rename(mount, beside("none/x")));
        TRY(rename(mount, beside("f/x")));
        TRY(rename(beside("f"), mount));
        TRY(rename(beside("d"), mount));
        TRY(rename(beside("none"), mount));
        TRY(rename(beside("none/x"), mount));
        TRY(renameat(AT_FDCWD, mount, AT_FDCWD, beside("new")));
        TRY(renameat2(AT_FDCWD, mount, AT_FDCWD, beside("new"), RENAME_NOREPLACE));
        TRY(renameat2(AT_FDCWD, mount, AT_FDCWD, beside("d"), RENAME_EXCHANGE));
        TRY(renameat2(AT_FDCWD, beside("d"), AT_FDCWD, mount, RENAME_EXCHANGE));
    }
    TRY(rename(at("f"), beside("new")));
    TRY(rename(beside("f"), at("g")));
    TRY(link(root, beside("new")) < 0);
    TRY(chdir(root));
    TRY(rename("../mnt", "../new"));
    TRY(rename("../d", "../mnt"));
    TRY(rename("../mnt/f", "../mnt/g"));
    TRY(chdir(beside("d")));
    TRY(rename("../mnt", "new"));
    TRY(renameat(open("..", O_PATH), "mnt", open("..", O_PATH), "new"));
    fflush(stdout);
    TRY(system("mv ../mnt ../new 2> /dev/null") >> 8);
    TRY(access(beside("new"), F_OK));
    say_file("g");
}
