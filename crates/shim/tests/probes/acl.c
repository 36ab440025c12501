/* Access control lists, inode flags and what they allow, by several users: random calls in a directory, each with its result.
 * acl DIR SEED CALLS [flags]
 * acl DIR SEED CALLS both
 * acl DIR held [mount]
 * Run by the superuser on ext4 and on a volume, it prints the same. Without "flags", no inode becomes immutable or append-only; the
 * files' lists and modes are then all that decides. With "held": files that are open while their flags change; "mount" leaves out what
 * the kernel of a mount answers by itself. With "both", four processes take turns, of which two execute themselves again by the command in
 * $FRONT, if it is set, such as "weft run --at DIR --": DIR is then a mount of the same volume. Every third mode has set-id or sticky bits. */
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
#define SHOWN (FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NOATIME_FL | FS_SYNC_FL | FS_DIRSYNC_FL | FS_NODUMP_FL)

static uint64_t state;
static unsigned any(unsigned below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (state >> 11) % below;
}
static const char *path(void) { return paths[any(PATHS)]; }

static void become(unsigned who) {
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
  if (getenv("STATX") && !statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &sx))
    printf(" statx %llx", (unsigned long long)sx.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP));
  putchar('\n');
}

static void act(unsigned call, int with_flags) {
  unsigned who = any(3) ? any(USERS) : 0;
  static const mode_t masks[] = {0, 022, 027, 077, 0777};
  mode_t mask = masks[any(5)], mode = any(plain_modes) ? any(512) : any(4096);
  const char *at = path(), *to = path();
  int done, more = 0;
  char text[160] = "";
  become(who);
  umask(mask);
  switch (any(with_flags ? 21 : 18)) {
  case 0: case 1:
    done = open(at, O_CREAT | O_NONBLOCK | (any(2) ? O_EXCL : 0) | (any(2) ? O_RDWR : O_RDONLY), mode);
    snprintf(text, sizeof text, "create %s %o mask %o", at, mode, mask);
    if (done >= 0) close(done);
    done = result(done);
    break;
  case 2: case 3:
    done = result(mkdir(at, mode));
    snprintf(text, sizeof text, "mkdir %s %o mask %o", at, mode, mask);
    break;
  case 4:
    if (any(2)) {
      done = result(mkfifo(at, mode));
      snprintf(text, sizeof text, "mkfifo %s %o mask %o", at, mode, mask);
    } else {
      done = result(symlink("c", at));
      snprintf(text, sizeof text, "symlink %s", at);
    }
    break;
  case 5:
    done = any(2) ? result(unlink(at)) : result(rmdir(at));
    snprintf(text, sizeof text, "remove %s", at);
    break;
  case 6: {
    // The kernel of a mount fails to rename a directory that the other front has moved, unless it has met it there.
    struct stat met;
    lstat(at, &met), lstat(to, &met);
    done = result(rename(at, to));
    snprintf(text, sizeof text, "rename %s %s", at, to);
    break;
  }
  case 7:
    done = result(link(at, to));
    snprintf(text, sizeof text, "link %s %s", at, to);
    break;
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
    done = result(access(at, wanted));
    snprintf(text, sizeof text, "access %s %d", at, wanted);
    break;
  }
  case 16: case 17: {
    static const int hows[] = {O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_APPEND, O_WRONLY | O_TRUNC, O_RDWR | O_APPEND | O_TRUNC};
    int how = hows[any(6)];
    int fd = open(at, how | O_NONBLOCK | O_NOFOLLOW);
    done = result(fd);
    if (fd >= 0) {
      struct stat st;
      fstat(fd, &st);
      if (S_ISREG(st.st_mode)) {
        int wrote = result(write(fd, "x", 1)), cut = result(ftruncate(fd, any(3)));
        more = wrote * 1000 + cut;
      }
      close(fd);
    }
    snprintf(text, sizeof text, "open %s %o", at, how);
    break;
  }
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
  printf("%u %d %s = %d %d; ", call, users[who].uid, text, done, more);
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
enum { PROCESSES = 4, TURNS = 700 };
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
  do {
    if (read(TURNS + 2 * me, &turn, sizeof turn) != sizeof turn) return 2;
    state = turn.state;
    for (; turn.call < calls + PROCESSES && process_of(turn.call, calls) == me; turn.call++)
      if (turn.call < calls) act(turn.call, 0); else dump(".", 0);
    turn.state = state;
    fflush(stdout);
    if (turn.call < calls + PROCESSES) pass(&turn, calls);
  } while (turn.call <= calls + me);
  return 0;
}
static int both(char **argv, unsigned calls) {
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
      if (i % 2 && getenv("FRONT") && !chdir("/"))
        execl("/bin/sh", "sh", "-c", "exec $FRONT \"$0\" \"$@\"", argv[0], argv[1], argv[2], argv[3], "both", number, (char *)0);
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
  int is_both = argc > 4 && !strcmp(argv[4], "both");
  if (is_both) plain_modes = 3;
  if (argc > 5) return take_turns(argv[1], atoi(argv[5]), atoi(argv[3]));
  if (chdir(argv[1])) return perror(argv[1]), 2;
  umask(0);
  if (mkdir("work", 0777) || chdir("work")) return perror("work"), 2;
  // So that not all paths lead nowhere.
  for (unsigned i = 0; i < 2; i++) mkdir(paths[i], 0777), mkdir(i ? "b/b" : "a/a", 0777);
  if (is_both) return both(argv, atoi(argv[3]));
  int with_flags = argc > 4;
  unsigned calls = atoi(argv[3]);
  for (unsigned call = 0; call < calls; call++) {
    act(call, with_flags);
    // Or else, in time, most of it is immutable.
    if (with_flags && call % 50 == 49) dump(".", 1);
  }
  dump(".", 0);
  dump(".", 1);
  return 0;
}
