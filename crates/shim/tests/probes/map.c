/* Memory maps. */
#include "probe.h"

static char text[40000];

static void probe(void) {
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
