/* What of the server's memory a process has before and after it has dropped the superuser's rights, as argv[2] says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t turn;

/* Maps of memory files that the server made: those of all clients with leases. */
static int maps(void) {
    char line[4096];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file))
        if (strstr(line, "/memfd:") && !strstr(line, "weft-channel")) count++;
    fclose(file);
    return count;
}

/* Descriptors that lead to what the volume lies on. */
static int images(void) {
    char link[64], path[PATH_MAX];
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(link, path, sizeof path - 1);
        if (len < 0) continue;
        path[len] = 0;
        if (strstr(path, "memfd:") && !strstr(path, "memfd:weft:")) count++;
    }
    return count;
}

static void *drops_too(void *unused) {
    syscall(SYS_setresuid, 4711, 4711, 4711);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}

int main(int argc, char **argv) {
    char text[8], path[PATH_MAX];
    if (argc < 3) return 2;
    const char *how = argv[2];
    snprintf(path, sizeof path, "%s/%s", argv[1], how);
    int fd = open(path, O_CREAT | O_RDWR | O_APPEND, 0600);
    write(fd, "one", 3);
    fsync(fd);
    pread(fd, text, 3, 0);
    printf("before: %d maps\n", maps());
    if (!strcmp(how, "for good")) {
        setuid(4711);
    } else if (!strcmp(how, "for a time")) {
        seteuid(4711);
    } else if (!strcmp(how, "by number")) {
        syscall(SYS_setresuid, 4711, 4711, 4711);
    } else {
        pthread_t other;
        pthread_barrier_init(&turn, NULL, 2);
        pthread_create(&other, NULL, drops_too, NULL);
        pthread_barrier_wait(&turn);
        syscall(SYS_setresuid, 4711, 4711, 4711);
    }
    printf("after: %d maps, %d descriptors of an image\n", maps(), images());
    /* What was open stays so. */
    ssize_t got = pread(fd, text, 3, 0);
    printf("read: %zd, appended: %zd\n", got, write(fd, "two", 3));
    return 0;
}
