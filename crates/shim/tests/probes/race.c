/* Threads open, use, duplicate and close files while others do the same: a descriptor never leads to another's file. */
#include "probe.h"
#include <pthread.h>
#include <stdatomic.h>

static atomic_int wrong;

static void *work(void *argument) {
    int me = (int)(long)argument;
    char name[32], text[16], expected[16];
    snprintf(name, sizeof name, "file%d", me);
    snprintf(expected, sizeof expected, "content%02d", me);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    int made = open(path, O_WRONLY | O_CREAT, 0644);
    if (write(made, expected, 9) != 9) wrong++;
    close(made);
    for (int round = 0; round < 300; round++) {
        int fd = open(path, O_RDONLY);
        int native = open("/dev/null", O_RDONLY);
        int copy = dup(fd);
        if (pread(fd, text, 9, 0) != 9 || memcmp(text, expected, 9)) wrong++;
        if (read(native, text, 1) != 0) wrong++;
        if (dup2(copy, native) != native) wrong++;
        close(fd);
        if (pread(native, text, 9, 0) != 9 || memcmp(text, expected, 9)) wrong++;
        close(copy);
        close(native);
    }
    return NULL;
}

static void probe(void) {
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    printf("wrong %d\n", wrong);
}
