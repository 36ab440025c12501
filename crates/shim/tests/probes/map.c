/* Memory maps. */
#include "probe.h"

static char text[40000];

/* A file that is mostly a hole, mapped as a whole and in part, takes no memory where nothing is. */
static void sparse(void) {
    enum { SIZE = 64 << 20, HOLE = 16 << 20 };
    int fd = open(at("sparse"), O_CREAT | O_RDWR | O_TRUNC, 0644);
    pwrite(fd, "start", 5, 0);
    pwrite(fd, "middle", 6, SIZE / 2);
    ftruncate(fd, SIZE);
    close(fd);
    fd = open(at("sparse"), O_RDWR);
    char *shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char untouched = 0;
    mincore(shared + HOLE / 4, 4096, &untouched);
    printf("shared '%.6s' %d, in memory %d\n", shared + SIZE / 2, shared[SIZE - 1], untouched & 1);
    memcpy(shared + HOLE, "stored", 6);
    memset(shared + SIZE / 2, 0, 6);
    TRY(msync(shared, SIZE, MS_SYNC));
    char seen[7] = "";
    pread(fd, seen, 6, HOLE);
    printf("%s\n", seen);
    TRY(lseek(fd, 8192, SEEK_DATA));
    memset(shared + HOLE, 0, 6);
    munmap(shared, SIZE);
    pread(fd, seen, 6, HOLE);
    printf("'%s'\n", seen);
    pread(fd, seen, 6, SIZE / 2);
    printf("'%s'\n", seen);
    pwrite(fd, "middle", 6, SIZE / 2);
    close(fd);
    fd = open(at("sparse"), O_RDONLY);
    static const struct { size_t len; off_t offset; } parts[] = {{SIZE, 0}, {SIZE / 4, SIZE / 2}, {8192, SIZE - 4096}};
    for (size_t i = 0; i < 3; i++) {
        char *map = mmap(NULL, parts[i].len, PROT_READ, MAP_PRIVATE, fd, parts[i].offset);
        unsigned char in_memory = 0;
        if (parts[i].len > HOLE / 2) mincore(map + HOLE / 4, 4096, &in_memory);
        printf("sparse %zu: '%.6s' %d, in memory %d\n", i, map, map[4095], in_memory & 1);
        munmap(map, parts[i].len);
    }
    close(fd);
    unlink(at("sparse"));
}

/* A small file that is only read. */
static void small(void) {
    static const struct { size_t size, len; off_t offset; } maps[] = {
        {1, 1, 0}, {5000, 5000, 0}, {5000, 8192, 0}, {5000, 4096, 0}, {5000, 12288, 0}, {5000, 100, 4096}, {8192, 8192, 0}, {65536, 65536, 0}, {0, 10, 0}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        int fd = open(at("small"), O_CREAT | O_RDWR | O_TRUNC, 0644);
        for (size_t n = 0; n < maps[i].size; n += 10) pwrite(fd, "0123456789", maps[i].size - n < 10 ? maps[i].size - n : 10, n);
        close(fd);
        fd = open(at("small"), O_RDONLY);
        char *map = mmap(NULL, maps[i].len, PROT_READ, MAP_PRIVATE, fd, maps[i].offset);
        printf("small %zu: %d", i, map != MAP_FAILED);
        if (map == MAP_FAILED || !maps[i].size) { puts(""); continue; }
        size_t there = maps[i].size - maps[i].offset;
        if (there > maps[i].len) there = maps[i].len;
        char seen[70000] = "";
        pread(fd, seen, there, maps[i].offset);
        close(fd);
        unsigned zeros = 0;
        for (size_t n = maps[i].size - maps[i].offset; n % 4096 && n < maps[i].len; n++) zeros += map[n] == 0;
        printf(" alike %d, zeros %u\n", !memcmp(map, seen, there), zeros);
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) { memset(map, 1, 1); _exit(0); }
        int status;
        waitpid(pid, &status, 0);
        printf("store: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        TRY(madvise(map, maps[i].len, MADV_FREE));
        TRY(madvise(map, maps[i].len, MADV_DONTNEED));
        printf("again %d\n", !memcmp(map, seen, there));
        TRY(mprotect(map, maps[i].len, PROT_READ | PROT_WRITE));
        map[0] = '!';
        int again = open(at("small"), O_RDONLY);
        pread(again, seen, 1, maps[i].offset);
        printf("map %c, file %c\n", map[0], seen[0]);
        close(again);
        OK(munmap(map, maps[i].len));
    }
    unlink(at("small"));
}

static void probe(void) {
    sparse();
    small();
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i % 23);
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    TRY(write(fd, text, sizeof text));
    int reader = open(at("f"), O_RDONLY), writer = open(at("f"), O_WRONLY);
    printf("writer: %d %s\n", mmap(NULL, 4096, PROT_READ, MAP_SHARED, writer, 0) == MAP_FAILED, strerrorname_np(errno));
    printf("reader: %d %s\n", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED, strerrorname_np(errno));
    printf("length: %d %s\n", mmap(NULL, 0, PROT_READ, MAP_SHARED, reader, 0) == MAP_FAILED, strerrorname_np(errno));
    printf("offset: %d %s\n", mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 5) == MAP_FAILED, strerrorname_np(errno));
    int dir = open(root, O_RDONLY);
    printf("directory: %d %s\n", mmap(NULL, 4096, PROT_READ, MAP_SHARED, dir, 0) == MAP_FAILED, strerrorname_np(errno));
    char *map = mmap(NULL, sizeof text, PROT_READ, MAP_SHARED, reader, 0);
    printf("shared %d\n", map != MAP_FAILED && !memcmp(map, text, sizeof text));
    printf("rest of the page %d\n", map[sizeof text]);
    char *part = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, reader, 8192);
    printf("part %d\n", !memcmp(part, text + 8192, 8192));
    char *own = mmap(NULL, sizeof text, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
    own[0] = '!';
    printf("own %c, others %c\n", own[0], map[0]);
    char c = 0;
    pread(reader, &c, 1, 0);
    printf("file %c\n", c);
    TRY(munmap(own, sizeof text));
    TRY(munmap(part, 8192));
    char *fixed = mmap(part, 8192, PROT_READ, MAP_PRIVATE | MAP_FIXED, reader, 4096);
    printf("fixed %d %d\n", fixed == part, !memcmp(fixed, text + 4096, 8192));
    close(reader);
    printf("after close %d\n", !memcmp(map, text, sizeof text));
    TRY(munmap(map, sizeof text));

    char *pages = mmap(NULL, sizeof text, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *second = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 4096);
    memcpy(pages + 5000, "stored", 6);
    printf("second %.6s\n", second + 904);
    char seen[7] = "";
    pread(fd, seen, 6, 5000);
    printf("read %s\n", seen);
    pwrite(fd, "written", 7, 100);
    printf("map %.7s\n", pages + 100);
    pid_t child = fork();
    if (!child) {
        memcpy(pages + 9000, "child", 5);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("child's %.5s\n", pages + 9000);
    TRY(msync(pages, sizeof text, MS_SYNC));
    TRY(munmap(second, 8192));
    memcpy(pages + 20000, "late", 4);
    TRY(munmap(pages, sizeof text));
    memcpy(text + 5000, "stored", 6);
    memcpy(text + 100, "written", 7);
    memcpy(text + 9000, "child", 5);
    memcpy(text + 20000, "late", 4);
    static char back[sizeof text];
    TRY(pread(fd, back, sizeof back, 0));
    printf("same %d\n", !memcmp(back, text, sizeof text));
    /* A file that grows under its maps, as SQLite's does. */
    int grows = open(at("g"), O_CREAT | O_RDWR, 0644);
    ftruncate(grows, 32768);
    char *one = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_SHARED, grows, 0);
    one[0] = 'A';
    pwrite(grows, "", 1, 65535);
    char *two = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_SHARED, grows, 32768);
    two[0] = 'B';
    printf("still %c\n", one[0]);
    munmap(one, 32768);
    two[32766] = 'C';
    munmap(two, 32768);
    char ends[2] = "";
    pread(grows, ends, 1, 0);
    pread(grows, ends + 1, 1, 32768);
    printf("%.2s\n", ends);
    pread(grows, ends, 1, 65534);
    printf("%.1s\n", ends);
    /* Maps that grow and move. */
    int more = open(at("more"), O_CREAT | O_RDWR, 0644);
    ftruncate(more, 4096);
    one = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, more, 0);
    strcpy(one, "first");
    ftruncate(more, 16384);
    one = mremap(one, 4096, 16384, MREMAP_MAYMOVE);
    printf("grown %s %d\n", one, one[9000]);
    strcpy(one + 9000, "third");
    TRY(msync(one, 16384, MS_ASYNC));
    pread(more, seen, 6, 9000);
    printf("%s\n", seen);
    child = fork();
    if (!child) {
        char there[7] = "";
        int fresh = open(at("more"), O_RDONLY);
        pread(fresh, there, 6, 9000);
        printf("in a child %s\n", there);
        exit(0);
    }
    waitpid(child, NULL, 0);
    char *place = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    one = mremap(one, 16384, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    printf("moved %d %s\n", one == place, one);
    strcpy(one + 4096, "second");
    two = mremap(one, 0, 8192, MREMAP_MAYMOVE);
    printf("twice %s %s\n", two, two + 4096);
    TRY(munmap(one, 8192));
    strcpy(two, "FIRST");
    TRY(munmap(two, 8192));
    pread(more, seen, 6, 4096);
    printf("%s ", seen);
    pread(more, seen, 6, 0);
    printf("%s\n", seen);
    /* Writable only later. */
    one = mmap(NULL, 8192, PROT_READ, MAP_SHARED, more, 0);
    TRY(mprotect(one, 8192, PROT_READ | PROT_WRITE));
    strcpy(one + 10, "later");
    TRY(munmap(one, 8192));
    pread(more, seen, 6, 10);
    printf("%s\n", seen);
    /* A private part: forgotten pages come back from the file. */
    int whole = open(at("f"), O_RDONLY);
    part = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, whole, 4096);
    part[0] = '#';
    TRY(madvise(part, 8192, MADV_DONTNEED));
    printf("again %d\n", !memcmp(part, text + 4096, 8192));
    TRY(munmap(part, 8192));
    part = mmap(NULL, 40960, PROT_READ, MAP_PRIVATE, whole, 0);
    part = mremap(part, 40960, 4096, 0);
    part = mremap(part, 4096, 40960, MREMAP_MAYMOVE);
    printf("and more %d\n", !memcmp(part, text, sizeof text));
    TRY(msync(part, 4096, MS_SYNC | MS_ASYNC));
    TRY(munmap(part, 40960));
#ifdef __x86_64__
    /* Code. */
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    int program = open(at("code"), O_CREAT | O_RDWR, 0755);
    write(program, code, sizeof code);
    for (int kind = MAP_SHARED; kind <= MAP_PRIVATE; kind++) {
        int (*function)(void) = mmap(NULL, 4096, PROT_READ | PROT_EXEC, kind, program, 0);
        printf("code %d\n", (void *)function == MAP_FAILED ? -errno : function());
    }
#endif
    /* Unmapped by the end of the process only. */
    int left = open(at("left"), O_CREAT | O_RDWR, 0644);
    ftruncate(left, 4096);
    char *stay = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, left, 0);
    child = fork();
    if (!child) {
        strcpy(stay, "left by exit");
        exit(0);
    }
    waitpid(child, NULL, 0);
    munmap(stay, 4096);
    pread(left, seen, 6, 0);
    printf("%s\n", seen);
}
