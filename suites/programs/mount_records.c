/* Processes that work on a mount until they are stopped, or its server ends; what calls had promised is noted in a page outside the
 * volume, which survives everybody.
 *   mount_records run COUNTERS DIR SEED ends|goes-on   3: all met the end of the server (EIO, ECONNABORTED, ENOTCONN, or SIGBUS of a
 *                                                      map); 0: stopped; else something is wrong
 *   mount_records stop COUNTERS
 *   mount_records verify COUNTERS DIR                  checks; prints what is missing
 *   mount_records count COUNTERS                       prints promises of each kind, and calls that met EIO
 * Each process writes records in place and syncs them, stores to a shared map and syncs that, replaces a file (write, fsync, rename,
 * fsync of the directory), and makes files with a number in it. With goes-on, EIO says that what was written may be lost: it is
 * written once more. All writes are at fixed places, so to do them twice does no harm. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, RECORD = 700, RECORDS = 4096, MAP = 64 << 10, KEPT = 32, TRIES = 50 };
struct counters {
  volatile uint64_t records[PROCESSES];  /* whole turns of all places count on */
  volatile uint64_t stored[PROCESSES];   /* the number that all of the map holds at least */
  volatile uint64_t replaced[PROCESSES]; /* generation of the file that is replaced */
  volatile uint64_t made[PROCESSES];     /* files with a number */
  volatile uint64_t refused[PROCESSES];
  volatile uint64_t began[PROCESSES];    /* records that were begun */
  volatile uint32_t stop;
};
static struct counters *c;
static const char *dir;
static int me, goes_on;

static uint64_t word(int p, uint64_t n, uint64_t at) {
  uint64_t x = ((uint64_t)p << 56 ^ n << 24 ^ at) * 0x9e3779b97f4a7c15u;
  return (x ^ x >> 31) | 1;
}
static void fill(void *to, size_t len, int p, uint64_t n) {
  for (size_t at = 0; at + 8 <= len; at += 8) { uint64_t w = word(p, n, at); memcpy((char *)to + at, &w, 8); }
  memcpy(to, &n, 8);
}
static int is(const void *from, size_t len, int p, uint64_t n) {
  unsigned char wanted[8192];
  memset(wanted, 0, sizeof wanted);
  fill(wanted, len & ~7ul, p, n);
  return !memcmp(from, wanted, len & ~7ul);
}
static void path_of(char *out, const char *kind, int p, long n) {
  if (n < 0) snprintf(out, 4096, "%s/%s%d", dir, kind, p);
  else snprintf(out, 4096, "%s/%s%d_%ld", dir, kind, p, n);
}
/* A call has failed. 1: try again. */
static int again(const char *what, int *tries) {
  int error = errno;
  if (!goes_on && (error == EIO || error == ENOTCONN || error == ECONNABORTED)) _exit(3);
  if (goes_on && (error == EIO || error == ESTALE) && ++*tries < TRIES) {
    c->refused[me]++;
    usleep(20000);
    return 1;
  }
  fprintf(stderr, "process %d, %s: %s%s\n", me, what, strerror(error), *tries ? " again and again" : "");
  _exit(2);
}
static int opened(const char *path, int flags) {
  int tries = 0, fd;
  while ((fd = open(path, flags, 0644)) < 0) again(path, &tries);
  return fd;
}
/* Less than all is written only when the rest meets an error, which the next call tells. */
static int wrote(int fd, const unsigned char *bytes, size_t len, off_t at) {
  while (len) {
    ssize_t some = pwrite(fd, bytes, len, at);
    if (some <= 0) return 0;
    bytes += some, len -= (size_t)some, at += some;
  }
  return 1;
}
/* The close of what an fsync has made durable says nothing new; of anything else, what it says counts. */
static int closed(int fd) { return close(fd) == 0 ? 0 : -1; }

static void records(int *fd, const char *path, uint64_t upto) {
  unsigned char record[RECORD & ~7];
  int tries = 0;
  for (;;) {
    uint64_t n = c->records[me];
    for (; n < upto; n++) {
      fill(record, sizeof record, me, n);
      c->began[me] = n + 1 > c->began[me] ? n + 1 : c->began[me];
      if (!wrote(*fd, record, sizeof record, (off_t)(n % RECORDS * sizeof record))) break;
    }
    if (n == upto && (n & 1 ? fsync(*fd) : fdatasync(*fd)) == 0) break;
    again("records", &tries);
    if (tries % 5 == 0) { close(*fd); *fd = opened(path, O_RDWR); }
  }
  c->records[me] = upto;
}
static void store(int fd, unsigned char *map, uint64_t n) {
  int tries = 0;
  for (;;) {
    for (size_t at = 0; at < MAP; at += 4096) { uint64_t w = n; memcpy(map + at + 8 * (n % 512), &w, 8); }
    if (msync(map, MAP, MS_SYNC) == 0) break;
    again("msync", &tries);
  }
  (void)fd;
  c->stored[me] = n;
}
static void replace(uint64_t n) {
  char from[4096], to[4096];
  unsigned char bytes[4096];
  int tries = 0;
  path_of(from, "tmp", me, -1);
  path_of(to, "name", me, -1);
  fill(bytes, sizeof bytes, me, n);
  for (;;) {
    int fd = open(from, O_WRONLY | O_CREAT | O_TRUNC, 0644), ok = fd >= 0;
    ok = ok && wrote(fd, bytes, sizeof bytes, 0) && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0 && closed(fd) && ok) { ok = 0; error = errno; }
    if (ok && rename(from, to)) { ok = 0; error = errno; }
    int top = ok ? open(dir, O_RDONLY | O_DIRECTORY) : -1;
    if (ok && (top < 0 || fsync(top))) { ok = 0; error = errno; }
    if (top >= 0) close(top);
    if (ok) break;
    errno = error;
    again("replace", &tries);
  }
  c->replaced[me] = n;
}
static void make(uint64_t n) {
  char path[4096];
  unsigned char bytes[512];
  int tries = 0;
  fill(bytes, sizeof bytes, me, n);
  path_of(path, "made", me, (long)n);
  for (;;) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644), ok = fd >= 0;
    ok = ok && wrote(fd, bytes, sizeof bytes, 0) && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0 && closed(fd) && ok) { ok = 0; error = errno; }
    if (ok) break;
    errno = error;
    again("make", &tries);
  }
  c->made[me] = n + 1;
  if (n >= KEPT) {
    path_of(path, "made", me, (long)(n - KEPT));
    while (unlink(path) && errno != ENOENT) again("unlink", &tries);
  }
}
/* A page of the map that cannot be had any more. */
static void no_page(int signal) {
  (void)signal;
  if (!goes_on) _exit(3);
  static const char said[] = "SIGBUS: a page of a shared map cannot be had\n";
  if (write(2, said, sizeof said - 1)) {}
  _exit(2);
}
static void work(unsigned seed) {
  signal(SIGBUS, no_page);
  char path[4096];
  srand(seed * 31 + (unsigned)me);
  path_of(path, "records", me, -1);
  int fd = opened(path, O_RDWR | O_CREAT), tries = 0;
  char mapped[4096];
  path_of(mapped, "map", me, -1);
  int map_fd = opened(mapped, O_RDWR | O_CREAT);
  while (ftruncate(map_fd, MAP) || fsync(map_fd)) again("ftruncate", &tries);
  unsigned char *map = mmap(0, MAP, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
  if (map == MAP_FAILED) { perror("mmap"); _exit(2); }
  for (;;) {
    if (c->stop) {
      records(&fd, path, c->records[me] + 1);
      if (close(fd)) { perror("close after fsync"); _exit(2); }
      _exit(0);
    }
    switch (rand() % 8) {
    case 0: store(map_fd, map, c->stored[me] + 1); break;
    case 1: replace(c->replaced[me] + 1); break;
    case 2: make(c->made[me]); break;
    default: records(&fd, path, c->records[me] + 1 + (uint64_t)rand() % 12);
    }
  }
}

static int verify(void) {
  int bad = 0;
  char path[4096];
  for (int p = 0; p < PROCESSES; p++) {
    uint64_t records = c->records[p], began, stored = c->stored[p], replaced = c->replaced[p], made = c->made[p];
    enum { BYTES = RECORD & ~7 };
    unsigned char *all = calloc(RECORDS, BYTES);
    path_of(path, "records", p, -1);
    int fd = open(path, O_RDONLY);
    if (fd < 0 && records) printf("%s: %s, %lu records promised\n", path, strerror(errno), (unsigned long)records), bad++;
    ssize_t have = fd < 0 ? 0 : pread(fd, all, RECORDS * BYTES, 0);
    if (have < 0) printf("%s: %s\n", path, strerror(errno)), bad++;
    began = c->began[p];
    for (uint64_t n = records > RECORDS ? records - RECORDS : 0; fd >= 0 && n < records; n++) {
      /* Perhaps the next turn's already; one that is just being written is either, or both. */
      unsigned char *got = all + n % RECORDS * BYTES;
      uint64_t seen;
      memcpy(&seen, got, 8);
      int is_there = seen % RECORDS == n % RECORDS && seen >= n && seen < began && is(got, BYTES, p, seen);
      if (!is_there && n + RECORDS >= began) {
        printf("%s: record %lu of %lu is missing (%zd bytes, %lu there)\n", path, (unsigned long)n, (unsigned long)records, have, (unsigned long)seen);
        bad++;
        break;
      }
    }
    free(all);
    if (fd >= 0) close(fd);
    path_of(path, "map", p, -1);
    fd = open(path, O_RDONLY);
    unsigned char *page = calloc(1, MAP);
    if (stored && (fd < 0 || pread(fd, page, MAP, 0) != MAP)) printf("%s: %s\n", path, strerror(errno)), bad++;
    for (size_t at = 0; stored && at < MAP; at += 4096)
      for (uint64_t n = stored > 500 ? stored - 500 : 1; n <= stored; n++) {
        uint64_t seen;
        memcpy(&seen, page + at + 8 * (n % 512), 8);
        if (seen < n || seen % 512 != n % 512) {
          printf("%s: store %lu of %lu is missing at %zu, %lu there\n", path, (unsigned long)n, (unsigned long)stored, at, (unsigned long)seen);
          bad++, at = MAP;
          break;
        }
      }
    free(page);
    if (fd >= 0) close(fd);
    unsigned char whole[4096];
    path_of(path, "name", p, -1);
    fd = open(path, O_RDONLY);
    if (replaced) {
      uint64_t seen = 0;
      ssize_t have = fd < 0 ? -1 : pread(fd, whole, sizeof whole, 0);
      if (have == sizeof whole) memcpy(&seen, whole, 8);
      if (have != sizeof whole || seen < replaced || !is(whole, sizeof whole, p, seen))
        printf("%s: %zd bytes, number %lu, of %lu\n", path, have, (unsigned long)seen, (unsigned long)replaced), bad++;
    }
    if (fd >= 0) close(fd);
    for (uint64_t n = made > KEPT - 2 ? made - (KEPT - 2) : 0; n < made; n++) {
      path_of(path, "made", p, (long)n);
      fd = open(path, O_RDONLY);
      ssize_t have = fd < 0 ? -1 : pread(fd, whole, 512, 0);
      if ((have != 512 || !is(whole, 512, p, n)) && n + KEPT > c->made[p])
        printf("%s: %zd bytes of %lu files\n", path, have, (unsigned long)made), bad++;
      if (fd >= 0) close(fd);
    }
  }
  return bad != 0;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof *c)) return perror(argv[2]), 2;
  c = mmap(0, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!strcmp(argv[1], "stop")) return c->stop = 1, 0;
  if (!strcmp(argv[1], "count")) {
    uint64_t sums[5] = {0};
    for (int p = 0; p < PROCESSES; p++)
      sums[0] += c->records[p], sums[1] += c->stored[p], sums[2] += c->replaced[p], sums[3] += c->made[p], sums[4] += c->refused[p];
    for (int i = 0; i < 5; i++) printf("%lu%c", (unsigned long)sums[i], i == 4 ? '\n' : ' ');
    return 0;
  }
  if (argc < 4) return 2;
  dir = argv[3];
  if (!strcmp(argv[1], "verify")) return verify();
  if (argc < 6) return 2;
  goes_on = !strcmp(argv[5], "goes-on");
  c->stop = 0;
  if (mkdir(dir, 0755) && errno != EEXIST) return perror(dir), 2;
  pid_t pids[PROCESSES];
  for (me = 0; me < PROCESSES; me++)
    if ((pids[me] = fork()) == 0) work((unsigned)atoi(argv[4]));
  int worst = 0, same = -1;
  for (int p = 0; p < PROCESSES; p++) {
    int status;
    waitpid(pids[p], &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
    if (same < 0) same = code;
    if (code != same) worst = 2;
  }
  return worst ? worst : same;
}
