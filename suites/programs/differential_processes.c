/* Locks, and processes that inherit what is open. */
#include "differential.h"
#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <spawn.h>

extern char **environ;

int wait_for(pid_t pid) {
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR);
  return status;
}

/* A child keeps what another thread of its process closes meanwhile, and with it the locks: whether such a thread gets a lock
 * may not depend on when the child ends. */
static pthread_rwlock_t children = PTHREAD_RWLOCK_INITIALIZER;

static void lock(struct actor *a) {
  int fd = a_file(a), kind = PICK(a, F_RDLCK, F_WRLCK, F_UNLCK, F_UNLCK, 9);
  bool by_file = shared->free_running || one_in(a, 2);
  struct flock l = {.l_type = kind, .l_whence = PICK(a, SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END), .l_start = below(a, 50), .l_len = PICK(a, 0, 1, 10, 50, -5)};
  long long start = l.l_start, len = l.l_len;
  int whence = l.l_whence;
  int which = below(a, 4);
  if (which == 1 && kind == F_UNLCK) by_file = false;
  if (which == 1 && shared->free_running) return;
  struct stat known;
  if (at_mount(a) && whence == SEEK_END) fstat(fd, &known); /* the kernel counts from the size that it has heard of last */
  switch (which) {
    case 0: {
      int how = PICK(a, LOCK_SH, LOCK_EX, LOCK_UN, LOCK_UN, 0) | LOCK_NB;
      /* The kernel does not ask a mount for locks of directories. */
      struct stat st;
      if (shared->both && !fstat(fd, &st) && S_ISDIR(st.st_mode)) return;
      RECORDED(a, flock(fd, how), "flock(%s, %d)", shown_fd(a, fd), how);
      break;
    }
    case 1:
      /* Of several locks in the way any may be told. */
      if (!RECORDED(a, fcntl(fd, by_file ? F_OFD_GETLK : F_GETLK, &l), "fcntl(%s, %s, %d %d %lld %lld)", shown_fd(a, fd), by_file ? "F_OFD_GETLK" : "F_GETLK", kind, whence, start, len))
        extra(a, " %s", l.l_type == F_UNLCK ? "free" : "taken");
      break;
    case 2: if (!shared->free_running) {
      int how = PICK(a, F_TLOCK, F_ULOCK, F_TEST);
      RECORDED(a, lockf(fd, how, len), "lockf(%s, %d, %lld)", shown_fd(a, fd), how, len);
      break;
    }
    default:
      RECORDED(a, fcntl(fd, by_file ? F_OFD_SETLK : F_SETLK, &l), "fcntl(%s, %s, %d %d %lld %lld)", shown_fd(a, fd), by_file ? "F_OFD_SETLK" : "F_SETLK", kind, whence, start, len);
  }
}

static void op_lock(struct actor *a) {
  if (shared->free_running) pthread_rwlock_rdlock(&children);
  lock(a);
  if (shared->free_running) pthread_rwlock_unlock(&children);
}

/* A child does a few operations with what it inherits, then ends in one of several ways. */
static void op_child(struct actor *a) {
  if (shared->free_running) return;
  unsigned steps = 1 + below(a, 4), way = below(a, 4);
  RECORDED(a, 0, "fork()");
  flush_records(a);
  pid_t pid = fork();
  if (pid < 0) return;
  if (!pid) {
    struct slots own = *a->slots;
    a->slots = &own;
    for (unsigned i = 0; i < steps; i++) run_some(a);
    flush_records(a);
    if (way == 0) kill(getpid(), SIGKILL);
    if (way == 1) _exit(3);
    if (way == 2 && own.file[0] >= 0) close_range(own.file[0], own.file[0], 0);
    _exit(0);
  }
  int status = wait_for(pid);
  a->call += 100;
  RECORDED(a, 0, "waitpid()");
  extra(a, " %#x", status);
}

/* The process goes on as its own child: what was open stays open, record locks do not. */
static void op_executed(struct actor *a) {
  if (shared->free_running) return;
  int fd = a_file(a);
  char number[20];
  sprintf(number, "%d", fd);
  RECORDED(a, 0, "fork(), execl(self, %s)", shown_fd(a, fd));
  flush_records(a);
  pid_t pid = fork();
  if (!pid) {
    execl(shared->self, shared->self, "-i", number, (char *)0);
    _exit(96);
  }
  int status = wait_for(pid);
  a->call += 100;
  RECORDED(a, 0, "waitpid()");
  extra(a, " %#x", status);
}

/* What a program that was executed says of the descriptor it inherited. */
int inherited(const char *number) {
  if (!*number) return 0;
  int fd = atoi(number);
  static unsigned char bytes[300];
  struct stat st;
  char text[300];
  int flags = fcntl(fd, F_GETFL), size = fstat(fd, &st) ? -1 : S_ISDIR(st.st_mode) ? 0 : (int)st.st_size;
  off_t at = lseek(fd, 0, SEEK_CUR);
  ssize_t n = read(fd, bytes, sizeof bytes), w = write(fd, "inherited", 9);
  int len = sprintf(text, "    flags %#o size %d at %lld read %zd %016llx wrote %zd\n", flags, size, size >= 0 && S_ISDIR(st.st_mode) ? 0 : (long long)at, n,
                    n > 0 ? (unsigned long long)hash(bytes, n) : 0, w);
  return write(LOG_FD, text, len) != len;
}

enum { SPAWNED_FD = 50 };

/* posix_spawn, with actions on the child's descriptors. */
static void op_spawned(struct actor *a) {
  if (shared->free_running) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  int from = a_file(a), flags = PICK(a, O_RDONLY, O_RDWR | O_CREAT, O_WRONLY | O_APPEND, O_RDONLY | O_DIRECTORY);
  const char *p = a_path(a, A_FILE), *shown_p = shown(a, p);
  if (!p) return;
  extra(a, "    actions:");
  switch (below(a, 3)) {
    case 0: extra(a, " open %s %#o", shown_p, flags), posix_spawn_file_actions_addopen(&actions, SPAWNED_FD, p, flags, 0640); break;
    case 1: if (from >= 0) extra(a, " dup2 %s", shown_fd(a, from)), posix_spawn_file_actions_adddup2(&actions, from, SPAWNED_FD); break;
    default: if (from >= 0) {
      extra(a, " dup2 and close %s", shown_fd(a, from));
      posix_spawn_file_actions_adddup2(&actions, from, SPAWNED_FD);
      posix_spawn_file_actions_addclose(&actions, SPAWNED_FD);
    }
  }
  char number[20], *args[] = {shared->self, "-i", number, 0};
  sprintf(number, "%d", one_in(a, 5) ? from : SPAWNED_FD);
  flush_records(a);
  pid_t pid = -1;
  if (one_in(a, 3)) RETURNS_ERROR(a, posix_spawnp(&pid, one_in(a, 4) ? "no-such-program" : shared->self, &actions, 0, args, environ), "posix_spawnp()");
  else RETURNS_ERROR(a, posix_spawn(&pid, one_in(a, 8) ? "/none" : shared->self, &actions, 0, args, environ), "posix_spawn()");
  posix_spawn_file_actions_destroy(&actions);
  if (pid <= 0) return;
  int status = wait_for(pid);
  RECORDED(a, 0, "waitpid()");
  extra(a, " %#x", status);
}

static void interrupted(int signal) { (void)signal; }

/* A lock that a child holds is waited for: the child gives it up in one of several ways, or a signal ends the wait. */
static void wait_for_lock(struct actor *a) {
  static const char *const kinds[] = {"fcntl(F_SETLKW)", "flock()", "fcntl(F_OFD_SETLKW)", "lockf(F_LOCK)"};
  static const char *const ways[] = {"unlocks", "closes", "ends", "is killed", "executes", "interrupts"};
  char name[64];
  unsigned kind = below(a, 4), way = below(a, 6);
  int ready[2], told[2];
  pid_t me = getpid(), thread = gettid();
  sprintf(name, "%s%d%s", shared->free_running ? "own" : "wait-", a->id, shared->free_running ? "/wait" : "");
  if (pipe(ready) || pipe(told)) return;
  int fd = DESCRIPTOR(a, open(name, O_RDWR | O_CREAT, 0600), "open(%s)", name);
  if (fd < 0) goto out;
  flush_records(a);
  struct sigaction act = {.sa_handler = interrupted};
  sigaction(SIGUSR1, &act, 0);
  pid_t pid = fork();
  if (!pid) {
    struct flock all = {.l_type = F_WRLCK};
    int own = open(name, O_RDWR | O_CLOEXEC);
    bool got = own >= 0 && !(kind == 1 ? flock(own, LOCK_EX) : fcntl(own, kind == 2 ? F_OFD_SETLK : F_SETLK, &all));
    if (write(ready[1], got ? "y" : "n", 1) != 1) _exit(95);
    if (way == 5) {
      /* Again and again: the first may come before the wait has begun. */
      struct pollfd end = {.fd = told[0], .events = POLLIN};
      while (poll(&end, 1, 2) == 0) syscall(SYS_tgkill, me, thread, SIGUSR1);
      _exit(0);
    }
    usleep(1500);
    all.l_type = F_UNLCK;
    if (way == 0) kind == 1 ? flock(own, LOCK_UN) : fcntl(own, kind == 2 ? F_OFD_SETLK : F_SETLK, &all);
    if (way == 1) close(own);
    if (way == 3) kill(getpid(), SIGKILL);
    if (way == 4) close(fd), execl(shared->self, shared->self, "-i", "", (char *)0);
    if (way < 2) { char end; (void)!read(told[0], &end, 1); }
    _exit(0);
  }
  char got = 0;
  struct flock part = {.l_type = PICK(a, F_WRLCK, F_RDLCK), .l_start = below(a, 20), .l_len = below(a, 20)};
  (void)!read(ready[0], &got, 1);
  RECORDED(a, got, "a child has the lock, and %s", ways[way]);
  switch (kind) {
    case 0: RECORDED(a, fcntl(fd, F_SETLKW, &part), "%s", kinds[kind]); break;
    case 1: RECORDED(a, flock(fd, part.l_type == F_RDLCK ? LOCK_SH : LOCK_EX), "%s", kinds[kind]); break;
    case 2: RECORDED(a, fcntl(fd, F_OFD_SETLKW, &part), "%s", kinds[kind]); break;
    default: lseek(fd, part.l_start, SEEK_SET); RECORDED(a, lockf(fd, F_LOCK, part.l_len), "%s", kinds[kind]);
  }
  (void)!write(told[1], "", 1);
  int status = wait_for(pid);
  RECORDED(a, 0, "waitpid()");
  extra(a, " %#x", status);
  RECORDED(a, close(fd), "close(%s)", name);
  RECORDED(a, unlink(name), "unlink(%s)", name);
out:
  for (int i = 0; i < 2; i++) close(ready[i]), close(told[i]);
}

static void op_wait(struct actor *a) {
  if (shared->free_running) pthread_rwlock_wrlock(&children);
  wait_for_lock(a);
  if (shared->free_running) pthread_rwlock_unlock(&children);
}

/* A process or a thread becomes another user for some operations, or for good. */
static void become(struct actor *a, unsigned way, unsigned user, const gid_t *groups, unsigned some) {
  switch (way) {
    case 0: RECORDED(a, setgroups(some, groups), "setgroups(%u)", some);
            RECORDED(a, setgid(user), "setgid(%u)", user); /* fallthrough */
    case 1: RECORDED(a, setuid(user), "setuid(%u)", user); break;
    case 2: RECORDED(a, seteuid(user), "seteuid(%u)", user); break;
    case 3: RECORDED(a, setegid(user), "setegid(%u)", user); /* fallthrough */
    case 4: RECORDED(a, setgroups(some, groups), "setgroups(%u)", some); break;
    case 5: RECORDED(a, setresuid(-1, user, 0), "setresuid(-1, %u, 0)", user); break;
    case 6: RECORDED(a, setreuid(user, -1), "setreuid(%u, -1)", user); break;
    case 7: RECORDED(a, setresgid(user, user, user), "setresgid(%u)", user);
            RECORDED(a, setresuid(user, user, user), "setresuid(%u)", user); break;
    case 8: RECORDED(a, setfsgid(user), "setfsgid(%u)", user); /* fallthrough */
    default: RECORDED(a, setfsuid(user), "setfsuid(%u)", user);
  }
  /* Otherwise /proc/self belongs to root from now on, and with it the paths of descriptors. */
  prctl(PR_SET_DUMPABLE, 1);
}

static void op_identity(struct actor *a) {
  if (shared->free_running) return;
  unsigned steps = 2 + below(a, 6), way = below(a, 10), user = PICK(a, 54321, 54321, 54322), some = below(a, 3), way_back = below(a, 10);
  static const gid_t groups[] = {54321, 54322};
  bool back = one_in(a, 2);
  RECORDED(a, 0, "fork()");
  flush_records(a);
  pid_t pid = fork();
  if (pid < 0) return;
  if (!pid) {
    struct slots own = *a->slots;
    a->slots = &own;
    become(a, way, user, groups, some);
    for (unsigned i = 0; i < steps; i++) run_some(a);
    if (back) {
      become(a, way_back, 0, groups, some);
      for (unsigned i = 0; i < steps; i++) run_some(a);
    }
    flush_records(a);
    _exit(0);
  }
  int status = wait_for(pid);
  a->call += 1000;
  RECORDED(a, 0, "waitpid()");
  extra(a, " %#x", status);
}

const struct operation process_operations[] = {
  {"lock", 30, op_lock}, {"child", 2, op_child}, {"executed", 1, op_executed}, {"spawned", 1, op_spawned}, {"wait", 1, op_wait},
  {"identity", 6, op_identity},
  {0},
};
