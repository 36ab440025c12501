/* Appends numbered records to files until it is killed. After each write that returned, the number of records that
 * are accepted (and, with "sync", synced) is stored in a page outside the volume, which survives the process.
 *   append_records COUNTERS DIR FILES sync|nosync SEED     writes
 *   append_records COUNTERS DIR FILES verify-written|verify-synced   checks; prints what is missing */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "records.h"

enum { FILES_MAX = 16 };
struct counters { volatile uint64_t written[FILES_MAX], synced[FILES_MAX], generation; };

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  int cfd = open(argv[1], O_RDWR | O_CREAT, 0600);
  if (cfd < 0 || ftruncate(cfd, sizeof(struct counters))) return perror(argv[1]), 2;
  struct counters *c = mmap(0, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, cfd, 0);
  int files = atoi(argv[3]), sync = !strcmp(argv[4], "sync");
  unsigned char record[RECORD_MAX];
  int bad = 0;
  if (!strncmp(argv[4], "verify", 6)) {
    int synced = !strcmp(argv[4], "verify-synced");
    for (int f = 0; f < files; f++) {
      char path[4096];
      snprintf(path, sizeof path, "%s/f%d", argv[2], f);
      uint64_t want = synced ? c->synced[f] : c->written[f], n = 0;
      FILE *in = fopen(path, "r");
      if (!in) { if (want) printf("%s: %s, %llu records promised\n", path, strerror(errno), (unsigned long long)want), bad++; continue; }
      unsigned char got[RECORD_MAX];
      for (;; n++) {
        size_t len = fill(record, f, n), have = fread(got, 1, len, in);
        if (have < len) { /* a torn last record: only ever a prefix of the right bytes */
          if (memcmp(got, record, have)) printf("%s: record %llu is torn with wrong bytes\n", path, (unsigned long long)n), bad++;
          break;
        }
        if (memcmp(got, record, len)) { printf("%s: record %llu is wrong\n", path, (unsigned long long)n), bad++; break; }
      }
      if (n < want) printf("%s: %llu records, %llu promised\n", path, (unsigned long long)n, (unsigned long long)want), bad++;
      fclose(in);
    }
    return bad != 0;
  }
  srand(argc > 5 ? atoi(argv[5]) : 1);
  mkdir(argv[2], 0755);
  int fd[FILES_MAX];
  for (int f = 0; f < files; f++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/f%d", argv[2], f);
    fd[f] = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd[f] < 0) return perror(path), 2;
    c->written[f] = c->synced[f] = 0;
  }
  for (;;) {
    int f = rand() % files;
    size_t len = fill(record, f, c->written[f]);
    if (write(fd[f], record, len) != (ssize_t)len) { if (errno == EIO) return 3; return perror("write"), 2; }
    c->written[f]++;
    if (sync && rand() % 8 == 0) {
      uint64_t n = c->written[f];
      if (fdatasync(fd[f])) { if (errno == EIO) return 3; return perror("fdatasync"), 2; }
      c->synced[f] = n;
    }
  }
}
