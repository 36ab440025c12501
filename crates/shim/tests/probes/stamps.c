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

static void probe(void) {
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
