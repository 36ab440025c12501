/* Calls on names and attributes. */
#include "differential.h"
#include <linux/capability.h>
#include <sys/syscall.h>

static void op_stat(struct actor *a) {
  struct stat st;
  int dir, flags = PICK(a, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0x4000000), r;
  switch (below(a, 3)) {
    case 0: { const char *p = a_path(a, below(a, 3)); r = RECORDED(a, stat(p, &st), "stat(%s)", shown(a, p)); break; }
    case 1: { const char *p = a_path(a, below(a, 3)); r = RECORDED(a, lstat(p, &st), "lstat(%s)", shown(a, p)); break; }
    default: {
      const char *p = a_path_at(a, below(a, 3), &dir);
      if (too_long(p)) flags = 0;
      r = RECORDED(a, fstatat(dir, p, &st, flags), "fstatat(%s, %s, %#x)", shown_fd(a, dir), shown(a, p), flags);
    }
  }
  if (!r) say_stat(a, &st);
}

static void op_access(struct actor *a) {
  int mode = PICK(a, F_OK, R_OK, W_OK, X_OK, R_OK | W_OK, 7, 8, -1), dir, flags = PICK(a, 0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, 4);
  if (one_in(a, 2)) { const char *p = a_path(a, below(a, 3)); if (too_long(p)) mode &= 7; RECORDED(a, access(p, mode), "access(%s, %d)", shown(a, p), mode); return; }
  const char *p = a_path_at(a, below(a, 3), &dir);
  if (too_long(p)) flags = 0, mode &= 7;
  RECORDED(a, faccessat(dir, p, mode, flags), "faccessat(%s, %s, %d, %#x)", shown_fd(a, dir), shown(a, p), mode, flags);
}

static void op_unlink(struct actor *a) {
  int dir, flags = PICK(a, 0, 0, 0, AT_REMOVEDIR, 1);
  switch (below(a, 4)) {
    case 0: { const char *p = a_path_at(a, flags & AT_REMOVEDIR ? A_DIR : A_FILE, &dir);
      RECORDED(a, unlinkat(dir, p, flags), "unlinkat(%s, %s, %#x)", shown_fd(a, dir), shown(a, p), flags); break; }
    case 1: { const char *p = a_path(a, below(a, 3)); RECORDED(a, remove(p), "remove(%s)", shown(a, p)); break; }
    default: { const char *p = a_path(a, one_in(a, 3) ? A_LINK : A_FILE); RECORDED(a, unlink(p), "unlink(%s)", shown(a, p)); }
  }
}

static void op_mkdir(struct actor *a) {
  int dir, mode = PICK(a, 0777, 0755, 0700, 01777, 02755, 0);
  if (one_in(a, 2)) { const char *p = a_path(a, A_DIR); RECORDED(a, mkdir(p, mode), "mkdir(%s, %#o)", shown(a, p), mode); return; }
  const char *p = a_path_at(a, A_DIR, &dir);
  RECORDED(a, mkdirat(dir, p, mode), "mkdirat(%s, %s, %#o)", shown_fd(a, dir), shown(a, p), mode);
}

static void op_rmdir(struct actor *a) {
  const char *p = a_path(a, A_DIR);
  RECORDED(a, rmdir(p), "rmdir(%s)", shown(a, p));
}

/* The kernel fails to rename a directory that the library has moved (ESTALE), unless it has met it under its new name. */
static void meet(struct actor *a, int dir, const char *path) {
  struct stat st;
  if (at_mount(a) && path) (void)!fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW);
}

/* The kernel does not know where a directory is that the library has moved, so that it may find another fault of a rename first. */
static int fault(struct actor *a, int result) {
  if (at_mount(a) && result && (errno == ENOTDIR || errno == EISDIR || errno == ENOTEMPTY)) errno = EINVAL;
  return result;
}

static void op_rename(struct actor *a) {
  enum sort from = below(a, 3), to = one_in(a, 5) ? below(a, 3) : from;
  int d1, d2;
  unsigned flags = PICK(a, 0, 1, 2, 1, 2, 3, 6, 8);
  switch (below(a, 3)) {
    case 0: { const char *p = a_path(a, from), *pn = shown(a, p), *q = a_path(a, to);
      meet(a, AT_FDCWD, p), meet(a, AT_FDCWD, q);
      RECORDED(a, fault(a, rename(p, q)), "rename(%s, %s)", pn, shown(a, q)); break; }
    case 1: { const char *p = a_path_at(a, from, &d1), *pn = shown(a, p), *q = a_path_at(a, to, &d2);
      meet(a, d1, p), meet(a, d2, q);
      RECORDED(a, fault(a, renameat(d1, p, d2, q)), "renameat(%s, %s, %s, %s)", shown_fd(a, d1), pn, shown_fd(a, d2), shown(a, q)); break; }
    default: { const char *p = a_path_at(a, from, &d1), *pn = shown(a, p), *q = a_path_at(a, to, &d2);
      meet(a, d1, p), meet(a, d2, q);
      RECORDED(a, fault(a, renameat2(d1, p, d2, q, flags)), "renameat2(%s, %s, %s, %s, %u)", shown_fd(a, d1), pn, shown_fd(a, d2), shown(a, q), flags); }
  }
}

/* Whether the caller may search any directory, which its identity alone does not tell after changes of it. */
static int may_search(void) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2] = {{0, 0, 0}, {0, 0, 0}};
  return !syscall(SYS_capget, &head, sets) && sets[0].effective >> CAP_DAC_READ_SEARCH & 1;
}

static void op_link(struct actor *a) {
  int d1, d2, flags = PICK(a, 0, 0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, 1);
  if (one_in(a, 2)) {
    const char *p = a_path(a, below(a, 3)), *pn = shown(a, p), *q = a_path(a, below(a, 3));
    RECORDED(a, link(p, q), "link(%s, %s)", pn, shown(a, q));
    return;
  }
  const char *p = a_path_at(a, below(a, 3), &d1), *pn = shown(a, p), *q = a_path_at(a, below(a, 3), &d2);
  /* From a directory that was opened before a fork this is not for everybody, with a path either. */
  if (!may_search() && flags == AT_EMPTY_PATH) flags = 0;
  RECORDED(a, linkat(d1, p, d2, q, flags), "linkat(%s, %s, %s, %s, %#x)", shown_fd(a, d1), pn, shown_fd(a, d2), shown(a, q), flags);
}

static void op_symlink(struct actor *a) {
  int dir;
  const char *p = a_path(a, below(a, 3)), *pn = shown(a, p);
  if (one_in(a, 2)) { const char *q = a_path(a, A_LINK); RECORDED(a, symlink(p, q), "symlink(%s, %s)", pn, shown(a, q)); return; }
  const char *q = a_path_at(a, A_LINK, &dir);
  RECORDED(a, symlinkat(p, dir, q), "symlinkat(%s, %s, %s)", pn, shown_fd(a, dir), shown(a, q));
}

static void op_readlink(struct actor *a) {
  int dir;
  size_t room = PICK(a, 4096, 4096, 1, 5, 0);
  char *out = (char *)a->buffer;
  ssize_t n;
  if (one_in(a, 2)) { const char *p = a_path(a, A_LINK); n = RECORDED(a, readlink(p, out, room), "readlink(%s, %zu)", shown(a, p), room); }
  else { const char *p = a_path_at(a, A_LINK, &dir);
    n = RECORDED(a, readlinkat(dir, p, out, room), "readlinkat(%s, %s, %zu)", shown_fd(a, dir), shown(a, p), room); }
  if (n > 0) out[n] = 0, extra(a, " %s", shown(a, out));
}

static void op_truncate(struct actor *a) {
  const char *p = a_path(a, A_FILE);
  off_t size = too_long(p) ? 0 : a_size(a);
  RECORDED(a, truncate(p, size), "truncate(%s, %lld)", shown(a, p), (long long)size);
}

static void op_chmod(struct actor *a) {
  int mode = PICK(a, 0644, 0666, 0600, 0777, 0755, 0700, 04755, 02755, 01777, 0100644), dir, flags = PICK(a, 0, 0, AT_SYMLINK_NOFOLLOW, 1), fd = a_file(a);
  switch (below(a, 3)) {
    case 0: { const char *p = a_path(a, below(a, 3)); RECORDED(a, chmod(p, mode), "chmod(%s, %#o)", shown(a, p), mode); break; }
    case 1: RECORDED(a, fchmod(fd, mode), "fchmod(%s, %#o)", shown_fd(a, fd), mode); break;
    default: { const char *p = a_path_at(a, below(a, 3), &dir);
      if (too_long(p)) flags = 0;
      RECORDED(a, fchmodat(dir, p, mode, flags), "fchmodat(%s, %s, %#o, %#x)", shown_fd(a, dir), shown(a, p), mode, flags); }
  }
}

const struct operation name_operations[] = {
  {"stat", 40, op_stat}, {"access", 15, op_access}, {"unlink", 20, op_unlink}, {"mkdir", 20, op_mkdir}, {"rmdir", 8, op_rmdir},
  {"rename", 20, op_rename}, {"link", 12, op_link}, {"symlink", 12, op_symlink}, {"readlink", 12, op_readlink},
  {"truncate", 10, op_truncate}, {"chmod", 12, op_chmod},
  {0},
};
