/* Descriptors in messages between processes. */
#include "probe.h"
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define COUNT_MAX 8

static ssize_t send_fds(int socket, const int *fds, int count) {
    union { char bytes[CMSG_SPACE(COUNT_MAX * sizeof(int))]; struct cmsghdr align; } control = {};
    char byte = 'm';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
    memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    ssize_t sent = sendmsg(socket, &message, 0);
    /* The program's own copy of the numbers stays as it was. */
    if (memcmp(CMSG_DATA(head), fds, count * sizeof(int))) puts("changed");
    return sent;
}

static int receive_fds(int socket, int *fds, int flags) {
    union { char bytes[CMSG_SPACE(COUNT_MAX * sizeof(int))]; struct cmsghdr align; } control;
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (recvmsg(socket, &message, flags) != 1) return -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head) return 0;
    int count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(head), count * sizeof(int));
    return count;
}

static void say(int fd) {
    char text[32] = "";
    TRY(read(fd, text, 3));
    printf("text %s, at %lld\n", text, (long long)lseek(fd, 0, SEEK_CUR));
}

static void child(int socket) {
    int fds[COUNT_MAX];
    /* What the child says comes when the parent has said its own. */
    static char said[65536];
    setvbuf(stdout, said, _IOFBF, sizeof said);
    TRY(receive_fds(socket, fds, 0));
    printf("cloexec %d\n", fcntl(fds[0], F_GETFD));
    say(fds[0]);
    say(fds[1]);
    TRY(write(fds[0], "X", 1));
    struct stat st;
    TRY(fstat(fds[2], &st));
    printf("null %d\n", S_ISCHR(st.st_mode));
    TRY(flock(fds[0], LOCK_EX | LOCK_NB));
    /* Passed on to whoever asks, after the first owner has closed it. */
    TRY(receive_fds(socket, fds + 3, MSG_CMSG_CLOEXEC));
    printf("cloexec %d\n", fcntl(fds[3], F_GETFD));
    say(fds[3]);
    TRY(write(fds[3], "unlinked", 8));
    TRY(lseek(fds[3], 0, SEEK_SET));
    say(fds[3]);
    /* Back to where it came from, several in one message. */
    TRY(send_fds(socket, (int[]){fds[0], fds[3]}, 2));
    char c;
    read(socket, &c, 1);
    fflush(stdout);
}

static void probe(void) {
    put_file("f", "0123456789");
    put_file("g", "abcdefghij");
    int pair[2], fds[COUNT_MAX];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    int f = open(at("f"), O_RDWR), g = open(at("g"), O_RDONLY), null = open("/dev/null", O_RDWR);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        close(f), close(g), close(pair[0]);
        child(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    lseek(f, 2, SEEK_SET);
    TRY(send_fds(pair[0], (int[]){f, g, null}, 3));
    /* One whose name and last descriptor are gone before it is received. */
    int h = open(at("h"), O_CREAT | O_RDWR, 0600);
    write(h, "hello", 5);
    lseek(h, 1, SEEK_SET);
    TRY(send_fds(pair[0], &h, 1));
    unlink(at("h"));
    close(h);
    TRY(receive_fds(pair[0], fds, 0));
    printf("offset shared %lld\n", (long long)lseek(f, 0, SEEK_CUR));
    printf("lock shared %d\n", flock(f, LOCK_EX | LOCK_NB));
    int other = open(at("f"), O_RDWR);
    TRY(flock(other, LOCK_EX | LOCK_NB));
    TRY(lseek(fds[0], 0, SEEK_CUR));
    TRY(pwrite(fds[1], "!", 1, 0));
    char text[32] = "";
    TRY(pread(fds[1], text, 20, 0));
    puts(text);
    fflush(stdout);
    close(pair[0]);
    int status;
    waitpid(pid, &status, 0);
    TRY(flock(other, LOCK_EX | LOCK_NB));
    close(f), close(fds[0]);
    TRY(flock(other, LOCK_EX | LOCK_NB));
    say_file("f");
    /* Within one process, and never received. */
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    TRY(send_fds(pair[0], &g, 1));
    TRY(send_fds(pair[0], &g, 1));
    TRY(receive_fds(pair[1], fds, 0));
    printf("another number %d\n", fds[0] != g);
    close(g);
    say(fds[0]);
    close(pair[0]), close(pair[1]);
    /* Errors leave nothing behind. */
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    close(pair[1]);
    signal(SIGPIPE, SIG_IGN);
    TRY(send_fds(pair[0], &other, 1));
    TRY(send_fds(-1, &other, 1));
    TRY(send_fds(pair[0], (int[]){other, 999}, 2));
    say_file("g");
}
