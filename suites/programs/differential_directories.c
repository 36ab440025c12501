/* Directory streams, listings and walks. The order of names is the file system's own affair: they are sorted. */
#include "differential.h"
#include <ftw.h>
#include <glob.h>
#include <sys/syscall.h>

enum { NAMES_MAX = 400 };

static int by_text(const void *one, const void *two) { return strcmp(*(char *const *)one, *(char *const *)two); }

static void say_names(struct actor *a, char **names, int n) {
  qsort(names, n, sizeof *names, by_text);
  extra(a, " %d:", n);
  for (int i = 0; i < n; i++) extra(a, " %s", names[i]), free(names[i]);
}

static char *described(const struct dirent *e) {
  char *text;
  return asprintf(&text, "%s/%d", e->d_name, e->d_type) < 0 ? 0 : text;
}

static int rest(DIR *dir, char **names) {
  int n = 0;
  for (struct dirent *e; n < NAMES_MAX && (e = readdir(dir));) names[n++] = described(e);
  return n;
}

static void op_list(struct actor *a) {
  char *names[NAMES_MAX];
  const char *p = a_path(a, A_DIR);
  if (!p) return;
  DIR *dir = POINTER(a, opendir(p), "opendir(%s)", shown(a, p));
  if (!dir) return;
  int n = rest(dir, names);
  say_names(a, names, n);
  /* Back to a place in the middle: what came after it comes again. */
  rewinddir(dir);
  for (int skip = n ? below(a, n) : 0; skip; skip--) (void)!readdir(dir);
  long place = telldir(dir);
  char *first[NAMES_MAX], *second[NAMES_MAX];
  int f = rest(dir, first), s;
  seekdir(dir, place);
  s = rest(dir, second);
  bool same = f == s;
  for (int i = 0; i < f; i++) { if (same && strcmp(first[i], second[i])) same = false; free(first[i]); }
  for (int i = 0; i < s; i++) free(second[i]);
  extra(a, " again: %d", same);
  /* A name that was made after the stream was opened is there after rewinddir. */
  struct stat st;
  if (!RECORDED(a, fstat(dirfd(dir), &st), "fstat(dirfd)")) say_stat(a, &st);
  int fd = openat(dirfd(dir), "f-listed", O_CREAT | O_WRONLY, 0600);
  RECORDED(a, fd < 0 ? -1 : 0, "openat(dirfd, f-listed)");
  if (fd >= 0) close(fd);
  rewinddir(dir);
  n = rest(dir, names);
  say_names(a, names, n);
  if (fd >= 0) RECORDED(a, unlinkat(dirfd(dir), "f-listed", 0), "unlinkat(dirfd, f-listed)");
  RECORDED(a, closedir(dir), "closedir()");
}

static void op_list_descriptor(struct actor *a) {
  int from = a_dir(a), fd = DESCRIPTOR(a, openat(from, ".", O_RDONLY | O_DIRECTORY), "openat(%s, .)", shown_fd(a, from));
  if (fd < 0) return;
  char *names[NAMES_MAX];
  if (one_in(a, 2)) {
    DIR *dir = POINTER(a, fdopendir(fd), "fdopendir()");
    if (!dir) { close(fd); return; }
    int n = rest(dir, names);
    say_names(a, names, n);
    RECORDED(a, closedir(dir), "closedir()");
    return;
  }
  char *bytes = (char *)a->buffer;
  int n = 0;
  for (ssize_t len; (len = getdents64(fd, bytes, 4096)) > 0;)
    for (char *at = bytes; at < bytes + len && n < NAMES_MAX; at += ((struct dirent64 *)at)->d_reclen)
      if (asprintf(&names[n], "%s/%d", ((struct dirent64 *)at)->d_name, ((struct dirent64 *)at)->d_type) > 0) n++;
  RECORDED(a, getdents64(fd, bytes, 4096), "getdents64() at the end");
  say_names(a, names, n);
  RECORDED(a, lseek(fd, 0, SEEK_SET), "lseek(directory, 0)");
  RECORDED(a, getdents64(fd, bytes, 10), "getdents64() into 10 bytes");
  RECORDED(a, close(fd), "close(directory)");
  int other = a_file(a);
  /* Where the end of a directory is tells whether a read there is EINVAL or EISDIR. */
  if (!RECORDED(a, getdents64(other, bytes, 4096) < 0 ? -1 : 0, "getdents64(%s)", shown_fd(a, other))) lseek(other, 0, SEEK_SET);
}

static int no_dots(const struct dirent *e) { return e->d_name[0] != '.'; }

static void op_scan(struct actor *a) {
  struct dirent **list;
  const char *p = a_path(a, A_DIR);
  if (!p) return;
  int n = RECORDED(a, scandir(p, &list, no_dots, alphasort), "scandir(%s)", shown(a, p));
  for (int i = 0; i < n; i++) extra(a, " %s", list[i]->d_name), free(list[i]);
  if (n >= 0) free(list);
}

static void op_glob(struct actor *a) {
  static const char *const patterns[] = {"*", "f*", "d*/f*", "*/*", "s?", "[df]0", "none*", "d0/{f0,f1}"};
  char pattern[400];
  const char *tail = patterns[below(a, 8)];
  if (shared->free_running) sprintf(pattern, "own%d/%s", a->id, tail); else if (one_in(a, 2)) sprintf(pattern, "%s/%s", shared->base, tail); else strcpy(pattern, tail);
  glob_t found;
  int flags = PICK(a, 0, GLOB_MARK, GLOB_BRACE, GLOB_NOCHECK);
  int r = RECORDED(a, glob(pattern, flags, 0, &found), "glob(%s, %#x)", tail, flags);
  if (!r) {
    extra(a, " %zu:", found.gl_pathc);
    for (size_t i = 0; i < found.gl_pathc; i++) extra(a, " %s", shown(a, found.gl_pathv[i]));
    globfree(&found);
  }
}

static __thread struct { char *names[NAMES_MAX]; int n; } walk;

static int seen(const char *path, const struct stat *st, int type, struct FTW *where) {
  char *text;
  if (!strncmp(path, shared->base, strlen(shared->base))) path += strlen(shared->base);
  if (asprintf(&text, "%s/%d/%d/%o", path, type, where->level, type == FTW_NS ? 0 : st->st_mode) < 0) return 1;
  walk.names[walk.n++] = text;
  return walk.n == NAMES_MAX;
}

static void op_walk(struct actor *a) {
  const char *p = a_path(a, A_DIR);
  if (!p || !*p || strlen(p) > PATH_MAX / 2 || p[strlen(p) - 1] == '/') return;
  walk.n = 0;
  int flags = PICK(a, FTW_PHYS, FTW_PHYS | FTW_DEPTH), r = nftw(p, seen, 8, flags);
  RECORDED(a, r, "nftw(%s, %d)", shown(a, p), flags);
  say_names(a, walk.names, walk.n);
}

/* Everything there is, with the contents. */
static int checked(const char *path, const struct stat *st, int type, struct FTW *where) {
  char *text;
  uint64_t sum = 0;
  if (type == FTW_F && S_ISREG(st->st_mode)) {
    int fd = open(path, O_RDONLY);
    static __thread unsigned char bytes[1 << 16];
    for (ssize_t n; fd >= 0 && (n = read(fd, bytes, sizeof bytes)) > 0;) sum = sum * 31 + hash(bytes, n);
    if (fd >= 0) close(fd);
  }
  const char *rest_of_path = path + (strncmp(path, shared->base, strlen(shared->base)) ? 0 : strlen(shared->base));
  long long size = type == FTW_NS || S_ISDIR(st->st_mode) ? 0 : st->st_size;
  if (asprintf(&text, "%s/%o/%lld/%016llx", rest_of_path, type == FTW_NS ? 0 : st->st_mode, size, (unsigned long long)sum) < 0) return 1;
  walk.names[walk.n++] = text;
  return walk.n == NAMES_MAX || !where;
}

static void op_check(struct actor *a) {
  char path[400];
  if (shared->free_running) sprintf(path, "%s/own%d", shared->base, a->id); else strcpy(path, shared->base);
  walk.n = 0;
  RECORDED(a, nftw(path, checked, 8, FTW_PHYS), "nftw($) with contents");
  say_names(a, walk.names, walk.n);
}

const struct operation directory_operations[] = {
  {"list", 6, op_list}, {"list_descriptor", 5, op_list_descriptor}, {"scan", 3, op_scan}, {"glob", 3, op_glob}, {"walk", 2, op_walk}, {"check", 1, op_check},
  {0},
};
