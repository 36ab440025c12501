/* Whoever stamps a file, a later stamp is never the earlier. */
#include "probe.h"
#include <time.h>
#include <utime.h>

static struct timespec last;
static int back;

static void see(const char *name, int created) {
    struct stat s;
    stat(at(name), &s);
    struct timespec stamps[] = {s.st_ctim, s.st_mtim};
    for (int i = 0; i < 1 + created; i++) {
        struct timespec t = stamps[i];
        if (t.tv_sec < last.tv_sec || (t.tv_sec == last.tv_sec && t.tv_nsec < last.tv_nsec)) back++;
    }
    last = s.st_ctim;
}

static bool same_change(const struct stat *a, const struct stat *b) {
    return a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Storing what was written before is no change. */
static void store_later(void) {
    static char text[70000];
    struct stat written, stored;
    int fd = open(at("later"), O_RDWR | O_CREAT, 0644);
    for (int way = 0; way < 4; way++) {
        for (int i = 0; i < 20; i++) pwrite(fd, text, way ? 3000 : sizeof text, way ? i * 911 : 0);
        fstat(fd, &written);
        usleep(30000);
        if (way == 1) fsync(fd);
        if (way == 2) pread(fd, text, sizeof text, 0);
        if (way == 3) {
            close(fd);
            fd = open(at("later"), O_RDONLY);
        }
        fstat(fd, &stored);
        printf("way %d: the same times: %d\n", way, same_change(&written, &stored));
    }
    close(fd);
    usleep(30000);
    stat(at("later"), &stored);
    printf("closed: the same times: %d\n", same_change(&written, &stored));
}

static void probe(void) {
    store_later();
    mkdir(at("d"), 0755);
    for (int i = 0; i < 300; i++) {
        int fd = open(at("d/f"), O_CREAT | O_RDWR, 0644);
        see("d/f", 1);
        write(fd, "x", 1);
        see("d/f", 1);
        fsync(fd);
        see("d/f", 0);
        pwrite(fd, "y", 1, 0);
        see("d/f", 1);
        ftruncate(fd, i % 3);
        see("d/f", 1);
        utime(at("d/f"), NULL);
        see("d/f", 1);
        struct timespec now[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
        futimens(fd, now);
        see("d/f", 0);
        fchmod(fd, 0600);
        see("d/f", 0);
        close(fd);
        link(at("d/f"), at("d/g"));
        see("d/g", 0);
        see("d", 1);
        unlink(at("d/f"));
        see("d", 1);
        rename(at("d/g"), at("d/f"));
        see("d", 1);
        unlink(at("d/f"));
        see("d", 1);
    }
    printf("%d times back\n", back);
}
