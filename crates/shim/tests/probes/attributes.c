/* Attributes, times, permissions, space, extended attributes. */
#include "probe.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

static void say_times(const char *name) {
    struct stat st;
    lstat(at(name), &st);
    printf("%s: %lld.%09ld %lld.%09ld\n", name, (long long)st.st_atim.tv_sec, st.st_atim.tv_nsec,
           (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

static void say_mode(const char *name) {
    struct stat st;
    if (lstat(at(name), &st)) printf("%s: %s\n", name, strerrorname_np(errno));
    else printf("%s: %o links %d size %lld\n", name, st.st_mode, (int)st.st_nlink, (long long)st.st_size);
}

static void probe(void) {
    struct stat st;
    put_file("f", "12345");
    symlink("f", at("l"));
    say_mode("f");
    say_mode("l");
    TRY(chmod(at("f"), 0751));
    say_mode("f");
    int fd = open(at("f"), O_RDWR);
    TRY(fchmod(fd, 0640));
    say_mode("f");
    umask(077);
    mkdir(at("d"), 0777);
    close(open(at("masked"), O_CREAT | O_WRONLY, 0666));
    say_mode("masked");
    printf("mask %o\n", umask(022));
    TRY(chown(at("f"), getuid(), -1));
    TRY(fchown(fd, -1, getgid()));
    TRY(lchown(at("l"), -1, -1));
    struct timespec when[2] = {{1000000000, 123456789}, {1100000000, 987654321}};
    TRY(utimensat(AT_FDCWD, at("f"), when, 0));
    say_times("f");
    when[0].tv_nsec = UTIME_OMIT;
    when[1] = (struct timespec){1200000000, 5};
    TRY(futimens(fd, when));
    say_times("f");
    when[1].tv_nsec = 2000000000;
    TRY(futimens(fd, when));
    struct timeval small[2] = {{1300000000, 7}, {1300000001, 8}};
    TRY(utimes(at("f"), small));
    say_times("f");
    TRY(lutimes(at("l"), small));
    say_times("l");
    TRY(futimes(fd, small));
    TRY(utime(at("f"), &(struct utimbuf){1400000000, 1400000001}));
    say_times("f");
    TRY(utimensat(fd, NULL, NULL, 0));
    TRY(stat(at("f"), &st));
    printf("now %d\n", time(NULL) - st.st_mtime < 100);
    put_file("f", "changed");
    struct statx x;
    TRY(statx(AT_FDCWD, at("f"), 0, STATX_BASIC_STATS, &x));
    printf("%o %llu %d\n", x.stx_mode, (unsigned long long)x.stx_size, (x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    TRY(stat(at("f"), &st));
    printf("same device %d, inode %d\n", makedev(x.stx_dev_major, x.stx_dev_minor) == st.st_dev, x.stx_ino == st.st_ino);
    TRY(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x));
    TRY(access(at("f"), W_OK));
    TRY(access(at("missing"), F_OK));
    TRY(faccessat(AT_FDCWD, at("f"), R_OK, AT_EACCESS));
    TRY(eaccess(at("f"), R_OK));
    TRY(euidaccess(at("d"), X_OK));
    struct statfs fs;
    TRY(statfs(at("f"), &fs));
    printf("%d %d\n", (int)fs.f_bsize, fs.f_blocks > 0 && fs.f_bfree <= fs.f_blocks);
    TRY(statfs(at("missing"), &fs));
    TRY(fstatfs(fd, &fs));
    struct statvfs vfs;
    TRY(statvfs(root, &vfs));
    printf("%lu\n", vfs.f_namemax);
    TRY(fstatvfs(fd, &vfs));
    TRY(setxattr(at("f"), "user.colour", "green", 5, XATTR_CREATE));
    TRY(setxattr(at("f"), "user.colour", "blue", 4, XATTR_CREATE));
    TRY(setxattr(at("f"), "user.colour", "blue", 4, 0));
    TRY(fsetxattr(fd, "user.shape", "round", 5, 0));
    char value[64] = "";
    TRY(getxattr(at("f"), "user.colour", value, sizeof value));
    puts(value);
    TRY(getxattr(at("f"), "user.colour", NULL, 0));
    TRY(getxattr(at("f"), "user.colour", value, 2));
    TRY(fgetxattr(fd, "user.none", value, sizeof value));
    TRY(listxattr(at("f"), value, sizeof value));
    TRY(llistxattr(at("f"), NULL, 0));
    const char *names[] = {"user.", "trusted.", "security.", "system.", "user", "other.x", ""};
    for (int i = 0; i < 7; i++) {
        printf("%s\n", names[i]);
        TRY(setxattr(at("f"), names[i], "v", 1, 0));
        TRY(getxattr(at("f"), names[i], value, sizeof value));
        TRY(removexattr(at("f"), names[i]));
    }
    TRY(removexattr(at("f"), "user.colour"));
    TRY(fremovexattr(fd, "user.colour"));
    TRY(lgetxattr(at("f"), "user.shape", value, sizeof value));
    TRY(mkfifo(at("fifo"), 0644));
    say_mode("fifo");
    TRY(mknod(at("node"), S_IFREG | 0600, 0));
    say_mode("node");
    TRY(link(at("f"), at("hard")));
    say_mode("hard");
    TRY(link(at("d"), at("hard2")));
    TRY(remove(at("hard")));
    TRY(remove(at("d")));
    TRY(remove(at("d")));
    TRY(rmdir(at("f")));
    TRY(unlink(at("missing")));
    TRY(pathconf(at("f"), _PC_NAME_MAX));
    TRY(fpathconf(fd, _PC_PATH_MAX));
    unlink(at("f"));
    TRY(fstat(fd, &st));
    printf("unlinked: links %d\n", (int)st.st_nlink);
    TRY(pread(fd, value, 7, 0));
    TRY(pwrite(fd, "still", 5, 0));
    put_file("a", "a");
    put_file("b", "b");
    TRY(rename(at("a"), at("b")));
    say_file("b");
    mkdir(at("x"), 0755);
    mkdir(at("x/y"), 0755);
    TRY(rename(at("x"), at("x/y/z")));
    TRY(rename(at("b"), at("x")));
    TRY(rename(at("x"), at("b")));
    TRY(rename(at("missing"), at("b")));
    TRY(rmdir(at("x")));
    TRY(rename(at("x/y"), at("x2")));
    TRY(symlink("x", at("x")));
    TRY(symlink("loop", at("loop")));
    TRY(stat(at("loop"), &st));
    TRY(mkdir(at("b/c"), 0755));
}
