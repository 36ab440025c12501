/* Links of /proc that lead to open files and to the working directory. */
#include "probe.h"
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

static char path[PATH_MAX];
static const char *of(int fd, const char *rest) {
    snprintf(path, sizeof path, "/proc/self/fd/%d%s", fd, rest);
    return path;
}

static void say_open(const char *name, int flags) {
    int fd = open(name, flags), error = errno;
    char text[16] = "";
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    printf("opened with %x: %d, %zd %s, at %lld\n", flags, fd >= 0, n, text, (long long)lseek(fd, 0, SEEK_CUR));
    if (fd < 0) puts(strerrorname_np(error));
    if (fd >= 0) close(fd);
}

static void each(int fd) {
    struct stat st, here;
    struct statfs fs;
    char value[8];
    fstat(fd, &here);
    printf("same %d\n", stat(of(fd, ""), &st) == 0 && st.st_ino == here.st_ino && st.st_nlink == here.st_nlink);
    printf("link %d\n", lstat(of(fd, ""), &st) == 0 && S_ISLNK(st.st_mode));
    say_open(of(fd, ""), O_RDONLY);
    say_open(of(fd, ""), O_RDWR | O_CREAT);
    say_open(of(fd, ""), O_RDONLY | O_NOFOLLOW);
    say_open(of(fd, ""), O_RDWR | O_CREAT | O_EXCL);
    say_open(of(fd, ""), O_RDONLY | O_DIRECTORY);
    say_open(of(fd, "/"), O_RDONLY);
    say_open(of(fd, "/x"), O_RDONLY);
    TRY(access(of(fd, ""), R_OK));
    TRY(chmod(of(fd, ""), 0640));
    TRY(chown(of(fd, ""), -1, -1));
    TRY(utimensat(AT_FDCWD, of(fd, ""), NULL, 0));
    TRY(setxattr(of(fd, ""), "user.a", "v", 1, 0));
    TRY(getxattr(of(fd, ""), "user.a", value, sizeof value));
    OK(statfs(of(fd, ""), &fs));
    TRY(truncate(of(fd, ""), 2));
    say_open(of(fd, ""), O_RDONLY);
    FILE *stream = fopen(of(fd, ""), "a");
    TRY(stream ? fputs("more", stream) > 0 : -1);
    if (stream) fclose(stream);
    say_open(of(fd, ""), O_RDONLY);
    say_open(of(fd, ""), O_WRONLY | O_TRUNC);
    fstat(fd, &here);
    printf("size %lld\n", (long long)here.st_size);
}

/* A message that MSG_PEEK shows before it is received. */
static void peeks(void) {
    int fd = open(at("passed"), O_RDWR | O_CREAT, 0600), ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    TRY(sendmsg(ends[0], &message, 0));
    close(fd);
    for (int round = 0; round < 3; round++) {
        char byte;
        part = (struct iovec){&byte, 1};
        message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
        TRY(recvmsg(ends[1], &message, round < 2 ? MSG_PEEK : 0));
        head = CMSG_FIRSTHDR(&message);
        int got = -1;
        if (head) memcpy(&got, CMSG_DATA(head), sizeof got);
        TRY(write(got, "y", 1));
    }
    say_file("passed");
}

static void probe(void) {
    int fd = open(at("f"), O_RDWR | O_CREAT, 0600);
    write(fd, "abcdef", 6);
    each(fd);
    pwrite(fd, "abcdef", 6, 0);
    unlink(at("f"));
    each(fd);
    /* Another file has the name. */
    pwrite(fd, "old", 3, 0);
    put_file("f", "new file");
    say_open(of(fd, ""), O_RDONLY);
    fd = open(root, O_TMPFILE | O_RDWR, 0600);
    write(fd, "abcdef", 6);
    each(fd);
    TRY(linkat(AT_FDCWD, of(fd, ""), AT_FDCWD, at("linked"), AT_SYMLINK_FOLLOW));
    say_file("linked");
    /* One that can only be written is opened for reading. */
    fd = open(at("f"), O_WRONLY);
    say_open(of(fd, ""), O_RDONLY);
    say_open(of(open(at("f"), O_PATH), ""), O_RDWR);
    char text[64];
    int stdin_was = dup(0);
    dup2(open(at("f"), O_RDONLY), 0);
    say_open("/dev/stdin", O_RDONLY);
    dup2(stdin_was, 0);
    /* Directories, and paths behind them. */
    mkdir(at("d"), 0755), mkdir(at("d/e"), 0755), put_file("d/e/g", "below");
    int dir = open(at("d"), O_RDONLY | O_DIRECTORY);
    say_open(of(dir, "/e/g"), O_RDONLY);
    say_open(of(dir, "/e/../../f"), O_RDONLY);
    say_open(of(dir, "//e//g"), O_RDONLY);
    TRY(mkdir(of(dir, "/h"), 0700));
    TRY(rmdir(of(dir, "/h")));
    TRY(unlink(of(dir, "/none")));
    DIR *list = opendir(of(dir, ""));
    int names = 0;
    while (list && readdir(list)) names++;
    printf("names %d\n", names);
    TRY(chdir(of(dir, "")));
    say_path("cwd", getcwd(path, sizeof path));
    memset(text, 0, sizeof text);
    static char target[PATH_MAX];
    ssize_t n = readlink("/proc/self/cwd", target, sizeof target - 1);
    target[n < 0 ? 0 : n] = 0;
    say_path("link", target);
    say_path("resolved", realpath("/proc/self/cwd/e", target));
    say_path("resolved", realpath("/proc/self/cwd", target));
    say_open("/proc/self/cwd/e/g", O_RDONLY);
    say_open("/proc/self/cwd/../f", O_RDONLY);
    say_open("/proc/thread-self/cwd/e/g", O_RDONLY);
    TRY(access("/proc/self/cwd/etc/passwd", F_OK));
    list = opendir("/proc/self/cwd/");
    for (names = 0; list && readdir(list);) names++;
    printf("names %d\n", names);
    TRY(chdir("/proc/self/cwd/e"));
    say_path("cwd", getcwd(path, sizeof path));
    TRY(chdir("/"));
    peeks();
}
