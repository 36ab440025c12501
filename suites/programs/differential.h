/* What the files of the differential test share. The engine (differential.c) decides which actor runs which operation;
 * each operation draws its arguments from a generator that knows only the seed and the operation's number, makes libc
 * calls, and records each with its result. Two runs are equal when their records are. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum {
  PROCESSES = 3, THREADS = 2, ACTORS = PROCESSES * THREADS,
  FILES = 14,                 /* numbered places for open files of a process */
  DIRS = 5,                   /* and for open directories */
  BUFFER = 1 << 18, PATH_ROOM = 8192, RECORD = 1 << 16,
  NEVER_OPEN = 777, LOG_FD = 600, SHARED_FD = 601, FIRST_OWN_FD = 600,
};

/* The descriptors of a process. They are numbers in shared memory, so that a process that executed itself finds them. */
struct slots { int file[FILES], dir[DIRS]; };

struct shared {
  uint64_t next, limit, calls, seed, calls_max;
  uint32_t word[ACTORS], stop, free_running, mostly_names, bad, verbose;
  uint32_t both, library;     /* processes in the mask `library` are for the library, others for a mount: what may differ is left out */
  struct slots slots[ACTORS]; /* by process when they take turns, by actor when they run freely */
  char base[256], self[256], log[256];
  unsigned char skip[];       /* by operation: left out */
};

struct actor {
  int id, process;
  struct slots *slots;
  uint64_t n, rng;
  unsigned call;
  char *out;                  /* the records of this operation so far */
  size_t len;
  unsigned char *buffer;      /* for data, BUFFER bytes */
  char *path[4];              /* for paths */
  const char *doing;
  char *name_room[4];
  int names;
};

struct operation { const char *name; unsigned weight; void (*run)(struct actor *); };
extern const struct operation file_operations[], data_operations[], name_operations[], attribute_operations[], directory_operations[],
  process_operations[], stream_operations[], map_operations[], more_operations[];

extern struct shared *shared;

/* Whether the actor sees the volume through a mount, beside others that see it by the library. */
static inline bool at_mount(const struct actor *a) { return shared->both && !(shared->library >> a->process & 1); }

/* Random choices. */
uint64_t draw(struct actor *);
static inline unsigned below(struct actor *a, unsigned n) { return draw(a) % n; }
static inline bool one_in(struct actor *a, unsigned n) { return below(a, n) == 0; }
#define PICK(a, ...) ({ static const __typeof__((int)0) list_[] = {__VA_ARGS__}; list_[below(a, sizeof list_ / sizeof *list_)]; })
uint64_t hash(const void *bytes, size_t len);

/* Records. RECORDED makes a call and records "call(arguments) = result errno". */
void record(struct actor *, long long result, int error, const char *format, ...) __attribute__((format(printf, 4, 5)));
void extra(struct actor *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void flush_records(struct actor *);
/* One more operation, drawn by the generator of the one that is being done: for children. */
void run_some(struct actor *);
int inherited(const char *number);
int wait_for(pid_t); /* its status */
const char *error_name(int error);
#define RECORDED(a, call, ...) ({ errno = 0; long long r_ = (long long)(call); record(a, r_, errno, __VA_ARGS__); r_; })
/* The same for calls that give back the error instead of setting errno. */
#define RETURNS_ERROR(a, call, ...) ({ int e_ = (call); record(a, e_ ? -1 : 0, e_, __VA_ARGS__); e_; })
/* The same for calls that return a pointer. */
#define POINTER(a, call, ...) ({ errno = 0; __typeof__(call) p_ = (call); record(a, p_ ? 0 : -1, errno, __VA_ARGS__); p_; })
/* The same for calls that return a new descriptor: its number is not compared when threads run freely. */
#define DESCRIPTOR(a, call, ...) ({ errno = 0; int f_ = (call); record(a, f_ >= 0 && shared->free_running ? 0 : f_, errno, __VA_ARGS__); f_; })

/* Paths. Each gives a path of the wanted sort, sometimes of another; shown(a) is how it is to be recorded. */
enum sort { A_FILE, A_DIR, A_LINK, A_NEW };
const char *a_path(struct actor *, enum sort);
const char *shown(struct actor *, const char *path);
/* A path for an *at call: sets the descriptor it is relative to. */
const char *a_path_at(struct actor *, enum sort, int *dirfd);
void prepare_mount(struct actor *); /* before an operation */
const char *shown_fd(struct actor *, int fd);

/* Descriptors. */
int *a_file_slot(struct actor *);
int *a_dir_slot(struct actor *);
int a_file(struct actor *);   /* mostly open, sometimes not, sometimes a directory */
int a_dir(struct actor *);
void put(struct actor *, int *slot, int fd); /* closes what was there */

/* Sizes and data. */
off_t an_offset(struct actor *);
off_t a_size(struct actor *);
bool too_long(const char *path);
void count_access(struct actor *, int fd); /* after calls that read by the kernel's pages */
void keep_path(struct actor *); /* before libc asks for the path of the working directory */
size_t a_length(struct actor *);
void fill(struct actor *, size_t len);
void say_stat(struct actor *, const struct stat *);
