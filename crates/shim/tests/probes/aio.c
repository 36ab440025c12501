/* POSIX asynchronous I/O. */
#include "probe.h"
#include <aio.h>
#include <pthread.h>

static struct aiocb block(int fd, void *buffer, size_t len, off_t offset) {
    struct aiocb block = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = len, .aio_offset = offset};
    block.aio_sigevent.sigev_notify = SIGEV_NONE;
    return block;
}

static int wait_for(struct aiocb *block) {
    const struct aiocb *list[] = {NULL, block};
    while (aio_error(block) == EINPROGRESS) aio_suspend(list, 2, NULL);
    return aio_error(block);
}

#define DONE(block)                                                                      \
    ({                                                                                   \
        int error_ = wait_for(block);                                                    \
        long returned_ = aio_return(block);                                              \
        printf("%s: error %s, returned %ld\n", #block, strerrorname_np(error_) ?: "0", returned_); \
    })

static volatile sig_atomic_t signalled, code, value;
static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    signalled = number;
    code = info->si_code;
    value = info->si_value.sival_int;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int notified;
static void notify(union sigval value) {
    pthread_mutex_lock(&lock);
    notified += value.sival_int;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
static void wait_notified(int sum) {
    pthread_mutex_lock(&lock);
    while (notified < sum) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void probe(void) {
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    char out[] = "0123456789", in[16] = "", in2[16] = "";
    struct aiocb one = block(fd, out, 10, 0), two = block(fd, in, sizeof in - 1, 4), three;
    TRY(aio_write(&one));
    DONE(&one);
    TRY(aio_read(&two));
    DONE(&two);
    puts(in);
    TRY(lseek(fd, 0, SEEK_CUR));
    three = block(fd, NULL, 0, 0);
    TRY(aio_fsync(O_SYNC, &three));
    DONE(&three);
    TRY(aio_fsync(O_DSYNC, &three));
    DONE(&three);
    TRY(aio_fsync(77, &three));
    /* Errors are the request's. */
    int reader = open(at("f"), O_RDONLY);
    three = block(reader, out, 3, 0);
    TRY(aio_write(&three));
    DONE(&three);
    three = block(fd, in, 4, 100);
    TRY(aio_read(&three));
    DONE(&three);
    /* At the end, when the file is open for appending. */
    int appender = open(at("f"), O_WRONLY | O_APPEND);
    three = block(appender, out, 3, 0);
    TRY(aio_write(&three));
    DONE(&three);
    /* Told by a signal, and by a function. */
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    memset(in, 0, sizeof in);
    three = block(fd, in, 4, 0);
    three.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    three.aio_sigevent.sigev_signo = SIGUSR1;
    three.aio_sigevent.sigev_value.sival_int = 42;
    TRY(aio_read(&three));
    DONE(&three);
    while (!signalled) usleep(1000);
    printf("%s signal %d, code %d, value %d\n", in, signalled == SIGUSR1, code == SI_ASYNCIO, value);
    three.aio_sigevent.sigev_notify = SIGEV_THREAD;
    three.aio_sigevent.sigev_notify_function = notify;
    three.aio_sigevent.sigev_notify_attributes = NULL;
    three.aio_sigevent.sigev_value.sival_int = 1;
    TRY(aio_read(&three));
    wait_notified(1);
    DONE(&three);
    /* Lists, with a file elsewhere among them. */
    int elsewhere = open("/dev/zero", O_RDWR);
    memset(in, 'x', sizeof in);
    one = block(fd, in, 3, 2), two = block(elsewhere, in2, 3, 0), three = block(fd, "LIST", 4, 6);
    memset(in2, 'x', sizeof in2);
    one.aio_lio_opcode = LIO_READ, two.aio_lio_opcode = LIO_READ, three.aio_lio_opcode = LIO_WRITE;
    struct aiocb nothing = block(-1, NULL, 0, 0);
    nothing.aio_lio_opcode = LIO_NOP;
    struct aiocb *list[] = {&one, NULL, &two, &nothing, &three};
    TRY(lio_listio(LIO_WAIT, list, 5, NULL));
    DONE(&one);
    DONE(&two);
    DONE(&three);
    printf("%.4s %d %c\n", in, in2[2], in2[3]);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notify, .sigev_value.sival_int = 10};
    one = block(fd, in, 3, 0), three = block(reader, in2, 3, 0);
    one.aio_lio_opcode = LIO_READ, three.aio_lio_opcode = LIO_READ;
    struct aiocb *both[] = {&one, &three};
    TRY(lio_listio(LIO_NOWAIT, both, 2, &event));
    wait_notified(11);
    DONE(&one);
    DONE(&three);
    three = block(reader, in2, 3, 0);
    three.aio_lio_opcode = LIO_WRITE;
    struct aiocb *bad[] = {&three};
    TRY(lio_listio(LIO_WAIT, bad, 1, NULL));
    DONE(&three);
    TRY(lio_listio(99, both, 2, NULL));
    TRY(aio_cancel(fd, NULL) == AIO_ALLDONE);
    TRY(aio_cancel(999, NULL));
    say_file("f");
}
