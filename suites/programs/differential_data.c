/* Further calls on data: vectors, space, copies between descriptors, flags. */
#include "differential.h"
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>

/* Parts of the buffer, some of them empty. Returns how many bytes they have together. */
static size_t parts(struct actor *a, struct iovec *parts, int count) {
  size_t at = 0;
  for (int i = 0; i < count; i++) {
    size_t len = one_in(a, 5) ? 0 : one_in(a, 20) ? below(a, 20000) : below(a, 600);
    parts[i] = (struct iovec){a->buffer + at, len};
    at += len;
  }
  return at;
}

static void say_data(struct actor *a, ssize_t n) {
  if (n > 0) extra(a, " %016llx", (unsigned long long)hash(a->buffer, n));
}

static void op_vectors(struct actor *a) {
  struct iovec v[9];
  int fd = a_file(a), count = PICK(a, 0, 1, 2, 3, 9), given = one_in(a, 60) ? PICK(a, -1, 1025) : count;
  int flags = one_in(a, 6) ? PICK(a, RWF_DSYNC, RWF_SYNC) : 0;
  size_t len = parts(a, v, count);
  off_t at = an_offset(a);
  const char *f = shown_fd(a, fd);
  switch (below(a, 6)) {
    case 0: say_data(a, RECORDED(a, readv(fd, v, given), "readv(%s, %d parts of %zu)", f, given, len)); break;
    case 1: fill(a, len); RECORDED(a, writev(fd, v, given), "writev(%s, %d parts of %zu)", f, given, len); break;
    case 2: say_data(a, RECORDED(a, preadv(fd, v, given, at), "preadv(%s, %d parts of %zu, %lld)", f, given, len, (long long)at)); break;
    case 3: fill(a, len); RECORDED(a, pwritev(fd, v, given, at), "pwritev(%s, %d parts of %zu, %lld)", f, given, len, (long long)at); break;
    case 4:
      if (one_in(a, 3)) at = -1;
      flags = 0;
      say_data(a, RECORDED(a, preadv2(fd, v, given, at, flags), "preadv2(%s, %d parts of %zu, %lld, %#x)", f, given, len, (long long)at, flags));
      break;
    default:
      if (one_in(a, 3)) at = -1;
      fill(a, len);
      RECORDED(a, pwritev2(fd, v, given, at, flags), "pwritev2(%s, %d parts of %zu, %lld, %#x)", f, given, len, (long long)at, flags);
  }
}

static void op_space(struct actor *a) {
  int fd = a_file(a), mode = PICK(a, 0, 0, 1, 1, 3, 3, 3, 2, 16, 17, 8, 32, 8, 32, 9, 64, 4, -1);
  off_t at = an_offset(a) , len = a_size(a);
  if (at == LLONG_MAX) at = 0;
  if (at_mount(a) && mode & 40) return; /* the kernel refuses them */
  if ((mode == 8 || mode == 32) && !one_in(a, 4)) at &= -4096, len &= -4096;
  if (one_in(a, 4)) RETURNS_ERROR(a, posix_fallocate(fd, at, len), "posix_fallocate(%s, %lld, %lld)", shown_fd(a, fd), (long long)at, (long long)len);
  else if (RECORDED(a, fallocate(fd, mode, at, len), "fallocate(%s, %d, %lld, %lld)", shown_fd(a, fd), mode, (long long)at, (long long)len))
    /* ext4 sets the times before it finds that a range is none. */
    RECORDED(a, futimens(fd, 0), "futimens(%s, NULL)", shown_fd(a, fd));
}

static void op_advice(struct actor *a) {
  int fd = a_file(a), what = PICK(a, 0, 1, 2, 3, 4, 5, 6, -1);
  off_t at = a_size(a), len = a_size(a);
  switch (below(a, 3)) {
    case 0: RETURNS_ERROR(a, posix_fadvise(fd, at, len, what), "posix_fadvise(%s, %lld, %lld, %d)", shown_fd(a, fd), (long long)at, (long long)len, what); break;
    case 1: RECORDED(a, sync_file_range(fd, at, len, what), "sync_file_range(%s, %lld, %lld, %d)", shown_fd(a, fd), (long long)at, (long long)len, what); break;
    default: at = at < 0 ? 0 : at; len = len < 0 ? 0 : len;
      RECORDED(a, readahead(fd, at, len), "readahead(%s, %lld, %lld)", shown_fd(a, fd), (long long)at, (long long)len);
  }
  count_access(a, fd);
}

static void op_copy(struct actor *a) {
  int from = a_file(a), to = a_file(a), flags = one_in(a, 20);
  size_t len = a_length(a);
  off_t at = an_offset(a), to_at = an_offset(a), *p = one_in(a, 2) ? &at : 0, *q = one_in(a, 2) ? &to_at : 0;
  long long at0 = p ? at : -1, to0 = q ? to_at : -1;
  const char *f = shown_fd(a, from), *t = shown_fd(a, to);
  struct stat one, two;
  bool same = !fstat(from, &one) && !fstat(to, &two) && one.st_ino == two.st_ino;
  if (one_in(a, 2) && !same) {
    if (p && at == LLONG_MAX && !len) len = 1; /* there is no such place on ext4 */
    RECORDED(a, sendfile(to, from, p, len), "sendfile(%s, %s, %lld, %zu)", t, f, at0, len);
  } else {
    RECORDED(a, copy_file_range(from, p, to, q, len, flags), "copy_file_range(%s, %lld, %s, %lld, %zu, %d)", f, at0, t, to0, len, flags);
    if (q) extra(a, " to %lld", (long long)to_at);
  }
  if (p) extra(a, " from %lld", (long long)at);
  count_access(a, from);
}

static void op_flags(struct actor *a) {
  int fd = a_file(a), set = PICK(a, 0, O_APPEND, O_NONBLOCK, O_APPEND | O_NONBLOCK, O_NOATIME, O_RDWR, O_SYNC);
  switch (below(a, 6)) {
    case 0: case 1: RECORDED(a, fcntl(fd, F_GETFL), "fcntl(%s, F_GETFL)", shown_fd(a, fd)); break;
    case 2: RECORDED(a, fcntl(fd, F_SETFL, set), "fcntl(%s, F_SETFL, %#o)", shown_fd(a, fd), set); break;
    case 3: RECORDED(a, fcntl(fd, F_GETFD), "fcntl(%s, F_GETFD)", shown_fd(a, fd)); break;
    case 4: set = PICK(a, 0, FD_CLOEXEC, 2, 3); RECORDED(a, fcntl(fd, F_SETFD, set), "fcntl(%s, F_SETFD, %d)", shown_fd(a, fd), set); break;
    default: {
      int ready = -1;
      struct stat st;
      if (at_mount(a)) fstat(fd, &st); /* the kernel takes the size that it has heard of last */
      if (!RECORDED(a, ioctl(fd, FIONREAD, &ready), "ioctl(%s, FIONREAD)", shown_fd(a, fd))) extra(a, " %d", ready);
    }
  }
}

/* Where data and holes are, of a file made for it: what counts as data after fallocate is the file system's affair. */
static void op_sparse(struct actor *a) {
  char name[64];
  sprintf(name, "%s%s%d", shared->free_running ? "own" : "sparse", shared->free_running ? "" : "-", a->id);
  if (shared->free_running) strcat(name, "/sparse");
  int fd = DESCRIPTOR(a, open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), "open(%s)", name);
  if (fd < 0) return;
  for (unsigned i = 0, steps = 1 + below(a, 5); i < steps; i++) {
    size_t len = a_length(a) + 1;
    off_t at = below(a, 60) * 4096 + (one_in(a, 2) ? below(a, 4096) : 0);
    fill(a, len);
    switch (below(a, 5)) {
      case 0: RECORDED(a, ftruncate(fd, at), "ftruncate(%lld)", (long long)at); break;
      case 1: RECORDED(a, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len), "fallocate(punch, %lld, %zu)", (long long)at, len); break;
      case 2: if (one_in(a, 3)) RECORDED(a, fsync(fd), "fsync()"); break;
      default: RECORDED(a, pwrite(fd, a->buffer, len, at), "pwrite(%zu, %lld)", len, (long long)at);
    }
  }
  off_t at = 0;
  for (int i = 0; i < 20; i++) {
    at = RECORDED(a, lseek(fd, at, SEEK_DATA), "lseek(%lld, SEEK_DATA)", (long long)at);
    if (at < 0) break;
    at = RECORDED(a, lseek(fd, at, SEEK_HOLE), "lseek(%lld, SEEK_HOLE)", (long long)at);
    if (at < 0) break;
  }
  off_t wild = an_offset(a);
  RECORDED(a, lseek(fd, wild, SEEK_HOLE), "lseek(%lld, SEEK_HOLE)", (long long)wild);
  RECORDED(a, lseek(fd, 0, SEEK_CUR), "lseek(0, SEEK_CUR)");
  RECORDED(a, close(fd), "close(sparse)");
  RECORDED(a, unlink(name), "unlink(%s)", name);
}

/* A file without a name, which may get one. */
static void op_unnamed(struct actor *a) {
  int dir, flags = PICK(a, O_RDWR, O_RDWR, O_WRONLY, O_RDONLY, O_RDWR | O_EXCL), mode = PICK(a, 0600, 0644, 0777);
  const char *p = a_path_at(a, A_DIR, &dir);
  if (too_long(p)) flags = O_RDWR;
  int fd = DESCRIPTOR(a, openat(dir, p, O_TMPFILE | flags, mode), "openat(%s, %s, O_TMPFILE | %#o, %#o)", shown_fd(a, dir), shown(a, p), flags, mode);
  if (fd < 0) return;
  struct stat st;
  if (!RECORDED(a, fstat(fd, &st), "fstat(unnamed)")) say_stat(a, &st);
  fill(a, 5000);
  RECORDED(a, write(fd, a->buffer, 5000), "write(unnamed, 5000)");
  if (one_in(a, 2)) {
    char self[64];
    sprintf(self, "/proc/self/fd/%d", fd);
    const char *q = a_path_at(a, A_FILE, &dir);
    int r = RECORDED(a, linkat(AT_FDCWD, self, dir, q, AT_SYMLINK_FOLLOW), "linkat(unnamed, %s, %s)", shown_fd(a, dir), shown(a, q));
    /* What has lost its name again gets no other. */
    if (!r && one_in(a, 2)) {
      RECORDED(a, unlinkat(dir, q, 0), "unlinkat(%s, %s)", shown_fd(a, dir), shown(a, q));
      q = a_path_at(a, A_FILE, &dir);
      RECORDED(a, linkat(AT_FDCWD, self, dir, q, AT_SYMLINK_FOLLOW), "linkat(removed, %s, %s)", shown_fd(a, dir), shown(a, q));
    }
  }
  if (one_in(a, 3)) put(a, a_file_slot(a), fd); else RECORDED(a, close(fd), "close(unnamed)");
}

static void op_volume(struct actor *a) {
  struct statvfs v;
  struct statfs s;
  const char *p = a_path(a, below(a, 3));
  int fd = a_file(a), r;
  switch (below(a, 4)) {
    case 0: r = RECORDED(a, statvfs(p, &v), "statvfs(%s)", shown(a, p)); if (!r) extra(a, " names of %lu", v.f_namemax); break;
    case 1: r = RECORDED(a, fstatvfs(fd, &v), "fstatvfs(%s)", shown_fd(a, fd)); if (!r) extra(a, " names of %lu", v.f_namemax); break;
    case 2: r = RECORDED(a, statfs(p, &s), "statfs(%s)", shown(a, p)); if (!r) extra(a, " names of %ld", (long)s.f_namelen); break;
    default: r = RECORDED(a, fstatfs(fd, &s), "fstatfs(%s)", shown_fd(a, fd)); if (!r) extra(a, " names of %ld", (long)s.f_namelen);
  }
}

static void op_by_number(struct actor *a) {
  int fd = a_file(a);
  size_t len = a_length(a);
  off_t at = a_size(a);
  const char *p = a_path(a, A_FILE);
  struct stat st;
  switch (below(a, 6)) {
    case 0: say_data(a, RECORDED(a, syscall(SYS_read, fd, a->buffer, len), "syscall(read, %s, %zu)", shown_fd(a, fd), len)); break;
    case 1: fill(a, len); RECORDED(a, syscall(SYS_write, fd, a->buffer, len), "syscall(write, %s, %zu)", shown_fd(a, fd), len); break;
    case 2: say_data(a, RECORDED(a, syscall(SYS_pread64, fd, a->buffer, len, at), "syscall(pread64, %s, %zu, %lld)", shown_fd(a, fd), len, (long long)at)); break;
    case 3: if (!RECORDED(a, syscall(SYS_fstat, fd, &st), "syscall(fstat, %s)", shown_fd(a, fd))) say_stat(a, &st); break;
    case 4: if (!RECORDED(a, syscall(SYS_newfstatat, AT_FDCWD, p, &st, 0), "syscall(newfstatat, %s)", shown(a, p))) say_stat(a, &st); break;
    default: {
      int new = DESCRIPTOR(a, syscall(SYS_openat, AT_FDCWD, p, O_RDWR | O_CREAT, 0644), "syscall(openat, %s)", shown(a, p));
      put(a, a_file_slot(a), new);
    }
  }
}

static void op_null(struct actor *a) {
  int fd = a_file(a);
  void *volatile nothing = 0;
  switch (below(a, 4)) {
    case 0: RECORDED(a, fstat(fd, nothing), "fstat(%s, NULL)", shown_fd(a, fd)); break;
    case 2: RECORDED(a, readv(fd, nothing, 2), "readv(%s, NULL, 2)", shown_fd(a, fd)); break;
    case 1: RECORDED(a, writev(fd, nothing, 1), "writev(%s, NULL, 1)", shown_fd(a, fd)); break;
    default: { const char *p = a_path(a, A_FILE); RECORDED(a, stat(p, nothing), "stat(%s, NULL)", shown(a, p)); }
  }
}

const struct operation data_operations[] = {
  {"vectors", 40, op_vectors}, {"space", 15, op_space}, {"advice", 6, op_advice}, {"copy", 20, op_copy}, {"flags", 20, op_flags},
  {"sparse", 2, op_sparse}, {"unnamed", 3, op_unnamed}, {"volume", 3, op_volume}, {"by_number", 8, op_by_number}, {"null", 4, op_null},
  {0},
};
