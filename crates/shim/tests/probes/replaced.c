/* A name that leads to another file again and again, by a rename over it, is there for whoever uses it meanwhile. */
#include "probe.h"
#include <sys/xattr.h>

static unsigned failed[200];

static void count(long long result) { failed[result < 0 ? errno : 0]++; }

static void probe(void) {
    close(open(at("f"), O_CREAT | O_RDWR, 0644));
    pid_t child = fork();
    if (!child)
        for (;;) {
            close(open(at("next"), O_CREAT | O_RDWR, 0644));
            if (rename(at("next"), at("f")) != 0) _exit(1);
        }
    for (int round = 0; round < 8000; round++) {
        struct stat stat_;
        char text[16];
        int fd = open(at("f"), O_RDWR);
        count(fd);
        if (fd >= 0) close(fd);
        fd = open(at("f"), O_RDWR | O_CREAT | O_TRUNC, 0644);
        count(fd);
        if (fd >= 0) close(fd);
        count(stat(at("f"), &stat_));
        count(chmod(at("f"), 0644));
        count(truncate(at("f"), 3));
        count(utimensat(AT_FDCWD, at("f"), NULL, 0));
        count(setxattr(at("f"), "user.a", "b", 1, 0));
        count(access(at("f"), W_OK));
        if (getxattr(at("f"), "user.a", text, sizeof text) < 0 && errno != ENODATA) count(-1);
        /* The file may have lost its last name; ext4 says so, too. */
        if (link(at("f"), at("link")) == 0) count(unlink(at("link")));
        else if (errno != ENOENT) count(-1);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int error = 1; error < 200; error++)
        if (failed[error]) printf("%s: %u\n", strerrorname_np(error), failed[error]);
    puts("ended");
}
