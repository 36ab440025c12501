/* Closing, duplicating, close-on-exec, numbers. */
#include "probe.h"
#include <poll.h>
#include <sys/select.h>

static void probe(void) {
    int fd = OK(open(at("f"), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
    TRY(write(fd, "0123456789", 10));
    TRY(fcntl(fd, F_GETFD));
    TRY(fcntl(fd, F_SETFD, 0));
    TRY(fcntl(fd, F_GETFD));
    printf("flags %d\n", fcntl(fd, F_GETFL) & O_ACCMODE);
    int two = OK(dup(fd));
    printf("next number: %d\n", two == fd + 1);
    TRY(lseek(two, 3, SEEK_SET));
    char text[11] = "";
    TRY(read(fd, text, 4));
    puts(text);
    TRY(lseek(two, 0, SEEK_CUR));
    int high = TRY(fcntl(fd, F_DUPFD, 100));
    TRY(close(fd));
    TRY(read(fd, text, 1));
    TRY(write(fd, text, 1));
    TRY(fstat(fd, &(struct stat){0}));
    TRY(close(fd));
    TRY(pread(high, text, 10, 0));
    puts(text);
    int other = OK(open("/dev/null", O_RDWR));
    printf("number again: %d\n", other == fd);
    TRY(dup2(high, other) == other);
    TRY(pread(other, text, 2, 8));
    TRY(dup2(other, other) == other);
    TRY(dup3(other, other, 0));
    int null = OK(open("/dev/null", O_RDWR));
    TRY(dup2(null, other) == other);
    TRY(read(other, text, 2));
    TRY(dup2(high, 1000000000));
    struct pollfd polled = {high, POLLIN | POLLOUT, 0};
    TRY(poll(&polled, 1, 0));
    printf("events %d\n", polled.revents == (POLLIN | POLLOUT));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(high, &set);
    TRY(select(high + 1, &set, NULL, NULL, &(struct timeval){0, 0}));
    TRY(close_range(two, high, 0));
    TRY(pread(high, text, 1, 0));
    TRY(pread(two, text, 1, 0));
    for (int round = 0; round < 300; round++) {
        int one = open(at("f"), O_RDONLY);
        if (one < 0 || pread(one, text, 1, 5) != 1 || text[0] != '5' || close(one)) printf("round %d fails\n", round);
    }
    int fds[64];
    for (int i = 0; i < 64; i++) fds[i] = open(at("f"), O_RDONLY);
    printf("all distinct: %d\n", fds[63] - fds[0] == 63);
    closefrom(fds[0]);
    TRY(read(fds[10], text, 1));
    /* What the hooks themselves hold is not the program's to close. */
    for (int i = 3; i < 2000; i++) close(i);
    say_file("f");
    close_range(3, ~0u, 0);
    say_file("f");
    TRY(ftruncate(open(at("f"), O_RDONLY), 1));
    int append = OK(open(at("f"), O_WRONLY | O_APPEND));
    TRY(write(append, "abc", 3));
    TRY(lseek(append, 0, SEEK_SET));
    TRY(write(append, "def", 3));
    TRY(read(append, text, 1));
    TRY(fcntl(append, F_SETFL, 0));
    TRY(lseek(append, 0, SEEK_SET));
    TRY(write(append, "X", 1));
    say_file("f");
    TRY(isatty(append));
    int available = -1;
    int reader = open(at("f"), O_RDONLY);
    lseek(reader, 6, SEEK_SET);
    TRY(syscall(16 /* ioctl */, reader, 0x541b /* FIONREAD */, &available));
    printf("available %d\n", available);
    TRY(lseek(reader, -1, SEEK_SET));
    TRY(lseek(reader, 0, SEEK_END));
    TRY(lseek(reader, 10, SEEK_END));
    TRY(lseek(reader, 0, 77));
    TRY(read(reader, text, 1));
}
