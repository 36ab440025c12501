/* A thread that is cancelled inside a hooked call ends as it would in libc's own. */
#include "probe.h"
#include <pthread.h>

static int pipes[2];
static int cleaned;
static void clean(void *unused) { (void)unused; cleaned++; }

static void *reads(void *unused) {
    char c;
    pthread_cleanup_push(clean, NULL);
    read(pipes[0], &c, 1);
    pthread_cleanup_pop(0);
    return unused;
}

static void probe(void) {
    pipe(pipes);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, reads, NULL);
        usleep(1000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) puts("not cancelled");
    }
    printf("cleaned %d\n", cleaned);
    put_file("f", "works on");
    say_file("f");
}
