/* What all probes share: each works in the directory argv[1] and prints what it saw, without anything that differs
 * between two directories that behave the same. */
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *root;

/* A path below the probe's directory; several may be in use at once. */
static inline const char *at(const char *name) {
    static char paths[8][PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", root, name);
    return path;
}

/* Prints an expression with its value, and errno when it is negative. */
#define TRY(expression)                                                                     \
    ({                                                                                      \
        errno = 0;                                                                          \
        long long value_ = (long long)(expression);                                         \
        if (value_ < 0)                                                                     \
            printf("%s = %lld %s\n", #expression, value_, strerrorname_np(errno));          \
        else                                                                                \
            printf("%s = %lld\n", #expression, value_);                                     \
        value_;                                                                             \
    })
/* The same without the value of a success, which may differ. */
#define OK(expression)                                                                      \
    ({                                                                                      \
        errno = 0;                                                                          \
        long long value_ = (long long)(expression);                                         \
        if (value_ < 0)                                                                     \
            printf("%s = %lld %s\n", #expression, value_, strerrorname_np(errno));          \
        else                                                                                \
            printf("%s ok\n", #expression);                                                 \
        value_;                                                                             \
    })

/* Says nothing unless what is wanted is not so: for probes of what only a volume does. */
#define WANT(condition)                                                             \
    do {                                                                            \
        errno = 0;                                                                  \
        if (!(condition))                                                           \
            printf("line %d: %s (%s)\n", __LINE__, #condition, strerror(errno));    \
    } while (0)
#define FAILS(call, error) WANT((call) == -1 && errno == (error))

/* Prints a path without the directory in front. */
static inline void say_path(const char *what, const char *path) {
    size_t len = strlen(root);
    if (path && !strncmp(path, root, len) && (path[len] == '/' || !path[len]))
        printf("%s: ROOT%s\n", what, path + len);
    else
        printf("%s: %s\n", what, path ? path : "(null)");
}

/* Prints a file's content. */
static inline void say_file(const char *name) {
    char text[4096];
    int fd = open(at(name), O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0) {
        printf("%s: %s\n", name, strerrorname_np(errno));
    } else {
        text[n] = 0;
        printf("%s: %zd bytes: %.200s\n", name, n, text);
    }
    if (fd >= 0) close(fd);
}

static inline void put_file(const char *name, const char *text) {
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) printf("cannot write %s\n", name);
    if (fd >= 0) close(fd);
}

static void probe(void);

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    root = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(022);
    probe();
    return 0;
}
