/* Less common calls: asynchronous I/O, pipes between files, descriptors in messages, sockets and fifos with names, trees by fts
 * and ftw, wide characters, programs run by a shell, names that libc makes, and old or checking forms of common calls. */
#include "differential.h"
#include <aio.h>
#include <ftw.h>
#include <fts.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/fsuid.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <wchar.h>

static void say_data(struct actor *a, ssize_t n) { if (n > 0) extra(a, " %016llx", (unsigned long long)hash(a->buffer, n)); }

/* ---- asynchronous I/O ---- */

static void op_aio(struct actor *a) {
  int fd = a_file(a), what = PICK(a, LIO_READ, LIO_WRITE, LIO_NOP);
  struct aiocb one = {.aio_fildes = fd, .aio_buf = a->buffer, .aio_nbytes = a_length(a), .aio_offset = an_offset(a), .aio_lio_opcode = what};
  struct aiocb *list[] = {&one};
  const struct aiocb *const waited[] = {&one};
  const char *f = shown_fd(a, fd);
  if (one.aio_offset < 0 || one.aio_offset == LLONG_MAX) one.aio_offset = 7;
  fill(a, one.aio_nbytes);
  int begun;
  switch (below(a, 4)) {
    case 0: begun = RECORDED(a, aio_read(&one), "aio_read(%s, %zu, %lld)", f, one.aio_nbytes, (long long)one.aio_offset); break;
    case 1: begun = RECORDED(a, aio_write(&one), "aio_write(%s, %zu, %lld)", f, one.aio_nbytes, (long long)one.aio_offset); break;
    case 2: begun = RECORDED(a, aio_fsync(PICK(a, O_SYNC, O_DSYNC), &one), "aio_fsync(%s)", f); break;
    default: RECORDED(a, lio_listio(LIO_WAIT, list, 1, 0), "lio_listio(%s, %d, %zu, %lld)", f, what, one.aio_nbytes, (long long)one.aio_offset); begun = what == LIO_NOP;
  }
  if (begun) return;
  while (aio_error(&one) == EINPROGRESS) aio_suspend(waited, 1, 0);
  RETURNS_ERROR(a, aio_error(&one), "aio_error()");
  ssize_t n = RECORDED(a, aio_return(&one), "aio_return()");
  say_data(a, n);
}

/* ---- pipes and messages ---- */

/* From a file into a pipe, or from a pipe into a file. */
static void op_splice(struct actor *a) {
  int fd = a_file(a), pair[2];
  size_t len = below(a, 20000);
  loff_t at = an_offset(a), *p = one_in(a, 2) ? &at : 0;
  if (at == LLONG_MAX) at = 100;
  const char *f = shown_fd(a, fd);
  struct stat st;
  if (!fstat(fd, &st) && !S_ISREG(st.st_mode)) return;
  if (pipe(pair)) return;
  fill(a, 9000);
  if (one_in(a, 2)) {
    ssize_t n = RECORDED(a, splice(fd, p, pair[1], 0, len, SPLICE_F_NONBLOCK), "splice(%s, %lld, pipe, %zu)", f, p ? (long long)*p : -1, len);
    if (p) extra(a, " at %lld", (long long)at);
    if (n > 0) { n = RECORDED(a, read(pair[0], a->buffer, BUFFER), "read(pipe)"); say_data(a, n); }
  } else {
    (void)!write(pair[1], a->buffer, 9000);
    RECORDED(a, splice(pair[0], 0, fd, p, len, SPLICE_F_NONBLOCK), "splice(pipe, %s, %lld, %zu)", f, p ? (long long)*p : -1, len);
    if (p) extra(a, " at %lld", (long long)at);
  }
  close(pair[0]), close(pair[1]);
  count_access(a, fd);
}

/* A descriptor goes through a socket. What arrives shares its place. */
static void op_message(struct actor *a) {
  int fd = a_file(a), pair[2], got = -1;
  if (fd < 0 || fd >= NEVER_OPEN || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return;
  union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr header; } control = {0};
  struct iovec data = {"d", 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  struct cmsghdr *c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  int sent = RECORDED(a, sendmsg(pair[0], &message, 0), "sendmsg(%s)", shown_fd(a, fd));
  if (sent == 1) {
    char byte[2];
    data.iov_base = byte, message.msg_controllen = sizeof control.room;
    RECORDED(a, recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC), "recvmsg()");
    c = CMSG_FIRSTHDR(&message);
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(&got, CMSG_DATA(c), sizeof got);
  }
  close(pair[0]), close(pair[1]);
  if (got < 0) return;
  struct stat st;
  if (!RECORDED(a, fstat(got, &st), "fstat(received)")) say_stat(a, &st);
  RECORDED(a, fcntl(got, F_GETFD), "fcntl(received, F_GETFD)");
  RECORDED(a, fcntl(got, F_GETFL), "fcntl(received, F_GETFL)");
  if (S_ISREG(st.st_mode)) {
    ssize_t n = RECORDED(a, read(got, a->buffer, 100), "read(received, 100)");
    say_data(a, n);
    RECORDED(a, lseek(fd, 0, SEEK_CUR), "lseek(%s, 0, SEEK_CUR)", shown_fd(a, fd));
  }
  RECORDED(a, close(got), "close(received)");
}

/* A name of the actor's own, so that nobody else opens it. */
static const char *own_name(struct actor *a, const char *what) {
  static __thread char name[64];
  if (shared->free_running) sprintf(name, "own%d/%s", a->id, what); else sprintf(name, "%s-%d", what, a->id);
  return name;
}

static void op_fifo(struct actor *a) {
  if (shared->free_running) return; /* a child of another thread may keep an end */
  const char *name = own_name(a, "fifo");
  struct stat st;
  size_t len = below(a, 4000);
  if (RECORDED(a, mkfifo(name, 0600), "mkfifo(%s)", name)) return;
  RECORDED(a, open(name, O_WRONLY | O_NONBLOCK), "open(%s, O_WRONLY | O_NONBLOCK)", name);
  int from = DESCRIPTOR(a, open(name, O_RDONLY | O_NONBLOCK), "open(%s, O_RDONLY | O_NONBLOCK)", name);
  int to = DESCRIPTOR(a, open(name, O_WRONLY | O_NONBLOCK), "open(%s, O_WRONLY | O_NONBLOCK)", name);
  if (from >= 0 && to >= 0) {
    fill(a, len);
    RECORDED(a, write(to, a->buffer, len), "write(fifo, %zu)", len);
    if (!RECORDED(a, fstat(to, &st), "fstat(fifo)")) extra(a, " %o", st.st_mode & S_IFMT);
    if (one_in(a, 3)) RECORDED(a, lseek(from, 0, SEEK_CUR), "lseek(fifo)");
    ssize_t n = RECORDED(a, read(from, a->buffer, below(a, 5000)), "read(fifo)");
    say_data(a, n);
    RECORDED(a, close(to), "close(fifo)");
    to = -1;
    n = RECORDED(a, read(from, a->buffer, BUFFER), "read(fifo)");
    say_data(a, n);
    n = RECORDED(a, read(from, a->buffer, BUFFER), "read(fifo)");
  }
  if (to >= 0) RECORDED(a, close(to), "close(fifo)");
  if (from >= 0) RECORDED(a, close(from), "close(fifo)");
  RECORDED(a, unlink(name), "unlink(%s)", name);
}

static void op_socket(struct actor *a) {
  struct sockaddr_un at = {.sun_family = AF_UNIX}, who;
  socklen_t len = sizeof who;
  struct stat st;
  snprintf(at.sun_path, sizeof at.sun_path, "%s", own_name(a, "socket"));
  int server = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), client = socket(AF_UNIX, SOCK_STREAM, 0), peer;
  RECORDED(a, connect(client, (void *)&at, sizeof at), "connect(%s)", at.sun_path);
  if (RECORDED(a, bind(server, (void *)&at, sizeof at), "bind(%s)", at.sun_path)) goto out;
  if (!RECORDED(a, lstat(at.sun_path, &st), "lstat(%s)", at.sun_path)) extra(a, " %o", st.st_mode);
  RECORDED(a, open(at.sun_path, O_RDWR), "open(%s)", at.sun_path);
  if (one_in(a, 2)) RECORDED(a, connect(client, (void *)&at, sizeof at), "connect(%s)", at.sun_path);
  RECORDED(a, listen(server, 1), "listen()");
  RECORDED(a, connect(client, (void *)&at, sizeof at), "connect(%s)", at.sun_path);
  if (!RECORDED(a, getsockname(server, (void *)&who, &len), "getsockname()")) extra(a, " %s", who.sun_path);
  peer = DESCRIPTOR(a, accept(server, 0, 0), "accept()");
  if (peer >= 0) {
    len = sizeof who;
    if (!RECORDED(a, getpeername(client, (void *)&who, &len), "getpeername()")) extra(a, " %s", who.sun_path);
    RECORDED(a, write(client, "to the peer", 11), "write(socket)");
    ssize_t n = RECORDED(a, read(peer, a->buffer, 100), "read(socket)");
    say_data(a, n);
    close(peer);
  }
  RECORDED(a, unlink(at.sun_path), "unlink(%s)", at.sun_path);
out:
  close(server), close(client);
}

/* Whether files are ready: they always are. */
static void op_ready(struct actor *a) {
  int fd = a_file(a);
  if (fd < 0 || fd >= FD_SETSIZE) return;
  struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
  struct timespec soon = {0};
  if (one_in(a, 2)) {
    RECORDED(a, one_in(a, 2) ? poll(&one, 1, 0) : ppoll(&one, 1, &soon, 0), "poll(%s)", shown_fd(a, fd));
    extra(a, " %#x", one.revents);
    return;
  }
  fd_set in, out;
  FD_ZERO(&in);
  FD_ZERO(&out);
  FD_SET(fd, &in);
  FD_SET(fd, &out);
  RECORDED(a, pselect(fd + 1, &in, &out, 0, &soon, 0), "pselect(%s)", shown_fd(a, fd));
}

/* ---- trees ---- */

static int by_name(const FTSENT **x, const FTSENT **y) { return strcmp((*x)->fts_name, (*y)->fts_name); }

static void op_fts(struct actor *a) {
  const char *p = a_path(a, A_DIR);
  if (!p || !*p || strlen(p) > PATH_MAX / 2) return;
  char *const paths[] = {(char *)p, 0};
  int options = PICK(a, FTS_PHYSICAL, FTS_LOGICAL, FTS_PHYSICAL | FTS_NOSTAT, FTS_PHYSICAL | FTS_SEEDOT, FTS_PHYSICAL | FTS_COMFOLLOW) | FTS_NOCHDIR;
  FTS *tree = POINTER(a, fts_open(paths, options, by_name), "fts_open(%s, %#x)", shown(a, p), options);
  if (!tree) return;
  uint64_t sum = 0;
  unsigned seen = 0, skip = below(a, 20);
  for (FTSENT *e; seen < 300 && (e = fts_read(tree)); seen++) {
    sum = sum * 31 + hash(e->fts_path, strlen(e->fts_path)) + e->fts_info * 7 + e->fts_level + e->fts_errno * 1000;
    if (e->fts_info == FTS_F && !(options & FTS_NOSTAT)) sum += e->fts_statp->st_mode + e->fts_statp->st_size;
    if (e->fts_info == FTS_D && seen == skip) fts_set(tree, e, FTS_SKIP);
  }
  RECORDED(a, seen, "fts_read()");
  extra(a, " %016llx", (unsigned long long)sum);
  RECORDED(a, fts_close(tree), "fts_close()");
}

/* The order is the directory's, and it decides by which symlink a directory is reached. */
static int visit(const char *path, const struct stat *st, int what) { return (void)path, (void)st, (void)what, 0; }

static void op_ftw(struct actor *a) {
  const char *p = a_path(a, A_DIR);
  if (!p || strlen(p) > PATH_MAX / 2 || (*p && p[strlen(p) - 1] == '/')) return;
  int walked = ftw(p, visit, 4);
  /* So does the order decide which of several errors ends it. */
  RECORDED(a, walked ? -1 : 0, "ftw(%s)", shown(a, p));
}

static int alphabetical(const struct dirent **x, const struct dirent **y) { return strcmp((*x)->d_name, (*y)->d_name); }

static void op_scandirat(struct actor *a) {
  int dir;
  const char *p = a_path_at(a, A_DIR, &dir);
  if (!p) return;
  struct dirent **list = 0;
  int n = RECORDED(a, scandirat(dir, p, &list, 0, alphabetical), "scandirat(%s, %s)", shown_fd(a, dir), shown(a, p));
  for (int i = 0; i < n; i++) extra(a, " %s", list[i]->d_name), free(list[i]);
  if (n >= 0) free(list);
}

/* ---- names ---- */

static void op_made_names(struct actor *a) {
  char name[64], *made;
  int fd = -1;
  sprintf(name, "%s", own_name(a, "made-XXXXXX"));
  if (!shared->free_running) strcpy(name, "made-XXXXXX");
  switch (below(a, 4)) {
    case 0: fd = DESCRIPTOR(a, mkostemp(name, O_APPEND), "mkostemp()"); break;
    case 1: strcat(name, ".c"); fd = DESCRIPTOR(a, mkstemps(name, 2), "mkstemps()"); break;
    case 2: RECORDED(a, *mktemp(name) ? 0 : -1, "mktemp()"); return;
    default:
      made = POINTER(a, tempnam(shared->free_running ? name : ".", "made"), "tempnam()");
      free(made);
      return;
  }
  if (fd < 0) return;
  RECORDED(a, fcntl(fd, F_GETFL), "fcntl(made, F_GETFL)");
  RECORDED(a, dprintf(fd, "%s %d\n", "printed", 7), "dprintf(made)");
  RECORDED(a, close(fd), "close(made)");
  RECORDED(a, unlink(name), "unlink(made)");
}

static void op_where(struct actor *a) {
  char *path;
  const char *p = a_path(a, below(a, 3));
  switch (below(a, 4)) {
    case 0:
      keep_path(a);
      path = POINTER(a, get_current_dir_name(), "get_current_dir_name()");
      if (path && !shared->free_running) extra(a, " %s", shown(a, path));
      free(path);
      break;
    case 1:
      if (too_long(p)) return;
      keep_path(a);
      path = POINTER(a, canonicalize_file_name(p), "canonicalize_file_name(%s)", shown(a, p));
      if (path) extra(a, " %s", shown(a, path));
      free(path);
      break;
    case 2: RECORDED(a, ftok(p, 7) == -1 ? -1 : 0, "ftok(%s)", shown(a, p)); break;
    default: {
      int mode = below(a, 8);
      /* libc computes it from the effective user, not from that of file accesses. */
      if ((uid_t)setfsuid(-1) != geteuid() || (gid_t)setfsgid(-1) != getegid()) return;
      /* When real and effective identity differ, libc lets the superuser search only directories that somebody may search. */
      if (geteuid() == 0 && (getuid() != 0 || getgid() != getegid())) mode &= ~X_OK;
      RECORDED(a, eaccess(p, mode), "eaccess(%s)", shown(a, p));
    }
  }
}

/* ---- other forms ---- */

extern ssize_t __read_chk(int, void *, size_t, size_t), __pread_chk(int, void *, size_t, off_t, size_t);
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t), __readlinkat_chk(int, const char *, char *, size_t, size_t);
extern char *__realpath_chk(const char *, char *, size_t), *__getcwd_chk(char *, size_t, size_t);
extern int __xstat(int, const char *, struct stat *), __lxstat(int, const char *, struct stat *), __fxstat(int, int, struct stat *);
extern int __fxstatat(int, int, const char *, struct stat *, int), __open_2(const char *, int), __openat_2(int, const char *, int);

static void op_other_form(struct actor *a) {
  enum { VERSION = 1 };
  int fd = a_file(a), dir;
  struct stat st;
  const char *p;
  ssize_t n = -1;
  size_t len = a_length(a);
  off_t at = an_offset(a);
  static __thread char out[PATH_ROOM];
  switch (below(a, 10)) {
    case 0: n = RECORDED(a, __read_chk(fd, a->buffer, len, BUFFER), "__read_chk(%s, %zu)", shown_fd(a, fd), len); say_data(a, n); break;
    case 1: n = RECORDED(a, __pread_chk(fd, a->buffer, len, at, BUFFER), "__pread_chk(%s, %zu, %lld)", shown_fd(a, fd), len, (long long)at); say_data(a, n); break;
    case 2: p = a_path(a, A_LINK); n = RECORDED(a, __readlink_chk(p, out, 300, sizeof out), "__readlink_chk(%s)", shown(a, p)); break;
    case 3: p = a_path_at(a, A_LINK, &dir); n = RECORDED(a, __readlinkat_chk(dir, p, out, 300, sizeof out), "__readlinkat_chk(%s, %s)", shown_fd(a, dir), shown(a, p)); break;
    case 4: p = a_path(a, A_FILE); if (!RECORDED(a, __xstat(VERSION, p, &st), "__xstat(%s)", shown(a, p))) say_stat(a, &st); break;
    case 5: p = a_path(a, A_LINK); if (!RECORDED(a, __lxstat(VERSION, p, &st), "__lxstat(%s)", shown(a, p))) say_stat(a, &st); break;
    case 6: if (!RECORDED(a, __fxstat(VERSION, fd, &st), "__fxstat(%s)", shown_fd(a, fd))) say_stat(a, &st); break;
    case 7: p = a_path_at(a, A_FILE, &dir); if (!RECORDED(a, __fxstatat(VERSION, dir, p, &st, 0), "__fxstatat(%s, %s)", shown_fd(a, dir), shown(a, p))) say_stat(a, &st); break;
    case 8: p = a_path(a, A_FILE); keep_path(a); if (!too_long(p) && POINTER(a, __realpath_chk(p, out, sizeof out), "__realpath_chk(%s)", shown(a, p))) extra(a, " %s", shown(a, out)); break;
    default: {
      p = a_path_at(a, A_FILE, &dir);
      int got = one_in(a, 2) ? DESCRIPTOR(a, __openat_2(dir, p, O_RDWR), "__openat_2(%s, %s)", shown_fd(a, dir), shown(a, p)) : DESCRIPTOR(a, __open_2(p, O_RDONLY), "__open_2(%s)", shown(a, p));
      if (got >= 0) put(a, a_file_slot(a), got);
    }
  }
}

/* ---- wide characters ---- */

static void op_wide(struct actor *a) {
  const char *p = a_path(a, A_FILE), *mode = one_in(a, 2) ? "w+" : "r+";
  if (!p || too_long(p)) return;
  struct stat st;
  if (!stat(p, &st) && S_ISDIR(st.st_mode)) return;
  FILE *f = POINTER(a, fopen(p, mode), "fopen(%s, %s) for wide characters", shown(a, p), mode);
  if (!f) return;
  wchar_t line[64];
  RECORDED(a, fwide(f, 1) > 0, "fwide()");
  unsigned lines = 1 + below(a, 5);
  for (unsigned i = 0; i < lines; i++) RECORDED(a, fwprintf(f, L"%d: \u00e4\u20ac \U0001f9f5 %ls\n", i, L"gr\u00fc\u00df"), "fwprintf()");
  RECORDED(a, fputws(L"\u03b1\u03b2\n", f) < 0 ? -1 : 0, "fputws()");
  RECORDED(a, (int)fputwc(below(a, 3) ? L'\u00f8' : L'x', f), "fputwc()");
  RECORDED(a, fflush(f), "fflush()");
  rewind(f);
  for (unsigned i = 0; i < 3; i++) {
    if (!POINTER(a, fgetws(line, 64, f), "fgetws()")) {
      /* What is no character may be taken at once or byte by byte. */
      RECORDED(a, fclose(f), "fclose()");
      return;
    }
    extra(a, " %016llx", (unsigned long long)hash(line, wcslen(line) * sizeof *line));
  }
  wint_t c = fgetwc(f);
  RECORDED(a, (int)c, "fgetwc()");
  if (c != WEOF) RECORDED(a, (int)ungetwc(c, f), "ungetwc()");
  RECORDED(a, fclose(f), "fclose()");
}

/* ---- programs ---- */

static void op_shell(struct actor *a) {
  const char *name = own_name(a, "shell");
  char line[300];
  if (shared->free_running) return;
  if (one_in(a, 2)) {
    sprintf(line, "exec 2>/dev/null; echo said by a shell >>%s; exit 3", name);
    RECORDED(a, system(line), "system()");
  }
  sprintf(line, one_in(a, 2) ? "exec 2>/dev/null; cat %s" : "exec 2>/dev/null; wc -c <%s", name);
  FILE *f = POINTER(a, popen(line, "re"), "popen(%s)", line);
  if (f) {
    size_t n = fread(a->buffer, 1, 1000, f);
    RECORDED(a, n, "fread(popen)");
    say_data(a, n);
    RECORDED(a, pclose(f), "pclose()");
  }
  sprintf(line, "exec 2>/dev/null; cat >>%s", name);
  f = POINTER(a, popen(line, "we"), "popen(%s)", line);
  if (f) {
    RECORDED(a, fputs("written to a shell\n", f) < 0 ? -1 : 0, "fputs(popen)");
    RECORDED(a, pclose(f), "pclose()");
  }
  struct stat st;
  if (!RECORDED(a, stat(name, &st), "stat(%s)", name)) say_stat(a, &st);
  if (one_in(a, 3)) RECORDED(a, unlink(name), "unlink(%s)", name);
}

/* ---- maps ---- */

static void op_mremap(struct actor *a) {
  const char *name = own_name(a, "remap");
  size_t len = 4096 * (1 + below(a, 6)), then = 4096 * (1 + below(a, 12)), size = 1 + below(a, 40000), both = len < then ? len : then;
  int shared_map = one_in(a, 2);
  int fd = DESCRIPTOR(a, open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), "open(%s)", name);
  if (fd < 0) return;
  fill(a, size);
  RECORDED(a, write(fd, a->buffer, size), "write(%zu)", size);
  unsigned char *at = POINTER(a, mmap(0, len, PROT_READ | PROT_WRITE, shared_map ? MAP_SHARED : MAP_PRIVATE, fd, 0), "mmap(%zu, %d)", len, shared_map);
  if (at != MAP_FAILED) {
    at[0] ^= 0xff;
    /* A private map does not grow on a volume. */
    if (!shared_map && then > len) then = len;
    unsigned char *next = mremap(at, len, then, MREMAP_MAYMOVE);
    RECORDED(a, next == MAP_FAILED ? -1 : 0, "mremap(%zu)", then);
    if (next != MAP_FAILED) {
      size_t there = (size + 4095) / 4096 * 4096;
      if (then < there) there = then;
      extra(a, " %016llx", (unsigned long long)hash(next, there));
      next[both - 1 < there ? both - 1 : there - 1] ^= 0x55;
      RECORDED(a, msync(next, then, MS_SYNC), "msync()");
      RECORDED(a, munmap(next, then), "munmap()");
    } else munmap(at, len);
  }
  ssize_t n = RECORDED(a, pread(fd, a->buffer, BUFFER, 0), "pread(%s)", name);
  say_data(a, n);
  RECORDED(a, close(fd), "close(%s)", name);
  RECORDED(a, unlink(name), "unlink(%s)", name);
}

const struct operation more_operations[] = {
  {"aio", 6, op_aio}, {"splice", 6, op_splice}, {"message", 3, op_message}, {"fifo", 2, op_fifo}, {"socket", 1, op_socket},
  {"ready", 3, op_ready}, {"fts", 3, op_fts}, {"ftw", 3, op_ftw}, {"scandirat", 3, op_scandirat}, {"made_names", 3, op_made_names},
  {"where", 5, op_where}, {"other_form", 15, op_other_form}, {"wide", 3, op_wide}, {"shell", 1, op_shell}, {"mremap", 3, op_mremap},
  {0},
};
