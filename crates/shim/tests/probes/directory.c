/* Directory streams, and the functions that walk directories. */
#include "probe.h"
#include <ftw.h>
#include <glob.h>

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void list(DIR *dir) {
    char *names[256];
    int count = 0;
    struct dirent *entry;
    errno = 0;
    while ((entry = readdir(dir)) && count < 256) {
        char line[300];
        snprintf(line, sizeof line, "%s %d", entry->d_name, entry->d_type);
        names[count++] = strdup(line);
    }
    qsort(names, count, sizeof *names, by_name);
    printf("%d entries, errno %d:", count, errno);
    for (int i = 0; i < count; i++) {
        printf(" %s", names[i]);
        free(names[i]);
    }
    puts("");
}

static int visited;
static int visit(const char *path, const struct stat *st, int kind, struct FTW *position) {
    visited += position->level * 100 + kind + (S_ISREG(st->st_mode) ? 10 : 0) + (int)strlen(path + position->base);
    return 0;
}
static int visit_old(const char *path, const struct stat *st, int kind) {
    (void)path, (void)st;
    visited += kind + 1;
    return 0;
}
static int no_dots(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void probe(void) {
    TRY(opendir(at("nothing")) != NULL);
    put_file("file", "x");
    DIR *none = opendir(at("file"));
    printf("file: %d %s\n", none != NULL, strerrorname_np(errno));
    mkdir(at("d"), 0755);
    for (int i = 0; i < 50; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/f%02d", i);
        put_file(name, "content");
    }
    mkdir(at("d/sub"), 0755);
    symlink("f00", at("d/link"));
    symlink("missing", at("d/broken"));
    put_file("d/sub/deep", "y");
    DIR *dir = opendir(at("d"));
    printf("descriptor %d\n", dirfd(dir) > 2);
    list(dir);
    rewinddir(dir);
    list(dir);
    rewinddir(dir);
    readdir(dir);
    readdir(dir);
    readdir(dir);
    long place = telldir(dir);
    char third[256], again[256];
    snprintf(third, sizeof third, "%s", readdir(dir)->d_name);
    readdir(dir);
    seekdir(dir, place);
    snprintf(again, sizeof again, "%s", readdir(dir)->d_name);
    printf("same place: %d\n", !strcmp(third, again));
    struct stat st;
    TRY(fstat(dirfd(dir), &st));
    printf("directory %d\n", S_ISDIR(st.st_mode));
    TRY(closedir(dir));
    int fd = open(at("d"), O_RDONLY | O_DIRECTORY);
    dir = fdopendir(fd);
    list(dir);
    closedir(dir);
    TRY(fcntl(fd, F_GETFD));
    fd = open(at("file"), O_RDONLY);
    dir = fdopendir(fd);
    printf("of a file: %d %s\n", dir != NULL, strerrorname_np(errno));
    close(fd);
    fd = open(at("d"), O_RDONLY | O_DIRECTORY);
    char buffer[4096];
    int total = 0;
    ssize_t n;
    while ((n = getdents64(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t i = 0; i < n; i += ((struct dirent64 *)(buffer + i))->d_reclen) total++;
    printf("getdents64: %d entries, ends with %zd\n", total, n);
    TRY(lseek(fd, 0, SEEK_SET));
    printf("again: %d\n", getdents64(fd, buffer, sizeof buffer) > 0);
    close(fd);
    struct dirent **entries;
    int count = TRY(scandir(at("d"), &entries, no_dots, alphasort));
    for (int i = 0; i < count; i++) {
        if (i % 10 == 0) puts(entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    TRY(scandir(at("nothing"), &entries, NULL, NULL));
    glob_t found;
    TRY(glob(at("d/f*[05]"), 0, NULL, &found));
    for (size_t i = 0; i < found.gl_pathc; i++) say_path("glob", found.gl_pathv[i]);
    globfree(&found);
    TRY(glob(at("nothing*"), 0, NULL, &found) == GLOB_NOMATCH);
    TRY(nftw(at("d"), visit, 20, FTW_PHYS));
    printf("visited %d\n", visited);
    TRY(nftw(at("d"), visit, 20, FTW_DEPTH));
    printf("visited %d\n", visited);
    TRY(ftw(at("d"), visit_old, 20));
    printf("visited %d\n", visited);
    TRY(nftw(at("nothing"), visit, 20, 0));
    /* A stream stays usable while entries go. */
    dir = opendir(at("d"));
    int removed = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (entry->d_name[0] == 'f' && !unlinkat(dirfd(dir), entry->d_name, 0)) removed++;
    closedir(dir);
    printf("removed %d\n", removed);
    dir = opendir(at("d"));
    list(dir);
    closedir(dir);
    TRY(rmdir(at("d")));
    DIR *many[40];
    for (int i = 0; i < 40; i++) many[i] = opendir(root);
    printf("many: %d\n", many[39] != NULL && many[38] != many[39]);
    for (int i = 0; i < 40; i++) closedir(many[i]);
}
