/* Unix sockets in the file system. */
#include "probe.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un address;
static socklen_t length;
static struct sockaddr *to(const char *path) {
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    length = sizeof address;
    return (struct sockaddr *)&address;
}
#define TO(path) to(path), sizeof address
static void say(const char *what, int result) {
    printf("%s %d, ", what, result);
    if (result < 0 || address.sun_family != AF_UNIX) printf("family %d", address.sun_family);
    else if (length <= sizeof(sa_family_t)) printf("no name");
    else say_path("name", address.sun_path);
    printf("\n");
}
#define SAY(call)                              \
    ({                                         \
        memset(&address, 0, sizeof address);   \
        length = sizeof address;               \
        say(#call, (int)(call));               \
    })
#define OUT (struct sockaddr *)&address, &length

static void probe(void) {
    umask(027);
    chdir(root);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(bind(server, TO(at("s"))));
    struct stat st;
    TRY(stat(at("s"), &st));
    printf("mode %o\n", st.st_mode);
    TRY(open(at("s"), O_RDWR));
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(bind(other, TO(at("s"))));
    TRY(bind(other, TO(at("none/s"))));
    TRY(connect(other, TO(at("s"))));
    TRY(listen(server, 5));
    SAY(getsockname(server, OUT));
    /* Relative, and by a symlink. */
    TRY(symlink("s", at("link")));
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(connect(one, TO("link")) == 0);
    SAY(getpeername(one, OUT));
    SAY(getsockname(one, OUT));
    int two;
    SAY((two = accept(server, OUT)) >= 0);
    TRY(write(one, "hello", 5));
    char text[16] = "";
    TRY(read(two, text, sizeof text));
    puts(text);
    close(one);
    close(two);
    /* A client with a name of its own. */
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(bind(one, TO("client")));
    TRY(connect(one, TO("./s")));
    SAY((two = accept4(server, OUT, SOCK_CLOEXEC)) >= 0);
    SAY(getpeername(two, OUT));
    close(one);
    close(two);
    /* Less room than the name has. */
    struct sockaddr_un small = {0};
    socklen_t room = 6;
    TRY(getsockname(server, (struct sockaddr *)&small, &room));
    printf("told %d, %d %d\n", room > 6, small.sun_path[3] != 0, small.sun_path[4]);
    /* From another process. */
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        int own = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(own, TO(at("s")))) _exit(3);
        write(own, "child", 5);
        _exit(0);
    }
    two = accept(server, NULL, NULL);
    memset(text, 0, sizeof text);
    TRY(recv(two, text, sizeof text, MSG_WAITALL));
    puts(text);
    int status;
    waitpid(pid, &status, 0);
    printf("status %d\n", WEXITSTATUS(status));
    close(two);
    /* Nobody behind the name, and no socket. */
    TRY(rename(at("s"), at("moved")));
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(connect(one, TO(at("moved"))));
    close(one);
    close(server);
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(connect(one, TO(at("moved"))));
    TRY(connect(one, TO(at("s"))));
    close(open(at("file"), O_CREAT | O_WRONLY, 0600));
    TRY(connect(one, TO(at("file"))));
    TRY(unlink(at("moved")));
    TRY(bind(one, TO(at("moved"))));
    TRY(listen(one, 1));
    TRY(chmod(at("moved"), 0600));
    close(one);
    TRY(connect(socket(AF_UNIX, SOCK_DGRAM, 0), TO(at("moved"))));
    /* Datagrams. */
    int a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0);
    TRY(bind(a, TO(at("a"))));
    TRY(bind(b, TO("b")));
    TRY(sendto(a, "one", 3, 0, TO(at("b"))));
    SAY(recvfrom(b, text, sizeof text, 0, OUT));
    struct iovec part = {"two", 3};
    struct msghdr message = {.msg_name = to("b"), .msg_namelen = sizeof address, .msg_iov = &part, .msg_iovlen = 1};
    TRY(sendmsg(a, &message, 0));
    struct iovec in = {text, sizeof text};
    memset(&address, 0, sizeof address);
    message = (struct msghdr){.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &in, .msg_iovlen = 1};
    ssize_t got = recvmsg(b, &message, 0);
    length = message.msg_namelen;
    say("recvmsg", (int)got);
    TRY(sendto(a, "one", 3, 0, TO(at("none"))));
    TRY(connect(a, TO("b")) == 0);
    TRY(send(a, "three", 5, 0));
    TRY(recv(b, text, sizeof text, 0));
    /* Other families, and names that are in no file system. */
    int pair[2];
    TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SAY(getsockname(pair[0], OUT));
    TRY(connect(pair[0], NULL, 0));
    TRY(bind(pair[0], TO(at("late"))));
    TRY(bind(socket(AF_INET, SOCK_STREAM, 0), TO(at("inet"))));
    TRY(access(at("inet"), F_OK));
    TRY(bind(-1, TO(at("badf"))));
    TRY(access(at("badf"), F_OK));
}
