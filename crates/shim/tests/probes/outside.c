/* Sends a descriptor of a file to whoever listens at $SOCKET; with $LISTEN it listens. */
#include "probe.h"
#include <sys/socket.h>
#include <sys/un.h>

static void probe(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, getenv("SOCKET"));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {};
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    if (getenv("LISTEN")) {
        if (bind(s, (struct sockaddr *)&address, sizeof address) || listen(s, 1)) exit(3);
        puts("listening");
        fflush(stdout);
        s = accept(s, NULL, NULL);
        printf("received %zd\n", recvmsg(s, &message, 0));
        return;
    }
    put_file("f", "content");
    int fd = open(at("f"), O_RDWR);
    if (connect(s, (struct sockaddr *)&address, sizeof address)) exit(4);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    TRY(sendmsg(s, &message, 0));
}
