/* Calls on open files. */
#include "differential.h"
#include <sys/file.h>
#include <sys/uio.h>

static int open_flags(struct actor *a) {
  int flags = PICK(a, O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR);
  if (one_in(a, 2)) flags |= O_CREAT;
  if (one_in(a, 12)) flags |= O_EXCL;
  if (one_in(a, 12)) flags |= O_TRUNC;
  if (one_in(a, 6)) flags |= O_APPEND;
  if (one_in(a, 15)) flags |= O_NOFOLLOW;
  if (one_in(a, 20)) flags |= O_DIRECTORY;
  if (one_in(a, 10)) flags |= O_CLOEXEC;
  if (one_in(a, 30)) flags |= O_NONBLOCK;
  if (one_in(a, 40)) flags |= O_DSYNC;
  if (one_in(a, 40)) flags |= O_SYNC;
  if (one_in(a, 40)) flags |= O_PATH;
  if (one_in(a, 40)) flags |= O_NOATIME;
  if (one_in(a, 100)) flags |= 3;
  return flags;
}

static int a_mode(struct actor *a) { return PICK(a, 0644, 0666, 0600, 0777, 0755, 0444, 0, 0200, 04755, 02755, 01777, 0100644); }

static void op_open(struct actor *a) {
  const char *path = a_path(a, one_in(a, 10) ? A_LINK : A_FILE);
  int flags = open_flags(a), mode = a_mode(a);
  if (too_long(path)) flags &= O_ACCMODE;
  int fd = DESCRIPTOR(a, open(path, flags, mode), "open(%s, %#o, %#o)", shown(a, path), flags, mode);
  put(a, a_file_slot(a), fd);
}

static void op_openat(struct actor *a) {
  int dir, flags = open_flags(a), mode = a_mode(a);
  const char *path = a_path_at(a, one_in(a, 10) ? A_LINK : A_FILE, &dir);
  if (too_long(path)) flags &= O_ACCMODE;
  int fd = DESCRIPTOR(a, openat(dir, path, flags, mode), "openat(%s, %s, %#o, %#o)", shown_fd(a, dir), shown(a, path), flags, mode);
  put(a, a_file_slot(a), fd);
}

static void op_open_dir(struct actor *a) {
  const char *path = a_path(a, A_DIR);
  int flags = PICK(a, O_RDONLY, O_RDONLY | O_DIRECTORY, O_DIRECTORY | O_PATH, O_DIRECTORY | O_CLOEXEC);
  int fd = DESCRIPTOR(a, open(path, flags), "open(%s, %#o)", shown(a, path), flags);
  struct stat st;
  if (fd >= 0 && !fstat(fd, &st) && S_ISDIR(st.st_mode)) put(a, a_dir_slot(a), fd); else put(a, a_file_slot(a), fd);
}

static void op_creat(struct actor *a) {
  const char *path = a_path(a, A_FILE);
  int mode = a_mode(a);
  put(a, a_file_slot(a), DESCRIPTOR(a, creat(path, mode), "creat(%s, %#o)", shown(a, path), mode));
}

static void op_close(struct actor *a) {
  int *slot = one_in(a, 6) ? a_dir_slot(a) : a_file_slot(a);
  RECORDED(a, close(*slot), "close(%s)", shown_fd(a, *slot));
  *slot = -1;
}

static void op_dup(struct actor *a) {
  int from = a_file(a), *slot = a_file_slot(a);
  switch (below(a, 4)) {
    case 0: put(a, slot, DESCRIPTOR(a, dup(from), "dup(%s)", shown_fd(a, from))); break;
    case 1: if (*slot >= 0) RECORDED(a, dup2(from, *slot) < 0 ? -1 : 0, "dup2(%s, %s)", shown_fd(a, from), shown_fd(a, *slot)); break;
    case 2: if (*slot >= 0) {
      int flags = PICK(a, 0, O_CLOEXEC, O_CLOEXEC, O_APPEND);
      RECORDED(a, dup3(from, *slot, flags) < 0 ? -1 : 0, "dup3(%s, %s, %#o)", shown_fd(a, from), shown_fd(a, *slot), flags);
      break;
    }
    case 3: {
      int least = PICK(a, 0, 3, 20, 50, -1), command = PICK(a, F_DUPFD, F_DUPFD_CLOEXEC);
      put(a, slot, DESCRIPTOR(a, fcntl(from, command, least), "fcntl(%s, %d, %d)", shown_fd(a, from), command, least));
    }
  }
}

static void op_read(struct actor *a) {
  int fd = a_file(a);
  size_t len = a_length(a);
  ssize_t n = RECORDED(a, read(fd, a->buffer, len), "read(%s, %zu)", shown_fd(a, fd), len);
  if (n > 0) extra(a, " %016llx", (unsigned long long)hash(a->buffer, n));
}

static void op_pread(struct actor *a) {
  int fd = a_file(a);
  size_t len = a_length(a);
  off_t at = an_offset(a);
  ssize_t n = RECORDED(a, pread(fd, a->buffer, len, at), "pread(%s, %zu, %lld)", shown_fd(a, fd), len, (long long)at);
  if (n > 0) extra(a, " %016llx", (unsigned long long)hash(a->buffer, n));
}

static void op_write(struct actor *a) {
  int fd = a_file(a);
  size_t len = a_length(a);
  fill(a, len);
  RECORDED(a, write(fd, a->buffer, len), "write(%s, %zu)", shown_fd(a, fd), len);
}

static void op_pwrite(struct actor *a) {
  int fd = a_file(a);
  size_t len = a_length(a);
  off_t at = an_offset(a);
  fill(a, len);
  RECORDED(a, pwrite(fd, a->buffer, len, at), "pwrite(%s, %zu, %lld)", shown_fd(a, fd), len, (long long)at);
}

static void op_lseek(struct actor *a) {
  int fd = a_file(a), whence = PICK(a, SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END, 7);
  off_t at = a_size(a);
  struct stat st;
  if (whence != SEEK_SET && one_in(a, 2)) at = -(off_t)below(a, 5000);
  /* What a place in a directory is, and how large a file may be, is the file system's own affair. */
  if (!fstat(fd, &st) && S_ISDIR(st.st_mode)) at = 0, whence = SEEK_SET;
  RECORDED(a, lseek(fd, at, whence), "lseek(%s, %lld, %d)", shown_fd(a, fd), (long long)at, whence);
}

static void op_ftruncate(struct actor *a) {
  int fd = a_file(a);
  off_t size = a_size(a);
  RECORDED(a, ftruncate(fd, size), "ftruncate(%s, %lld)", shown_fd(a, fd), (long long)size);
}

static void op_fsync(struct actor *a) {
  int fd = a_file(a);
  if (one_in(a, 2)) RECORDED(a, fsync(fd), "fsync(%s)", shown_fd(a, fd));
  else RECORDED(a, fdatasync(fd), "fdatasync(%s)", shown_fd(a, fd));
}

static void op_fstat(struct actor *a) {
  int fd = a_file(a);
  struct stat st;
  if (!RECORDED(a, fstat(fd, &st), "fstat(%s)", shown_fd(a, fd))) say_stat(a, &st);
}

const struct operation file_operations[] = {
  {"open", 40, op_open}, {"openat", 30, op_openat}, {"open_dir", 15, op_open_dir}, {"creat", 5, op_creat},
  {"close", 25, op_close}, {"dup", 15, op_dup},
  {"read", 30, op_read}, {"pread", 30, op_pread}, {"write", 40, op_write}, {"pwrite", 40, op_pwrite},
  {"lseek", 30, op_lseek}, {"ftruncate", 12, op_ftruncate}, {"fsync", 2, op_fsync}, {"fstat", 20, op_fstat},
  {0},
};
