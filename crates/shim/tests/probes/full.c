/* Random operations on a volume that is full or nearly so, mirrored in a directory of the native file system: what the volume
 * takes is done there, too; what it refuses for want of room (and for nothing else) is not. Then both hold the same.
 *
 *   full DIR MIRROR SEED STEPS     prints for each kind of operation how often it ended with ENOSPC
 *   full DIR MIRROR compare        prints "same", or what differs */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { FILES = 24, LONGEST = 300000, FILLED = 4096 };

static const char *root, *mirror;
static uint64_t state;
/* Files in the way, "fill-N", each of one byte value; how long each is, or -1. */
static int fillings[FILLED];

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static unsigned below(unsigned n) { return next() % n; }

/* Paths of a name; several may be in use at once. */
static const char *path_in(const char *dir, const char *name) {
    static char paths[8][PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", dir, name);
    return path;
}

static const char *at(const char *name) { return path_in(root, name); }
static const char *of_mirror(const char *name) { return path_in(mirror, name); }

static void wrong(const char *what, const char *name, long long got, long long wanted) {
    printf("WRONG %s %s: %lld, wanted %lld (%s)\n", what, name, got, wanted, strerror(errno));
    fflush(stdout);
    exit(1);
}

enum kind { CREATE, WRITE, APPEND, STORE, ALLOCATE, EXTEND, RENAME, MAKE_DIR, SYMLINK, LINK, ATTRIBUTE, KINDS };
static const char *const called[KINDS] = {"create", "write", "append", "store", "allocate", "extend",
                                          "rename", "mkdir", "symlink", "link", "setxattr"};
static unsigned refused[KINDS], taken[KINDS];

/* Whether the volume took it; what it did not take it has to refuse for want of room, or as the mirror does. */
static bool took(enum kind kind, long long result) {
    if (result >= 0)
        return ++taken[kind], true;
    if (errno == ENOSPC)
        return ++refused[kind], false;
    return true;
}

/* Does on both what gives no more than a result. */
#define BOTH(kind, name, there, here)                                                       \
    ({                                                                                      \
        long long one_ = (there);                                                           \
        int error_ = errno;                                                                 \
        if (took(kind, one_)) {                                                             \
            long long other_ = (here);                                                      \
            if (one_ != other_ || (one_ < 0 && error_ != errno))                            \
                wrong(called[kind], name, one_ < 0 ? -error_ : one_, other_ < 0 ? -errno : other_); \
        }                                                                                   \
        one_;                                                                               \
    })

static unsigned char bytes[LONGEST];

static void some_bytes(size_t len) {
    unsigned char first = next();
    for (size_t i = 0; i < len; i++)
        bytes[i] = first + i * 7;
}

static void closed(int fd, const char *name) {
    if (below(3) == 0 && fsync(fd) != 0)
        wrong("fsync", name, -errno, 0);
    if (close(fd) != 0)
        wrong("close", name, -errno, 0);
}

static void write_some(const char *name, enum kind kind) {
    int flags = O_RDWR | (kind == APPEND ? O_APPEND : 0);
    int there = open(at(name), flags), here = open(of_mirror(name), flags);
    if ((there < 0) != (here < 0))
        wrong("open", name, there, here);
    if (there < 0)
        return;
    for (unsigned times = 1 + below(4); times; times--) {
        size_t len = 1 + below(below(2) ? LONGEST : 5000);
        off_t from = below(2) ? below(400000) : below(100) * 4096;
        some_bytes(len);
        ssize_t done = kind == APPEND ? write(there, bytes, len) : pwrite(there, bytes, len, from);
        if (!took(kind, done))
            break;
        if (done <= 0)
            wrong(called[kind], name, done < 0 ? -errno : done, len);
        ssize_t copied = kind == APPEND ? write(here, bytes, done) : pwrite(here, bytes, done, from);
        if (copied != done)
            wrong("mirror", name, copied, done);
    }
    close(here);
    closed(there, name);
}

/* Room that was allocated takes what is written and stored, however full it is. */
static void allocate(const char *name) {
    int there = open(at(name), O_RDWR), here = open(of_mirror(name), O_RDWR);
    if (there < 0 || here < 0) {
        if (there >= 0 || here >= 0)
            wrong("open", name, there, here);
        return;
    }
    off_t from = below(100000);
    size_t len = 1 + below(200000);
    if (BOTH(ALLOCATE, name, fallocate(there, 0, from, len), fallocate(here, 0, from, len)) == 0) {
        some_bytes(len);
        if (below(2)) {
            if (pwrite(there, bytes, len, from) != (ssize_t)len)
                wrong("write to allocated room", name, -errno, len);
        } else {
            size_t whole = from + len;
            unsigned char *map = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, there, 0);
            if (map == MAP_FAILED)
                wrong("map", name, -errno, 0);
            memcpy(map + from, bytes, len);
            if (msync(map, whole, MS_SYNC) != 0)
                wrong("msync of allocated room", name, -errno, 0);
            munmap(map, whole);
        }
        if (pwrite(here, bytes, len, from) != (ssize_t)len)
            wrong("mirror", name, -errno, len);
    }
    close(here);
    closed(there, name);
}

/* Stores to a hole: the program gets an error when there is no room. Then it empties the file, because the content is undefined. */
static void store(const char *name) {
    int there = open(at(name), O_RDWR), here = open(of_mirror(name), O_RDWR);
    if (there < 0 || here < 0)
        return;
    size_t hole = 16384, len = 1 + below(hole);
    struct stat stat;
    if (fstat(there, &stat) != 0 || !S_ISREG(stat.st_mode))
        wrong("stat", name, -errno, 0);
    off_t from = (stat.st_size + 4095) & ~4095ll;
    if (BOTH(EXTEND, name, ftruncate(there, from + hole), ftruncate(here, from + hole)) == 0) {
        unsigned char *map = mmap(NULL, hole, PROT_READ | PROT_WRITE, MAP_SHARED, there, from);
        if (map == MAP_FAILED)
            wrong("map", name, -errno, 0);
        some_bytes(len);
        memcpy(map, bytes, len);
        bool synced = took(STORE, msync(map, hole, MS_SYNC));
        munmap(map, hole);
        if (synced) {
            if (pwrite(here, bytes, len, from) != (ssize_t)len)
                wrong("mirror", name, -errno, len);
        } else if (ftruncate(there, 0) != 0 || ftruncate(here, 0) != 0) {
            wrong("truncate", name, -errno, 0);
        }
        if (!synced) {
            /* Each open file may hear of it once more. */
            fsync(there);
            close(there);
            close(here);
            return;
        }
    }
    close(here);
    closed(there, name);
}

/* Fills the volume to its last block, or makes some room. */
static void fill(void) {
    for (int i = 0; i < FILLED; i++) {
        if (fillings[i] >= 0)
            continue;
        char name[32];
        snprintf(name, sizeof name, "fill-%d", i);
        int fd = open(at(name), O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (fd < 0) {
            if (errno != ENOSPC)
                wrong("create", name, -errno, 0);
            return;
        }
        fillings[i] = 0;
        memset(bytes, i % 251, sizeof bytes);
        ssize_t done = 0;
        size_t len = 4096 << below(7);
        while (fillings[i] < 1000000 && (done = write(fd, bytes, len)) > 0)
            fillings[i] += done;
        if (done < 0 && errno != ENOSPC)
            wrong("fill", name, -errno, 0);
        closed(fd, name);
        if (done < 0)
            return;
    }
}

static void make_room(void) {
    for (unsigned times = 1 + below(3); times; times--) {
        int i = below(160);
        char name[32];
        snprintf(name, sizeof name, "fill-%d", i);
        if (fillings[i] >= 0 && unlink(at(name)) != 0)
            wrong("unlink", name, -errno, 0);
        fillings[i] = -1;
    }
}

static void check_fillings(void) {
    for (int i = 0; i < FILLED; i++) {
        char name[32];
        snprintf(name, sizeof name, "fill-%d", i);
        int fd = open(at(name), O_RDONLY);
        if ((fd >= 0) != (fillings[i] >= 0))
            wrong("filling", name, fd, fillings[i]);
        if (fd < 0)
            continue;
        long long len = 0;
        ssize_t got;
        while ((got = read(fd, bytes, sizeof bytes)) > 0) {
            len += got;
            for (ssize_t b = 0; b < got; b++)
                if (bytes[b] != i % 251)
                    wrong("content of", name, bytes[b], i % 251);
        }
        if (got < 0 || len != fillings[i])
            wrong("length of", name, got < 0 ? -errno : len, fillings[i]);
        close(fd);
    }
}

static void compare_file(const char *name) {
    static unsigned char other[LONGEST];
    int there = open(at(name), O_RDONLY), here = open(of_mirror(name), O_RDONLY);
    if (there < 0 || here < 0)
        wrong("open", name, there, here);
    for (long long at = 0;;) {
        ssize_t one = read(there, bytes, sizeof bytes), two = read(here, other, sizeof other);
        if (one != two)
            wrong("length of", name, one, two);
        for (ssize_t b = 0; b < one; b++)
            if (bytes[b] != other[b]) {
                printf("WRONG at byte %lld: ", at + b);
                wrong("content of", name, bytes[b], other[b]);
            }
        if (one == 0)
            break;
        at += one;
    }
    close(there);
    close(here);
}

/* Each name of one directory is in the other, and means the same. */
static void compare(const char *below_root) {
    DIR *here = opendir(of_mirror(below_root)), *there = opendir(at(below_root));
    if (!here || !there)
        wrong("opendir", below_root, !!there, !!here);
    struct dirent *entry;
    long long names = 0;
    while ((entry = readdir(there)))
        names += strncmp(entry->d_name, "fill-", 5) != 0;
    while ((entry = readdir(here))) {
        names--;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char name[600], one[512], two[512];
        snprintf(name, sizeof name, "%s/%s", below_root, entry->d_name);
        struct stat a, b;
        if (lstat(at(name), &a) != 0 || lstat(of_mirror(name), &b) != 0)
            wrong("stat", name, -errno, 0);
        if (a.st_mode != b.st_mode || a.st_nlink != b.st_nlink)
            wrong("mode or links of", name, a.st_mode, b.st_mode);
        if (S_ISDIR(a.st_mode)) {
            compare(name);
        } else if (S_ISLNK(a.st_mode)) {
            ssize_t len = readlink(at(name), one, sizeof one);
            if (len != readlink(of_mirror(name), two, sizeof two) || memcmp(one, two, len) != 0)
                wrong("link", name, len, 0);
        } else {
            if (a.st_size != b.st_size)
                wrong("size of", name, a.st_size, b.st_size);
            compare_file(name);
            ssize_t len = getxattr(at(name), "user.a", one, sizeof one), wanted = getxattr(of_mirror(name), "user.a", two, sizeof two);
            if (len != wanted || (len > 0 && memcmp(one, two, len) != 0))
                wrong("attribute of", name, len, wanted);
        }
    }
    if (names != 0)
        wrong("names in", below_root, names, 0);
    closedir(here);
    closedir(there);
}

/* A name of a file or directory that may be there or not. */
static const char *some_name(void) {
    static char names[4][300];
    static int turn;
    char *name = names[turn++ % 4];
    unsigned number = below(FILES);
    if (below(4))
        sprintf(name, "file-%u", number);
    else /* Long: a directory of these is full soon. */
        sprintf(name, "dir-%u/%0*u", below(4), 20 + 200 * (number % 2), number);
    return name;
}

static void step(void) {
    const char *name = some_name(), *other = some_name();
    char text[480];
    struct stat stat;
    bool regular = lstat(of_mirror(name), &stat) == 0 && S_ISREG(stat.st_mode);
    switch (below(20)) {
    case 0 ... 1: {
        int there = open(at(name), O_RDWR | O_CREAT | O_EXCL, 0644);
        if (there >= 0 || errno != ENOSPC) {
            int error = errno, here = open(of_mirror(name), O_RDWR | O_CREAT | O_EXCL, 0644);
            if ((there < 0) != (here < 0) || (there < 0 && error != errno))
                wrong("create", name, there < 0 ? -error : 0, here < 0 ? -errno : 0);
            close(here);
            taken[CREATE]++;
        } else {
            refused[CREATE]++;
        }
        if (there >= 0)
            closed(there, name);
        break;
    }
    case 2 ... 4: if (regular) write_some(name, WRITE); break;
    case 5 ... 6: if (regular) write_some(name, APPEND); break;
    case 7: if (regular) store(name); break;
    case 8: if (regular) allocate(name); break;
    case 9: {
        off_t size = below(600000);
        if (regular) BOTH(EXTEND, name, truncate(at(name), size), truncate(of_mirror(name), size));
        break;
    }
    case 10 ... 11: BOTH(RENAME, name, rename(at(name), at(other)), rename(of_mirror(name), of_mirror(other))); break;
    case 12:
        snprintf(text, sizeof text, "dir-%u", below(4));
        BOTH(MAKE_DIR, text, mkdir(at(text), 0755), mkdir(of_mirror(text), 0755));
        break;
    case 13:
        memset(text, 'x', sizeof text);
        text[1 + below(sizeof text - 1)] = 0;
        text[sizeof text - 1] = 0;
        BOTH(SYMLINK, name, symlink(text, at(name)), symlink(text, of_mirror(name)));
        break;
    case 14: BOTH(LINK, name, link(at(name), at(other)), link(of_mirror(name), of_mirror(other))); break;
    case 15:
        if (regular) {
            memset(text, 'a' + below(26), sizeof text);
            size_t len = below(sizeof text);
            BOTH(ATTRIBUTE, name, setxattr(at(name), "user.a", text, len, 0), setxattr(of_mirror(name), "user.a", text, len, 0));
        }
        break;
    case 16: {
        int there = unlink(at(name)), error = errno, here = unlink(of_mirror(name));
        if (there != here || (there < 0 && error != errno))
            wrong("unlink", name, there < 0 ? -error : 0, here < 0 ? -errno : 0);
        break;
    }
    case 17: make_room(); break;
    case 18: fill(); break;
    case 19: sync(); break;
    }
}

static void report(void) {
    for (int kind = 0; kind < KINDS; kind++)
        printf("%s: %u taken, %u refused\n", called[kind], taken[kind], refused[kind]);
}

int main(int argc, char **argv) {
    char lengths[PATH_MAX];
    root = argv[1], mirror = argv[2];
    umask(022);
    snprintf(lengths, sizeof lengths, "%s.fillings", mirror);
    if (!strcmp(argv[3], "compare")) {
        int fd = open(lengths, O_RDONLY);
        if (read(fd, fillings, sizeof fillings) != sizeof fillings)
            wrong("read", lengths, -errno, sizeof fillings);
        check_fillings();
        compare(".");
        puts("same");
        return 0;
    }
    state = 88172645463325252ull + strtoull(argv[3], NULL, 10) * 1000003;
    memset(fillings, -1, sizeof fillings);
    fill();
    for (long left = strtol(argv[4], NULL, 10); left; left--)
        step();
    check_fillings();
    compare(".");
    int fd = open(lengths, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, fillings, sizeof fillings) != sizeof fillings)
        wrong("write", lengths, -errno, sizeof fillings);
    close(fd);
    report();
    return 0;
}
