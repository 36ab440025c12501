/* Bytes between files and pipes. */
#include "probe.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static void probe(void) {
    char text[64] = "";
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644), pipes[2];
    write(fd, "0123456789", 10);
    pipe(pipes);
    loff_t place = 3;
    TRY(splice(fd, &place, pipes[1], NULL, 4, 0));
    printf("place %lld offset %lld\n", (long long)place, (long long)lseek(fd, 0, SEEK_CUR));
    TRY(read(pipes[0], text, sizeof text));
    puts(text);
    lseek(fd, 8, SEEK_SET);
    TRY(splice(fd, NULL, pipes[1], NULL, 100, SPLICE_F_MOVE));
    TRY(lseek(fd, 0, SEEK_CUR));
    TRY(splice(fd, NULL, pipes[1], NULL, 100, 0));
    write(pipes[1], "more", 4);
    TRY(splice(pipes[0], NULL, fd, NULL, 100, 0));
    place = 1;
    write(pipes[1], "XY", 2);
    TRY(splice(pipes[0], NULL, fd, &place, 1, 0));
    printf("place %lld offset %lld\n", (long long)place, (long long)lseek(fd, 0, SEEK_CUR));
    TRY(splice(pipes[0], NULL, fd, NULL, 100, SPLICE_F_NONBLOCK));
    TRY(splice(pipes[0], NULL, fd, NULL, 100, SPLICE_F_NONBLOCK));
    say_file("f");
    /* As much as the pipe holds. */
    char *big = calloc(1, 200000);
    memset(big, 'b', 200000);
    pwrite(fd, big, 200000, 0);
    place = 0;
    TRY(splice(fd, &place, pipes[1], NULL, 200000, 0));
    TRY(splice(fd, &place, pipes[1], NULL, 200000, SPLICE_F_NONBLOCK));
    printf("place %lld\n", (long long)place);
    int target = open(at("g"), O_CREAT | O_RDWR, 0644);
    long long moved = 0, n;
    while (moved < 65536 && (n = splice(pipes[0], NULL, target, NULL, 65536, 0)) > 0) moved += n;
    printf("moved %lld\n", moved);
    struct stat st;
    fstat(target, &st);
    printf("size %lld\n", (long long)st.st_size);
    /* What is none of it. */
    TRY(splice(fd, NULL, target, NULL, 10, 0));
    place = 0;
    TRY(splice(pipes[0], &place, fd, NULL, 10, 0));
    TRY(splice(fd, NULL, pipes[1], &place, 10, 0));
    TRY(splice(fd, NULL, pipes[1], NULL, 10, 0x1000));
    place = -1;
    TRY(splice(fd, &place, pipes[1], NULL, 10, 0));
    int appender = open(at("f"), O_WRONLY | O_APPEND);
    write(pipes[1], "x", 1);
    TRY(splice(pipes[0], NULL, appender, NULL, 10, 0));
    int reader = open(at("f"), O_RDONLY);
    TRY(splice(pipes[0], NULL, reader, NULL, 10, SPLICE_F_NONBLOCK));
    int writer = open(at("f"), O_WRONLY);
    TRY(splice(writer, NULL, pipes[1], NULL, 10, 0));
    TRY(splice(fd, NULL, pipes[1], NULL, 0, 0));
    TRY(tee(fd, pipes[1], 10, 0));
    TRY(vmsplice(fd, &(struct iovec){text, 2}, 1, 0));
    close(pipes[0]);
    signal(SIGPIPE, SIG_IGN);
    lseek(fd, 0, SEEK_SET);
    TRY(splice(fd, NULL, pipes[1], NULL, 10, 0));
    TRY(lseek(fd, 0, SEEK_CUR));
}
