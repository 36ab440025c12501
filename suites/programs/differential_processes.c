/* Locks, and processes that inherit what is open. */
#include "differential.h"
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

static void op_lock(struct actor *a) {
  int fd = a_file(a), kind = PICK(a, F_RDLCK, F_WRLCK, F_UNLCK, F_UNLCK, 9);
  bool by_file = shared->free_running || one_in(a, 2);
  struct flock l = {.l_type = kind, .l_whence = PICK(a, SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END), .l_start = below(a, 50), .l_len = PICK(a, 0, 1, 10, 50, -5)};
  long long start = l.l_start, len = l.l_len;
  int whence = l.l_whence;
  int which = below(a, 4);
  if (which == 1 && kind == F_UNLCK) by_file = false;
  if (which == 1 && shared->free_running) return;
  switch (which) {
    case 0: {
      int how = PICK(a, LOCK_SH, LOCK_EX, LOCK_UN, LOCK_UN, 0) | LOCK_NB;
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
  int status;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR);
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
  int status;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR);
  a->call += 100;
  RECORDED(a, 0, "waitpid()");
  extra(a, " %#x", status);
}

/* What a program that was executed says of the descriptor it inherited. */
int inherited(const char *number) {
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

const struct operation process_operations[] = {{"lock", 30, op_lock}, {"child", 2, op_child}, {"executed", 1, op_executed}, {0}};
