/* Calls of acl.c as compound programs of weft: by the C library at the server's socket, or by the ioctl of a mount. What a program cannot
 * express (modes, owners, lists, pipes, the right to execute) goes by the plain calls of the process. */
#include <weft.h>

static struct {
  enum { NO_CHAINS, BY_SOCKET, BY_IOCTL } way;
  /* Runs are made in batches. */
  int batches;
  /* The directory of the paths: on the volume, and open on the mount. */
  char base[200];
  int directory;
  /* A connection keeps the rights that the process had when it was made: each user has one. */
  weft_files *connections[USERS];
  /* Calls that programs made, and the one before which a user last connected anew. */
  unsigned chained, renewed;
} chains;

static void begin_chains(const char *dir, int by_socket, int by_ioctl, int batches) {
  const char *mount = getenv("MOUNT");
  if (!by_socket && !by_ioctl) return;
  chains.way = by_socket && getenv("SOCKET") ? BY_SOCKET : BY_IOCTL;
  chains.batches = batches;
  chains.directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (chains.directory < 0 || strncmp(dir, mount, strlen(mount))) fprintf(stderr, "%s is not on the mount %s\n", dir, mount), exit(2);
  if (chains.way == BY_SOCKET) snprintf(chains.base, sizeof chains.base, "%s/work", dir + strlen(mount));
}
/* Appends to the file $COUNTS how many calls were programs. */
static void end_chains(void) {
  FILE *out = chains.way && getenv("COUNTS") ? fopen(getenv("COUNTS"), "a") : NULL;
  if (!out) return;
  fprintf(out, "%s %u\n", chains.way == BY_SOCKET ? "socket" : "ioctl", chains.chained);
  fclose(out);
}

/* Whether this call is made by a program, if one can make it. */
static int is_chained(int can) {
  can = can && chains.way;
  chains.chained += can;
  return can;
}

static void broken(const char *what) {
  fprintf(stderr, "%s as user %d: %s\n", what, users[user].uid, weft_error_message());
  exit(2);
}
/* Now and then a user connects anew. */
static const weft_files *connection(void) {
  weft_files **kept = &chains.connections[user];
  if (*kept && chains.chained >= chains.renewed + 16) {
    weft_files_close(*kept);
    *kept = NULL, chains.renewed = chains.chained;
  }
  if (!*kept && weft_files_connect(getenv("SOCKET"), getenv("MOUNT"), kept)) broken("connect");
  return *kept;
}
static const char *on_volume(const char *path) {
  static char texts[2][300];
  static unsigned last;
  last = !last;
  snprintf(texts[last], sizeof texts[last], "%s/%s", chains.base, path);
  return texts[last];
}

static weft_chain *new_chain(uint32_t policy) {
  weft_chain *chain;
  if (weft_chain_new(policy, &chain)) broken("a chain");
  return chain;
}
/* What a failure leaves makes no difference where only one operation can fail. */
static weft_chain *any_chain(void) {
  static const uint32_t policies[] = {WEFT_CHAIN_ALL, WEFT_CHAIN_PREFIX, WEFT_CHAIN_EACH};
  return new_chain(policies[chains.chained % 3]);
}
static int run_in_batch(weft_chain *chain, const weft_file *given, weft_answer **answer) {
  weft_batch *batch;
  if (weft_batch_new(connection(), &batch) || weft_batch_add(batch, chain, given, given != NULL, NULL, 0) || weft_batch_run(batch))
    broken("a batch");
  int status = weft_batch_take(batch, answer);
  weft_batch_free(batch);
  return status;
}
/* Runs a chain, which ends: its errno, and the operation that failed, from 1. The caller frees the answer, if it wants one. */
static int run(weft_chain *chain, int descriptor, const weft_file *given, unsigned *failed, weft_answer **wanted) {
  weft_answer *answer = NULL;
  int status;
  if (chains.way == BY_IOCTL) status = weft_chain_run_at(descriptor, chain, &answer);
  else if (chains.batches) status = run_in_batch(chain, given, &answer);
  else status = weft_chain_run(connection(), chain, given, given != NULL, &answer);
  if (status && status != WEFT_EFAILED) broken("a chain");
  weft_value operation = {0};
  int error = 0;
  if (weft_answer_failed(answer, &operation, &error) || (error != 0) != (status != 0)) broken("an answer");
  if (failed) *failed = operation.operation;
  if (wanted) *wanted = answer; else weft_answer_free(answer);
  weft_chain_free(chain);
  return -error;
}
static int run_here(weft_chain *chain, unsigned *failed) { return run(chain, chains.directory, NULL, failed, NULL); }

static void add_op(weft_chain *chain, const struct op *op) {
  weft_path at = weft_at(on_volume(op->at)), to = weft_at(on_volume(op->to));
  switch (op->kind) {
  case CREATE: weft_chain_create(chain, at, op->flags & O_EXCL, op->mode); break;
  case CREATE_AND_WRITE: weft_chain_write(chain, weft_chain_create(chain, at, 0, op->mode), weft_num(0), weft_text("w")); break;
  case MKDIR: weft_chain_mkdir(chain, at, op->mode); break;
  case SYMLINK: weft_chain_symlink(chain, weft_text("c"), at); break;
  case UNLINK: weft_chain_unlink(chain, at); break;
  case RMDIR: weft_chain_rmdir(chain, at); break;
  case RENAME: weft_chain_rename(chain, at, to, op->flags); break;
  case LINK: weft_chain_link(chain, at, to); break;
  }
}
/* Makes operations, each by one of a program; `failed` is the one that fails, from 0. If it is rehearsed, a program that does all or
 * nothing first does nothing: it ends with what does not hold, unless it fails before. */
static int by_chain(const struct op *ops, unsigned count, int rehearses, unsigned *failed) {
  int rehearsed = 0;
  if (count == 1 && ops->kind == CREATE_AND_WRITE && chains.way == BY_SOCKET && chains.chained % 2) {
    int status = weft_open_write(connection(), on_volume(ops->at), ops->mode, 0, (const uint8_t *)"w", 1, 0);
    if (status && status != WEFT_EFAILED) broken("weft_open_write");
    return status ? -weft_error_errno() : 0;
  }
  if (rehearses) {
    weft_chain *chain = new_chain(WEFT_CHAIN_ALL);
    for (unsigned i = 0; i < count; i++) add_op(chain, &ops[i]);
    weft_chain_expect_numbers(chain, weft_num(0), WEFT_IS_EQUAL, weft_num(1));
    rehearsed = run_here(chain, failed);
  }
  weft_chain *chain = count == 1 ? any_chain() : new_chain(chains.chained % 2 ? WEFT_CHAIN_PREFIX : WEFT_CHAIN_EACH);
  for (unsigned i = 0; i < count; i++) add_op(chain, &ops[i]);
  int done = run_here(chain, failed);
  if (rehearses && rehearsed != (done ? done : -ECANCELED)) printf("rehearsed: %d, ", rehearsed);
  *failed -= 1;
  return done;
}

/* Sets (0), removes (1) or reads (2) the mark of what is there: 0, an errno or the mark. */
static int mark_by_chain(const char *at, int what, char mark, int how) {
  weft_chain *chain = any_chain();
  weft_value file = weft_chain_open(chain, weft_at(on_volume(at)), O_PATH | O_NOFOLLOW), found = {0};
  weft_answer *answer;
  const uint8_t *data;
  size_t bytes;
  if (what == 0) weft_chain_set_xattr(chain, file, MARK, weft_data((const uint8_t *)&mark, 1), how);
  if (what == 1) weft_chain_remove_xattr(chain, file, MARK);
  if (what == 2) weft_chain_export(chain, found = weft_chain_get_xattr(chain, file, MARK));
  int done = run(chain, chains.directory, NULL, NULL, &answer);
  if (what == 2 && !done) {
    if (weft_answer_bytes(answer, found, &data, &bytes) || bytes != 1) broken("a mark");
    done = *data;
  }
  weft_answer_free(answer);
  return done;
}

/* What access says, of what can be opened. */
static int access_by_chain(const char *at, int wanted) {
  if (wanted == R_OK && chains.way == BY_SOCKET && kind_of(at, 1) == S_IFREG) {
    uint8_t byte;
    size_t bytes;
    int status = weft_open_read(connection(), on_volume(at), 0, &byte, 1, &bytes);
    if (status && status != WEFT_EFAILED) broken("weft_open_read");
    return status ? -weft_error_errno() : 0;
  }
  static const int flags[] = {O_PATH, 0, O_WRONLY, 0, O_RDONLY, 0, O_RDWR};
  weft_chain *chain = any_chain();
  weft_chain_open(chain, weft_at(on_volume(at)), flags[wanted]);
  return run_here(chain, NULL);
}

/* Adds what acl.c does with an open file. */
static void add_write(weft_chain *chain, weft_value file, int how) {
  if (how & O_APPEND) weft_chain_append(chain, file, weft_text("x"));
  else weft_chain_write(chain, file, weft_num(0), weft_text("x"));
}
/* A program says of a file that is not open for it what write says (EBADF), not what ftruncate says. */
static int as_ftruncate(int cut) { return cut == -EBADF ? -EINVAL : cut; }

/* Opens a file by a call, and gives it with programs. */
static int open_and_give(const char *at, int how, int is_file, unsigned size, int *more) {
  int fd = -1;
  weft_file file, *given = NULL;
  if (chains.way == BY_IOCTL) {
    if ((fd = open(at, how | O_NONBLOCK | O_NOFOLLOW)) < 0) return -errno;
  } else {
    given = &file;
    if (weft_file_open(connection(), on_volume(at), how | O_NONBLOCK | O_NOFOLLOW, 0, given)) return -weft_error_errno();
  }
  if (is_file) {
    weft_chain *write = any_chain(), *cut = any_chain();
    add_write(write, weft_chain_given(write, 0), how);
    weft_chain_truncate(cut, weft_chain_given(cut, 0), weft_num(size));
    *more = run(write, fd, given, NULL, NULL) * 1000;
    *more += as_ftruncate(run(cut, fd, given, NULL, NULL));
  }
  if (fd >= 0) close(fd);
  else weft_file_close(chains.connections[user], file);
  return 0;
}
static int open_by_chain(const char *at, int how, int is_file, unsigned size, int *more) {
  if (chains.chained % 2) return open_and_give(at, how, is_file, size, more);
  unsigned failed;
  weft_chain *chain = any_chain();
  weft_value file = weft_chain_open(chain, weft_at(on_volume(at)), (how & O_ACCMODE) | O_NOFOLLOW);
  unsigned cuts = is_file && how & O_TRUNC, writes = (how & O_ACCMODE) != O_RDONLY;
  if (cuts) weft_chain_truncate(chain, file, weft_num(0));
  if (is_file) add_write(chain, file, how);
  if (is_file && writes) weft_chain_truncate(chain, file, weft_num(size));
  int done = run_here(chain, &failed);
  if (!done || failed == 1) return done;
  *more = (failed == 2 + cuts ? 1000 : 1) * done;
  if (!writes) {
    chain = any_chain();
    file = weft_chain_open(chain, weft_at(on_volume(at)), O_RDONLY | O_NOFOLLOW);
    weft_chain_truncate(chain, file, weft_num(size));
    *more += as_ftruncate(run_here(chain, NULL));
  }
  return 0;
}
