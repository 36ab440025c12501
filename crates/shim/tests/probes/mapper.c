/* Does what it is told on standard input with one file and one map of it, a line of answer for each line. */
#include "probe.h"
#include <sys/syscall.h>

static const char *answer(long result) {
    static char text[32];
    if (result < 0) return strerrorname_np(errno);
    snprintf(text, sizeof text, "%ld", result);
    return text;
}

/* Bytes with a dot for each NUL. */
static const char *shown(const char *bytes, long len) {
    static char text[4096];
    for (long i = 0; i < len; i++) text[i] = bytes[i] ? bytes[i] : '.';
    text[len] = 0;
    return text;
}

/* Past libc and the hooks. */
static long raw_munmap(void *at, size_t len) {
    long result;
#ifdef __x86_64__
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_munmap), "D"(at), "S"(len) : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_munmap;
    register long first __asm__("x0") = (long)at;
    register size_t second __asm__("x1") = len;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(second), "r"(number) : "memory");
    result = first;
#endif
    return result;
}

static void probe(void) {
    char line[4096], what[32], text[2048];
    int fd = -1;
    char *map = NULL;
    long mapped = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        long number = 0, len = 0;
        *text = 0;
        sscanf(line, "%31s", what);
        if (!strcmp(what, "open")) {
            sscanf(line, "%*s %2047s %ld", text, &number);
            fd = open(at(text), O_RDWR | O_CREAT | (number ? O_APPEND : 0), 0644);
            puts(fd < 0 ? answer(fd) : "opened");
        } else if (!strcmp(what, "map")) {
            sscanf(line, "%*s %ld", &mapped);
            map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            puts(map == MAP_FAILED ? strerrorname_np(errno) : "mapped");
        } else if (!strncmp(what, "private", 7)) {
            sscanf(line, "%*s %ld", &mapped);
            if (what[7]) mapped = mapped / 5 * 2;
            map = mmap(NULL, mapped, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
            puts(map == MAP_FAILED ? strerrorname_np(errno) : "mapped");
        } else if (!strcmp(what, "offset")) {
            puts(answer(lseek(fd, 0, SEEK_CUR)));
        } else if (!strcmp(what, "unmap")) {
            puts(answer(munmap(map, mapped)));
        } else if (!strcmp(what, "unmap-unseen")) {
            /* The second half, by a system call of its own; "reused": where it was a map of another file is put. */
            long end = raw_munmap(map + mapped / 2, mapped / 2);
            if (sscanf(line, "%*s %2047s", text) == 1) {
                int other = open(at(text), O_RDWR | O_CREAT, 0644);
                ftruncate(other, mapped / 2);
                char *there = mmap(map + mapped / 2, mapped / 2, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
                if (there != map + mapped / 2) end = -1;
                memcpy(there + 4096, "other", 5);
                close(other);
            }
            puts(answer(end));
        } else if (!strcmp(what, "store")) {
            sscanf(line, "%*s %ld %2047s", &number, text);
            memcpy(map + number, text, strlen(text));
            puts("stored");
        } else if (!strcmp(what, "show")) {
            sscanf(line, "%*s %ld %ld", &number, &len);
            puts(shown(map + number, len));
        } else if (!strcmp(what, "fill")) {
            sscanf(line, "%*s %ld", &len);
            memset(text, 'f', sizeof text);
            for (long i = 0; i < len; i += sizeof text) pwrite(fd, text, sizeof text, i);
            puts(answer(fsync(fd)));
        } else if (!strcmp(what, "dontneed")) {
            puts(answer(madvise(map, mapped, MADV_DONTNEED)));
        } else if (!strcmp(what, "remove")) {
            puts(answer(madvise(map, mapped, MADV_REMOVE)));
        } else if (!strcmp(what, "sync-map")) {
            void *there = mmap(NULL, mapped, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
            puts(there == MAP_FAILED ? strerrorname_np(errno) : "mapped");
        } else if (!strcmp(what, "remove-at")) {
            sscanf(line, "%*s %ld %ld", &number, &len);
            puts(answer(madvise(map + number, len, MADV_REMOVE)));
        } else if (!strcmp(what, "collapse") || !strcmp(what, "insert")) {
            sscanf(line, "%*s %ld %ld", &number, &len);
            puts(answer(fallocate(fd, *what == 'c' ? FALLOC_FL_COLLAPSE_RANGE : FALLOC_FL_INSERT_RANGE, number, len)));
        } else if (!strcmp(what, "protect")) {
            mprotect(map, mapped, PROT_READ);
            puts(answer(mprotect(map, mapped, PROT_READ | PROT_WRITE)));
        } else if (!strcmp(what, "move")) {
            char *place = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            map = mremap(map, mapped, mapped, MREMAP_MAYMOVE | MREMAP_FIXED, place);
            puts(map == place ? "0" : strerrorname_np(errno));
        } else if (!strcmp(what, "stores-of-a-child")) {
            sscanf(line, "%*s %ld", &number);
            pid_t child = fork();
            if (!child) {
                memcpy(map + number, "child", 5);
                kill(getpid(), SIGKILL);
            }
            puts(waitpid(child, NULL, 0) == child ? "0" : answer(-1));
        } else if (!strcmp(what, "msync")) {
            puts(answer(msync(map, mapped, MS_SYNC)));
        } else if (!strcmp(what, "read")) {
            sscanf(line, "%*s %ld %ld", &number, &len);
            long n = pread(fd, text, len, number);
            puts(n < 0 ? answer(n) : shown(text, n));
        } else if (!strcmp(what, "write")) {
            sscanf(line, "%*s %ld %2047s", &number, text);
            puts(answer(pwrite(fd, text, strlen(text), number)));
        } else if (!strcmp(what, "truncate")) {
            sscanf(line, "%*s %ld", &number);
            puts(answer(ftruncate(fd, number)));
        } else if (!strcmp(what, "truncate-path") || !strcmp(what, "empty")) {
            /* By the file's path: to a size, or by opening it. */
            if (*what == 't') {
                sscanf(line, "%*s %2047s %ld", text, &number);
                puts(answer(truncate(at(text), number)));
            } else {
                sscanf(line, "%*s %2047s", text);
                int other = open(at(text), O_WRONLY | O_TRUNC);
                puts(answer(other < 0 ? other : close(other)));
            }
        } else if (!strcmp(what, "allocate")) {
            sscanf(line, "%*s %ld %ld", &number, &len);
            puts(answer(fallocate(fd, FALLOC_FL_KEEP_SIZE, number, len)));
        } else if (!strcmp(what, "fsync")) {
            puts(answer(fsync(fd)));
        } else if (!strcmp(what, "syncfs")) {
            puts(answer(syncfs(fd)));
        } else if (!strcmp(what, "close")) {
            puts(answer(close(fd)));
        } else if (!strcmp(what, "unlink")) {
            sscanf(line, "%*s %2047s", text);
            puts(answer(unlink(at(text))));
        } else if (!strcmp(what, "size")) {
            struct stat st;
            puts(answer(fstat(fd, &st) ? -1 : st.st_size));
        } else if (!strcmp(what, "fork")) {
            /* The child goes on with the map, its parent lets it go. */
            int ready[2];
            char byte;
            pipe(ready);
            pid_t child = fork();
            if (child) {
                munmap(map, mapped);
                close(fd);
                write(ready[1], "x", 1);
                waitpid(child, NULL, 0);
                return;
            }
            read(ready[0], &byte, 1);
            puts("forked");
        } else if (!strcmp(what, "writes")) {
            /* Each write is there until the next, whatever others store beside it. */
            long wrong = 0;
            sscanf(line, "%*s %ld", &number);
            for (long i = 1; i <= number; i++) {
                long got = 0;
                pwrite(fd, &i, sizeof i, 0);
                usleep(20);
                pread(fd, &got, sizeof got, 0);
                wrong += got != i;
            }
            puts(answer(wrong));
        } else if (!strcmp(what, "stores")) {
            sscanf(line, "%*s %ld", &number);
            for (long i = 1; i <= number; i++) {
                memcpy(map + 512, &i, sizeof i);
                msync(map, mapped, MS_ASYNC);
            }
            puts("0");
        }
    }
}
