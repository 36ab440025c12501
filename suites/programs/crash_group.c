/* Several processes that write a volume by every way until they are killed, and what became of it. What has been promised
 * is counted in a page outside the volume, which survives them all.
 *   crash_group run COUNTERS DIR SEED sync|nosync [writers|maps]  starts the processes and waits for them
 *   crash_group started COUNTERS                   waits until all of them work
 *   crash_group kill COUNTERS SEED                 SIGKILLs one of them or all; returns what it did
 *   crash_group stop COUNTERS                      tells the others to end
 *   crash_group count COUNTERS                     records, overwrites, stores made; slots of the map ever synced
 *   crash_group verify COUNTERS DIR written|synced [writers|maps]  checks; prints what is wrong
 *
 * Writers, five threads in three processes:
 *   own files     appended; read back by the writer, which must see what it wrote
 *   one shared file, O_APPEND, through descriptors of their own and through an inherited one
 *   slot files    8 bytes overwritten in place
 * Mappers, four in two processes and a child that inherits its map: 8 byte slots of one shared file, those of all mappers
 * mixed on every page, stored through MAP_SHARED and synced by msync; one mapper maps anew now and then, a longer file each
 * time, and stores to what was added.
 *
 * Exit status of run: 0 all well; 3 all who were left got EIO, and after it nothing but EIO; 4 wrong data; 5 another error;
 * 6 a process hangs. A process that was killed by crash_group counts as well. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "records.h"

enum { WRITERS = 5, MAPPERS = 4, PROCESSES = 7, SLOTS = 1024, MAP_SLOTS = 8192, PAGES_MAX = 64, SHARED = 100, BYTES_MAX = 12 << 20 };
enum { FINE = 0, GONE = 3, WRONG = 4, BROKEN = 5, HANGS = 6 };

struct counters {
  _Atomic uint64_t written[WRITERS], written_synced[WRITERS];     /* records in the own file */
  _Atomic uint64_t shared[WRITERS], shared_synced[WRITERS];       /* own records in the shared file */
  _Atomic uint64_t tried[WRITERS], slot[WRITERS][SLOTS], slot_synced[WRITERS][SLOTS];
  _Atomic uint64_t map_tried[MAPPERS], stored[MAP_SLOTS], stored_synced[MAP_SLOTS];
  _Atomic int pid[PROCESSES], killed[PROCESSES], working, expected, stop, gone;
};
static struct counters *c;
static const char *dir;
static int syncing;

/* A record of the shared file tells who wrote it. */
struct head { uint32_t magic, writer; uint64_t number, bytes; };
enum { MAGIC = 0x77656674 };

static const char *path_of(char *out, const char *kind, int number) {
  snprintf(out, 4096, "%s/%s%d", dir, kind, number);
  return out;
}
static uint64_t random_of(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15ull); }
static void nap(long us) { struct timespec t = { us / 1000000, us % 1000000 * 1000 }; nanosleep(&t, 0); }

/* ---- after the server went: nothing but EIO, whatever is tried, however long ---- */

static int is_gone(int *fds, int count, const char *file) {
  atomic_fetch_add(&c->gone, 1);
  do {
    char byte;
    struct stat st;
    for (int i = 0; i < count; i++) {
      if (pread(fds[i], &byte, 1, 0) != -1 || errno != EIO) return printf("pread after EIO: %s\n", strerror(errno)), WRONG;
      if (write(fds[i], "x", 1) != -1 || errno != EIO) return printf("write after EIO: %s\n", strerror(errno)), WRONG;
      if (fsync(fds[i]) != -1 || errno != EIO) return printf("fsync after EIO: %s\n", strerror(errno)), WRONG;
    }
    if (stat(file, &st) != -1 || errno != EIO) return printf("stat after EIO: %s\n", strerror(errno)), WRONG;
    int fd = open(file, O_RDWR);
    if (fd != -1 || errno != EIO) return printf("open after EIO: %s\n", strerror(errno)), WRONG;
    nap(2000);
  } while (!c->stop);
  return GONE;
}

/* ---- writers ---- */

struct writer { int number, shared_fd, status; uint64_t seed; };

#define OR_EIO(what, wanted) do { if ((what) != (wanted)) { if (errno == EIO) goto gone; \
    printf("writer %d: %s: %s\n", w, #what, strerror(errno)); return BROKEN; } } while (0)

static int write_all(struct writer *self) {
  int w = self->number, own, slots, shared = self->shared_fd, fds[3];
  char path[4096];
  unsigned char record[RECORD_MAX + sizeof(struct head)], got[RECORD_MAX];
  /* Where the records of the own file begin, for reading back. */
  static uint64_t begins[WRITERS][1 << 16];
  uint64_t *begin = begins[w], state = self->seed * 1000 + w, bytes = 0, shared_bytes = 0;
  if (shared < 0) OR_EIO((shared = open(path_of(path, "shared", 0), O_RDWR | O_APPEND)) >= 0, 1);
  OR_EIO((own = open(path_of(path, "own", w), O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0, 1);
  OR_EIO((slots = open(path_of(path, "slots", w), O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0, 1);
  fds[0] = own, fds[1] = slots, fds[2] = shared;
  atomic_fetch_add(&c->working, 1);
  while (!c->stop) {
    uint64_t n = c->written[w], choice = random_of(&state) % 16;
    if (choice < 6 && bytes < BYTES_MAX && n < 1 << 16) {
      size_t len = fill(record, w, n);
      OR_EIO(write(own, record, len), (ssize_t)len);
      begin[n] = bytes;
      bytes += len;
      c->written[w] = n + 1;
    } else if (choice < 10 && shared_bytes < BYTES_MAX) {
      n = c->shared[w];
      size_t len = fill(record + sizeof(struct head), SHARED + w, n);
      struct head head = { MAGIC, w, n, len };
      memcpy(record, &head, sizeof head);
      OR_EIO(write(shared, record, sizeof head + len), (ssize_t)(sizeof head + len));
      shared_bytes += len;
      c->shared[w] = n + 1;
    } else if (choice < 12) {
      uint64_t value = ++c->tried[w], at = random_of(&state) % SLOTS;
      OR_EIO(pwrite(slots, &value, 8, at * 8), 8);
      c->slot[w][at] = value;
    } else if (choice < 14 && n > 0) {
      n = random_of(&state) % n;
      size_t len = fill(record, w, n);
      OR_EIO(pread(own, got, len, begin[n]), (ssize_t)len);
      if (memcmp(got, record, len)) return printf("writer %d: read record %llu wrong\n", w, (unsigned long long)n), WRONG;
    } else if (choice == 14) {
      uint64_t value = 0, at = random_of(&state) % SLOTS, before = c->slot[w][at];
      if (!before) continue;
      OR_EIO(pread(slots, &value, 8, at * 8), 8);
      if (value != before) return printf("writer %d: slot %llu reads %llu, not %llu\n", w, (unsigned long long)at,
        (unsigned long long)value, (unsigned long long)before), WRONG;
    } else if (syncing && random_of(&state) % 4 == 0) {
      uint64_t own_count = c->written[w], shared_count = c->shared[w];
      OR_EIO(fdatasync(own), 0);
      c->written_synced[w] = own_count;
      OR_EIO(fsync(shared), 0);
      c->shared_synced[w] = shared_count;
      OR_EIO(fsync(slots), 0);
      for (int i = 0; i < SLOTS; i++) c->slot_synced[w][i] = c->slot[w][i];
    }
  }
  return FINE;
gone:
  return is_gone(fds, 3, path_of(path, "own", w));
}

static void *write_thread(void *self) {
  ((struct writer *)self)->status = write_all(self);
  return 0;
}

/* ---- mappers ---- */

struct mapper { int number, fd, anew, status; volatile uint64_t *map; uint64_t seed; };

static int map_all(struct mapper *self) {
  int m = self->number, fd = self->fd;
  char path[4096];
  volatile uint64_t *map = self->map;
  size_t len = MAP_SLOTS * 8;
  int longer = 0;
  uint64_t state = self->seed * 2000 + m;
  static uint64_t seen[MAPPERS][MAP_SLOTS];
  if (fd < 0 && (fd = open(path_of(path, "map", 0), O_RDWR)) < 0) {
    if (errno == EIO) return is_gone(0, 0, path);
    return perror("open of the map's file"), BROKEN;
  }
  if (!map) {
    map = mmap(0, MAP_SLOTS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) { if (errno == EIO) return is_gone(&fd, 1, path_of(path, "map", 0)); return perror("mmap"), BROKEN; }
  }
  atomic_fetch_add(&c->working, 1);
  while (!c->stop) {
    uint64_t at = random_of(&state) % (MAP_SLOTS / MAPPERS) * MAPPERS + m, choice = random_of(&state) % 512;
    if (map[at] < c->stored[at]) return printf("mapper %d: slot %llu has %llu, stored was %llu\n", m, (unsigned long long)at,
      (unsigned long long)map[at], (unsigned long long)c->stored[at]), WRONG;
    uint64_t value = ++c->map_tried[m];
    map[at] = value;
    c->stored[at] = value;
    if (choice < 2) { /* a part, so that pages of several mappers are written back at once */
      uint64_t from = random_of(&state) % 8 * (MAP_SLOTS / 8), part = MAP_SLOTS / 8;
      for (uint64_t i = from + m; i < from + part; i += MAPPERS) seen[m][i] = c->stored[i];
      if (msync((void *)(map + from), part * 8, choice ? MS_SYNC : MS_ASYNC)) { if (errno == EIO) goto gone; return perror("msync"), BROKEN; }
      if (choice) for (uint64_t i = from + m; i < from + part; i += MAPPERS) c->stored_synced[i] = seen[m][i];
    } else if (choice == 2 && self->anew) {
      if (munmap((void *)map, len)) return perror("munmap"), BROKEN;
      longer = (longer + 1) % PAGES_MAX;
      /* Its length is never synced by itself, so another server may know a shorter file. */
      len = MAP_SLOTS * 8 + longer * 4096;
      map = ftruncate(fd, len) ? MAP_FAILED : mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (map == MAP_FAILED) {
        if (errno != EIO) return perror("mmap"), BROKEN;
        return is_gone(&fd, 1, path_of(path, "map", 0));
      }
      for (int i = 0; i < longer; i++) map[MAP_SLOTS + i * 512 + 511] = longer;
    } else if (choice == 3) { /* a read sees what was stored */
      uint64_t before = c->stored[at], got = 0;
      if (pread(fd, &got, 8, at * 8) != 8) { if (errno == EIO) goto gone; return perror("pread"), BROKEN; }
      if (got < before) return printf("mapper %d: slot %llu reads %llu, stored was %llu\n", m, (unsigned long long)at,
        (unsigned long long)got, (unsigned long long)before), WRONG;
    } else if (choice < 16) nap(50);
  }
  return FINE;
gone:
  { /* the memory is still there */
    int status = is_gone(&fd, 1, path_of(path, "map", 0));
    for (int i = 0; i < longer; i++) map[MAP_SLOTS + i * 512 + 511] += 1;
    for (uint64_t i = m; i < MAP_SLOTS; i += MAPPERS)
      if (map[i] < c->stored[i]) return printf("mapper %d: after EIO slot %llu has changed\n", m, (unsigned long long)i), WRONG;
    return status;
  }
}

static void *map_thread(void *self) {
  ((struct mapper *)self)->status = map_all(self);
  return 0;
}

/* ---- the processes ---- */

static int worse(int a, int b) { return a > b ? a : b; }

static int writer_process(int first, int count, int shared_fd, uint64_t seed) {
  struct writer writers[2];
  pthread_t threads[2];
  int status = 0;
  for (int i = 0; i < count; i++) {
    writers[i] = (struct writer){ first + i, shared_fd, 0, seed };
    pthread_create(&threads[i], 0, write_thread, &writers[i]);
  }
  for (int i = 0; i < count; i++) pthread_join(threads[i], 0), status = worse(status, writers[i].status);
  return status;
}

static int two_mappers(uint64_t seed) {
  struct mapper mappers[2] = { { 0, -1, 0, 0, 0, seed }, { 1, -1, 1, 0, 0, seed } };
  pthread_t threads[2];
  int status = 0;
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, map_thread, &mappers[i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], 0), status = worse(status, mappers[i].status);
  return status;
}

/* Maps, forks, and both go on with the map; the child is left to whoever waits for orphans. */
static int mapper_and_child(uint64_t seed) {
  char path[4096];
  struct mapper self = { 2, open(path_of(path, "map", 0), O_RDWR), 0, 0, 0, seed };
  void *map = self.fd < 0 ? MAP_FAILED : mmap(0, MAP_SLOTS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0);
  if (map == MAP_FAILED) { if (errno == EIO) return is_gone(0, 0, path); return perror("map"), BROKEN; }
  self.map = map;
  if (!fork()) {
    c->pid[5] = getpid();
    self.number = 3;
  }
  return map_all(&self);
}

static int number_of(int pid) {
  for (int i = 0; i < PROCESSES; i++) if (c->pid[i] == pid) return i;
  return PROCESSES - 1;
}

static int run(uint64_t seed, int writers, int maps) {
  char path[4096];
  mkdir(dir, 0755);
  c->pid[6] = getpid();
  int shared = open(path_of(path, "shared", 0), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
  int map = open(path_of(path, "map", 0), O_RDWR | O_CREAT, 0644);
  if (shared < 0 || map < 0 || ftruncate(map, 0) || ftruncate(map, MAP_SLOTS * 8)) return perror(path), BROKEN;
  if (syncing && (fsync(map) || fsync(shared))) return perror("fsync"), BROKEN;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (int i = writers ? 0 : 3; i < (maps ? 5 : 3); i++) {
    if (fork()) continue;
    c->pid[i] = getpid();
    int status = i == 0 ? writer_process(0, 2, -1, seed) : i == 1 ? writer_process(2, 2, -1, seed)
      : i == 2 ? writer_process(4, 1, shared, seed) : i == 3 ? two_mappers(seed) : mapper_and_child(seed);
    fflush(stdout);
    exit(status);
  }
  c->expected = writers * WRITERS + maps * MAPPERS;
  int all = FINE, patience = 20000;
  for (;;) {
    int status, pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0) return all;
    if (pid > 0) {
      int number = number_of(pid);
      if (WIFSIGNALED(status) && !(WTERMSIG(status) == SIGKILL && c->killed[number]))
        printf("process %d ended by signal %d\n", number, WTERMSIG(status)), all = worse(all, BROKEN);
      if (WIFEXITED(status)) all = worse(all, WEXITSTATUS(status));
      continue;
    }
    nap(1000);
    if (c->stop && --patience < 0) {
      for (int i = 0; i < PROCESSES - 1; i++) if (c->pid[i] && !kill(c->pid[i], SIGKILL)) printf("process %d hung\n", i);
      return HANGS;
    }
  }
}

/* ---- from outside ---- */

static int started(void) {
  for (int i = 0; i < 20000; i++, nap(1000)) if (c->expected && c->working >= c->expected) return 0;
  return printf("%d of %d work\n", c->working, c->expected), 1;
}

static int kill_some(uint64_t seed) {
  uint64_t choice = mix(seed) % 8;
  int first = 0, last = PROCESSES - 1;
  if (choice < 6) first = last = choice; /* else all of them, and who waits for them */
  /* The process that waits for the others goes first: it would end by itself after the last of them. */
  for (int i = last; i >= first; i--) {
    if (!c->pid[i]) continue;
    c->killed[i] = 1;
    kill(c->pid[i], SIGKILL);
  }
  puts(choice < 6 ? "one" : "all");
  return 0;
}

/* ---- what is left ---- */

static int bad;
__attribute__((format(printf, 1, 2))) static void is_bad(const char *format, ...) {
  va_list list;
  if (bad++ >= 10) return;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  putchar('\n');
}
typedef unsigned long long ull;

static void check_own(int w, int synced) {
  char path[4096];
  unsigned char record[RECORD_MAX], got[RECORD_MAX];
  uint64_t want = synced ? c->written_synced[w] : c->written[w], n = 0;
  FILE *in = fopen(path_of(path, "own", w), "r");
  if (!in) { if (want) is_bad("%s: %s, %llu records promised", path, strerror(errno), (ull)want); return; }
  for (;; n++) {
    size_t len = fill(record, w, n), have = fread(got, 1, len, in);
    if (memcmp(got, record, have)) { is_bad("%s: record %llu is wrong", path, (ull)n); break; }
    if (have < len) break;
  }
  if (n < want || n > c->written[w] + 1)
    is_bad("%s: %llu records, %llu promised, %llu written", path, (ull)n, (ull)want, (ull)c->written[w]);
  fclose(in);
}

static void check_slots(int w, int synced) {
  char path[4096];
  uint64_t got[SLOTS] = { 0 };
  int fd = open(path_of(path, "slots", w), O_RDONLY);
  if (fd < 0 && errno == ENOENT) fd = -1;
  else if (fd < 0 || pread(fd, got, sizeof got, 0) < 0) return is_bad("%s: %s", path, strerror(errno));
  for (int i = 0; i < SLOTS; i++) {
    uint64_t want = synced ? c->slot_synced[w][i] : c->slot[w][i];
    if (got[i] < want || got[i] > c->tried[w])
      is_bad("%s: slot %d has %llu, promised %llu, tried %llu", path, i, (ull)got[i], (ull)want, (ull)c->tried[w]);
  }
  close(fd);
}

static void check_shared(int synced) {
  char path[4096];
  unsigned char record[RECORD_MAX], got[RECORD_MAX];
  uint64_t next[WRITERS] = { 0 };
  FILE *in = fopen(path_of(path, "shared", 0), "r");
  if (!in) return is_bad("%s: %s", path, strerror(errno));
  for (;;) {
    struct head head;
    size_t have = fread(&head, 1, sizeof head, in);
    long at = ftell(in);
    if (have == 0) break;
    if (have == sizeof head) {
      if (head.magic != MAGIC || head.writer >= WRITERS) { is_bad("%s: no record before %ld", path, at); break; }
      if (head.number != next[head.writer]) {
        is_bad("%s: writer %u's record %llu comes after %llu others", path, head.writer, (ull)head.number, (ull)next[head.writer]);
        break;
      }
      size_t len = fill(record, SHARED + head.writer, head.number);
      have = fread(got, 1, len, in);
      if (memcmp(got, record, have)) { is_bad("%s: bytes before %ld are wrong", path, ftell(in)); break; }
      if (have == len) { next[head.writer]++; continue; }
    }
    /* Only a server that is killed may leave a part of the last record. */
    if (!synced) is_bad("%s: a torn record at %ld", path, at);
    break;
  }
  for (int w = 0; w < WRITERS; w++) {
    uint64_t want = synced ? c->shared_synced[w] : c->shared[w];
    if (next[w] < want || next[w] > c->shared[w] + 1)
      is_bad("%s: %llu records of writer %d, %llu promised, %llu written", path, (ull)next[w], w, (ull)want, (ull)c->shared[w]);
  }
  fclose(in);
}

static void compare_map(const char *how, const volatile uint64_t *got, int synced) {
  for (int i = 0; i < MAP_SLOTS; i++) {
    uint64_t want = synced ? c->stored_synced[i] : c->stored[i], most = c->map_tried[i % MAPPERS];
    if (got[i] < want || got[i] > most)
      is_bad("map, %s: slot %d has %llu, promised %llu, tried %llu", how, i, (ull)got[i], (ull)want, (ull)most);
  }
}

static void check_map(int synced) {
  char path[4096];
  static uint64_t before[MAP_SLOTS], after[MAP_SLOTS];
  int fd = open(path_of(path, "map", 0), O_RDWR);
  if (fd < 0 || pread(fd, before, sizeof before, 0) != sizeof before) return is_bad("%s: %s", path, strerror(errno));
  /* What was synced is there for who only reads; what was only stored is when the file is mapped. */
  compare_map("read", before, 1);
  volatile uint64_t *map = mmap(0, MAP_SLOTS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return is_bad("%s: mmap: %s", path, strerror(errno));
  compare_map("mapped", map, synced);
  if (pread(fd, after, sizeof after, 0) != sizeof after) return is_bad("%s: %s", path, strerror(errno));
  for (int i = 0; i < MAP_SLOTS; i++)
    if (after[i] != map[i]) is_bad("map: slot %d is %llu, read as %llu", i, (ull)map[i], (ull)after[i]);
  munmap((void *)map, MAP_SLOTS * 8);
  close(fd);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const char *what = argv[1], *kinds = "";
  int cfd = open(argv[2], O_RDWR | O_CREAT, 0600);
  if (cfd < 0 || ftruncate(cfd, sizeof *c)) return perror(argv[2]), 2;
  c = mmap(0, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, cfd, 0);
  dir = argc > 3 ? argv[3] : "";
  setvbuf(stdout, 0, _IOLBF, 0);
  if (!strcmp(what, "run") && argc > 5) {
    syncing = !strcmp(argv[5], "sync");
    if (argc > 6) kinds = argv[6];
    return run(strtoull(argv[4], 0, 10), strcmp(kinds, "maps") != 0, strcmp(kinds, "writers") != 0);
  }
  if (!strcmp(what, "started")) return started();
  if (!strcmp(what, "kill") && argc > 3) return kill_some(strtoull(argv[3], 0, 10));
  if (!strcmp(what, "stop")) { c->stop = 1; return 0; }
  if (!strcmp(what, "verify") && argc > 4) {
    int synced = !strcmp(argv[4], "synced");
    if (argc > 5) kinds = argv[5];
    for (int w = 0; w < WRITERS && strcmp(kinds, "maps"); w++) check_own(w, synced), check_slots(w, synced);
    if (strcmp(kinds, "maps")) check_shared(synced);
    if (strcmp(kinds, "writers")) check_map(synced);
    return bad != 0;
  }
  if (!strcmp(what, "count")) { /* records, overwrites and stores that were made, and how many of the stores were synced */
    uint64_t n[4] = { 0 };
    for (int w = 0; w < WRITERS; w++) n[0] += c->written[w] + c->shared[w], n[1] += c->tried[w];
    for (int m = 0; m < MAPPERS; m++) n[2] += c->map_tried[m];
    for (int i = 0; i < MAP_SLOTS; i++) n[3] += c->stored_synced[i] != 0;
    printf("%llu %llu %llu %llu\n", (ull)n[0], (ull)n[1], (ull)n[2], (ull)n[3]);
    return 0;
  }
  return 2;
}
