/* Owners, times, extended attributes, masks, special nodes, the working directory, canonical and temporary names. */
#include "differential.h"
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

static void op_owner(struct actor *a) {
  uid_t uid = PICK(a, -1, -1, 0, 12345, 54321), gid = PICK(a, -1, -1, 0, 12345, 54321);
  int dir, fd = a_file(a), flags = PICK(a, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 4);
  const char *p;
  if (at_mount(a) && uid == (uid_t)-1 && gid == uid) gid = 54321; /* without either, the kernel asks no mount */
  switch (below(a, 4)) {
    case 0: p = a_path(a, below(a, 3)); RECORDED(a, chown(p, uid, gid), "chown(%s, %d, %d)", shown(a, p), uid, gid); break;
    case 1: p = a_path(a, below(a, 3)); RECORDED(a, lchown(p, uid, gid), "lchown(%s, %d, %d)", shown(a, p), uid, gid); break;
    case 2: RECORDED(a, fchown(fd, uid, gid), "fchown(%s, %d, %d)", shown_fd(a, fd), uid, gid); break;
    default: p = a_path_at(a, below(a, 3), &dir);
      if (too_long(p)) flags = 0;
      RECORDED(a, fchownat(dir, p, uid, gid, flags), "fchownat(%s, %s, %d, %d, %#x)", shown_fd(a, dir), shown(a, p), uid, gid, flags);
  }
}

/* A time that no clock shows today, so that it can be told from one that a call has set. */
static struct timespec a_time(struct actor *a) {
  struct timespec t = {below(a, 900000000), below(a, 1000000000)};
  if (one_in(a, 10)) t.tv_sec = -(time_t)below(a, 1000000000);
  if (one_in(a, 10)) t.tv_sec = 4100000000 + below(a, 100000000);
  if (one_in(a, 6)) t.tv_nsec = UTIME_NOW;
  if (one_in(a, 6)) t.tv_nsec = UTIME_OMIT;
  if (one_in(a, 40)) t.tv_nsec = PICK(a, -1, 1000000000);
  return t;
}

static void op_times(struct actor *a) {
  struct timespec t[2] = {a_time(a), a_time(a)}, *given = one_in(a, 8) ? 0 : t;
  struct timeval v[2] = {{t[0].tv_sec, t[0].tv_nsec % 1000000}, {t[1].tv_sec, t[1].tv_nsec % 1000000}};
  struct utimbuf u = {t[0].tv_sec, t[1].tv_sec};
  int dir, fd = a_file(a), flags = PICK(a, 0, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 4);
  char when[120];
  const char *p;
  if (given) sprintf(when, "%lld.%ld, %lld.%ld", (long long)t[0].tv_sec, t[0].tv_nsec, (long long)t[1].tv_sec, t[1].tv_nsec); else strcpy(when, "NULL");
  switch (below(a, 8)) {
    case 0: p = a_path_at(a, below(a, 3), &dir);
      if (too_long(p)) flags = 0;
      RECORDED(a, utimensat(dir, p, given, flags), "utimensat(%s, %s, %s, %#x)", shown_fd(a, dir), shown(a, p), when, flags); break;
    case 1: case 2: RECORDED(a, futimens(fd, given), "futimens(%s, %s)", shown_fd(a, fd), when); break;
    case 3: p = a_path(a, below(a, 3)); RECORDED(a, utimes(p, given ? v : 0), "utimes(%s, %s)", shown(a, p), when); break;
    case 4: p = a_path(a, below(a, 3)); RECORDED(a, lutimes(p, given ? v : 0), "lutimes(%s, %s)", shown(a, p), when); break;
    case 5: RECORDED(a, futimes(fd, given ? v : 0), "futimes(%s, %s)", shown_fd(a, fd), when); break;
    case 6: p = a_path_at(a, below(a, 3), &dir); RECORDED(a, futimesat(dir, p, given ? v : 0), "futimesat(%s, %s, %s)", shown_fd(a, dir), shown(a, p), when); break;
    default: p = a_path(a, below(a, 3)); RECORDED(a, utime(p, given ? &u : 0), "utime(%s, %s)", shown(a, p), when);
  }
}

static void op_statx(struct actor *a) {
  struct statx x;
  int dir, flags = PICK(a, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_STATX_DONT_SYNC, 4);
  const char *p = a_path_at(a, below(a, 3), &dir);
  if (too_long(p)) flags = 0;
  if (RECORDED(a, statx(dir, p, flags, STATX_BASIC_STATS, &x), "statx(%s, %s, %#x)", shown_fd(a, dir), shown(a, p), flags)) return;
  extra(a, " {%o links %u %u:%u", x.stx_mode, x.stx_nlink, x.stx_uid, x.stx_gid);
  if (!S_ISDIR(x.stx_mode)) extra(a, " %lld bytes", (long long)x.stx_size);
  extra(a, "}");
}

static int by_text(const void *one, const void *two) { return strcmp(*(char *const *)one, *(char *const *)two); }

static void say_list(struct actor *a, char *list, ssize_t len) {
  char *names[64];
  int n = 0;
  for (char *at = list; at < list + len && n < 64; at += strlen(at) + 1) names[n++] = at;
  qsort(names, n, sizeof *names, by_text);
  for (int i = 0; i < n; i++) extra(a, " %s", names[i]);
}

static void op_xattr(struct actor *a) {
  static const char *const all[] = {"user.a", "user.b", "user.c", "user.a", "user.b", "user.c", "trusted.t", "security.s", "nonsense", "user", ""};
  const char *name = all[below(a, 11)], *p = a_path(a, below(a, 3));
  char *out = (char *)a->buffer;
  size_t room = PICK(a, 0, 1, 20, 4000), len = PICK(a, 0, 1, 5, 20, 100, 200);
  int fd = a_file(a), how = PICK(a, 0, 0, 0, XATTR_CREATE, XATTR_REPLACE, 3, 4), which = below(a, 3);
  if (one_in(a, 100)) { char *x = a->path[3]; memset(x, 'n', 300); memcpy(x, "user.", 5); x[PICK(a, 255, 256, 300)] = 0; name = x; }
  if (too_long(p)) return;
  const char *s = which == 2 ? shown_fd(a, fd) : shown(a, p), *form = (const char *[]){"", "l", "f"}[which];
  ssize_t n = -1;
  switch (below(a, 5)) {
    case 0: case 1:
      fill(a, len);
      if (which == 0) RECORDED(a, setxattr(p, name, out, len, how), "%ssetxattr(%s, %.20s, %zu, %d)", form, s, name, len, how);
      else if (which == 1) RECORDED(a, lsetxattr(p, name, out, len, how), "%ssetxattr(%s, %.20s, %zu, %d)", form, s, name, len, how);
      else RECORDED(a, fsetxattr(fd, name, out, len, how), "%ssetxattr(%s, %.20s, %zu, %d)", form, s, name, len, how);
      break;
    case 2:
      if (which == 0) n = RECORDED(a, getxattr(p, name, out, room), "%sgetxattr(%s, %.20s, %zu)", form, s, name, room);
      else if (which == 1) n = RECORDED(a, lgetxattr(p, name, out, room), "%sgetxattr(%s, %.20s, %zu)", form, s, name, room);
      else n = RECORDED(a, fgetxattr(fd, name, out, room), "%sgetxattr(%s, %.20s, %zu)", form, s, name, room);
      if (n > 0 && room) extra(a, " %016llx", (unsigned long long)hash(out, n));
      break;
    case 3:
      if (which == 0) n = RECORDED(a, listxattr(p, out, room), "%slistxattr(%s, %zu)", form, s, room);
      else if (which == 1) n = RECORDED(a, llistxattr(p, out, room), "%slistxattr(%s, %zu)", form, s, room);
      else n = RECORDED(a, flistxattr(fd, out, room), "%slistxattr(%s, %zu)", form, s, room);
      if (n > 0 && room) say_list(a, out, n);
      break;
    default:
      if (which == 0) RECORDED(a, removexattr(p, name), "%sremovexattr(%s, %.20s)", form, s, name);
      else if (which == 1) RECORDED(a, lremovexattr(p, name), "%sremovexattr(%s, %.20s)", form, s, name);
      else RECORDED(a, fremovexattr(fd, name), "%sremovexattr(%s, %.20s)", form, s, name);
  }
}

static void op_umask(struct actor *a) {
  if (shared->free_running) return;
  int mask = PICK(a, 022, 022, 022, 077, 0, 027, 0777, 01022);
  RECORDED(a, umask(mask), "umask(%#o)", mask);
}

static void op_node(struct actor *a) {
  int dir, mode = PICK(a, S_IFIFO | 0644, S_IFREG | 0640, S_IFSOCK | 0600, 0600, S_IFDIR | 0755, S_IFCHR | 0600, S_IFLNK | 0777);
  const char *p;
  /* Not opened by anybody: what a fifo or device does is not the volume's. Gone again at once for that reason. */
  switch (below(a, 4)) {
    case 0: p = a_path(a, A_FILE); if (too_long(p)) mode = 0600; if (RECORDED(a, mknod(p, mode, makedev(1, 3)), "mknod(%s, %#o)", shown(a, p), mode)) return; dir = AT_FDCWD; break;
    case 1: p = a_path_at(a, A_FILE, &dir); if (too_long(p)) mode = 0600; if (RECORDED(a, mknodat(dir, p, mode, makedev(1, 3)), "mknodat(%s, %s, %#o)", shown_fd(a, dir), shown(a, p), mode)) return; break;
    case 2: p = a_path(a, A_FILE); if (RECORDED(a, mkfifo(p, mode & 0777), "mkfifo(%s, %#o)", shown(a, p), mode & 0777)) return; dir = AT_FDCWD; break;
    default: p = a_path_at(a, A_FILE, &dir); if (RECORDED(a, mkfifoat(dir, p, mode & 0777), "mkfifoat(%s, %s, %#o)", shown_fd(a, dir), shown(a, p), mode & 0777)) return;
  }
  struct stat st;
  if (!RECORDED(a, fstatat(dir, p, &st, AT_SYMLINK_NOFOLLOW), "fstatat(node)")) say_stat(a, &st), extra(a, " device %lx", (long)st.st_rdev);
  RECORDED(a, unlinkat(dir, p, 0), "unlinkat(node)");
}

/* Of a directory that the library renames, the kernel does not learn the new path. */
void keep_path(struct actor *a) {
  if (at_mount(a)) RECORDED(a, chdir(shared->base), "chdir($)");
}

static void op_directory_of_work(struct actor *a) {
  if (shared->free_running) return;
  char *out = (char *)a->buffer;
  if (one_in(a, 4)) {
    int fd = a_dir(a);
    RECORDED(a, fchdir(fd), "fchdir(%s)", shown_fd(a, fd));
  } else if (one_in(a, 2)) {
    const char *p = a_path(a, A_DIR);
    if (RECORDED(a, chdir(p), "chdir(%s)", shown(a, p))) return;
  }
  if (one_in(a, 2)) {
    size_t room = PICK(a, 4096, 4096, 1, 0, 10);
    keep_path(a);
    if (POINTER(a, getcwd(out, room), "getcwd(%zu)", room)) extra(a, " %s", shown(a, out));
  }
  if (!one_in(a, 3)) RECORDED(a, chdir(shared->base), "chdir($)");
}

static void op_realpath(struct actor *a) {
  const char *p = a_path(a, below(a, 3));
  /* libc takes one component after the other, of which a path may have any number. */
  if (p && strlen(p) > PATH_MAX / 2) return;
  keep_path(a);
  char *out = (char *)a->buffer, *got = POINTER(a, one_in(a, 2) ? realpath(p, out) : realpath(p, 0), "realpath(%s)", shown(a, p));
  if (got) extra(a, " %s", shown(a, got));
  if (got && got != out) free(got);
}

static void op_temporary(struct actor *a) {
  char *name = a->path[3];
  int fd = -1, kind = below(a, 3);
  const char *where = shared->free_running ? "" : one_in(a, 2) ? "d0/" : "";
  if (shared->free_running) sprintf(name, "own%d/t-XXXXXX", a->id);
  else sprintf(name, "%st-XXXXXX%s", where, kind == 1 ? ".end" : one_in(a, 20) ? "x" : "");
  switch (kind) {
    case 0: fd = DESCRIPTOR(a, mkstemp(name), "mkstemp(%s)", where); break;
    case 1: fd = DESCRIPTOR(a, mkostemps(name, shared->free_running ? 0 : 4, O_APPEND), "mkostemps(%s)", where); break;
    default: if (POINTER(a, mkdtemp(name), "mkdtemp(%s)", where)) RECORDED(a, rmdir(name), "rmdir(temporary)"); return;
  }
  if (fd < 0) return;
  struct stat st;
  if (!RECORDED(a, fstat(fd, &st), "fstat(temporary)")) say_stat(a, &st);
  RECORDED(a, unlink(name), "unlink(temporary)");
  put(a, a_file_slot(a), fd);
}

static void op_limits(struct actor *a) {
  const char *p = a_path(a, below(a, 3));
  int fd = a_file(a), what = PICK(a, _PC_NAME_MAX, _PC_LINK_MAX);
  if (at_mount(a)) what = _PC_NAME_MAX; /* libc knows the other by the kind of file system */
  if (p && one_in(a, 2)) RECORDED(a, pathconf(p, what), "pathconf(%s, %d)", shown(a, p), what);
  else RECORDED(a, fpathconf(fd, what), "fpathconf(%s, %d)", shown_fd(a, fd), what);
}

const struct operation attribute_operations[] = {
  {"owner", 10, op_owner}, {"times", 15, op_times}, {"statx", 8, op_statx}, {"xattr", 25, op_xattr}, {"umask", 2, op_umask}, {"node", 4, op_node},
  {"directory_of_work", 10, op_directory_of_work}, {"realpath", 8, op_realpath}, {"temporary", 3, op_temporary}, {"limits", 3, op_limits},
  {0},
};
