/* Streams: opened by name or on a descriptor, used as a program may (a position or a flush between writing and reading),
 * closed. How far a stream reads ahead and what it keeps back is libc's affair: the file is looked at after a flush. */
#include "differential.h"

enum { NOTHING, READING, WRITING };

/* A stream and what it did last. */
struct stream { FILE *f; int last; bool readable; };

static const char *const modes[] = {"r", "r+", "w", "w+", "a", "a+", "rb", "r+b", "wx", "w+x", "re", "a+e", "r", "r+", "w+", "r+", "a+", "q", ""};
enum { MODES = sizeof modes / sizeof *modes };

/* Of a stream that only writes, libc's fread reads whole buffers all the same. */
static bool can_read(const char *mode) { return *mode == 'r' || strchr(mode, '+'); }

static void say_bytes(struct actor *a, const void *bytes, ssize_t n) {
  if (n > 0) extra(a, " %016llx", (unsigned long long)hash(bytes, n));
}

static void say_state(struct actor *a, FILE *f) { extra(a, "%s%s", feof(f) ? " end" : "", ferror(f) ? " error" : ""); }

/* Before reading or writing: what has to come between the two. */
static void turn(struct actor *a, struct stream *s, int next) {
  if (s->last && s->last != next) {
    if (s->last == WRITING && one_in(a, 2)) RECORDED(a, fflush(s->f), "fflush()");
    else RECORDED(a, fseek(s->f, 0, SEEK_CUR), "fseek(0, SEEK_CUR)");
  }
  s->last = next;
}

static void some_reading(struct actor *a, struct stream *s) {
  char *bytes = (char *)a->buffer;
  size_t size = PICK(a, 1, 1, 1, 3, 8, 100), n = a_length(a) / size;
  turn(a, s, READING);
  switch (s->readable ? below(a, 7) : 2) {
    case 0: case 1: n = RECORDED(a, fread(bytes, size, n, s->f), "fread(%zu, %zu)", size, n); say_bytes(a, bytes, n * size); break;
    case 2: RECORDED(a, fgetc(s->f), "fgetc()"); break;
    case 3: n = PICK(a, 1, 2, 30, 5000); if (POINTER(a, fgets(bytes, n, s->f), "fgets(%zu)", n)) say_bytes(a, bytes, strlen(bytes)); break;
    case 4: {
      char *line = 0;
      size_t room = 0;
      int end = PICK(a, '\n', '\n', 0, 7);
      ssize_t len = RECORDED(a, getdelim(&line, &room, end, s->f), "getdelim(%d)", end);
      say_bytes(a, line, len);
      free(line);
      break;
    }
    case 5: {
      int number = 0, used = -1;
      char word[20] = "";
      RECORDED(a, fscanf(s->f, "%15s %d%n", word, &number, &used), "fscanf()");
      extra(a, " %016llx %d %d", (unsigned long long)hash(word, strlen(word)), number, used);
      break;
    }
    default: {
      /* What was just read: glibc's room for other characters is freed wrongly when a buffer is small. */
      int c = RECORDED(a, fgetc(s->f), "fgetc()");
      if (c != EOF) RECORDED(a, ungetc(c, s->f), "ungetc()");
    }
  }
  say_state(a, s->f);
}

static void some_writing(struct actor *a, struct stream *s) {
  char *bytes = (char *)a->buffer;
  size_t size = PICK(a, 1, 1, 1, 3, 8, 100), n = a_length(a) / size;
  turn(a, s, WRITING);
  switch (below(a, 6)) {
    case 0: case 1: fill(a, n * size); RECORDED(a, fwrite(bytes, size, n, s->f), "fwrite(%zu, %zu)", size, n); break;
    case 2: n = below(a, 256); RECORDED(a, fputc(n, s->f), "fputc(%zu)", n); break;
    case 3: RECORDED(a, fputs(one_in(a, 4) ? "" : "a line\nand 12 more\n", s->f) < 0 ? -1 : 0, "fputs()"); break;
    case 4: n = below(a, 3000); RECORDED(a, fprintf(s->f, "%d %s %*d\n", (int)n, "words", (int)n, 7), "fprintf(%zu)", n); break;
    default: fill(a, n); RECORDED(a, fwrite_unlocked(bytes, 1, n, s->f), "fwrite_unlocked(%zu)", n);
  }
  say_state(a, s->f);
}

static void a_position(struct actor *a, struct stream *s) {
  off_t at = an_offset(a);
  /* Which of two errors this is depends on what the buffer holds. */
  if (at == LLONG_MIN) at = -1;
  int whence = PICK(a, SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END, 7);
  fpos_t place;
  if (at == LLONG_MAX || at > 1 << 24) at = 5000;
  if (whence != SEEK_SET && one_in(a, 2)) at = -at;
  switch (below(a, 6)) {
    case 0: case 1: if (!RECORDED(a, fseek(s->f, at, whence), "fseek(%lld, %d)", (long long)at, whence)) s->last = NOTHING; break;
    case 2: RECORDED(a, ftell(s->f), "ftell()"); break;
    case 3: errno = 0; rewind(s->f); record(a, 0, 0, "rewind()"); s->last = NOTHING; break;
    case 4: RECORDED(a, ftello(s->f), "ftello()"); break;
    default:
      if (RECORDED(a, fgetpos(s->f, &place), "fgetpos()")) break;
      if (one_in(a, 2) && !ferror(s->f)) some_reading(a, s);
      if (!RECORDED(a, fsetpos(s->f, &place), "fsetpos()")) s->last = NOTHING;
  }
  say_state(a, s->f);
}

/* The descriptor below, which after a flush is where the stream is. */
static void below_it(struct actor *a, struct stream *s) {
  struct stat st;
  int fd = fileno(s->f);
  off_t size = below(a, 9000);
  RECORDED(a, fflush(s->f), "fflush()");
  if (s->last == READING && !RECORDED(a, fseek(s->f, 0, SEEK_CUR), "fseek(0, SEEK_CUR)")) s->last = NOTHING;
  switch (below(a, 4)) {
    case 0: if (!RECORDED(a, fstat(fd, &st), "fstat(fileno)")) say_stat(a, &st); break;
    case 1: if (!S_ISDIR(fstat(fd, &st) ? 0 : st.st_mode)) RECORDED(a, lseek(fd, 0, SEEK_CUR), "lseek(fileno, 0, SEEK_CUR)"); break;
    case 2: RECORDED(a, ftruncate(fd, size), "ftruncate(fileno, %lld)", (long long)size); break;
    default: say_bytes(a, a->buffer, RECORDED(a, pread(fd, a->buffer, size, 100), "pread(fileno, %lld, 100)", (long long)size));
  }
  if (!RECORDED(a, fseek(s->f, 0, SEEK_CUR), "fseek(0, SEEK_CUR)")) s->last = NOTHING;
}

/* What is in a file now. */
static void look(struct actor *a, int fd) {
  ssize_t n = RECORDED(a, pread(fd, a->buffer, BUFFER, 0), "pread(stream's file)");
  say_bytes(a, a->buffer, n);
  RECORDED(a, close(fd), "close(stream's file)");
}

static void op_stream(struct actor *a) {
  const char *mode = modes[below(a, MODES)], *p = a_path(a, one_in(a, 10) ? A_LINK : A_FILE);
  static __thread char room[20000];
  struct stream s = {0};
  if (!p || too_long(p)) return;
  if (one_in(a, 4)) {
    int from = a_file(a), fd;
    /* Of a descriptor that neither reads nor writes libc learns late, and how late depends on its buffer. */
    if ((fcntl(from, F_GETFL) & O_ACCMODE) == O_ACCMODE) return;
    fd = DESCRIPTOR(a, dup(from), "dup(%s)", shown_fd(a, from));
    if (fd < 0) return;
    /* libc believes that a stream which does not append writes where it is. */
    if (fcntl(fd, F_GETFL) & O_APPEND) mode = "a+";
    s.f = POINTER(a, fdopen(fd, mode), "fdopen(%s)", mode);
    if (!s.f) { RECORDED(a, close(fd), "close()"); return; }
  } else {
    s.f = POINTER(a, fopen(p, mode), "fopen(%s, %s)", shown(a, p), mode);
    if (!s.f) return;
  }
  struct stat st;
  if (!fstat(fileno(s.f), &st) && S_ISDIR(st.st_mode)) {
    /* Where its places are is the file system's affair. */
    RECORDED(a, fgetc(s.f), "fgetc(directory)");
    RECORDED(a, fclose(s.f), "fclose(directory)");
    return;
  }
  s.readable = can_read(mode);
  if (one_in(a, 3)) {
    int how = PICK(a, _IOFBF, _IOLBF, _IONBF, 9);
    size_t size = PICK(a, 1, 10, 100, 4096, 20000);
    RECORDED(a, setvbuf(s.f, how == _IONBF ? 0 : room, how, size), "setvbuf(%d, %zu)", how, size);
  }
  RECORDED(a, fcntl(fileno(s.f), F_GETFD), "fcntl(fileno, F_GETFD)");
  for (unsigned i = 0, steps = 1 + below(a, 10); i < steps; i++) switch (below(a, 12)) {
    case 0: case 1: case 2: case 3: some_reading(a, &s); break;
    case 4: case 5: case 6: some_writing(a, &s); break;
    case 7: case 8: a_position(a, &s); break;
    case 9: below_it(a, &s); break;
    case 10: clearerr(s.f); RECORDED(a, fflush(s.f), "fflush()"); if (s.last == WRITING) s.last = NOTHING; break;
    default: {
      if (!one_in(a, 3)) break;
      const char *q = a_path(a, A_FILE);
      if (!q || too_long(q)) break;
      mode = modes[below(a, MODES)];
      RECORDED(a, fflush(s.f), "fflush()");
      s.f = POINTER(a, freopen(q, mode, s.f), "freopen(%s, %s)", shown(a, q), mode);
      if (!s.f) return;
      if (!fstat(fileno(s.f), &st) && S_ISDIR(st.st_mode)) {
        RECORDED(a, fclose(s.f), "fclose(directory)");
        return;
      }
      s.last = NOTHING, s.readable = can_read(mode);
    }
  }
  /* Not by fclose: before glibc 2.41 a stream that was read leaves the file's offset where its buffer ends. */
  RECORDED(a, fflush(s.f), "fflush()");
  int kept = dup(fileno(s.f));
  RECORDED(a, fclose(s.f), "fclose()");
  look(a, kept);
}

/* A child's standard output and input lead to files. */
static void op_standard_streams(struct actor *a) {
  const char *p = a_path(a, A_FILE), *mode = modes[below(a, 6)];
  int from = a_file(a);
  if (shared->free_running || !p) return;
  bool by_name = one_in(a, 2), ends = one_in(a, 2);
  RECORDED(a, 0, "fork(), a child with standard streams, %s", by_name ? shown(a, p) : shown_fd(a, from));
  flush_records(a);
  pid_t pid = fork();
  if (pid < 0) return;
  if (!pid) {
    char line[100];
    bool leads_there = by_name ? RECORDED(a, freopen(p, mode, stdout) ? 0 : -1, "freopen(%s, stdout)", mode) == 0
      : RECORDED(a, dup2(from, 1), "dup2(1)") == 1 && RECORDED(a, dup2(from, 0), "dup2(0)") == 0;
    if (leads_there) {
      RECORDED(a, printf("printed by a child %d\n", 7), "printf()");
      RECORDED(a, puts("and put") < 0 ? -1 : 0, "puts()");
      RECORDED(a, fflush(stdout), "fflush(stdout)");
    }
    if (leads_there && !by_name && POINTER(a, fgets(line, sizeof line, stdin), "fgets(stdin)")) say_bytes(a, line, strlen(line));
    if (leads_there) RECORDED(a, fflush(stdin), "fflush(stdin)");
    flush_records(a);
    if (leads_there && ends) puts("at exit"), fflush(stdout);
    _exit(ends);
  }
  int status = wait_for(pid);
  a->call += 100;
  RECORDED(a, 0, "waitpid()");
  extra(a, " %#x", status);
}

const struct operation stream_operations[] = {{"stream", 30, op_stream}, {"standard_streams", 1, op_standard_streams}, {0}};
