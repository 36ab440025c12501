/* Random paths, descriptors, offsets and data. */
#include "differential.h"
#include <sys/fsuid.h>

static char *put_text(char *at, const char *text) { return stpcpy(at, text); }

/* One component: names tell what is usually there, so that most calls meet what they want. */
static char *component(struct actor *a, char *at, enum sort sort) {
  static const char *const files[] = {"f0", "f1", "f2", "f3", "file with a space", "\xc3\xa9\xff"};
  static const char *const dirs[] = {"d0", "d1", "d2"};
  static const char *const links[] = {"s0", "s1", "s2", "s3"};
  if (one_in(a, 30)) sort = below(a, 3);
  if (one_in(a, 150)) {
    size_t len = PICK(a, 254, 255, 255, 256, 300);
    memset(at, 'x', len);
    return at[len] = 0, at + len;
  }
  switch (sort) {
    case A_FILE: case A_NEW: return put_text(at, files[below(a, 6)]);
    case A_DIR: return put_text(at, dirs[below(a, 3)]);
    default: return put_text(at, links[below(a, 4)]);
  }
}

/* The path below the place it starts from. */
static void compose(struct actor *a, char *at, enum sort sort, bool absolute) {
  char *start = at;
  if (absolute) {
    at = put_text(at, shared->base);
    at = put_text(at, one_in(a, 20) ? "//" : "/");
  }
  if (shared->free_running) at += sprintf(at, "own%d/", a->id);
  unsigned depth = PICK(a, 0, 0, 0, 1, 1, 2);
  for (unsigned i = 0; i < depth; i++) {
    at = component(a, at, one_in(a, 12) ? A_LINK : A_DIR);
    at = put_text(at, one_in(a, 40) ? "//" : "/");
    if (one_in(a, 40)) at = put_text(at, "./");
    if (one_in(a, 40)) at = put_text(at, "../");
  }
  at = component(a, at, sort);
  if (one_in(a, 40)) at = put_text(at, PICK(a, 0, 1) ? "/" : "/.");
  /* Whoever runs freely keeps to the own folder. */
  if (!shared->free_running && sort == A_DIR && one_in(a, 20)) strcpy(start + (absolute ? strlen(shared->base) : 0), absolute ? "" : ".");
  if (one_in(a, 400)) *start = 0;
  if (!shared->free_running && one_in(a, 400)) strcpy(start, one_in(a, 2) || shared->both ? "." : "..");
  if (one_in(a, 300)) { /* as long as a path may be, or longer */
    size_t len = strlen(start), want = PICK(a, 4094, 4095, 4096, 4097, 5000);
    bool slash = *start == '/';
    if (len && len < want - 2) {
      size_t grow = want - len;
      memmove(start + grow, start, len + 1);
      for (size_t i = 0; i < grow; i++) start[i] = slash || i % 2 ? '/' : '.';
      if (!slash && grow % 2) start[0] = '.', start[grow - 1] = '/';
    }
  }
}

const char *shown(struct actor *a, const char *path) {
  if (!path) return "NULL";
  char *room = a->name_room[a->names++ % 4], *at = room;
  size_t base = strlen(shared->base), len = strlen(path);
  if (!strncmp(path, shared->base, base)) at = stpcpy(at, "$"), path += base, len -= base;
  if (len > 100) sprintf(at, "%.40s...%s(%zu)", path, path + len - 30, len); else sprintf(at, "%s", path);
  for (char *c = room; *c; c++) if (*c == '\n') *c = '?';
  return room;
}

const char *a_path(struct actor *a, enum sort sort) {
  char *room = a->path[a->names % 4];
  if (one_in(a, 1000)) return a->names++, NULL;
  compose(a, room, sort, one_in(a, 4));
  return room;
}

/* Of a directory that the library has removed the kernel does not know it, and looks at permissions first. */
static bool is_removed(struct actor *a, int dirfd) {
  struct stat st;
  return at_mount(a) && setfsuid(-1) && !fstatat(dirfd, "", &st, AT_EMPTY_PATH) && S_ISDIR(st.st_mode) && !st.st_nlink;
}

/* Where an open file is after it has appended, the kernel computes from the size that it knows. */
static void know_sizes(struct actor *a) {
  struct stat st;
  for (int i = 0; i < FILES; i++) {
    int flags = a->slots->file[i] < 0 ? -1 : fcntl(a->slots->file[i], F_GETFL);
    if (flags >= 0 && flags & O_APPEND && !(flags & O_PATH)) fstat(a->slots->file[i], &st);
  }
}

void prepare_mount(struct actor *a) {
  if (!at_mount(a)) return;
  know_sizes(a);
  if (is_removed(a, AT_FDCWD)) RECORDED(a, chdir(shared->base), "chdir($)");
}

const char *a_path_at(struct actor *a, enum sort sort, int *dirfd) {
  char *room = a->path[a->names % 4];
  *dirfd = one_in(a, 3) ? a_dir(a) : AT_FDCWD;
  if (one_in(a, 50)) *dirfd = a_file(a);
  if (is_removed(a, *dirfd)) *dirfd = AT_FDCWD;
  if (one_in(a, 1000)) return NULL;
  compose(a, room, sort, one_in(a, 6));
  return room;
}

const char *shown_fd(struct actor *a, int fd) {
  char *room = a->name_room[a->names++ % 4];
  if (fd == AT_FDCWD) return "CWD";
  if (fd >= 0 && fd < NEVER_OPEN && shared->free_running) return "fd";
  sprintf(room, "%d", fd);
  return room;
}

int *a_file_slot(struct actor *a) { return &a->slots->file[below(a, FILES)]; }
int *a_dir_slot(struct actor *a) { return &a->slots->dir[below(a, DIRS)]; }

static int among(struct actor *a, const int *slots, unsigned n) {
  unsigned from = below(a, n);
  for (unsigned i = 0; i < n; i++) if (slots[(from + i) % n] >= 0) return slots[(from + i) % n];
  return -1;
}

int a_file(struct actor *a) {
  if (one_in(a, 60)) return a_dir(a);
  if (one_in(a, 100)) return PICK(a, -1, NEVER_OPEN, INT_MAX, INT_MIN, 100000);
  return among(a, a->slots->file, FILES);
}

int a_dir(struct actor *a) {
  if (one_in(a, 100)) return PICK(a, -1, NEVER_OPEN, INT_MAX, INT_MIN, 100000);
  return among(a, a->slots->dir, DIRS);
}

void put(struct actor *a, int *slot, int fd) {
  if (fd < 0) return;
  if (*slot >= 0) RECORDED(a, close(*slot), "close(%s)", shown_fd(a, *slot));
  *slot = fd;
}

off_t an_offset(struct actor *a) {
  switch (below(a, 16)) {
    case 0: return 0;
    case 1: return PICK(a, 1, 4095, 4096, 4097, 8192, 65536, 65535);
    case 2: return below(a, 100) * 4096;
    case 3: return (off_t)below(a, 40) * 4096 + PICK(a, -1, 1, 511, 512);
    case 4: return one_in(a, 8) ? -(off_t)below(a, 5000) - 1 : below(a, 1000);
    case 5: return one_in(a, 8) ? (off_t[]){LLONG_MAX, LLONG_MIN}[below(a, 2)] : below(a, 1000);
    case 6: case 7: case 8: return below(a, 200000);
    case 9: return below(a, 2000000);
    default: return below(a, 20000);
  }
}

off_t a_size(struct actor *a) {
  off_t size = an_offset(a);
  return size == LLONG_MAX ? 1 << 20 : size;
}

/* Of a path that is too long and a flag that is not known, either may be the error. */
bool too_long(const char *path) { return path && strlen(path) >= PATH_MAX; }

size_t a_length(struct actor *a) {
  switch (below(a, 12)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return PICK(a, 4095, 4096, 4097, 8192, 511, 512, 16384);
    case 3: return below(a, 70000);
    case 4: case 5: case 6: return below(a, 9000);
    default: return below(a, 300);
  }
}

void fill(struct actor *a, size_t len) {
  uint64_t s = draw(a);
  for (size_t i = 0; i < len; i++) a->buffer[i] = (unsigned char)((s >> i % 7 * 8) + i / 7);
}

/* Times that were set by a call are long ago (or far ahead), and compared; others are "now". */
static void say_time(struct actor *a, const char *name, const struct timespec *t) {
  if (t->tv_sec < 1000000000 || t->tv_sec > 4000000000) extra(a, " %s=%lld.%09ld", name, (long long)t->tv_sec, t->tv_nsec);
  else extra(a, " %s=now", name);
}

void say_stat(struct actor *a, const struct stat *st) {
  extra(a, " {%o links %lu %u:%u", st->st_mode, (unsigned long)st->st_nlink, st->st_uid, st->st_gid);
  if (!S_ISDIR(st->st_mode)) extra(a, " %lld bytes", (long long)st->st_size);
  /* Reading a directory or a symlink need not be noted. */
  if (S_ISREG(st->st_mode)) say_time(a, "a", &st->st_atim);
  say_time(a, "m", &st->st_mtim);
  extra(a, "}");
}
