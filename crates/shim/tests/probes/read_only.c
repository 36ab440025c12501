/* What calls say of a file system that is mounted read-only. The first run fills the directory, the second looks. */
#include "probe.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <utime.h>

static void fill(void) {
    put_file("file", "text");
    put_file("other", "other");
    put_file("closed", "closed");
    chmod(at("closed"), 0444);
    mkdir(at("dir"), 0755);
    mkdir(at("empty"), 0755);
    put_file("dir/inner", "inner");
    symlink("file", at("link"));
    symlink("none", at("dangling"));
    mkfifo(at("fifo"), 0644);
    setxattr(at("file"), "user.a", "1", 1, 0);
    struct timespec old[2] = {{1000, 0}, {2000, 0}};
    utimensat(AT_FDCWD, at("file"), old, 0);
}

/* Each of these would change something. */
static void refused(void) {
    static const int modes[] = {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_WRONLY | O_APPEND, O_WRONLY | O_CREAT, O_RDWR | O_TRUNC | O_CREAT};
    int fd = open(at("file"), O_RDONLY), dir = open(at("dir"), O_RDONLY | O_DIRECTORY), path = open(at("file"), O_PATH);
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        printf("flags %#o: ", modes[i]);
        TRY(open(at("file"), modes[i], 0644));
        printf("through a link: ");
        TRY(open(at("link"), modes[i], 0644));
    }
    TRY(open(at("new"), O_RDONLY | O_CREAT, 0644));
    TRY(open(at("new"), O_WRONLY | O_CREAT | O_EXCL, 0644));
    TRY(open(at("dangling"), O_WRONLY | O_CREAT, 0644));
    TRY(creat(at("file"), 0644));
    TRY(openat(dir, "inner", O_WRONLY));
    TRY(openat(dir, "new", O_RDWR | O_CREAT, 0600));
    TRY(open(at("dir"), O_TMPFILE | O_RDWR, 0600));
    TRY(fopen(at("file"), "a") ? 0 : -1);
    TRY(fopen(at("file"), "r+") ? 0 : -1);
    TRY(fopen(at("new"), "w") ? 0 : -1);
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/tXXXXXX", root);
    TRY(mkstemp(name));
    snprintf(name, sizeof name, "%s/tXXXXXX", root);
    TRY(mkdtemp(name) ? 0 : -1);

    TRY(truncate(at("file"), 0));
    TRY(truncate(at("file"), 4));
    TRY(truncate(at("file"), 1000000));
    TRY(mkdir(at("new"), 0755));
    TRY(mkdirat(dir, "new", 0755));
    TRY(mknod(at("new"), S_IFREG | 0644, 0));
    TRY(mkfifo(at("new"), 0644));
    TRY(mknod(at("new"), S_IFSOCK | 0644, 0));
    TRY(symlink("x", at("new")));
    TRY(symlinkat("x", dir, "new"));
    TRY(link(at("file"), at("new")));
    TRY(linkat(fd, "", dir, "new", AT_EMPTY_PATH));
    TRY(unlink(at("file")));
    TRY(unlink(at("none")));
    TRY(unlink(at("dir")));
    TRY(unlinkat(dir, "inner", 0));
    TRY(rmdir(at("empty")));
    TRY(rmdir(at("dir")));
    TRY(rmdir(at("none")));
    TRY(rmdir(at("file")));
    TRY(remove(at("file")));
    TRY(rename(at("file"), at("new")));
    TRY(rename(at("file"), at("other")));
    TRY(rename(at("file"), at("file")));
    TRY(rename(at("none"), at("new")));
    TRY(rename(at("dir"), at("empty")));
    TRY(renameat2(AT_FDCWD, at("file"), AT_FDCWD, at("other"), RENAME_EXCHANGE));
    TRY(renameat2(AT_FDCWD, at("file"), AT_FDCWD, at("new"), RENAME_NOREPLACE));

    TRY(chmod(at("file"), 0600));
    TRY(chmod(at("file"), 0644));
    TRY(chmod(at("dir"), 0700));
    TRY(fchmod(fd, 0600));
    TRY(fchmodat(AT_FDCWD, at("link"), 0600, 0));
    TRY(chown(at("file"), -1, -1));
    TRY(chown(at("file"), getuid(), getgid()));
    TRY(lchown(at("link"), getuid(), getgid()));
    TRY(fchown(fd, getuid(), getgid()));
    struct timespec now[2] = {{5, 0}, {6, 0}}, nothing[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    TRY(utimensat(AT_FDCWD, at("file"), now, 0));
    TRY(utimensat(AT_FDCWD, at("file"), NULL, 0));
    TRY(utimensat(AT_FDCWD, at("link"), now, AT_SYMLINK_NOFOLLOW));
    TRY(futimens(fd, now));
    TRY(futimens(fd, NULL));
    TRY(utimes(at("file"), NULL));
    TRY(utime(at("file"), NULL));
    TRY(setxattr(at("file"), "user.b", "1", 1, 0));
    TRY(setxattr(at("file"), "user.a", "1", 1, XATTR_CREATE));
    TRY(lsetxattr(at("file"), "user.b", "1", 1, XATTR_REPLACE));
    TRY(fsetxattr(fd, "user.b", "1", 1, 0));
    TRY(removexattr(at("file"), "user.a"));
    TRY(removexattr(at("file"), "user.none"));
    TRY(fremovexattr(fd, "user.a"));

    TRY(access(at("file"), W_OK));
    TRY(access(at("file"), R_OK | W_OK));
    TRY(access(at("link"), W_OK));
    TRY(access(at("dir"), W_OK));
    TRY(access(root, W_OK));
    TRY(faccessat(AT_FDCWD, at("file"), W_OK, AT_EACCESS));
    TRY(faccessat(dir, "inner", W_OK, 0));
    TRY(eaccess(at("file"), W_OK));
    struct sockaddr_un name_of = {.sun_family = AF_UNIX};
    if (chdir(root)) return;
    strcpy(name_of.sun_path, "socket");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(bind(s, (struct sockaddr *)&name_of, sizeof name_of));
    close(s), close(fd), close(dir), close(path);
}

/* Other errors come first, or nothing would be changed. */
static void otherwise(void) {
    int fd = open(at("file"), O_RDONLY), dir = open(at("dir"), O_RDONLY | O_DIRECTORY), path = open(at("file"), O_PATH);
    TRY(open(at("none"), O_WRONLY));
    TRY(open(at("dir"), O_WRONLY));
    TRY(open(at("dir"), O_RDONLY | O_CREAT, 0644));
    TRY(open(at("file"), O_WRONLY | O_CREAT | O_EXCL, 0644));
    TRY(open(at("file/x"), O_WRONLY | O_CREAT, 0644));
    TRY(open(at("none/x"), O_WRONLY | O_CREAT, 0644));
    OK(open(at("file"), O_RDONLY | O_CREAT, 0644));
    OK(open(at("file"), O_RDONLY | O_APPEND));
    OK(open(at("fifo"), O_RDWR | O_NONBLOCK));
    TRY(truncate(at("none"), 0));
    TRY(truncate(at("dir"), 0));
    TRY(truncate(at("file"), -1));
    TRY(mkdir(at("dir"), 0755));
    TRY(mkdir(at("none/x"), 0755));
    TRY(mknod(at("file"), S_IFREG | 0644, 0));
    TRY(symlink("x", at("file")));
    TRY(symlink("", at("new")));
    TRY(link(at("none"), at("new")));
    TRY(link(at("file"), at("other")));
    TRY(link(at("dir"), at("new")));
    TRY(unlink(at("none/x")));
    TRY(rmdir(at("none/x")));
    TRY(rmdir(at("dir/.")));
    TRY(rename(at("none/x"), at("new")));
    TRY(renameat2(AT_FDCWD, at("file"), AT_FDCWD, at("new"), 64));
    TRY(chmod(at("none"), 0600));
    TRY(fchmod(path, 0600));
    TRY(fchmod(777, 0600));
    TRY(chown(at("none"), -1, -1));
    struct timespec nothing[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}}, wrong[2] = {{0, -5}, {0, 0}};
    TRY(utimensat(AT_FDCWD, at("file"), nothing, 0));
    TRY(utimensat(AT_FDCWD, at("file"), wrong, 0));
    TRY(utimensat(AT_FDCWD, at("none"), NULL, 0));
    TRY(setxattr(at("none"), "user.b", "1", 1, 0));
    TRY(fsetxattr(path, "user.b", "1", 1, 0));
    TRY(setxattr(at("file"), "", "1", 1, 0));
    TRY(getxattr(at("file"), "user.a", NULL, 0));
    TRY(access(at("none"), W_OK));
    TRY(access(at("file"), R_OK));
    TRY(access(at("dir"), R_OK | X_OK));
    TRY(access(at("fifo"), W_OK));
    TRY(access(at("file"), F_OK));

    char buffer[16];
    TRY(write(fd, "x", 1));
    TRY(pwrite(fd, "x", 1, 0));
    TRY(ftruncate(fd, 0));
    TRY(ftruncate(fd, 4));
    TRY(fallocate(fd, 0, 0, 100));
    TRY(posix_fallocate(fd, 0, 100));
    TRY(copy_file_range(fd, NULL, fd, NULL, 1, 0));
    TRY(read(fd, buffer, sizeof buffer));
    TRY(fsync(fd));
    TRY(fdatasync(fd));
    TRY(fsync(dir));
    TRY(flock(fd, LOCK_EX | LOCK_NB));
    TRY(flock(fd, LOCK_SH));
    TRY(flock(dir, LOCK_EX | LOCK_NB));
    TRY(flock(fd, LOCK_UN));
    struct flock lock = {.l_type = F_RDLCK};
    TRY(fcntl(fd, F_SETLK, &lock));
    lock.l_type = F_WRLCK;
    TRY(fcntl(fd, F_SETLK, &lock));
    TRY(fcntl(fd, F_SETFL, O_APPEND));
    TRY(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
    TRY(mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    char *shared = mmap(NULL, 4, PROT_READ, MAP_SHARED, fd, 0), *own = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (shared == MAP_FAILED || own == MAP_FAILED) { printf("no maps\n"); return; }
    TRY(mprotect(shared, 4, PROT_READ | PROT_WRITE));
    own[0] = 'T';
    printf("%.4s %.4s\n", shared, own);
    struct statvfs vfs;
    struct statfs fs;
    TRY(statvfs(root, &vfs));
    printf("read-only: %d\n", !!(vfs.f_flag & ST_RDONLY));
    TRY(fstatvfs(fd, &vfs));
    printf("read-only: %d\n", !!(vfs.f_flag & ST_RDONLY));
    TRY(statfs(root, &fs));
    printf("read-only: %d\n", !!(fs.f_flags & ST_RDONLY));
    TRY(fstatfs(dir, &fs));
    printf("read-only: %d\n", !!(fs.f_flags & ST_RDONLY));
    struct stat st;
    TRY(stat(at("file"), &st));
    printf("read at %lld, changed at %lld, %d names, mode %o\n", (long long)st.st_atime, (long long)st.st_mtime, (int)st.st_nlink, st.st_mode);
    sync();
    say_file("file");
}

static void probe(void) {
    if (access(at("file"), F_OK)) {
        fill();
        return;
    }
    printf("refused\n");
    refused();
    printf("otherwise\n");
    otherwise();
}
