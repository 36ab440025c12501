/* Which error comes first when several things are wrong, and calls that do nothing but have to be allowed. */
#include "probe.h"
#include <sys/uio.h>

static void flags(void) {
    TRY(open(at("none"), O_CREAT | O_DIRECTORY | O_RDWR, 0644));
    TRY(open(at("none"), O_CREAT | O_PATH, 0644));
    TRY(open(at("none"), O_TMPFILE & ~O_DIRECTORY, 0600));
    TRY(open(root, O_TMPFILE | O_RDONLY, 0600));
    TRY(access(at("none"), 8));
    TRY(faccessat(AT_FDCWD, at("none"), F_OK, 4));
    struct stat st;
    TRY(fstatat(AT_FDCWD, at("none"), &st, 0x4000000));
    TRY(unlinkat(AT_FDCWD, at("none"), 1));
    TRY(fchmodat(AT_FDCWD, at("none"), 0644, 1));
    TRY(linkat(AT_FDCWD, at("none"), AT_FDCWD, at("new"), 1));
    TRY(renameat2(AT_FDCWD, at("none"), AT_FDCWD, at("new"), RENAME_EXCHANGE | RENAME_NOREPLACE));
    TRY(renameat2(AT_FDCWD, at("none"), AT_FDCWD, at("new"), 8));
}

static void slashes(void) {
    put_file("file", "text");
    TRY(mkdir(at("dir"), 0755));
    TRY(symlink("dir", at("link")));
    TRY(open(at("file/"), O_CREAT | O_RDWR, 0644));
    TRY(creat(at("new/"), 0644));
    TRY(open(at("dir/"), O_CREAT | O_EXCL | O_RDWR, 0644));
    TRY(rmdir(at("link/")));
    TRY(unlink(at("link/")));
    TRY(unlink(at("dir/")));
    TRY(rename(at("link/"), at("other")));
    TRY(rename(at("file"), at("other/")));
    TRY(mkdir(at("link/"), 0755));
    TRY(mkdir(at("made/"), 0755));
    char target[8];
    TRY(readlink(at("link"), target, sizeof target));
    TRY(readlink(at("link/"), target, sizeof target));
    TRY(open(at("link"), O_NOFOLLOW | O_DIRECTORY));
}

static void two_paths(void) {
    char long_name[300], *volatile nothing = NULL;
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    TRY(renameat(-1, "a", AT_FDCWD, at("b")));
    TRY(renameat(AT_FDCWD, at("none"), -1, "b"));
    TRY(renameat(AT_FDCWD, at("none/a"), -1, "b"));
    TRY(linkat(AT_FDCWD, at("none"), -1, "b", 0));
    TRY(linkat(AT_FDCWD, at("file"), -1, "b", 0));
    TRY(rename(at("none"), at(long_name)));
    TRY(rename(at("none/a"), nothing));
    TRY(rename(at("file"), nothing));
    TRY(symlink(nothing, at("new")));
    TRY(mkdir(at("dir/sub"), 0755));
    put_file("dir/sub/file", "text");
    TRY(rename(at("dir/sub/file"), at("dir")));
    TRY(rename(at("dir"), at("dir/sub/new")));
    TRY(rename(at("dir/."), at("none/x")));
    TRY(rename(at("none"), at("dir/..")));
    char path[PATH_MAX + 1];
    memset(path, '/', sizeof path);
    memcpy(path, root, strlen(root));
    strcpy(path + PATH_MAX - 5, "/file");
    struct stat st;
    TRY(stat(path, &st));
    TRY(symlink(path, at("file")));
}

static void nothing_to_do(void) {
    char byte;
    int to_read = open(at("file"), O_RDONLY), to_write = open(at("file"), O_WRONLY), neither = open(at("file"), 3);
    int name = open(at("file"), O_PATH), dir = open(root, O_RDONLY);
    int fds[] = {to_read, to_write, neither, name, dir};
    for (int i = 0; i < 5; i++) {
        printf("descriptor %d\n", i);
        TRY(read(fds[i], &byte, 0));
        TRY(write(fds[i], &byte, 0));
        TRY(pwrite(fds[i], &byte, 0, 5));
        TRY(pwrite(fds[i], &byte, 1, LLONG_MAX));
        TRY(pread(fds[i], &byte, 1, LLONG_MAX));
        TRY(ftruncate(fds[i], 4));
        TRY(fchmod(fds[i], 0755));
        TRY(fsync(fds[i]));
        if (fds[i] != dir) TRY(lseek(fds[i], 1, SEEK_SET));
        close(fds[i]);
    }
}

static void modes(void) {
    struct stat st;
    TRY(mkdir(at("bits"), 06755));
    stat(at("bits"), &st);
    printf("a new directory has %o\n", st.st_mode & 07777);
    for (int mode = 06000; mode <= 06111; mode += 010) {
        chmod(at("file"), mode);
        TRY(chown(at("file"), getuid(), getgid()));
        stat(at("file"), &st);
        printf("chown leaves %o of %o\n", st.st_mode & 07777, mode);
    }
    int fd = open(at("file"), O_RDONLY | O_TRUNC);
    fstat(fd, &st);
    printf("truncated by a reader to %lld\n", (long long)st.st_size);
    close(fd);
    TRY(fchmodat(AT_FDCWD, at("link"), 0600, AT_SYMLINK_NOFOLLOW));
}

static void probe(void) {
    flags();
    slashes();
    two_paths();
    nothing_to_do();
    modes();
}
