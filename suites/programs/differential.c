/* The same random sequence of libc calls anywhere: by several processes and threads that take turns, or by threads that
 * run freely, each in a folder of its own. Everything a program can see of each call is recorded.
 *   differential [-f] [-m] [-u USER] [-b MASK] [-v] [-n OPERATIONS] [-c CALLS] [-s SEED] [-k KEPT] [-o LOG] DIRECTORY
 * -f lets the threads run freely; -m makes most calls about names and permissions; with -u one of the processes is that user.
 * With -b the processes in MASK (1, 2, 4; of all three, 0 to 7) execute themselves again by the command in $FRONT, if it is set, such as
 * "weft run --at DIR --"; the others go on as they are. What such processes may not do to each other is left out.
 * -k names a file with the numbers of the operations to run, others are left out.
 * -v records where open files are after each operation.
 * Whose turn it is follows from the operation's number, so that a sequence can be shortened and stays the same. */
#include "differential.h"
#include <linux/futex.h>
#include <grp.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct shared *shared;
static __thread struct actor *current;

static uint64_t mix(uint64_t x) {
  x ^= x >> 33; x *= 0xff51afd7ed558ccdull; x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ull; return x ^ x >> 33;
}

uint64_t draw(struct actor *a) { return mix(a->rng += 0x9e3779b97f4a7c15ull); }

uint64_t hash(const void *bytes, size_t len) {
  const unsigned char *at = bytes;
  uint64_t h = 0xcbf29ce484222325ull ^ len;
  for (; len >= 8; at += 8, len -= 8) { uint64_t v; memcpy(&v, at, 8); h = mix(h ^ v); }
  for (; len; at++, len--) h = (h ^ *at) * 0x100000001b3ull;
  return h;
}

void flush_records(struct actor *a) {
  if (a->len) {
    a->out[a->len++] = '\n';
    for (size_t done = 0; done < a->len;) {
      ssize_t n = syscall(SYS_write, LOG_FD, a->out + done, a->len - done);
      if (n <= 0) _exit(99);
      done += n;
    }
  }
  a->len = 0;
}

const char *error_name(int error) {
  const char *name = strerrorname_np(error);
  return name ? name : "E?";
}

static void add(struct actor *a, const char *format, va_list args) {
  if (a->len < RECORD - 1) a->len += vsnprintf(a->out + a->len, RECORD - a->len, format, args);
  if (a->len > RECORD - 2) a->len = RECORD - 2;
}

void extra(struct actor *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add(a, format, args);
  va_end(args);
}

void record(struct actor *a, long long result, int error, const char *format, ...) {
  if (a->len > RECORD / 2) flush_records(a); else if (a->len) a->out[a->len++] = '\n';
  __atomic_fetch_add(&shared->calls, 1, __ATOMIC_RELAXED);
  extra(a, "%llu.%u %d ", (unsigned long long)a->n, a->call++, a->id);
  va_list args;
  va_start(args, format);
  add(a, format, args);
  va_end(args);
  if (result < 0) extra(a, " = %lld %s", result, error_name(error)); else extra(a, " = %lld", result);
}

/* The operations, by weight. */
static const struct operation *all[] = {file_operations, data_operations, name_operations, attribute_operations, directory_operations, process_operations,
  stream_operations, map_operations, more_operations};

static unsigned weight(const struct operation *const *list, const struct operation *o) {
  return o->weight * (shared->mostly_names && (*list == name_operations || !strcmp(o->name, "chown")) ? 12 : 1);
}

static const struct operation *an_operation(struct actor *a) {
  static unsigned total;
  if (!total) {
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
      for (const struct operation *o = all[i]; o->name; o++) sum += weight(&all[i], o);
    total = sum;
  }
  unsigned at = below(a, total);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (const struct operation *o = all[i]; o->name; o++) {
      if (at < weight(&all[i], o)) return o;
      at -= weight(&all[i], o);
    }
  abort();
}

static int owner(uint64_t n) { return mix(shared->seed * 31 + n / 3) % ACTORS; }

/* Where the open files of a process are, how large, and which are the same. */
static void say_positions(struct actor *a) {
  struct stat st[FILES];
  record(a, 0, 0, "positions");
  for (int i = 0; i < FILES; i++) {
    int fd = a->slots->file[i], same = 0;
    if (fd < 0 || fstat(fd, &st[i])) { st[i].st_ino = 0; continue; }
    if (!S_ISREG(st[i].st_mode)) continue;
    while (st[same].st_ino != st[i].st_ino) same++;
    extra(a, " [%d=%d at %lld of %lld]", i, same, (long long)lseek(fd, 0, SEEK_CUR), (long long)st[i].st_size);
  }
}

static void run(struct actor *a, uint64_t n) {
  a->n = n, a->call = 0, a->names = 0, a->len = 0;
  a->rng = mix(shared->seed * 0x10001 + n) ^ (shared->free_running ? mix(a->id + 7) : 0);
  if (n < shared->limit && shared->skip[n]) return;
  const struct operation *o = an_operation(a);
  a->doing = o->name;
  prepare_mount(a);
  o->run(a);
  if (shared->verbose) say_positions(a);
  flush_records(a);
}

void run_some(struct actor *a) {
  const struct operation *o = an_operation(a);
  static const char *const forking[] = {"child", "executed", "spawned", "wait", "standard_streams", "shell", /* its threads stayed with the parent */ "aio", 0};
  for (const char *const *name = forking; *name; name++) if (!strcmp(o->name, *name)) return;
  o->run(a);
}

static void died(int signal) {
  struct actor *a = current;
  if (a) {
    extra(a, "\n%llu %d ENDED BY SIGNAL %d in %s", (unsigned long long)a->n, a->id, signal, a->doing);
    flush_records(a);
  }
  __atomic_store_n(&shared->bad, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < ACTORS; i++) {
    __atomic_fetch_add(&shared->word[i], 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &shared->word[i], FUTEX_WAKE, INT_MAX, 0, 0, 0);
  }
  syscall(SYS_exit_group, 98);
}

static struct actor *new_actor(int id) {
  struct actor *a = calloc(1, sizeof *a);
  a->id = id, a->process = id / THREADS;
  a->slots = &shared->slots[shared->free_running ? id : a->process];
  a->out = malloc(RECORD), a->buffer = malloc(BUFFER);
  for (int i = 0; i < 4; i++) a->path[i] = malloc(PATH_ROOM), a->name_room[i] = malloc(PATH_ROOM);
  return a;
}

static void wake(int id) {
  __atomic_fetch_add(&shared->word[id], 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &shared->word[id], FUTEX_WAKE, 1, 0, 0, 0);
}

static bool over(uint64_t n) {
  return n >= shared->limit || __atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST) ||
    __atomic_load_n(&shared->calls, __ATOMIC_RELAXED) >= shared->calls_max;
}

static void *take_turns(void *id) {
  struct actor *a = current = new_actor((int)(intptr_t)id);
  for (;;) {
    uint32_t seen = __atomic_load_n(&shared->word[a->id], __ATOMIC_SEQ_CST);
    uint64_t n = __atomic_load_n(&shared->next, __ATOMIC_SEQ_CST);
    if (over(n)) break;
    if (owner(n) != a->id) {
      syscall(SYS_futex, &shared->word[a->id], FUTEX_WAIT, seen, 0, 0, 0);
      continue;
    }
    run(a, n);
    __atomic_store_n(&shared->next, n + 1, __ATOMIC_SEQ_CST);
    if (owner(n + 1) != a->id) wake(owner(n + 1));
  }
  for (int i = 0; i < ACTORS; i++) wake(i);
  return 0;
}

static void *run_freely(void *id) {
  struct actor *a = current = new_actor((int)(intptr_t)id);
  for (uint64_t n = 0; n < shared->limit && !__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST); n++) run(a, n);
  return 0;
}

static void start_process(int process, void *(*work)(void *)) {
  pthread_t thread[THREADS];
  for (int t = 1; t < THREADS; t++)
    if (pthread_create(&thread[t], 0, work, (void *)(intptr_t)(process * THREADS + t))) _exit(97);
  work((void *)(intptr_t)(process * THREADS));
  for (int t = 1; t < THREADS; t++) pthread_join(thread[t], 0);
}

static void keep(const char *path) {
  FILE *in = fopen(path, "r");
  unsigned long long n;
  if (!in) { perror(path); exit(2); }
  memset(shared->skip, 1, shared->limit);
  while (fscanf(in, "%llu", &n) == 1) if (n < shared->limit) shared->skip[n] = 0;
  fclose(in);
}

static void catch_ends(void) {
  for (int s = 0; s < 3; s++) signal(((int[]){SIGSEGV, SIGBUS, SIGABRT})[s], died);
}

/* A process by another front: the command in $FRONT executes this program, which finds the rest in shared memory. */
static void execute(int process) {
  char number[20];
  sprintf(number, "%d", process);
  if (!chdir("/")) execl("/bin/sh", "sh", "-c", "exec $FRONT \"$0\" -p \"$1\"", shared->self, number, (char *)0);
  perror("sh");
  _exit(96);
}

static int again(int process) {
  struct stat st;
  if (fstat(SHARED_FD, &st)) return perror("turns"), 2;
  shared = mmap(0, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
  if (shared == MAP_FAILED || chdir(shared->base)) return perror(shared->base), 2;
  catch_ends();
  start_process(process, shared->free_running ? run_freely : take_turns);
  return 0;
}

int main(int argc, char **argv) {
  const char *log = "/dev/stdout", *kept = 0;
  setlocale(LC_ALL, "C.UTF-8");
  signal(SIGPIPE, SIG_IGN);
  unsigned long long limit = 20000, calls = ULLONG_MAX, seed = 1;
  bool freely = false, mostly_names = false, verbose = false, both = false;
  unsigned mask = 0;
  uid_t other = geteuid();
  for (int o; (o = getopt(argc, argv, "fmvu:b:n:c:s:k:o:i:p:")) > 0;) switch (o) {
    case 'f': freely = true; break;
    case 'm': mostly_names = true; break;
    case 'u': other = strtoul(optarg, 0, 0); break;
    case 'v': verbose = true; break;
    case 'b': both = true, mask = strtoul(optarg, 0, 0); break;
    case 'n': limit = strtoull(optarg, 0, 0); break;
    case 'c': calls = strtoull(optarg, 0, 0); break;
    case 's': seed = strtoull(optarg, 0, 0); break;
    case 'k': kept = optarg; break;
    case 'o': log = optarg; break;
    case 'i': return inherited(optarg);
    case 'p': return again(atoi(optarg));
    default: return 2;
  }
  if (optind + 1 != argc) return 2;
  /* The sequences contain "..": what is far above the directory is safe from them. */
  int depth = 0;
  for (const char *c = argv[optind]; *c; c++) depth += *c == '/';
  if (depth < 13) return fprintf(stderr, "%s: give a directory at least 13 levels deep\n", argv[optind]), 2;
  int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  if (fd < 0 || dup2(fd, LOG_FD) < 0) return perror(log), 2;
  close(fd);
  fd = memfd_create("turns", 0);
  if (fd < 0 || ftruncate(fd, sizeof *shared + limit) || dup2(fd, SHARED_FD) < 0) return perror("turns"), 2;
  close(fd);
  shared = mmap(0, sizeof *shared + limit, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
  memset(shared->slots, -1, sizeof shared->slots);
  shared->limit = limit, shared->calls_max = calls, shared->seed = seed, shared->free_running = freely;
  shared->mostly_names = mostly_names, shared->verbose = verbose, shared->both = both, shared->library = mask;
  snprintf(shared->base, sizeof shared->base, "%s", argv[optind]);
  if (readlink("/proc/self/exe", shared->self, sizeof shared->self - 1) < 0) return perror("self"), 2;
  if (kept) keep(kept);
  for (int i = 0; i < ACTORS && freely; i++) {
    char own[32];
    sprintf(own, "own%d", i);
    if (chdir(shared->base) || mkdir(own, 0755)) return perror(own), 2;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  umask(022);
  if (chdir(shared->base)) return perror(shared->base), 2;
  if (other != geteuid() && chmod(shared->base, 0777)) return perror(shared->base), 2;
  catch_ends();
  for (int p = 0; p < PROCESSES; p++) {
    pid_t pid = fork();
    if (pid < 0) return perror("fork"), 2;
    if (!pid) {
      if (p == 1 && other != geteuid() && (setgroups(0, 0) || setresgid(other, other, other) || setresuid(other, other, other)))
        return perror("setresuid"), 2;
      if (both && mask >> p & 1 && getenv("FRONT")) execute(p);
      start_process(p, freely ? run_freely : take_turns);
      _exit(0);
    }
  }
  int status, bad = 0;
  while (wait(&status) > 0 || errno == EINTR)
    if (status) bad = 1, fprintf(stderr, "a process ended with status %#x\n", status), __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
  fprintf(stderr, "%llu operations, %llu calls\n", (unsigned long long)shared->next, (unsigned long long)shared->calls);
  return bad || shared->bad;
}
