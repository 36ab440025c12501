/* What random sequences of calls found to differ from a file system of the kernel. */
#include "probe.h"
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static int name_only, neither, dir;

static void descriptors_that_allow_little(void) {
    struct flock lock = {.l_type = F_RDLCK};
    int ready;
    int fds[] = {name_only, neither, dir};
    for (int i = 0; i < 3; i++) {
        printf("descriptor %d\n", i);
        TRY(fcntl(fds[i], F_GETFL));
        TRY(fcntl(fds[i], F_SETFL, 0));
        TRY(fcntl(fds[i], F_SETLK, &lock));
        TRY(fcntl(fds[i], F_GETLK, &lock));
        TRY(flock(fds[i], LOCK_SH | LOCK_NB));
        TRY(flock(fds[i], 0));
        TRY(flock(fds[i], LOCK_UN));
        TRY(ioctl(fds[i], FIONREAD, &ready));
        TRY(posix_fadvise(fds[i], 0, 0, -1));
        TRY(sync_file_range(fds[i], 0, 0, 64));
        TRY(fallocate(fds[i], 0, 0, 0));
        TRY(fallocate(fds[i], 64, 0, 5));
        TRY(fallocate(fds[i], 4, 0, 5));
        TRY(fsetxattr(fds[i], "", "x", 1, 0));
        TRY(readv(fds[i], NULL, 2));
        TRY(writev(fds[i], NULL, 2));
        TRY(readv(fds[i], (struct iovec[1]){{&ready, 0}}, 1));
        TRY(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fds[i], 0) == MAP_FAILED ? -1 : 0);
        TRY(mmap(NULL, 5, PROT_READ, 0, fds[i], 0) == MAP_FAILED ? -1 : 0);
        TRY(mmap(NULL, 5, PROT_READ, MAP_PRIVATE, fds[i], 0) == MAP_FAILED ? -1 : 0);
        TRY(sendfile(fds[i], 777, NULL, 5));
        TRY(sendfile(777, fds[i], NULL, 5));
    }
    lock.l_type = F_UNLCK;
    TRY(fcntl(neither, F_GETLK, &lock));
}

static void odd_flags(void) {
    TRY(setxattr(at("file"), "user.x", "1", 1, XATTR_CREATE | XATTR_REPLACE));
    TRY(setxattr(at("file"), "user.x", "1", 1, 4));
    TRY(setxattr(at("file"), "nonsense", "1", 1, XATTR_CREATE | XATTR_REPLACE));
    struct timespec omitted[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    TRY(utimensat(AT_FDCWD, at("missing"), omitted, 4));
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    TRY(rename(at(long_name), at("missing/x")));
    TRY(rename(at(long_name), at("y")));
    TRY(rename(at("file"), at(long_name)));
    char path[400];
    snprintf(path, sizeof path, "%s/x", long_name);
    TRY(mkdir(at(path), 0755));
    int unnamed = open(root, O_TMPFILE | O_RDWR, 0600);
    TRY(fcntl(unnamed, F_GETFL));
    char link[40];
    sprintf(link, "/proc/self/fd/%d", unnamed);
    TRY(linkat(AT_FDCWD, link, 777, "x", AT_SYMLINK_FOLLOW));
    close(unnamed);
}

static void parts_at_nowhere(void) {
    int fd = open(at("parts"), O_RDWR | O_CREAT, 0644);
    char bytes[4] = "abc";
    struct iovec parts[2] = {{bytes, 3}, {NULL, 3}};
    TRY(writev(fd, parts, 2));
    TRY(pwritev(fd, parts + 1, 1, 0));
    say_file("parts");
    close(fd);
}

static void copies_within_a_file(void) {
    int fd = open(at("self"), O_RDWR | O_CREAT, 0644);
    write(fd, "0123456789", 10);
    off_t from = 6, to = 12;
    TRY(copy_file_range(fd, &from, fd, &to, 100, 0));
    say_file("self");
    from = -3, to = 0;
    TRY(copy_file_range(fd, &from, fd, &to, 10, 0));
    from = 0, to = LLONG_MAX;
    TRY(copy_file_range(fd, &from, fd, &to, 0, 0));
    close(fd);
}

static void maps(void) {
    static char page[4096];
    memset(page, 'a', sizeof page);
    int fd = open(at("mapped"), O_RDWR | O_CREAT, 0644);
    for (int i = 0; i < 4; i++) write(fd, page, sizeof page);
    char *map = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("the whole page is there: %c\n", map[4095]);
    TRY(munmap(map, 1));
    TRY(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, -4096) == MAP_FAILED ? -1 : 0);
    close(fd);
    fd = open(at("mapped"), O_RDONLY);
    map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    TRY(mprotect(map, 8192, PROT_READ | PROT_WRITE));
    TRY(munmap(map, 8192));
    close(fd);
    /* What a map changes goes where it belongs, even if the descriptor appends; whatever the mask is. */
    mode_t mask = umask(0777);
    fd = open(at("mapped"), O_RDWR | O_APPEND);
    map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("mapped %d\n", map != MAP_FAILED);
    umask(mask);
    memcpy(map + 4096, "changed", 7);
    TRY(msync(map, 8192, MS_SYNC | MS_ASYNC));
    TRY(msync(map, 8192, MS_SYNC));
    memcpy(map, "kept", 4);
    TRY(pwrite(fd, "appended", 8, 0));
    printf("beside what is appended: %.4s\n", map);
    TRY(munmap(map, 8192));
    struct stat st;
    fstat(fd, &st);
    printf("%lld bytes\n", (long long)st.st_size);
    char text[9] = "";
    TRY(pread(fd, text, 7, 4096));
    puts(text);
    TRY(pread(fd, text, 8, 16384));
    puts(text);
    close(fd);
}

static void removed_directories(void) {
    char bytes[200], where[PATH_MAX];
    TRY(mkdir(at("gone"), 0755));
    int fd = open(at("gone"), O_RDONLY | O_DIRECTORY);
    TRY(rmdir(at("gone")));
    TRY(getdents64(fd, bytes, sizeof bytes));
    lseek(fd, 0, SEEK_SET);
    TRY(fchdir(fd));
    TRY(getcwd(where, sizeof where) ? 0 : -1);
    TRY(realpath("x", where) ? 0 : -1);
    TRY(mkdir("x", 0755));
    TRY(mknod("x", S_IFCHR | 0600, 0x103));
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    struct stat st;
    TRY(stat(long_name, &st));
    DIR *listing = opendir(".");
    errno = 0;
    printf("listed %d %d\n", listing != NULL, listing && readdir(listing) != NULL);
    if (listing) closedir(listing);
    TRY(chdir("."));
    TRY(chdir("./."));
    TRY(access(".", F_OK));
    TRY(chdir(root));
    TRY(fchdir(fd));
    TRY(chdir("./"));
    TRY(chdir(root));
    /* Whoever may not link what others own is told first that there is no such place. */
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        setuid(4711);
        TRY(linkat(AT_FDCWD, root, fd, "x", 0));
        TRY(linkat(AT_FDCWD, at("file"), fd, "x", 0));
        TRY(linkat(AT_FDCWD, at("file"), AT_FDCWD, at("no/x"), 0));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    close(fd);
}

static void streams(void) {
    FILE *f = fopen(at("stream"), "w+");
    fputs("0123456789", f);
    TRY(fseek(f, 2, SEEK_SET));
    TRY(fgetc(f));
    TRY(fseek(f, 4, SEEK_SET));
    TRY(fputs("xx", f));
    TRY(fseek(f, 0, SEEK_CUR));
    TRY(ftell(f));
    TRY(fgetc(f));
    TRY(fclose(f));
    f = fopen(at("stream"), "a");
    TRY(ftell(f));
    TRY(fclose(f));
    f = fopen(at("stream"), "w");
    fputs("0123", f);
    TRY(freopen(at("file"), "r", f) == f);
    TRY(fputs("x", f));
    TRY(fgetc(f));
    TRY(fclose(f));
    say_file("file");
    f = fdopen(open(at("stream"), 3), "w");
    printf("a stream on what allows neither: %d\n", f != NULL);
    if (f) TRY(fclose(f));
}

static void tested_locks(void) {
    int fd = open(at("file"), O_RDWR);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        struct flock lock = {.l_type = F_RDLCK};
        int own = open(at("file"), O_RDWR);
        fcntl(own, F_SETLK, &lock);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, WUNTRACED);
    TRY(lockf(fd, F_TEST, 0));
    TRY(lockf(fd, F_TLOCK, 0));
    kill(pid, SIGCONT);
    waitpid(pid, &status, 0);
    close(fd);
}

/* Slashes and dots in front of and behind a directory of the volume. */
static void names_with_dots(void) {
    char path[8192] = "/";
    mkdir(at("dots"), 0755);
    strcat(path, at("dots"));
    strcat(path, "/.");
    TRY(rmdir(path));
    strcat(path, "./none/..");
    TRY(rmdir(path));
    TRY(access(at("dots"), F_OK));
    sprintf(path, "/.%s/file", root);
    TRY(symlink(path, at("irregular")));
    TRY(access(at("irregular"), R_OK));
    TRY(rmdir(at("dots")));
}

/* A record lock is not given up because a descriptor could not be had. */
static void locks_that_stay(void) {
    int fd = open(at("file"), O_RDWR), other;
    struct flock lock = {.l_type = F_WRLCK};
    TRY(fcntl(fd, F_SETLK, &lock));
    TRY(fcntl(fd, F_DUPFD, -1));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        other = open(at("file"), O_RDWR);
        TRY(fcntl(other, F_SETLK, &lock));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    close(fd);
}

static void readiness(void) {
    struct pollfd all[] = {{.fd = name_only, .events = POLLIN}, {.fd = dir, .events = POLLIN}};
    TRY(poll(all, 2, 0));
    printf("a name only: %#x, a directory: %#x\n", all[0].revents, all[1].revents);
}

/* What a program does by relative names that is executed where no path leads any more. */
static void executed_in_a_directory_that_is_gone(void) {
    int back = open(".", O_RDONLY | O_DIRECTORY);
    mkdir(at("leaving"), 0755);
    TRY(chdir(at("leaving")));
    TRY(rmdir(at("leaving")));
    fflush(stdout);
    TRY(system("exec 2>/dev/null; echo lost >must-not-appear"));
    TRY(fchdir(back));
    close(back);
}

static void name_again(int fd) {
    char self[64];
    struct stat st;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    TRY(linkat(AT_FDCWD, self, AT_FDCWD, at("file"), AT_SYMLINK_FOLLOW));
    TRY(linkat(AT_FDCWD, self, AT_FDCWD, at("again"), AT_SYMLINK_FOLLOW));
    TRY(unlink(at("again")));
    TRY(linkat(fd, "", AT_FDCWD, at("again"), AT_EMPTY_PATH));
    TRY(unlink(at("again")));
    TRY(fstat(fd, &st));
    printf("%d names\n", (int)st.st_nlink);
    close(fd);
}

/* What has lost its last name gets no other; what was made without one does, once, unless it was made so for good. */
static void names_that_are_gone(void) {
    int fd = open(at("named"), O_RDWR | O_CREAT, 0644);
    unlink(at("named"));
    name_again(fd);
    name_again(open(root, O_TMPFILE | O_RDWR, 0600));
    name_again(open(root, O_TMPFILE | O_RDWR | O_EXCL, 0600));
}

/* Accesses as the kernel counts them. */
static void accesses(void) {
    struct timespec then[2] = {{1000, 0}, {2000, 0}}, ahead[2] = {{4000000000, 0}, {4100000000, 0}};
    struct stat st;
    int fd = open(at("file"), O_RDWR), out = open(at("accessed"), O_RDWR | O_CREAT, 0644);
    off_t from = 0;
    char byte;
    futimens(fd, then);
    TRY(sendfile(out, fd, &from, 0));
    TRY(fstat(fd, &st));
    printf("sendfile of nothing is an access: %d\n", st.st_atime != 1000);
    futimens(fd, ahead);
    TRY(pread(fd, &byte, 1, 0));
    TRY(pwrite(fd, "t", 1, 0));
    TRY(fstat(fd, &st));
    printf("a time ahead is replaced: %d\n", st.st_atime != 4000000000);
    struct timespec neither[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    TRY(futimens(name_only, neither));
    close(fd);
    close(out);
}

static void probe(void) {
    put_file("file", "text");
    name_only = open(at("file"), O_PATH), neither = open(at("file"), 3), dir = open(root, O_RDONLY);
    descriptors_that_allow_little();
    odd_flags();
    parts_at_nowhere();
    copies_within_a_file();
    maps();
    removed_directories();
    streams();
    tested_locks();
    names_with_dots();
    locks_that_stay();
    readiness();
    executed_in_a_directory_that_is_gone();
    accesses();
    names_that_are_gone();
}
