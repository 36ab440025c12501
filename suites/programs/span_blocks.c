/* Writes runs of whole blocks, in the file, across its end and behind it, until it is killed; what has been promised is counted
 * outside the volume.
 *   span_blocks write COUNTERS FILE SEED THREADS    writes until it is killed; each thread has every THREADS-th run of blocks
 *   span_blocks verify COUNTERS FILE                each block is what was promised, or was under way; prints what is not
 * A block holds its number and a version, again and again. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "records.h"

enum { BLOCK = 4096, BLOCKS = 1 << 14, RUN = 12, THREADS_MAX = 4 };
struct counters { _Atomic uint64_t promised[BLOCKS], tried[BLOCKS], writes, blocks; };
static struct counters *c;
static int fd, threads;
static uint64_t seed;

static void fill_block(unsigned char *out, uint64_t block, uint64_t version) {
  uint64_t words[2] = { block, version };
  for (int i = 0; i < BLOCK; i += 16) memcpy(out + i, words, 16);
}

/* A thread owns stripes of 64 blocks; runs stay within one. Most are near the end of what the thread has written. */
static void *write_all(void *number) {
  static unsigned char buffers[THREADS_MAX][RUN * BLOCK];
  uint64_t t = (uintptr_t)number, state = seed * 1000 + t, version = 0, end = 0;
  unsigned char *buffer = buffers[t];
  for (;;) {
    uint64_t r = mix(state += 0x9e3779b97f4a7c15ull);
    uint64_t at = r % 4 ? (end > 8 ? end - 8 : 0) + r / 4 % 16 : r / 4 % (end + 1), count = 1 + (r >> 40) % RUN;
    if (r % 64 == 5) at = 0, count = 2; /* as the header of a database */
    if (at >= BLOCKS / threads) { end = 0; continue; }
    uint64_t block = at / 64 * 64 * threads + t * 64 + at % 64;
    if (count > 64 - at % 64) count = 64 - at % 64;
    version++;
    for (uint64_t i = 0; i < count; i++) fill_block(buffer + i * BLOCK, block + i, version), c->tried[block + i] = version;
    ssize_t n = pwrite(fd, buffer, count * BLOCK, block * BLOCK);
    if (n != (ssize_t)(count * BLOCK)) { printf("pwrite: %zd, %s\n", n, strerror(errno)); exit(5); }
    for (uint64_t i = 0; i < count; i++) c->promised[block + i] = version;
    if (at + count > end) end = at + count;
    c->writes += 1;
    c->blocks += count;
  }
}

static int verify(void) {
  unsigned char got[BLOCK], want[BLOCK];
  int bad = 0;
  for (uint64_t block = 0; block < BLOCKS; block++) {
    uint64_t promised = c->promised[block], tried = c->tried[block], words[2] = { 0 };
    if (!promised) continue;
    if (pread(fd, got, BLOCK, block * BLOCK) != BLOCK) { bad++; printf("block %llu is not there\n", (unsigned long long)block); continue; }
    memcpy(words, got, 16);
    fill_block(want, block, words[1]);
    if (memcmp(got, want, BLOCK) || (words[1] != promised && words[1] != tried)) {
      if (bad++ < 10) printf("block %llu has %llu of %llu, promised %llu, tried %llu\n", (unsigned long long)block,
        (unsigned long long)words[1], (unsigned long long)words[0], (unsigned long long)promised, (unsigned long long)tried);
    }
  }
  printf("%llu writes, %llu blocks\n", (unsigned long long)c->writes, (unsigned long long)c->blocks);
  return bad != 0;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int cfd = open(argv[2], O_RDWR | O_CREAT, 0600);
  if (cfd < 0 || ftruncate(cfd, sizeof *c)) return perror(argv[2]), 2;
  c = mmap(0, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, cfd, 0);
  if (!strcmp(argv[1], "verify")) {
    if ((fd = open(argv[3], O_RDONLY)) < 0) return c->writes ? (perror(argv[3]), 1) : 0;
    return verify();
  }
  if (argc < 6 || (fd = open(argv[3], O_RDWR | O_CREAT, 0644)) < 0) return perror(argv[3]), 2;
  seed = strtoull(argv[4], 0, 10), threads = atoi(argv[5]);
  pthread_t all[THREADS_MAX];
  for (int i = 0; i < threads; i++) pthread_create(&all[i], 0, write_all, (void *)(uintptr_t)i);
  for (int i = 0; i < threads; i++) pthread_join(all[i], 0);
  return 0;
}
