/* Threads open, use, duplicate and close files while others do the same and start programs: a descriptor never leads to
 * another's file, and a program gets what it is handed. */
#include "probe.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>

extern char **environ;

static atomic_int wrong;

static void *start_programs(void *unused) {
    (void)unused;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/handed", root);
    int status, fd = open(path, O_RDWR | O_CREAT, 0644);
    if (write(fd, "content99\n", 10) != 10) wrong++;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    char *arguments[] = {"grep", "-q", "content99", NULL};
    for (int round = 0; round < 40; round++) {
        pid_t child;
        lseek(fd, 0, SEEK_SET);
        if (posix_spawnp(&child, "grep", &actions, NULL, arguments, environ)) wrong++;
        else if (waitpid(child, &status, 0) != child || status) wrong++;
        /* Another description of the same file, without a name of its own yet. */
        int other = open(path, O_RDONLY);
        if (dup2(other, fd) != fd) wrong++;
        close(other);
    }
    posix_spawn_file_actions_destroy(&actions);
    close(fd);
    return NULL;
}

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
    pthread_t threads[9];
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    pthread_create(&threads[8], NULL, start_programs, NULL);
    for (int i = 0; i < 9; i++) pthread_join(threads[i], NULL);
    printf("wrong %d\n", wrong);
}
