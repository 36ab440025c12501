/* Access control lists, inode flags and what they allow, by several users: random calls in a directory, each with its result.
 * acl DIR SEED CALLS [flags]
 * acl DIR SEED CALLS fronts
 * acl DIR held [mount]
 * Run by the superuser on ext4 and on a volume, it prints the same. Without "flags", no inode becomes immutable or append-only; the
 * files' lists and modes are then all that decides. With "held": files that are open while their flags change; "mount" leaves out what
 * the kernel of a mount answers by itself.
 * With "fronts", eight processes take turns. Every third mode has set-id or sticky bits, and there are attributes and sequences of several
 * operations, too. Three of the processes execute themselves again by the command in $FRONT, if it is set, such as "weft run --at DIR --".
 * If $MOUNT is set, DIR lies on a mount of a volume there, and four processes make as many of their calls by compound programs as can be
 * made so (acl_chains.h, which -DCHAINS includes). */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static const struct { uid_t uid; gid_t gid; int count; gid_t groups[2]; } users[] = {
  {0, 0, 0, {0}}, {1001, 1001, 0, {0}}, {1002, 1002, 1, {2000}}, {1003, 1003, 2, {2000, 1001}},
};
#define USERS (sizeof users / sizeof *users)
static const char *paths[] = {"a", "b", "c", "d", "a/a", "a/b", "a/c", "b/a", "b/b", "b/c", "a/a/a", "a/a/b", "b/b/a", "d/a"};
#define PATHS (sizeof paths / sizeof *paths)
static const char *lists[] = {"system.posix_acl_access", "system.posix_acl_default"};
#define MARK "user.mark"
#define SHOWN (FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NOATIME_FL | FS_SYNC_FL | FS_DIRSYNC_FL | FS_NODUMP_FL)

static uint64_t state;
static unsigned any(unsigned below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (state >> 11) % below;
}
static const char *path(void) { return paths[any(PATHS)]; }

/* Who the process is. */
static unsigned user;
static void become(unsigned who) {
  user = who;
  if (setresuid(0, 0, 0) || setgroups(users[who].count, users[who].groups) || setresgid(users[who].gid, users[who].gid, 0) ||
      setresuid(users[who].uid, users[who].uid, 0))
    perror("become"), exit(2);
}

struct entry { uint16_t tag, perm; uint32_t id; };
struct list { uint32_t version; struct entry entries[16]; };
/* With "flags", all lists are valid: for a mount the kernel looks at a list before the volume looks at flags. */
static size_t valid_list(struct list *list) {
  struct entry entries[] = {{1, any(8), -1}, {2, any(8), users[any(USERS)].uid}, {4, any(8), -1}, {8, any(8), 2000}, {16, any(8), -1}, {32, any(8), -1}};
  unsigned n = 0, is_short = any(4) == 0;
  list->version = 2;
  for (unsigned i = 0; i < 6; i++)
    if (!is_short || (i != 1 && i != 3 && i != 4)) list->entries[n++] = entries[i];
  return 4 + n * sizeof(struct entry);
}
static size_t random_list(struct list *list) {
  unsigned n = 0;
  list->version = any(40) ? 2 : 1;
#define ADD(t, i) list->entries[n++] = (struct entry){t, any(60) ? any(8) : any(16), i}
  if (any(40)) ADD(1, -1);
  unsigned named = 0;
  for (unsigned i = any(3); i; i--, named++) ADD(2, any(30) ? users[any(USERS)].uid : ~0u);
  if (any(40)) ADD(4, -1);
  for (unsigned i = any(3); i; i--, named++) ADD(8, any(2) ? 2000 : users[any(USERS)].gid);
  if (named ? any(30) : any(3) == 0) ADD(16, -1);
  if (any(40)) ADD(32, -1);
  if (n > 1 && !any(40)) {
    struct entry other = list->entries[0];
    list->entries[0] = list->entries[n - 1], list->entries[n - 1] = other;
  }
  return any(60) ? 4 + n * sizeof(struct entry) : any(4 + n * sizeof(struct entry));
}
static void show_list(const char *path, const char *name) {
  struct list list;
  ssize_t bytes = lgetxattr(path, name, &list, sizeof list);
  if (bytes < 0) { printf(" -%d", errno); return; }
  printf(" v%u", list.version);
  for (size_t i = 0; i < (bytes - 4) / sizeof(struct entry); i++)
    printf(",%x:%d:%o", list.entries[i].tag, (int)list.entries[i].id, list.entries[i].perm);
}
static unsigned plain_modes = 8;
/* Several processes take turns, by several fronts. */
static int is_shared;
static int result(int returned) { return returned < 0 ? -errno : 0; }
static int flags_of(const char *path, int *flags) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return -errno;
  int done = result(ioctl(fd, FS_IOC_GETFLAGS, flags));
  *flags &= SHOWN;
  close(fd);
  return done;
}
static void show(const char *path) {
  struct stat st;
  if (lstat(path, &st)) { printf("%s: -%d\n", path, errno); return; }
  printf("%s: %o %d:%d", path, st.st_mode, st.st_uid, st.st_gid);
  for (int i = 0; i < 2; i++) show_list(path, lists[i]);
  struct statx sx;
  if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
    int flags = 0, done = flags_of(path, &flags);
    printf(" flags %d %x", done, flags);
  }
  char names[512];
  ssize_t bytes = llistxattr(path, names, sizeof names);
  int known[2] = {0, 0};
  for (ssize_t at = 0; at < bytes; at += strlen(names + at) + 1)
    for (int i = 0; i < 2; i++) known[i] |= !strcmp(names + at, lists[i]);
  printf(" lists %d%d", known[0], known[1]);
  if (is_shared) {
    char mark = 0;
    printf(" mark %d", lgetxattr(path, MARK, &mark, 1) < 0 ? -errno : mark);
  }
  if (getenv("STATX") && !statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &sx))
    printf(" statx %llx", (unsigned long long)sx.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP));
  putchar('\n');
}

/* An operation that a compound program can make, too. */
enum kind { CREATE, CREATE_AND_WRITE, MKDIR, SYMLINK, UNLINK, RMDIR, RENAME, LINK };
struct op { enum kind kind; const char *at, *to; mode_t mode; int flags; };

static int by_call(const struct op *op) {
  switch (op->kind) {
  case CREATE: case CREATE_AND_WRITE: {
    int fd = open(op->at, O_CREAT | O_NONBLOCK | op->flags, op->mode);
    if (fd < 0) return -errno;
    struct stat st;
    int done = 0;
    if (op->kind == CREATE_AND_WRITE && !fstat(fd, &st) && S_ISREG(st.st_mode)) done = result(pwrite(fd, "w", 1, 0));
    close(fd);
    return done;
  }
  case MKDIR: return result(mkdir(op->at, op->mode));
  case SYMLINK: return result(symlink("c", op->at));
  case UNLINK: return result(unlink(op->at));
  case RMDIR: return result(rmdir(op->at));
  case RENAME: {
    // The kernel of a mount fails to rename a directory that the other front has moved, unless it has met it there.
    struct stat met;
    lstat(op->at, &met), lstat(op->to, &met);
    return result(renameat2(AT_FDCWD, op->at, AT_FDCWD, op->to, op->flags));
  }
  default: return result(link(op->at, op->to));
  }
}
static int describe(const struct op *op, char *text, size_t room) {
  static const char *names[] = {"create", "create and write", "mkdir", "symlink", "unlink", "rmdir", "rename", "link"};
  int len = snprintf(text, room, "%s %s", names[op->kind], op->at);
  if (op->kind <= MKDIR) len += snprintf(text + len, room - len, " %o", op->mode);
  if (op->kind >= RENAME) len += snprintf(text + len, room - len, " %s", op->to);
  if (op->flags) len += snprintf(text + len, room - len, " flags %x", op->flags);
  return len;
}

/* What is there, as the superuser sees it; 0: nothing. */
static mode_t kind_of(const char *at, int follows) {
  unsigned who = user;
  struct stat st;
  become(0);
  int is_there = !(follows ? stat(at, &st) : lstat(at, &st));
  become(who);
  return is_there ? st.st_mode & S_IFMT : 0;
}

#ifdef CHAINS
#include "acl_chains.h"
#else
/* Without compound programs, nothing is made by one. */
static int is_chained(int can) { (void)can; return 0; }
static int by_chain(const struct op *ops, unsigned count, int rehearses, unsigned *failed) {
  (void)ops, (void)count, (void)rehearses, (void)failed;
  return 0;
}
static int mark_by_chain(const char *at, int what, char mark, int how) { return (void)at, (void)what, (void)mark, how; }
static int access_by_chain(const char *at, int wanted) { return (void)at, wanted; }
static int open_by_chain(const char *at, int how, int is_file, unsigned size, int *more) {
  return (void)at, (void)how, (void)is_file, (void)size, *more;
}
#endif

/* A program opens files and directories alone. */
static int can_be_chained(const struct op *op) {
  if (op->kind > CREATE_AND_WRITE || op->flags & O_EXCL) return 1;
  return is_shared && op->flags & O_RDWR && kind_of(op->at, 1) != S_IFIFO;
}
static int make(const struct op *op) {
  unsigned failed;
  return is_chained(can_be_chained(op)) ? by_chain(op, 1, 0, &failed) : by_call(op);
}
static struct op any_op(void) {
  static const enum kind kinds[] = {CREATE, CREATE, MKDIR, MKDIR, SYMLINK, UNLINK, RMDIR, RENAME, RENAME, LINK};
  struct op op = {kinds[any(10)], path(), path(), any(plain_modes) ? any(512) : any(4096), 0};
  if (op.kind == CREATE) op.flags = O_EXCL | O_RDWR;
  return op;
}
/* Several operations, of which the one that fails is the last one. */
static int make_several(char *text, size_t room) {
  struct op ops[4];
  unsigned count = 2 + any(3), rehearses = any(2), failed = 0;
  int len = snprintf(text, room, "several:"), done = 0;
  for (unsigned i = 0; i < count; i++) {
    ops[i] = any_op();
    text[len++] = ' ';
    len += describe(&ops[i], text + len, room - len);
    if (i + 1 < count) text[len++] = ',';
  }
  if (is_chained(1)) done = by_chain(ops, count, rehearses, &failed);
  else for (; failed < count && !(done = by_call(&ops[failed])); failed++) continue;
  if (done) snprintf(text + len, room - len, "; fails at %u", failed);
  else text[len] = 0;
  return done;
}

static void act(unsigned call, int with_flags, int has_mask) {
  unsigned who = any(3) ? any(USERS) : 0;
  static const mode_t masks[] = {0, 022, 027, 077, 0777};
  mode_t mask = masks[any(5)], mode = any(plain_modes) ? any(512) : any(4096);
  const char *at = path(), *to = path();
  int done, more = 0;
  char text[400] = "";
  if (!has_mask) mask = 0;
  become(who);
  umask(mask);
  unsigned drawn = any(with_flags || is_shared ? 21 : 18);
  if (is_shared && drawn >= 18) drawn += 10;
  switch (drawn) {
  case 0: case 1: {
    struct op op = {CREATE, at, to, mode, any(2) ? O_EXCL : 0};
    op.flags |= any(2) ? O_RDWR : O_RDONLY;
    if (is_shared && op.flags == O_RDWR && any(2)) op.kind = CREATE_AND_WRITE;
    done = make(&op);
    describe(&op, text, sizeof text);
    break;
  }
  case 2: case 3: {
    struct op op = {MKDIR, at, to, mode, 0};
    done = make(&op);
    describe(&op, text, sizeof text);
    break;
  }
  case 4:
    if (any(2)) {
      done = result(mkfifo(at, mode));
      snprintf(text, sizeof text, "mkfifo %s %o", at, mode);
    } else {
      struct op op = {SYMLINK, at, to, mode, 0};
      done = make(&op);
      describe(&op, text, sizeof text);
    }
    break;
  case 5: case 6: case 7: {
    struct op op = {LINK, at, to, mode, 0};
    if (drawn == 5) op.kind = any(2) ? UNLINK : RMDIR;
    if (drawn == 6) op.kind = RENAME;
    if (drawn == 6 && is_shared) op.flags = any(2) ? 0 : any(2) ? RENAME_NOREPLACE : RENAME_EXCHANGE;
    done = make(&op);
    describe(&op, text, sizeof text);
    break;
  }
  case 8:
    done = result(chmod(at, mode));
    snprintf(text, sizeof text, "chmod %s %o", at, mode);
    break;
  case 9: {
    uid_t uid = any(2) ? users[any(USERS)].uid : (uid_t)-1;
    // Without either, a kernel asks no mount.
    gid_t gid = uid == (uid_t)-1 || any(2) ? any(2) ? 2000 : users[any(USERS)].gid : (gid_t)-1;
    // The kernel takes this bit, which marks no program, from files of mounts.
    struct stat st;
    become(0);
    if (!lstat(at, &st) && (st.st_mode & (S_ISGID | S_IXGRP)) == S_ISGID) chmod(at, st.st_mode & 01777);
    become(who);
    done = result(lchown(at, uid, gid));
    snprintf(text, sizeof text, "chown %s %d %d", at, uid, gid);
    break;
  }
  case 10: case 11: case 12: {
    struct list list;
    size_t bytes = with_flags ? valid_list(&list) : random_list(&list);
    const char *name = lists[any(3) == 0];
    int how = any(8) ? 0 : any(2) ? XATTR_CREATE : XATTR_REPLACE;
    done = result(lsetxattr(at, name, &list, bytes, how));
    snprintf(text, sizeof text, "set %s %s %zu bytes, %d", at, name + 17, bytes, how);
    break;
  }
  case 13: {
    const char *name = lists[any(2)];
    done = result(lremovexattr(at, name));
    snprintf(text, sizeof text, "take %s %s", at, name + 17);
    break;
  }
  case 14: case 15: {
    int wanted = any(8);
    // A mount judges the flag in the calls that it would stop, and not here.
    int flags = 0;
    become(0);
    if (flags_of(at, &flags) == 0 && flags & FS_IMMUTABLE_FL) wanted &= ~W_OK;
    become(who);
    mode_t kind = is_shared && !(wanted & X_OK) ? kind_of(at, 1) : S_IFIFO;
    int can = kind == S_IFREG || (kind == S_IFDIR && !(wanted & W_OK)) || !kind;
    done = is_chained(can) ? access_by_chain(at, wanted) : result(access(at, wanted));
    snprintf(text, sizeof text, "access %s %d", at, wanted);
    break;
  }
  case 16: case 17: {
    static const int hows[] = {O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_APPEND, O_WRONLY | O_TRUNC, O_RDWR | O_APPEND | O_TRUNC};
    int how = hows[any(6)];
    unsigned size = any(3);
    snprintf(text, sizeof text, "open %s %o", at, how);
    mode_t kind = is_shared ? kind_of(at, 0) : 0;
    if (is_chained(is_shared && kind != S_IFIFO)) {
      done = open_by_chain(at, how, kind == S_IFREG, size, &more);
      break;
    }
    int fd = open(at, how | O_NONBLOCK | O_NOFOLLOW);
    done = result(fd);
    if (fd >= 0) {
      struct stat st;
      fstat(fd, &st);
      if (S_ISREG(st.st_mode)) {
        int wrote = result(write(fd, "x", 1)), cut = result(ftruncate(fd, size));
        more = wrote * 1000 + cut;
      }
      close(fd);
    }
    break;
  }
  case 28: {
    int what = any(3), how = any(4) ? 0 : any(2) ? XATTR_CREATE : XATTR_REPLACE;
    char mark = 'a' + any(26), found = 0;
    if (is_chained(1)) done = mark_by_chain(at, what, mark, how);
    else if (what == 0) done = result(lsetxattr(at, MARK, &mark, 1, how));
    else if (what == 1) done = result(lremovexattr(at, MARK));
    else done = lgetxattr(at, MARK, &found, 1) < 0 ? -errno : found;
    snprintf(text, sizeof text, "mark %s %d %c, %d", at, what, mark, how);
    break;
  }
  case 29: case 30:
    done = make_several(text, sizeof text);
    break;
  case 18: case 19: {
    static const int sets[] = {0, 0, FS_IMMUTABLE_FL, FS_APPEND_FL, FS_NOATIME_FL, FS_SYNC_FL, FS_DIRSYNC_FL, FS_NODUMP_FL | FS_NOATIME_FL};
    int set = sets[any(8)], flags = 0;
    int fd = open(at, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    done = result(fd);
    if (fd >= 0) {
      done = result(ioctl(fd, FS_IOC_GETFLAGS, &flags));
      flags = (flags & ~SHOWN) | set;
      if (!done) done = result(ioctl(fd, FS_IOC_SETFLAGS, &flags));
      close(fd);
    }
    snprintf(text, sizeof text, "flags %s %x", at, set);
    break;
  }
  default: {
    static const struct timespec hows[][2] = {{{0, UTIME_NOW}, {0, UTIME_NOW}}, {{5, 0}, {6, 0}}, {{0, UTIME_OMIT}, {0, UTIME_NOW}}};
    int how = any(3);
    done = any(2) ? result(truncate(at, any(9))) : result(utimensat(AT_FDCWD, at, hows[how], AT_SYMLINK_NOFOLLOW));
    snprintf(text, sizeof text, "truncate or times %d %s", how, at);
  }
  }
  printf("%u %d %s mask %o = %d %d; ", call, users[who].uid, text, mask, done, more);
  become(0);
  show(at);
}

static void dump(const char *dir, int clears) {
  struct dirent **entries;
  int count = scandir(dir, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    const char *name = entries[i]->d_name;
    char below[600];
    if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
    snprintf(below, sizeof below, "%s/%s", dir, name);
    if (!clears) show(below);
    struct stat st;
    if (clears && !lstat(below, &st) && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
      int flags, fd = open(below, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
      if (fd >= 0 && !ioctl(fd, FS_IOC_GETFLAGS, &flags) && flags & SHOWN) flags &= ~SHOWN, ioctl(fd, FS_IOC_SETFLAGS, &flags);
      close(fd);
    }
    if (entries[i]->d_type == DT_DIR) dump(below, clears);
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}

static int set_flags(const char *path, int flags) {
  int others, fd = open(path, O_RDONLY), done = result(ioctl(fd, FS_IOC_GETFLAGS, &others));
  flags |= others & ~SHOWN;
  if (!done) done = result(ioctl(fd, FS_IOC_SETFLAGS, &flags));
  close(fd);
  return done;
}

/* A process that appends, or overwrites one place, until it is refused: what came before is all there. */
static void written_until_immutable(int appends) {
  unlink("f");
  close(open("f", O_CREAT | O_RDWR, 0600));
  int out[2];
  if (pipe(out)) exit(2);
  pid_t child = fork();
  if (!child) {
    int fd = open("f", appends ? O_WRONLY | O_APPEND : O_RDWR);
    char block[4096];
    long count = 0;
    memset(block, 0, sizeof block);
    for (;; count++) {
      memcpy(block, &count, sizeof count);
      if (count == 2000) (void)!write(out[1], "x", 1);
      ssize_t wrote = appends ? write(fd, &count, sizeof count) : pwrite(fd, block, sizeof block, 0);
      if (wrote < 0) break;
    }
    printf("refused: %d\n", errno);
    struct stat st;
    long last = -1;
    fstat(fd, &st);
    close(fd);
    fd = open("f", O_RDONLY);
    (void)!pread(fd, &last, sizeof last, appends ? st.st_size - sizeof last : 0);
    printf("the last that was accepted is %s\n", last == count - 1 ? "there" : "not there");
    if (appends) printf("as many as were accepted: %d\n", st.st_size == (off_t)(count * sizeof count));
    fflush(stdout);
    _exit(0);
  }
  char byte;
  close(out[1]);
  (void)!read(out[0], &byte, 1);
  int made = set_flags("f", FS_IMMUTABLE_FL);
  waitpid(child, NULL, 0);
  printf("immutable: %d, back: %d\n", made, set_flags("f", 0));
  fflush(stdout);
  close(out[0]);
}

static void held(int is_mount) {
  written_until_immutable(1);
  written_until_immutable(0);
  unlink("f");
  int fd = open("f", O_CREAT | O_RDWR, 0600), tail = open("f", O_RDWR | O_APPEND);
#define SAY(call) do { errno = 0; long done_ = (call); printf("%s = %ld %d\n", #call, done_, errno); } while (0)
  SAY(write(fd, "hello", 5));
  SAY(set_flags("f", FS_IMMUTABLE_FL));
  SAY(write(fd, "x", 1));
  SAY(write(tail, "x", 1));
  SAY(ftruncate(fd, 0));
  SAY(fallocate(fd, 0, 0, 100));
  SAY(fchmod(fd, 0644));
  SAY(fchown(fd, 1001, 1001));
  SAY(futimens(fd, NULL));
  SAY(fsetxattr(fd, "user.a", "1", 1, 0));
  SAY(fsync(fd));
  SAY(open("f", O_WRONLY));
  SAY(unlink("f"));
  SAY(link("f", "g"));
  SAY(rename("f", "g"));
  SAY(set_flags("f", FS_IMMUTABLE_FL | FS_NOATIME_FL));
  SAY(set_flags("f", FS_APPEND_FL));
  SAY(write(fd, "world", 5));
  SAY(write(tail, "!", 1));
  SAY(ftruncate(fd, 1));
  SAY(ftruncate(tail, 100));
  SAY(fallocate(fd, 0, 0, 100));
  SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1));
  SAY(futimens(fd, NULL));
  SAY(fchmod(fd, 0644));
  SAY(open("f", O_WRONLY));
  SAY(open("f", O_WRONLY | O_APPEND | O_TRUNC));
  SAY(close(open("f", O_WRONLY | O_APPEND)));
  SAY(close(open("f", O_RDONLY)));
  if (!is_mount) {
    SAY(fcntl(tail, F_SETFL, 0));
    SAY(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, tail, 0) == MAP_FAILED);
  }
  SAY(set_flags("f", FS_DIRSYNC_FL));
  SAY(set_flags("f", FS_TOPDIR_FL | FS_COMPR_FL));
  SAY(set_flags("f", FS_SYNC_FL));
  SAY(pwrite(fd, "HELLO", 5, 0));
  struct fsxattr extended = {0};
  SAY(ioctl(fd, FS_IOC_FSGETXATTR, &extended));
  printf("%x\n", extended.fsx_xflags);
  extended.fsx_xflags = FS_XFLAG_NOATIME | FS_XFLAG_NODUMP;
  SAY(ioctl(fd, FS_IOC_FSSETXATTR, &extended));
  int flags = 0;
  SAY(ioctl(fd, FS_IOC_GETFLAGS, &flags));
  printf("%x\n", flags & SHOWN);
  struct stat before, after;
  char text[20];
  for (int quiet = 1; quiet >= 0; quiet--) {
    SAY(set_flags("f", quiet ? FS_NOATIME_FL : 0));
    SAY(futimens(fd, (struct timespec[]){{5, 0}, {0, UTIME_NOW}}));
    fstat(fd, &before);
    SAY(pread(fd, text, 5, 0));
    fstat(fd, &after);
    printf("%.5s, accessed: %d\n", text, after.st_atime != before.st_atime);
  }
  SAY(mkdir("d", 0777));
  SAY(set_flags("d", FS_DIRSYNC_FL | FS_SYNC_FL | FS_NOATIME_FL | FS_NODUMP_FL));
  SAY(mkdir("d/d", 0777));
  SAY(close(open("d/f", O_CREAT | O_RDWR, 0666)));
  SAY(mkfifo("d/p", 0666));
  SAY(rename("d/f", "d/d/f"));
  SAY(link("d/d/f", "d/g"));
  SAY(set_flags("d", FS_APPEND_FL));
  SAY(close(open("d/new", O_CREAT | O_RDWR, 0666)));
  SAY(unlink("d/new"));
  SAY(rename("d/new", "d/newer"));
  SAY(set_flags("d", FS_IMMUTABLE_FL));
  SAY(open("d/newer", O_CREAT | O_RDWR, 0666));
  SAY(close(open("d/new", O_CREAT | O_RDWR, 0666)));
  SAY(set_flags("d", 0));
  int pipe_end = open("d/p", O_RDONLY | O_NONBLOCK);
  if (!is_mount && pipe_end >= 0) SAY(ioctl(pipe_end, FS_IOC_GETFLAGS, &flags));
}

/* The turn goes with the state of the generator to the process that makes the next call. In the end each shows the whole tree. */
enum { PROCESSES = 8, TURNS = 700 };
/* Of each four, one uses a mount, one weft run, one the server's socket and one the ioctl of a mount. Its other calls, the second one of
 * those of the socket makes under weft run. */
enum front { OF_MOUNT, OF_RUN, OF_SOCKET, OF_IOCTL };
static enum front front_of(unsigned process) { return process % 4; }
static int is_under_run(unsigned process) { return front_of(process) == OF_RUN || process == PROCESSES / 2 + OF_SOCKET; }
struct turn { uint64_t state; unsigned call; };
static unsigned process_of(unsigned call, unsigned calls) {
  return call < calls ? (call * 0x9e3779b1u >> 13) % PROCESSES : call - calls;
}
static void pass(const struct turn *turn, unsigned calls) {
  if (write(TURNS + 2 * process_of(turn->call, calls) + 1, turn, sizeof *turn) != sizeof *turn) exit(2);
}
static int take_turns(const char *dir, unsigned me, unsigned calls) {
  struct turn turn;
  if (chdir(dir) || chdir("work")) return perror(dir), 2;
  umask(0);
#ifdef CHAINS
  if (getenv("MOUNT")) begin_chains(dir, front_of(me) == OF_SOCKET, front_of(me) == OF_IOCTL, me >= PROCESSES / 2);
#endif
  do {
    if (read(TURNS + 2 * me, &turn, sizeof turn) != sizeof turn) return 2;
    state = turn.state;
    for (; turn.call < calls + PROCESSES && process_of(turn.call, calls) == me; turn.call++)
      // A program at the server's socket has no umask.
      if (turn.call < calls) act(turn.call, 0, front_of(me) != OF_SOCKET); else dump(".", 0);
    turn.state = state;
    fflush(stdout);
    if (turn.call < calls + PROCESSES) pass(&turn, calls);
  } while (turn.call <= calls + me);
#ifdef CHAINS
  end_chains();
#endif
  return 0;
}
static int by_fronts(char **argv, unsigned calls) {
  struct turn first = {state, 0};
  fflush(stdout);
  for (unsigned i = 0; i < PROCESSES; i++) {
    int ends[2];
    if (pipe(ends) || dup2(ends[0], TURNS + 2 * i) < 0 || dup2(ends[1], TURNS + 2 * i + 1) < 0) return perror("pipe"), 2;
    close(ends[0]), close(ends[1]);
  }
  for (unsigned i = 0; i < PROCESSES; i++)
    if (!fork()) {
      char number[20];
      sprintf(number, "%u", i);
      if (is_under_run(i) && getenv("FRONT") && !chdir("/"))
        execl("/bin/sh", "sh", "-c", "exec $FRONT \"$0\" \"$@\"", argv[0], argv[1], argv[2], argv[3], "fronts", number, (char *)0);
      _exit(take_turns(argv[1], i, calls));
    }
  pass(&first, calls);
  int status, bad = 0;
  while (wait(&status) > 0) bad |= status;
  return bad != 0;
}

int main(int argc, char **argv) {
  if (argc >= 3 && !strcmp(argv[2], "held")) {
    if (chdir(argv[1])) return perror(argv[1]), 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(022);
    held(argc > 3);
    dump(".", 0);
    return 0;
  }
  if (argc < 4) return fprintf(stderr, "acl DIR SEED CALLS [flags]\n"), 2;
  state = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15 + 1;
  is_shared = argc > 4 && !strcmp(argv[4], "fronts");
  if (is_shared) plain_modes = 3;
  if (argc > 5) return take_turns(argv[1], atoi(argv[5]), atoi(argv[3]));
  if (chdir(argv[1])) return perror(argv[1]), 2;
  umask(0);
  if (mkdir("work", 0777) || chdir("work")) return perror("work"), 2;
  // So that not all paths lead nowhere.
  for (unsigned i = 0; i < 2; i++) mkdir(paths[i], 0777), mkdir(i ? "b/b" : "a/a", 0777);
  if (is_shared) return by_fronts(argv, atoi(argv[3]));
  int with_flags = argc > 4;
  unsigned calls = atoi(argv[3]);
  for (unsigned call = 0; call < calls; call++) {
    act(call, with_flags, 1);
    // Or else, in time, most of it is immutable.
    if (with_flags && call % 50 == 49) dump(".", 1);
  }
  dump(".", 0);
  dump(".", 1);
  return 0;
}
