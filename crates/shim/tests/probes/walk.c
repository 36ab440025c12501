/* Walks of trees by nftw with FTW_CHDIR, and by fts. */
#include "probe.h"
#include <fts.h>
#include <ftw.h>

static char lines[400][300];
static int count;
static void line(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(lines[count++ % 400], sizeof lines[0], format, arguments);
    va_end(arguments);
}
static int by_text(const void *a, const void *b) { return strcmp(a, b); }
/* Directories have no order of their own. */
static void say(const char *what) {
    printf("%s: %d\n", what, count);
    qsort(lines, count, sizeof lines[0], by_text);
    for (int i = 0; i < count; i++) puts(lines[i]);
    count = 0;
}

static const char *below(const char *path) {
    size_t len = strlen(root);
    return strncmp(path, root, len) ? path : path + len;
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *position) {
    struct stat here;
    char cwd[PATH_MAX];
    line("%s kind %d level %d base %s here %d in %s", below(path), kind, position->level, path + position->base,
         lstat(path + position->base, &here) == 0 && (kind == FTW_NS || here.st_ino == st->st_ino || kind == FTW_SLN || !S_ISLNK(here.st_mode)),
         below(getcwd(cwd, sizeof cwd)));
    return 0;
}

static int stop_at(const char *path, const struct stat *st, int kind, struct FTW *position) {
    (void)st, (void)kind, (void)position;
    return strstr(path, "deep") ? 33 : 0;
}

static const char *const kinds[] = {"?", "D", "DC", "DEFAULT", "DNR", "DOT", "DP", "ERR", "F", "INIT", "NS", "NSOK", "SL", "SLNONE"};

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

static void walk(const char *what, char **roots, int options, int skip) {
    FTS *fts = fts_open(roots, options, by_name);
    printf("%s\n", what);
    if (!fts) {
        printf("no walk: %s\n", strerrorname_np(errno));
        return;
    }
    FTSENT *entry;
    while ((entry = fts_read(fts))) {
        struct stat st;
        printf("%s %s level %d name %s len %d %d error %d", kinds[entry->fts_info], below(entry->fts_path), entry->fts_level,
               below(entry->fts_name), entry->fts_pathlen - (int)strlen(root), entry->fts_namelen == strlen(entry->fts_name),
               entry->fts_errno);
        if (entry->fts_info == FTS_F && !(options & FTS_NOSTAT))
            printf(" size %lld same %d", (long long)entry->fts_statp->st_size,
                   stat(entry->fts_accpath, &st) == 0 && st.st_ino == entry->fts_statp->st_ino);
        if (entry->fts_level > 0) printf(" in %s", below(entry->fts_parent->fts_name));
        puts("");
        entry->fts_number++;
        if (entry->fts_info == FTS_D && !strcmp(entry->fts_name, "sub")) {
            /* Children first looked at and then skipped leave libc's own path with a slash at its end. */
            FTSENT *child = skip ? NULL : fts_children(fts, options & FTS_SEEDOT ? FTS_NAMEONLY : 0);
            for (; child; child = child->fts_link) printf("  child %s %d\n", child->fts_name, options & FTS_SEEDOT ? 0 : child->fts_info);
            if (skip) fts_set(fts, entry, FTS_SKIP);
        }
        if (entry->fts_info == FTS_SL && skip) fts_set(fts, entry, FTS_FOLLOW);
        if (entry->fts_info == FTS_DP) printf("  seen %ld\n", entry->fts_number);
    }
    printf("end %s\n", strerrorname_np(errno) ?: "0");
    TRY(fts_close(fts));
}

static void probe(void) {
    mkdir(at("t"), 0755), mkdir(at("t/sub"), 0755), mkdir(at("t/sub/deeper"), 0755), mkdir(at("t/empty"), 0755);
    put_file("t/a", "1"), put_file("t/sub/b", "22"), put_file("t/sub/deeper/deep", "333"), put_file("single", "4444");
    symlink("sub", at("t/link")), symlink("nowhere", at("t/dangling"));
    char start[PATH_MAX], cwd[PATH_MAX];
    strcpy(start, at("t"));
    TRY(nftw(start, visit, 10, FTW_CHDIR | FTW_PHYS));
    say("physical");
    printf("back %d\n", !strcmp(getcwd(start, sizeof start), getcwd(cwd, sizeof cwd)));
    strcpy(start, at("t"));
    TRY(nftw(start, visit, 10, FTW_CHDIR | FTW_DEPTH | FTW_PHYS));
    say("depth first");
    /* Each directory once, by whichever name comes first. */
    strcpy(start, at("t"));
    TRY(nftw(start, visit, 10, 0));
    printf("logical %d\n", count), count = 0;
    chdir(root);
    TRY(nftw("t", visit, 1, FTW_CHDIR | FTW_PHYS));
    say("relative");
    printf("back in %s|\n", below(getcwd(cwd, sizeof cwd)));
    TRY(nftw("t", stop_at, 10, FTW_CHDIR));
    printf("back in %s|\n", below(getcwd(cwd, sizeof cwd)));
    TRY(nftw("nothing", visit, 10, FTW_CHDIR));
    TRY(nftw("single", visit, 10, FTW_CHDIR));
    say("single");
    chdir("/");
    char *both[] = {strdup(at("t")), strdup(at("single")), NULL};
    walk("physical", both, FTS_PHYSICAL | FTS_NOCHDIR, 0);
    walk("with changes of directory", both, FTS_PHYSICAL, 0);
    walk("logical", both, FTS_LOGICAL | FTS_NOCHDIR, 0);
    walk("skipping and following", both, FTS_PHYSICAL | FTS_NOCHDIR, 1);
    walk("dots", both, FTS_PHYSICAL | FTS_NOCHDIR | FTS_SEEDOT | FTS_XDEV, 0);
    walk("no attributes", both, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, 0);
    char *others[] = {strdup(at("none")), strdup(at("t/link")), NULL};
    walk("others", others, FTS_PHYSICAL | FTS_NOCHDIR, 0);
    walk("followed", others, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, 0);
    symlink("..", at("t/sub/up"));
    strcpy(start, at("t"));
    TRY(nftw(start, visit, 10, FTW_DEPTH));
    printf("logical, in a circle %d\n", count), count = 0;
    walk("cycle", both, FTS_LOGICAL | FTS_NOCHDIR, 0);
    walk("wrong", both, 0, 0);
    walk("wrong", both, 0x1000 | FTS_PHYSICAL, 0);
    FTS *fts = fts_open(both, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    FTSENT *first = fts_children(fts, 0);
    printf("roots %s %s\n", below(first->fts_name), below(first->fts_link->fts_name));
    fts_read(fts), fts_read(fts), fts_read(fts);
    TRY(fts_close(fts));
}
