/* Memory maps. What is beyond the end of the file's last page is not touched: that is a signal. A map's bytes are looked at
 * when it was just made, and a file's after msync, munmap, or by who maps it. */
#include "differential.h"
#include <sys/mman.h>

enum { PAGE = 4096, MAP_MAX = 1 << 18 };

static void say_map(struct actor *a, const unsigned char *at, size_t len) {
  extra(a, " %016llx", (unsigned long long)hash(at, len));
}

/* What several descriptors say of a range. */
static void say_range(struct actor *a, int fd, off_t at, size_t len) {
  if (len > BUFFER) len = BUFFER;
  ssize_t n = RECORDED(a, pread(fd, a->buffer, len, at), "pread(mapped, %zu, %lld)", len, (long long)at);
  if (n > 0) extra(a, " %016llx", (unsigned long long)hash(a->buffer, n));
}

/* A mount does not hear of maps and splices as of reads, and takes what is read ahead for one. */
void count_access(struct actor *a, int fd) {
  char byte;
  if (at_mount(a)) RECORDED(a, pread(fd, &byte, 1, 0), "pread(%s, 1, 0) that counts", shown_fd(a, fd));
}

static unsigned char *mapped(struct actor *a, int fd, size_t len, int prot, int flags, off_t at) {
  errno = 0;
  unsigned char *map = mmap(0, len, prot, flags, fd, at);
  record(a, map == MAP_FAILED ? -1 : 0, errno, "mmap(%zu, %d, %#x, %s, %lld)", len, prot, flags, shown_fd(a, fd), (long long)at);
  return map == MAP_FAILED ? 0 : map;
}

static void change(struct actor *a, unsigned char *map, size_t usable) {
  for (unsigned i = 1 + below(a, 4); i; i--) {
    size_t at = below(a, usable), len = 1 + below(a, usable - at < 6000 ? usable - at : 6000);
    memset(map + at, below(a, 256), len);
  }
}

/* What was stored in a shared map is only then for programs of the other front. */
static void write_back(struct actor *a, unsigned char *map, size_t len, bool changed) {
  if (shared->both && changed) RECORDED(a, msync(map, len, MS_SYNC), "msync() for the other front");
}

static void op_map(struct actor *a) {
  int fd = a_file(a), prot = PICK(a, PROT_READ, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_NONE);
  int flags = PICK(a, MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED, MAP_SHARED, MAP_SHARED_VALIDATE, 0);
  off_t at = one_in(a, 3) ? below(a, 8) * PAGE : 0;
  size_t len = PICK(a, 1, 100, PAGE, 3 * PAGE, 10 * PAGE, 100000, 0);
  struct stat st;
  if (one_in(a, 30)) at += PICK(a, 1, 512, -PAGE);
  unsigned char *map = mapped(a, fd, len, prot, flags, at);
  if (!map) return;
  count_access(a, fd);
  if (fstat(fd, &st)) st.st_size = 0;
  size_t there = st.st_size > at ? (size_t)(st.st_size - at) : 0, whole = (len + PAGE - 1) & -PAGE;
  size_t usable = there < len ? there : len, touchable = (there + PAGE - 1) & -PAGE;
  bool is_shared = flags != MAP_PRIVATE, readable = prot & PROT_READ, writable = prot & PROT_WRITE;
  if (readable && usable) {
    RECORDED(a, 0, "the map has");
    say_map(a, map, touchable < whole ? touchable : whole);
  }
  if (writable && usable) {
    change(a, map, usable);
    RECORDED(a, 0, "changed, it has");
    say_map(a, map, usable);
    if (is_shared && one_in(a, 2)) {
      int how = PICK(a, MS_SYNC, MS_SYNC, MS_ASYNC, MS_SYNC | MS_INVALIDATE);
      RECORDED(a, msync(map, whole, how), "msync(%zu, %d)", whole, how);
      if (how != MS_ASYNC) say_range(a, fd, at, usable);
    } else if (!is_shared) {
      say_range(a, fd, at, usable);
    }
    /* A write is seen by who maps the file. */
    if (is_shared && one_in(a, 3) && there > 100) {
      fill(a, 100);
      if (RECORDED(a, pwrite(fd, a->buffer, 100, at), "pwrite(mapped, 100, %lld)", (long long)at) == 100) {
        RECORDED(a, 0, "then the map has");
        say_map(a, map, usable < 100 ? usable : 100);
      }
    }
    if (is_shared && !shared->free_running && one_in(a, 12)) {
      flush_records(a);
      pid_t pid = fork();
      if (!pid) { memset(map, 'c', usable); _exit(0); }
      if (pid > 0) wait_for(pid);
      RECORDED(a, 0, "changed by a child, it has");
      say_map(a, map, usable);
    }
  }
  if (one_in(a, 10)) RECORDED(a, msync(map, whole, PICK(a, 64, MS_SYNC | MS_ASYNC, 0)), "msync() with odd flags");
  if (one_in(a, 6)) RECORDED(a, mprotect(map, whole, PROT_READ | PROT_WRITE), "mprotect(rw)");
  if (one_in(a, 10)) RECORDED(a, madvise(map, whole, PICK(a, MADV_WILLNEED, MADV_SEQUENTIAL, MADV_NORMAL)), "madvise()");
  write_back(a, map, whole, is_shared && writable && usable);
  if (whole > PAGE && one_in(a, 5)) {
    RECORDED(a, munmap(map, PAGE), "munmap(the first page)");
    RECORDED(a, munmap(map + PAGE, whole - PAGE), "munmap(the rest)");
  } else {
    RECORDED(a, munmap(map, len), "munmap()");
  }
  if (is_shared && usable) say_range(a, fd, at, usable);
}

/* The same file mapped twice, and closed before the maps go. */
static void op_two_maps(struct actor *a) {
  const char *p = a_path(a, A_FILE);
  int fd = DESCRIPTOR(a, open(p, O_RDWR | O_CREAT, 0644), "open(%s)", shown(a, p));
  if (fd < 0) return;
  size_t len = PAGE * (1 + below(a, 5));
  struct stat st;
  if (!fstat(fd, &st) && st.st_size < (off_t)len) RECORDED(a, ftruncate(fd, len), "ftruncate(%zu)", len);
  unsigned char *one = mapped(a, fd, len, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
  unsigned char *two = mapped(a, fd, len, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
  if (one && two) {
    change(a, one, len);
    RECORDED(a, 0, "the other map has");
    say_map(a, two, len);
    RECORDED(a, msync(one, len, MS_SYNC), "msync()");
    say_range(a, fd, 0, len);
    RECORDED(a, close(fd), "close(mapped)");
    fd = -1;
    change(a, two, len);
    RECORDED(a, 0, "the first map has");
    say_map(a, one, len);
  }
  if (one) write_back(a, one, len, true);
  if (one) RECORDED(a, munmap(one, len), "munmap(one)");
  if (two) RECORDED(a, munmap(two, len), "munmap(two)");
  if (fd >= 0) RECORDED(a, close(fd), "close(mapped)");
  fd = DESCRIPTOR(a, open(p, O_RDONLY), "open(%s)", shown(a, p));
  if (fd < 0) return;
  say_range(a, fd, 0, len);
  RECORDED(a, close(fd), "close()");
}

const struct operation map_operations[] = {{"map", 15, op_map}, {"two_maps", 3, op_two_maps}, {0}};
