/* How much stack the hooks need.
 *
 *   stacks DIR measure   each case in a process of its own, twice, on a stack without a guard that is painted all over:
 *                        "case first second", in bytes that were touched
 *   stacks DIR threads   each case in a process of its own, on a thread with the least stack there is (16 KiB):
 *                        "case ok", or how it ended
 *
 * A case opens all it needs, so that the first time includes whatever a process does once: connecting, reporting. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <aio.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <mntent.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <utime.h>
#include <utmp.h>
#include <wchar.h>
#include <wordexp.h>

extern char **environ;

static const char *root;

static char f_path[PATH_MAX], d_path[PATH_MAX], l_path[PATH_MAX], out_path[PATH_MAX], n_path[PATH_MAX];
static char true_path[PATH_MAX], script_path[PATH_MAX], plain_path[PATH_MAX], lib_path[PATH_MAX], text_path[PATH_MAX];
static char round_path[PATH_MAX], glob_path[PATH_MAX], m_path[PATH_MAX], n2_path[PATH_MAX];
static char big[65536], big2[65536];
static struct stat st;

struct test {
    const char *name;
    void (*run)(void);
};
static struct test tests[400];
static int count;

#define CASE(NAME)                                                                          \
    static void case_##NAME(void);                                                          \
    __attribute__((constructor)) static void add_##NAME(void) {                             \
        tests[count++] = (struct test){#NAME, case_##NAME};                                 \
    }                                                                                       \
    static void case_##NAME(void)

static void complain(const char *what) {
    /* Without a stream, which would need stack of its own. */
    write(2, what, strlen(what));
    write(2, " fails: ", 8);
    const char *error = strerrorname_np(errno);
    if (error)
        write(2, error, strlen(error));
    write(2, "\n", 1);
}
#define MUST(expression)                                                                    \
    do {                                                                                    \
        if (!(expression))                                                                  \
            complain(#expression);                                                          \
    } while (0)

static int open_f(int flags) {
    int fd = open(f_path, flags, 0644);
    MUST(fd >= 0);
    return fd;
}
static void end_child(pid_t pid) {
    MUST(pid > 0);
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        errno = 0;
        complain("a child");
    }
}

CASE(open) { close(open_f(O_RDONLY)); }
CASE(open_create) {
    int fd = open(n_path, O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(fd >= 0);
    close(fd);
    MUST(unlink(n_path) == 0);
}
CASE(open_missing) { MUST(open(n_path, O_RDONLY) < 0); }
CASE(open_roundabout) {
    int fd = open(round_path, O_RDONLY);
    MUST(fd >= 0);
    close(fd);
}
CASE(open_outside) {
    int fd = open(out_path, O_RDONLY);
    MUST(fd >= 0);
    close(fd);
}
CASE(open_symlink) { close(open(l_path, O_RDONLY)); }
CASE(open_path) { close(open_f(O_PATH)); }
CASE(open_unnamed) { close(open(d_path, O_TMPFILE | O_RDWR, 0600)); }
CASE(creat) {
    int fd = creat(n_path, 0600);
    MUST(fd >= 0);
    close(fd);
    unlink(n_path);
}
CASE(openat) {
    int dir = open(d_path, O_RDONLY | O_DIRECTORY);
    int fd = openat(dir, "../f", O_RDONLY);
    MUST(fd >= 0);
    close(fd);
    fd = openat(dir, "x", O_RDONLY);
    close(fd);
    close(dir);
}
CASE(open_descriptor) {
    static char path[40];
    int fd = open_f(O_RDONLY);
    strcpy(path, "/dev/fd/");
    int n = 8;
    if (fd >= 100)
        path[n++] = '0' + fd / 100;
    if (fd >= 10)
        path[n++] = '0' + fd / 10 % 10;
    path[n++] = '0' + fd % 10;
    path[n] = 0;
    int again = open(path, O_RDONLY);
    MUST(again >= 0);
    MUST(realpath(path, big) != NULL);
    MUST(readlink(path, big, sizeof big) != 0);
    close(again);
    close(fd);
}
CASE(relative_names) {
    MUST(chdir(d_path) == 0);
    int fd = open("../f", O_RDONLY);
    MUST(fd >= 0);
    close(fd);
    fd = open("x", O_RDONLY);
    MUST(fd >= 0);
    close(fd);
    MUST(open("../../../../../../../../../../../../nowhere", O_RDONLY) < 0);
    MUST(stat("..", &st) == 0);
    MUST(realpath("..", big) != NULL);
    MUST(realpath("x", big) != NULL);
    MUST(getcwd(big, sizeof big) != NULL);
    MUST(chdir("/") == 0);
}
CASE(close_range) {
    int fd = open_f(O_RDONLY);
    MUST(close_range(fd, fd, 0) == 0);
}
CASE(closefrom) {
    open_f(O_RDONLY);
    closefrom(20);
}
CASE(dup) {
    int fd = open_f(O_RDONLY), more = dup(fd);
    MUST(dup2(fd, 90) == 90);
    MUST(dup3(fd, 91, O_CLOEXEC) == 91);
    close(more), close(90), close(91), close(fd);
}
CASE(read_write) {
    int fd = open_f(O_RDWR);
    MUST(read(fd, big, 100) == 100);
    MUST(write(fd, big, 100) == 100);
    MUST(pread(fd, big, sizeof big, 0) > 0);
    MUST(pwrite(fd, big, 5000, 100) == 5000);
    MUST(lseek(fd, 0, SEEK_END) > 0);
    MUST(lseek(fd, 0, SEEK_DATA) == 0);
    close(fd);
}
CASE(append) {
    int fd = open(n_path, O_RDWR | O_CREAT | O_APPEND, 0600);
    for (int i = 0; i < 3; i++)
        MUST(write(fd, big, sizeof big) == sizeof big);
    MUST(pread(fd, big, sizeof big, 1000) > 0);
    MUST(fsync(fd) == 0);
    MUST(pread(fd, big, sizeof big, 1000) > 0);
    close(fd);
    unlink(n_path);
}
CASE(vectored) {
    static struct iovec parts[20];
    for (int i = 0; i < 20; i++)
        parts[i] = (struct iovec){big + i * 100, 100};
    int fd = open_f(O_RDWR);
    MUST(readv(fd, parts, 20) > 0);
    MUST(writev(fd, parts, 20) > 0);
    MUST(preadv(fd, parts, 20, 0) > 0);
    MUST(pwritev(fd, parts, 20, 0) > 0);
    MUST(preadv2(fd, parts, 20, 0, 0) > 0);
    MUST(pwritev2(fd, parts, 20, 0, 0) > 0);
    close(fd);
}
CASE(copy_file_range) {
    int from = open_f(O_RDONLY), to = open(n_path, O_RDWR | O_CREAT, 0600);
    MUST(copy_file_range(from, NULL, to, NULL, 3000, 0) == 3000);
    off_t at = 0;
    MUST(sendfile(to, from, &at, 3000) == 3000);
    close(from), close(to);
    unlink(n_path);
}
CASE(splice) {
    int ends[2], fd = open_f(O_RDWR);
    MUST(pipe(ends) == 0);
    MUST(splice(fd, NULL, ends[1], NULL, 3000, 0) > 0);
    loff_t at = 0;
    MUST(splice(ends[0], NULL, fd, &at, 3000, 0) > 0);
    close(fd), close(ends[0]), close(ends[1]);
}
CASE(aio) {
    static struct aiocb cb, *list[1] = {&cb};
    int fd = open_f(O_RDWR);
    memset(&cb, 0, sizeof cb);
    cb.aio_fildes = fd, cb.aio_buf = big, cb.aio_nbytes = 100;
    const struct aiocb *wait[1] = {&cb};
    MUST(aio_read(&cb) == 0);
    aio_suspend(wait, 1, NULL);
    MUST(aio_return(&cb) == 100);
    MUST(aio_write(&cb) == 0);
    aio_suspend(wait, 1, NULL);
    aio_return(&cb);
    MUST(aio_fsync(O_SYNC, &cb) == 0);
    aio_suspend(wait, 1, NULL);
    aio_return(&cb);
    cb.aio_lio_opcode = LIO_READ;
    MUST(lio_listio(LIO_WAIT, list, 1, NULL) == 0);
    aio_return(&cb);
    close(fd);
}
CASE(durability) {
    int fd = open_f(O_RDWR);
    MUST(fsync(fd) == 0);
    MUST(fdatasync(fd) == 0);
    MUST(syncfs(fd) == 0);
    MUST(sync_file_range(fd, 0, 100, 0) == 0);
    sync();
    close(fd);
}
CASE(space) {
    static struct statfs sf;
    static struct statvfs sv;
    int fd = open_f(O_RDWR);
    MUST(ftruncate(fd, 9000) == 0);
    MUST(truncate(f_path, 8192) == 0);
    MUST(fallocate(fd, 0, 0, 8192) == 0);
    MUST(posix_fallocate(fd, 0, 8192) == 0);
    MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED) == 0);
    readahead(fd, 0, 4096);
    MUST(statfs(f_path, &sf) == 0);
    MUST(fstatfs(fd, &sf) == 0);
    MUST(statvfs(f_path, &sv) == 0);
    MUST(fstatvfs(fd, &sv) == 0);
    MUST(pathconf(f_path, _PC_NAME_MAX) > 0);
    MUST(fpathconf(fd, _PC_NAME_MAX) > 0);
    close(fd);
}
CASE(stat) {
    static struct statx sx;
    int fd = open_f(O_RDONLY);
    MUST(stat(f_path, &st) == 0);
    MUST(lstat(l_path, &st) == 0);
    MUST(stat(out_path, &st) == 0);
    MUST(fstat(fd, &st) == 0);
    MUST(fstatat(AT_FDCWD, f_path, &st, 0) == 0);
    MUST(statx(AT_FDCWD, f_path, 0, STATX_ALL, &sx) == 0);
    MUST(access(f_path, R_OK) == 0);
    MUST(faccessat(AT_FDCWD, f_path, R_OK, AT_EACCESS) == 0);
    MUST(eaccess(f_path, R_OK) == 0);
    MUST(euidaccess(f_path, R_OK) == 0);
    ftok(f_path, 1);
    close(fd);
}
CASE(change_attributes) {
    static struct timespec times[2];
    static struct timeval tv[2];
    static struct utimbuf ut;
    int fd = open_f(O_RDWR);
    MUST(chmod(f_path, 0644) == 0);
    MUST(fchmod(fd, 0644) == 0);
    MUST(fchmodat(AT_FDCWD, f_path, 0644, 0) == 0);
    lchmod(f_path, 0644);
    MUST(chown(f_path, -1, -1) == 0);
    MUST(lchown(f_path, -1, -1) == 0);
    MUST(fchown(fd, -1, -1) == 0);
    MUST(fchownat(AT_FDCWD, f_path, -1, -1, 0) == 0);
    MUST(utime(f_path, &ut) == 0);
    MUST(utimes(f_path, tv) == 0);
    MUST(lutimes(f_path, tv) == 0);
    MUST(futimes(fd, tv) == 0);
    MUST(futimesat(AT_FDCWD, f_path, tv) == 0);
    MUST(utimensat(AT_FDCWD, f_path, times, 0) == 0);
    MUST(futimens(fd, times) == 0);
    umask(umask(022));
    close(fd);
}
CASE(xattr) {
    int fd = open_f(O_RDWR);
    MUST(setxattr(f_path, "user.a", "b", 1, 0) == 0);
    MUST(lsetxattr(f_path, "user.a", "b", 1, 0) == 0);
    MUST(fsetxattr(fd, "user.a", "b", 1, 0) == 0);
    MUST(getxattr(f_path, "user.a", big, 10) == 1);
    MUST(lgetxattr(f_path, "user.a", big, 10) == 1);
    MUST(fgetxattr(fd, "user.a", big, 10) == 1);
    MUST(listxattr(f_path, big, sizeof big) > 0);
    MUST(llistxattr(f_path, big, sizeof big) > 0);
    MUST(flistxattr(fd, big, sizeof big) > 0);
    MUST(removexattr(f_path, "user.a") == 0);
    lremovexattr(f_path, "user.a");
    fremovexattr(fd, "user.a");
    close(fd);
}
CASE(mkdir) {
    MUST(mkdir(n_path, 0755) == 0);
    MUST(rmdir(n_path) == 0);
    MUST(mkdirat(AT_FDCWD, n_path, 0755) == 0);
    MUST(unlinkat(AT_FDCWD, n_path, AT_REMOVEDIR) == 0);
    MUST(mkdir(n_path, 0755) == 0);
    MUST(remove(n_path) == 0);
}
CASE(rename) {
    MUST(rename(m_path, n_path) == 0);
    MUST(renameat(AT_FDCWD, n_path, AT_FDCWD, m_path) == 0);
    MUST(renameat2(AT_FDCWD, m_path, AT_FDCWD, n_path, 0) == 0);
    MUST(rename(n_path, m_path) == 0);
    MUST(rename(n_path, "/nowhere/x") < 0);
    MUST(rename(f_path, "/proc/x") < 0);
    MUST(rename("/proc/version", n_path) < 0);
}
CASE(link) {
    MUST(link(m_path, n_path) == 0);
    MUST(unlink(n_path) == 0);
    MUST(linkat(AT_FDCWD, m_path, AT_FDCWD, n_path, 0) == 0);
    MUST(unlink(n_path) == 0);
    MUST(link("/proc/version", n_path) < 0);
    int fd = open_f(O_RDONLY);
    linkat(fd, "", AT_FDCWD, n_path, AT_EMPTY_PATH);
    unlink(n_path);
    close(fd);
}
CASE(symlink) {
    MUST(symlink("f", n_path) == 0);
    MUST(readlink(n_path, big, sizeof big) == 1);
    MUST(readlinkat(AT_FDCWD, n_path, big, sizeof big) == 1);
    MUST(unlink(n_path) == 0);
    MUST(symlinkat("f", AT_FDCWD, n_path) == 0);
    MUST(unlink(n_path) == 0);
}
CASE(realpath) {
    MUST(realpath(f_path, big) != NULL);
    MUST(realpath(round_path, big) != NULL);
    MUST(realpath(out_path, big) != NULL);
    char *path = canonicalize_file_name(l_path);
    MUST(path);
    free(path);
}
CASE(mknod) {
    MUST(mknod(n_path, S_IFREG | 0600, 0) == 0);
    MUST(unlink(n_path) == 0);
    MUST(mkfifo(n_path, 0600) == 0);
    int fd = open(n_path, O_RDWR | O_NONBLOCK);
    MUST(fd >= 0);
    close(fd);
    MUST(unlink(n_path) == 0);
    MUST(mkfifoat(AT_FDCWD, n_path, 0600) == 0);
    MUST(unlink(n_path) == 0);
    MUST(mknodat(AT_FDCWD, n_path, S_IFREG | 0600, 0) == 0);
    MUST(unlink(n_path) == 0);
}
static char pattern[PATH_MAX];
static char *fresh_pattern(const char *tail) {
    strcpy(pattern, root);
    return strcat(pattern, tail);
}
CASE(temporary_names) {
    int fd = mkstemp(fresh_pattern("/tXXXXXX"));
    MUST(fd >= 0);
    close(fd), unlink(pattern);
    fd = mkostemp(fresh_pattern("/tXXXXXX"), O_CLOEXEC);
    close(fd), unlink(pattern);
    fd = mkstemps(fresh_pattern("/tXXXXXX.c"), 2);
    close(fd), unlink(pattern);
    fd = mkostemps(fresh_pattern("/tXXXXXX.c"), 2, 0);
    close(fd), unlink(pattern);
    MUST(mkdtemp(fresh_pattern("/tXXXXXX")));
    rmdir(pattern);
    char *(*make)(char *) = (char *(*)(char *))dlsym(RTLD_DEFAULT, "mktemp");
    MUST(*make(fresh_pattern("/tXXXXXX")));
    char *(*name)(const char *, const char *) = (char *(*)(const char *, const char *))dlsym(RTLD_DEFAULT, "tempnam");
    free(name(root, "t"));
}
CASE(directory) {
    DIR *dir = opendir(d_path);
    MUST(dir);
    while (readdir(dir)) {
    }
    rewinddir(dir);
    static struct dirent entry, *result;
    MUST(readdir_r(dir, &entry, &result) == 0);
    seekdir(dir, telldir(dir));
    MUST(dirfd(dir) >= 0);
    MUST(closedir(dir) == 0);
    int fd = open(d_path, O_RDONLY | O_DIRECTORY);
    MUST(getdents64(fd, big, sizeof big) > 0);
    lseek(fd, 0, SEEK_SET);
    off_t base = 0;
    getdirentries(fd, big, sizeof big, &base);
    dir = fdopendir(fd);
    MUST(dir);
    closedir(dir);
}
CASE(scandir) {
    struct dirent **list;
    int n = scandir(d_path, &list, NULL, alphasort);
    MUST(n > 0);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    n = scandirat(AT_FDCWD, d_path, &list, NULL, NULL);
    MUST(n > 0);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
}
static int seen;
static int visit_new(const char *path, const struct stat *attr, int kind, struct FTW *at) { return seen++, 0; }
static int visit_old(const char *path, const struct stat *attr, int kind) { return seen++, 0; }
CASE(nftw) {
    seen = 0;
    MUST(nftw(d_path, visit_new, 10, FTW_PHYS) == 0);
    MUST(nftw(d_path, visit_new, 10, FTW_PHYS | FTW_CHDIR | FTW_DEPTH) == 0);
    MUST(ftw(d_path, visit_old, 10) == 0);
    MUST(seen > 12);
}
CASE(fts) {
    char *roots[] = {d_path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    MUST(walk);
    FTSENT *node;
    for (int n = 0; (node = fts_read(walk)); n++)
        if (n == 0) {
            fts_children(walk, 0);
            fts_set(walk, node, FTS_AGAIN);
        }
    MUST(fts_close(walk) == 0);
}
CASE(glob) {
    static glob_t found;
    MUST(glob(glob_path, 0, NULL, &found) == 0);
    globfree(&found);
}
CASE(wordexp) {
    static wordexp_t words;
    wordexp(glob_path, &words, WRDE_NOCMD);
}
CASE(working_directory) {
    MUST(chdir(d_path) == 0);
    MUST(getcwd(big, sizeof big));
    char *(*wd)(char *) = (char *(*)(char *))dlsym(RTLD_DEFAULT, "getwd");
    MUST(wd(big));
    free(get_current_dir_name());
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    MUST(fchdir(fd) == 0);
    close(fd);
    chroot(f_path);
    MUST(chdir("/") == 0);
}
CASE(control) {
    int fd = open_f(O_RDWR), ready = 0;
    static struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    MUST(fcntl(fd, F_SETLK, &lock) == 0);
    MUST(fcntl(fd, F_GETLK, &lock) == 0);
    MUST(fcntl(fd, F_GETFL) >= 0);
    MUST(fcntl(fd, F_SETFL, O_APPEND) == 0);
    int more = fcntl(fd, F_DUPFD, 50);
    MUST(more >= 50);
    close(more);
    fcntl(fd, 99999);
    MUST(flock(fd, LOCK_EX) == 0);
    MUST(flock(fd, LOCK_UN) == 0);
    lseek(fd, 0, SEEK_SET);
    MUST(lockf(fd, F_LOCK, 10) == 0);
    MUST(lockf(fd, F_ULOCK, 10) == 0);
    MUST(ioctl(fd, FIONREAD, &ready) == 0);
    ioctl(fd, TIOCGWINSZ, big);
    close(fd);
}
CASE(map_private) {
    int fd = open_f(O_RDONLY);
    char *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    MUST(p != MAP_FAILED);
    munmap(p, 8192);
    p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    MUST(p != MAP_FAILED);
    mremap(p, 8192, 4096, 0);
    munmap(p, 4096);
    close(fd);
}
CASE(map_shared) {
    int fd = open_f(O_RDWR);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(p != MAP_FAILED);
    p[0] ^= 1, p[5000] ^= 1;
    MUST(msync(p, 8192, MS_SYNC) == 0);
    p[100] ^= 1;
    MUST(pread(fd, big, 4096, 0) == 4096);
    MUST(pwrite(fd, big, 4096, 0) == 4096);
    p[200] ^= 1;
    end_child(({
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        pid;
    }));
    MUST(ftruncate(fd, 8192) == 0);
    MUST(mprotect(p, 4096, PROT_READ | PROT_WRITE) == 0);
    char *q = mremap(p, 8192, 4096, MREMAP_MAYMOVE);
    MUST(q != MAP_FAILED);
    q[300] ^= 1;
    MUST(munmap(q, 4096) == 0);
    MUST(fsync(fd) == 0);
    close(fd);
}
CASE(stream) {
    FILE *file = fopen(f_path, "r+");
    MUST(file);
    MUST(fread(big, 1, 5000, file) == 5000);
    fseek(file, 0, SEEK_SET);
    MUST(fwrite(big, 1, 5000, file) == 5000);
    MUST(fflush(file) == 0);
    rewind(file);
    fgets(big, 100, file);
    fileno(file);
    fclose(file);
    int fd = open_f(O_RDWR);
    file = fdopen(fd, "r+");
    MUST(file);
    fclose(file);
}
CASE(print) {
    FILE *file = fopen(text_path, "w");
    MUST(fprintf(file, "%d %s %g\n", 42, "text", 2.5) > 0);
    MUST(fclose(file) == 0);
    file = fopen(text_path, "r");
    int n;
    MUST(fscanf(file, "%d", &n) == 1);
    fclose(file);
    int fd = open(text_path, O_WRONLY | O_APPEND);
    MUST(dprintf(fd, "%d %s\n", 42, "text") > 0);
    close(fd);
}
CASE(print_stdout) {
    int saved = dup(1), fd = open(text_path, O_WRONLY | O_TRUNC);
    dup2(fd, 1);
    printf("%d %s\n", 42, "text");
    fflush(stdout);
    dup2(saved, 1);
    close(saved), close(fd);
}
CASE(wide) {
    FILE *file = fopen(text_path, "w");
    MUST(fwide(file, 1) > 0);
    MUST(fputwc(L'a', file) == L'a');
    fputws(L"b c\n", file);
    MUST(fwprintf(file, L"%d\n", 7) > 0);
    MUST(fclose(file) == 0);
    file = fopen(text_path, "r");
    static wchar_t line[100];
    MUST(fgetwc(file) == L'a');
    ungetwc(L'a', file);
    MUST(fgetws(line, 100, file));
    int n;
    MUST(fwscanf(file, L"%d", &n) == 1);
    fclose(file);
}
CASE(freopen) {
    int saved = dup(0);
    MUST(freopen(f_path, "r", stdin));
    getchar();
    dup2(saved, 0);
    close(saved);
}
CASE(temporary_file) {
    FILE *file = tmpfile();
    MUST(file);
    fclose(file);
}
CASE(mount_table) {
    FILE *file = setmntent(text_path, "r");
    MUST(file);
    endmntent(file);
}
static void on_signal(int number);
CASE(backtrace) {
    void *at[1] = {on_signal};
    int fd = open(text_path, O_WRONLY | O_APPEND);
    backtrace_symbols_fd(at, 1, fd);
    close(fd);
}
CASE(fork) {
    pid_t pid = fork();
    if (pid == 0) {
        close(open(f_path, O_RDONLY));
        _exit(0);
    }
    end_child(pid);
    pid = _Fork();
    if (pid == 0)
        _exit(0);
    end_child(pid);
}
CASE(fork_connected) {
    int fd = open_f(O_RDWR);
    pid_t pid = fork();
    if (pid == 0)
        _exit(read(fd, big, 10) == 10 ? 0 : 1);
    end_child(pid);
    pid = vfork();
    if (pid == 0)
        _exit(0);
    end_child(pid);
    close(fd);
}
static int child(void *argument) {
    _exit(open(f_path, O_RDONLY) < 0);
}
CASE(clone) {
    static char stack[65536] __attribute__((aligned(16)));
    end_child(clone(child, stack + sizeof stack, SIGCHLD, NULL));
}
CASE(exec) {
    char *arguments[] = {"x", NULL};
    MUST(execve(n_path, arguments, environ) < 0);
    MUST(execv(plain_path, arguments) < 0);
    MUST(execvp(n_path, arguments) < 0);
    MUST(execvpe("no-such-program", arguments, environ) < 0);
    MUST(execl(n_path, "x", NULL) < 0);
    MUST(execlp("no-such-program", "x", NULL) < 0);
    MUST(execle(n_path, "x", NULL, environ) < 0);
    MUST(execveat(AT_FDCWD, n_path, arguments, environ, 0) < 0);
    int fd = open(plain_path, O_RDONLY);
    MUST(fexecve(fd, arguments, environ) < 0);
    close(fd);
}
CASE(exec_program) {
    int fd = open_f(O_RDONLY);
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {"true", NULL};
        execv(true_path, arguments);
        _exit(1);
    }
    end_child(pid);
    pid = fork();
    if (pid == 0) {
        char *arguments[] = {"true", NULL};
        execvp("true", arguments);
        _exit(1);
    }
    end_child(pid);
    pid = fork();
    if (pid == 0) {
        char *arguments[] = {"script", NULL};
        execv(script_path, arguments);
        _exit(1);
    }
    end_child(pid);
    close(fd);
}
CASE(spawn) {
    static char *arguments[] = {"true", NULL};
    pid_t pid = 0;
    MUST(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) == 0);
    end_child(pid);
    MUST(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) == 0);
    end_child(pid);
    MUST(posix_spawn(&pid, true_path, NULL, NULL, arguments, environ) == 0);
    end_child(pid);
    MUST(posix_spawn(&pid, script_path, NULL, NULL, arguments, environ) == 0);
    end_child(pid);
}
CASE(spawn_actions) {
    static char *arguments[] = {"true", NULL};
    static posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, f_path, O_RDONLY, 0);
    MUST(posix_spawn(&pid, "/bin/true", &actions, NULL, arguments, environ) == 0);
    end_child(pid);
    posix_spawn_file_actions_destroy(&actions);
}
CASE(system) { MUST(system("true") == 0); }
CASE(popen) {
    FILE *file = popen("echo x", "r");
    MUST(file);
    MUST(fgetc(file) == 'x');
    MUST(pclose(file) == 0);
}
CASE(daemon) {
    pid_t pid = fork();
    if (pid == 0) {
        daemon(0, 1);
        _exit(0);
    }
    end_child(pid);
}
CASE(forkpty) {
    int master;
    pid_t pid = forkpty(&master, NULL, NULL, NULL);
    if (pid == 0)
        _exit(0);
    end_child(pid);
    close(master);
}
CASE(quick_exit) {
    pid_t pid = fork();
    if (pid == 0)
        quick_exit(0);
    end_child(pid);
    pid = fork();
    if (pid == 0) {
        open_f(O_RDONLY);
        exit(0);
    }
    end_child(pid);
}
CASE(library) {
    void *library = dlopen(lib_path, RTLD_NOW);
    MUST(library);
    if (library)
        dlclose(library);
}
CASE(by_number) {
    int fd = syscall(SYS_openat, AT_FDCWD, f_path, O_RDWR, 0);
    MUST(fd >= 0);
    MUST(syscall(SYS_read, fd, big, 100L) == 100);
    MUST(syscall(SYS_newfstatat, AT_FDCWD, f_path, &st, 0) == 0);
    MUST(syscall(SYS_close, fd) == 0);
    MUST(syscall(SYS_renameat, AT_FDCWD, m_path, AT_FDCWD, n_path) == 0);
    MUST(syscall(SYS_renameat, AT_FDCWD, n_path, AT_FDCWD, m_path) == 0);
}
static void on_signal(int number) {
    int fd = open(f_path, O_RDONLY);
    read(fd, big2, 100);
    close(fd);
}
CASE(signals) {
    static struct sigaction action;
    static sigset_t set;
    static struct pollfd fds;
    static struct timespec soon;
    action.sa_handler = on_signal;
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    signal(SIGUSR2, SIG_IGN);
    sigemptyset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    fds.fd = -1;
    ppoll(&fds, 1, &soon, &set);
    pselect(0, NULL, NULL, NULL, &soon, &set);
}
static void *nothing(void *argument) { return NULL; }
CASE(thread) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, nothing, NULL) == 0);
    pthread_join(thread, NULL);
}
static struct sockaddr_un address;
CASE(sockets) {
    /* Relative: a path in an address is short. */
    MUST(chdir(root) == 0);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, "n");
    int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(bind(s, (struct sockaddr *)&address, sizeof address) == 0);
    MUST(listen(s, 5) == 0);
    MUST(connect(c, (struct sockaddr *)&address, sizeof address) == 0);
    static struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int a = accept(s, (struct sockaddr *)&from, &len);
    MUST(a >= 0);
    len = sizeof from;
    MUST(getsockname(s, (struct sockaddr *)&from, &len) == 0);
    len = sizeof from;
    MUST(getpeername(c, (struct sockaddr *)&from, &len) == 0);
    MUST(sendto(c, "x", 1, 0, NULL, 0) == 1);
    len = sizeof from;
    MUST(recvfrom(a, big, 10, 0, (struct sockaddr *)&from, &len) == 1);
    close(a), close(c), close(s);
    MUST(unlink("n") == 0);
    MUST(chdir("/") == 0);
}
CASE(pass) {
    int ends[2], fd = open_f(O_RDONLY);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    static char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    static struct iovec part;
    static struct msghdr message;
    part = (struct iovec){big, 1};
    message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    MUST(sendmsg(ends[0], &message, 0) == 1);
    message.msg_controllen = sizeof control;
    MUST(recvmsg(ends[1], &message, 0) == 1);
    head = CMSG_FIRSTHDR(&message);
    int got = -1;
    memcpy(&got, CMSG_DATA(head), sizeof got);
    MUST(read(got, big, 10) == 10);
    close(got), close(fd), close(ends[0]), close(ends[1]);
}
CASE(watch) {
    int fd = inotify_init();
    inotify_add_watch(fd, f_path, IN_MODIFY);
    close(fd);
    fd = fanotify_init(0, O_RDONLY);
    fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, f_path);
    close(fd);
    mount("x", d_path, "no such type", 0, NULL);
    static char handle[sizeof(struct file_handle) + 128] __attribute__((aligned(8)));
    ((struct file_handle *)handle)->handle_bytes = 128;
    int id;
    name_to_handle_at(AT_FDCWD, f_path, (struct file_handle *)handle, &id, 0);
}

/* ---- the fixture, and the measuring -------------------------------------------------------------------------------- */

static void copy(const char *from, const char *to, int mode) {
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n;
    while ((n = read(in, big, sizeof big)) > 0)
        write(out, big, n);
    close(in), close(out);
    chmod(to, mode);
}
static void paths(void) {
    struct {
        char *to;
        const char *tail;
    } all[] = {{f_path, "/f"},         {d_path, "/d"},        {l_path, "/l"},        {out_path, "/out"},
               {n_path, "/n"},         {m_path, "/m"},        {n2_path, "/n2"},      {true_path, "/true"},
               {script_path, "/script"}, {plain_path, "/plain"}, {lib_path, "/lib.so"}, {text_path, "/text"},
               {round_path, "/d/..//./f"}, {glob_path, "/d/*"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        strcat(strcpy(all[i].to, root), all[i].tail);
    /* By way of a directory that is not the volume's. */
    char *dots = round_path;
    static char whole[PATH_MAX];
    strcpy(whole, "/proc/..//");
    strcat(whole, dots + 1);
    strcpy(round_path, whole);
}
static void write_file(const char *path, const char *text, int mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    write(fd, text, strlen(text));
    close(fd);
    chmod(path, mode);
}
static void fixture(void) {
    int fd = open(f_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    memset(big, 'x', sizeof big);
    write(fd, big, 8192);
    close(fd);
    mkdir(d_path, 0755);
    static char path[PATH_MAX];
    write_file(strcat(strcpy(path, d_path), "/x"), "x", 0644);
    mkdir(strcat(strcpy(path, d_path), "/e"), 0755);
    write_file(strcat(strcpy(path, d_path), "/e/y"), "y", 0644);
    mkdir(strcat(strcpy(path, d_path), "/e/g"), 0755);
    symlink("f", l_path);
    symlink("/proc/version", out_path);
    write_file(m_path, "m", 0644);
    write_file(plain_path, "not a program", 0644);
    write_file(script_path, "#!/bin/sh\nexit 0\n", 0755);
    write_file(text_path, "7 text\n", 0644);
    copy("/bin/true", true_path, 0755);
    Dl_info known;
    /* Any library that the process has. */
    dladdr(dlsym(RTLD_DEFAULT, "openpty"), &known);
    copy(known.dli_fname, lib_path, 0755);
}

#include <ucontext.h>
enum { STACK = 1 << 20 };
static ucontext_t here, there;
static struct test *running;
static void on_fiber(void) { running->run(); }

static size_t depth(struct test *test) {
    static char *stack;
    if (!stack)
        stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(stack, 0xa5, STACK);
    getcontext(&there);
    there.uc_stack.ss_sp = stack, there.uc_stack.ss_size = STACK, there.uc_link = &here;
    running = test;
    makecontext(&there, on_fiber, 0);
    swapcontext(&here, &there);
    size_t clean = 0;
    while (clean < STACK && stack[clean] == (char)0xa5)
        clean++;
    return STACK - clean;
}
static void *on_thread(void *test) {
    ((struct test *)test)->run();
    return NULL;
}

int main(int argc, char **argv) {
    root = argv[1];
    paths();
    if (argc == 4) {
        struct test *test = tests;
        while (strcmp(test->name, argv[3]))
            test++;
        if (!strcmp(argv[2], "measure")) {
            size_t first = depth(test), second = depth(test);
            printf("%s %zu %zu\n", test->name, first, second);
            return 0;
        }
        pthread_attr_t least;
        pthread_attr_init(&least);
        MUST(pthread_attr_setstacksize(&least, 16384) == 0);
        pthread_t thread;
        for (int turn = 0; turn < 2; turn++) {
            MUST(pthread_create(&thread, &least, on_thread, test) == 0);
            pthread_join(thread, NULL);
        }
        printf("%s ok\n", test->name);
        return 0;
    }
    fixture();
    for (int i = 0; i < count; i++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            execl("/proc/self/exe", argv[0], argv[1], argv[2], tests[i].name, NULL);
            _exit(99);
        }
        int status;
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status))
            printf("%s ends by signal %d\n", tests[i].name, WTERMSIG(status));
        else if (status)
            printf("%s ends with %d\n", tests[i].name, WEXITSTATUS(status));
    }
    return 0;
}
