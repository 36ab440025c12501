/* The kernel's asynchronous I/O, by libaio and by number: on files of the probe's directory and on others, together. */
#include "probe.h"
#include <libaio.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* Exported, but no longer declared. */
int io_queue_wait(io_context_t context, struct timespec *timeout);

#define BLOCKS_MAX 16
static struct iocb blocks[BLOCKS_MAX];
static io_context_t context;

/* libaio returns errors as negative numbers. */
#define TOLD(expression)                                                                           \
    ({                                                                                             \
        long value_ = (expression);                                                                \
        if (value_ < 0)                                                                            \
            printf("%s = %s\n", #expression, strerrorname_np(-value_));                            \
        else                                                                                       \
            printf("%s = %ld\n", #expression, value_);                                             \
        value_;                                                                                    \
    })

static int submit(int first, int count) {
    struct iocb *list[BLOCKS_MAX];
    for (int i = 0; i < count; i++) {
        blocks[first + i].data = (void *)(long)(1000 + first + i);
        list[i] = &blocks[first + i];
    }
    return io_submit(context, count, list);
}

/* Waits for so many; prints them in the order of their blocks. */
static void reap(int wanted) {
    struct io_event events[BLOCKS_MAX];
    int n = io_getevents(context, wanted, BLOCKS_MAX, events, NULL);
    if (n != wanted) printf("io_getevents = %d, wanted %d\n", n, wanted);
    for (int block = 0; block < BLOCKS_MAX; block++)
        for (int i = 0; i < n; i++)
            if (events[i].obj == &blocks[block]) {
                long res = (long)events[i].res;
                printf("block %d, data %ld: %ld %s, %ld\n", block, (long)events[i].data, res < 0 ? -1 : res,
                       res < 0 ? strerrorname_np(-res) : "", (long)events[i].res2);
            }
}

static int left(void) {
    struct io_event events[BLOCKS_MAX];
    struct timespec now = {0, 0};
    return io_getevents(context, 0, BLOCKS_MAX, events, &now);
}

static void *wait_for_one(void *argument) {
    (void)argument;
    reap(1);
    return NULL;
}

static int called;
static void callback(io_context_t context, struct iocb *block, long res, long res2) {
    (void)context;
    called++;
    printf("callback: block %ld, %ld, %ld\n", (long)(block - blocks), res, res2);
}

static int shared_fd, wrong;
static io_context_t of_all;
static void *submitter(void *argument) {
    long number = (long)argument;
    char text[64];
    for (int i = 0; i < 200; i++) {
        struct iocb *block = malloc(sizeof *block);
        char *buffer = malloc(64);
        memset(text, 'a' + number, sizeof text);
        memcpy(buffer, text, 64);
        io_prep_pwrite(block, shared_fd, buffer, 64, (number * 200 + i) * 64);
        block->data = buffer;
        while (io_submit(of_all, 1, &block) == -EAGAIN) usleep(100);
    }
    return NULL;
}
static int many(int fd, int writes, int threads_of) {
    pthread_t threads[4];
    shared_fd = fd;
    for (long i = 0; i < threads_of; i++) pthread_create(&threads[i], NULL, submitter, (void *)i);
    for (int got = 0; got < writes;) {
        struct io_event events[8];
        int n = io_getevents(of_all, 1, 8, events, NULL);
        for (int i = 0; i < n; i++) {
            if (events[i].res != 64 || events[i].data != events[i].obj->u.c.buf) wrong++;
            free(events[i].data);
            /* The caller owns the control block once it has the event. */
            memset(events[i].obj, 0xff, sizeof *events[i].obj);
            free(events[i].obj);
        }
        if (n > 0) got += n;
    }
    for (int i = 0; i < threads_of; i++) pthread_join(threads[i], NULL);
    return wrong;
}

static void probe(void) {
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    int other = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    char in[64] = "", in2[64] = "", a[16] = "", b[16] = "";
    TOLD(io_setup(0, &context));
    TOLD(io_setup(128, &context));

    puts("- one after the other");
    io_prep_pwrite(&blocks[0], fd, "0123456789", 10, 0);
    TOLD(submit(0, 1));
    reap(1);
    io_prep_pread(&blocks[0], fd, in, sizeof in, 4);
    TOLD(submit(0, 1));
    reap(1);
    puts(in);
    TRY(lseek(fd, 0, SEEK_CUR));
    io_prep_fsync(&blocks[0], fd);
    io_prep_fdsync(&blocks[1], fd);
    TOLD(submit(0, 2));
    reap(2);

    puts("- with those of another file");
    io_prep_pwrite(&blocks[0], other, "other", 5, 0);
    io_prep_pwrite(&blocks[1], fd, "mine", 4, 100);
    io_prep_pwrite(&blocks[2], other, "more", 4, 5);
    io_prep_fdsync(&blocks[3], other);
    TOLD(submit(0, 4));
    reap(4);
    io_prep_pread(&blocks[0], other, in, sizeof in, 0);
    io_prep_pread(&blocks[1], fd, in2, sizeof in2, 98);
    TOLD(submit(0, 2));
    reap(2);
    printf("%s, %s\n", in, in2 + 2);

    puts("- several pieces");
    struct iovec out[] = {{"one ", 4}, {"two ", 4}, {"three", 5}}, into[] = {{a, 6}, {b, 15}};
    io_prep_pwritev(&blocks[0], fd, out, 3, 200);
    TOLD(submit(0, 1));
    reap(1);
    io_prep_preadv(&blocks[0], fd, into, 2, 200);
    TOLD(submit(0, 1));
    reap(1);
    printf("%s|%s\n", a, b);

    puts("- at the end, behind it, nothing");
    io_prep_pread(&blocks[0], fd, in, sizeof in, 210);
    io_prep_pread(&blocks[1], fd, in, sizeof in, 1 << 20);
    io_prep_pread(&blocks[2], fd, in, 0, 0);
    io_prep_pwrite(&blocks[3], fd, in, 0, 0);
    TOLD(submit(0, 4));
    reap(4);

    puts("- appended");
    int append = open(at("f"), O_WRONLY | O_APPEND);
    io_prep_pwrite(&blocks[0], append, "end", 3, 0);
    TOLD(submit(0, 1));
    reap(1);
    printf("size %ld\n", (long)lseek(append, 0, SEEK_END));

    puts("- synchronous");
    io_prep_pwrite(&blocks[0], fd, "durable", 7, 0);
    blocks[0].aio_rw_flags = RWF_DSYNC;
    TOLD(submit(0, 1));
    reap(1);

    puts("- what the kernel does not take");
    int write_only = open(at("f"), O_WRONLY), read_only = open(at("f"), O_RDONLY);
    int path = open(at("f"), O_PATH);
    io_prep_pread(&blocks[0], write_only, in, 4, 0);
    TOLD(submit(0, 1));
    io_prep_pwrite(&blocks[0], read_only, in, 4, 0);
    TOLD(submit(0, 1));
    io_prep_pread(&blocks[0], path, in, 4, 0);
    TOLD(submit(0, 1));
    io_prep_pread(&blocks[0], 9999, in, 4, 0);
    TOLD(submit(0, 1));
    io_prep_pread(&blocks[0], fd, in, 4, -1);
    TOLD(submit(0, 1));
    io_prep_pread(&blocks[0], fd, in, 4, 0);
    blocks[0].aio_lio_opcode = 99;
    TOLD(submit(0, 1));
    io_prep_fsync(&blocks[0], fd);
    blocks[0].u.c.nbytes = 1;
    TOLD(submit(0, 1));
    io_prep_pread(&blocks[0], fd, in, 4, 0);
    blocks[0].u.c.flags = 1;
    blocks[0].u.c.resfd = fd;
    TOLD(submit(0, 1));
    io_prep_pread(&blocks[0], fd, in, 4, 0);
    blocks[0].aio_rw_flags = 1 << 30;
    TOLD(submit(0, 1));
    io_prep_preadv(&blocks[0], fd, into, 5000, 0);
    TOLD(submit(0, 1));
    io_prep_pread(&blocks[0], fd, in, 4, 0);
    io_prep_pread(&blocks[1], fd, in2, 4, 0);
    io_prep_pread(&blocks[2], write_only, in, 4, 0);
    io_prep_pread(&blocks[3], fd, in, 4, 0);
    TOLD(submit(0, 4));
    reap(2);
    struct iocb *none[1] = {NULL};
    TOLD(io_submit(context, 1, none));
    TOLD(io_submit(context, 0, NULL));
    TOLD(io_submit(context, -1, NULL));
    TOLD(io_submit((io_context_t)NULL, 1, none));
    io_prep_pread(&blocks[0], fd, in, 4, 0);
    struct iocb *list[] = {&blocks[0]};
    TOLD(io_submit((io_context_t)NULL, 1, list));
    TOLD(left());

    puts("- a write to which nothing is left");
    io_prep_pwrite(&blocks[0], fd, "x", 1, LLONG_MAX - 1);
    int n = submit(0, 1);
    if (n == 1) {
        struct io_event event;
        io_getevents(context, 1, 1, &event, NULL);
        printf("%s\n", strerrorname_np(-(long)event.res));
    } else {
        printf("%s\n", strerrorname_np(-n));
    }

    puts("- told by an eventfd");
    int told = eventfd(0, EFD_NONBLOCK);
    for (int i = 0; i < 3; i++) {
        io_prep_pread(&blocks[i], i == 1 ? other : fd, in, 4, 0);
        io_set_eventfd(&blocks[i], told);
    }
    TOLD(submit(0, 3));
    struct pollfd polled = {told, POLLIN, 0};
    unsigned long long sum = 0, got;
    while (sum < 3 && poll(&polled, 1, 5000) == 1)
        if (read(told, &got, sizeof got) == sizeof got) sum += got;
    printf("%llu\n", sum);
    TOLD(left());

    puts("- waited for");
    struct io_event event;
    struct timespec soon = {0, 20000000};
    TOLD(io_getevents(context, 1, 1, &event, &soon));
    TOLD(io_getevents(context, 2, 1, &event, &soon));
    sigset_t set;
    sigemptyset(&set);
    TOLD(io_pgetevents(context, 1, 1, &event, &soon, &set));
    pthread_t thread;
    fflush(stdout);
    pthread_create(&thread, NULL, wait_for_one, NULL);
    usleep(50000);
    io_prep_pread(&blocks[0], fd, in, 7, 0);
    submit(0, 1);
    pthread_join(thread, NULL);

    puts("- by callbacks");
    io_prep_pread(&blocks[0], fd, in, 7, 0);
    io_set_callback(&blocks[0], callback);
    io_prep_pread(&blocks[1], other, in, 7, 0);
    io_set_callback(&blocks[1], callback);
    struct iocb *two[] = {&blocks[0], &blocks[1]};
    TOLD(io_submit(context, 2, two));
    while (called < 2) {
        io_queue_wait(context, &soon);
        if (io_queue_run(context) < 0) break;
    }

    puts("- cancelled too late");
    io_prep_pread(&blocks[0], fd, in, 7, 0);
    TOLD(submit(0, 1));
    TOLD(io_cancel(context, &blocks[0], &event));
    reap(1);

    puts("- by number");
    long raw = 0;
    TRY(syscall(SYS_io_setup, 8, &raw));
    io_prep_pread(&blocks[0], fd, in, 7, 0);
    TRY(syscall(SYS_io_submit, raw, 1, list));
    TRY(syscall(SYS_io_getevents, raw, 1, 1, &event, NULL));
    printf("%d %ld\n", event.obj == &blocks[0], (long)event.res);
    TRY(syscall(SYS_io_submit, raw, 1, list));
    struct {
        sigset_t *set;
        size_t len;
    } mask = {&set, 8};
    TRY(syscall(SYS_io_pgetevents, raw, 1, 1, &event, NULL, &mask));
    printf("%d %ld\n", event.obj == &blocks[0], (long)event.res);
    io_prep_pread(&blocks[0], write_only, in, 7, 0);
    TRY(syscall(SYS_io_submit, raw, 1, list));
    TRY(syscall(SYS_io_destroy, raw));
    TRY(syscall(SYS_io_destroy, raw));
    TRY(syscall(SYS_io_submit, raw, 1, list));

    puts("- in a child, which has no context of its parent's");
    io_prep_pread(&blocks[0], fd, in, 7, 0);
    TOLD(submit(0, 1));
    fflush(stdout);
    if (fork() == 0) {
        TOLD(submit(0, 1));
        io_context_t own = 0;
        TOLD(io_setup(8, &own));
        context = own;
        TOLD(submit(0, 1));
        reap(1);
        TOLD(io_destroy(own));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    reap(1);

    puts("- many from several threads");
    TOLD(io_setup(32, &of_all));
    printf("wrong: %d\n", many(fd, 4 * 200, 4));
    char *all = malloc(4 * 200 * 64);
    TRY(pread(fd, all, 4 * 200 * 64, 0));
    for (int i = 0; i < 4 * 200 * 64; i++) wrong += all[i] != 'a' + i / (200 * 64);
    printf("wrong: %d\n", wrong);
    TOLD(io_destroy(of_all));

    puts("- left behind");
    for (int i = 0; i < 8; i++) io_prep_pread(&blocks[i], fd, in, 7, 0);
    TOLD(submit(0, 8));
    TOLD(io_destroy(context));
    TOLD(io_destroy(context));
    TOLD(submit(0, 1));
}
