/* Threads that all wait for one lock of a file, each by an open file of its own, add to a number in it when they have it.
   many_locks FILE THREADS HOW     HOW: flock, or ofd for a record lock of the open file. Prints nothing; the number has grown by THREADS. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *path;
static int is_flock;

static void stop(const char *what) {
  fprintf(stderr, "many_locks: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void lock(int fd, int takes) {
  struct flock record = {.l_type = takes ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET, .l_len = 1};
  if (is_flock ? flock(fd, takes ? LOCK_EX : LOCK_UN) : fcntl(fd, F_OFD_SETLKW, &record)) stop("lock");
}

static int opened(void) {
  int fd = open(path, O_RDWR | O_CREAT, 0666);
  if (fd < 0) stop(path);
  return fd;
}

static void *add(void *none) {
  int fd = opened();
  long number = 0;
  lock(fd, 1);
  if (pread(fd, &number, sizeof number, 0) < 0) stop("read");
  number++;
  if (pwrite(fd, &number, sizeof number, 0) != sizeof number) stop("write");
  lock(fd, 0);
  close(fd);
  return none;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  path = argv[1];
  int threads = atoi(argv[2]), fd = opened();
  is_flock = !strcmp(argv[3], "flock");
  pthread_t *all = malloc(threads * sizeof *all);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 1 << 16);
  /* All wait for this one first. */
  lock(fd, 1);
  for (int i = 0; i < threads; i++)
    if ((errno = pthread_create(&all[i], &small, add, NULL))) stop("thread");
  sleep(1);
  lock(fd, 0);
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  return 0;
}
