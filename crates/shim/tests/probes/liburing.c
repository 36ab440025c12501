/* io_uring by liburing, or, where a ring is refused, by read and write: as programs that fall back. */
#include "probe.h"
#include <liburing.h>

static bool have_ring;
static struct io_uring ring;

static long result(void) {
    struct io_uring_cqe *cqe;
    io_uring_submit(&ring);
    if (io_uring_wait_cqe(&ring, &cqe) < 0) return -1;
    long res = cqe->res;
    io_uring_cqe_seen(&ring, cqe);
    return res;
}

static long put(int fd, const char *text, off_t offset) {
    if (!have_ring) return pwrite(fd, text, strlen(text), offset);
    io_uring_prep_write(io_uring_get_sqe(&ring), fd, text, strlen(text), offset);
    return result();
}

static long get(int fd, char *text, size_t len, off_t offset) {
    if (!have_ring) return pread(fd, text, len, offset);
    io_uring_prep_read(io_uring_get_sqe(&ring), fd, text, len, offset);
    return result();
}

static long make_durable(int fd) {
    if (!have_ring) return fsync(fd);
    io_uring_prep_fsync(io_uring_get_sqe(&ring), fd, 0);
    return result();
}

static void refused_or_not(void) {
    struct io_uring_params parameters = {0};
    struct io_uring other;
    int results[] = {io_uring_queue_init(8, &ring, 0), io_uring_queue_init_params(8, &other, &parameters)};
    struct io_uring_probe *supported = io_uring_get_probe();
    have_ring = results[0] == 0;
    /* All say the same. */
    printf("%d %d\n", results[0] == results[1], !!supported == have_ring);
    if (!have_ring && results[0] != -ENOSYS) printf("%s\n", strerrorname_np(-results[0]));
    if (supported) io_uring_free_probe(supported);
    /* For whoever runs this; the rest is the same with a ring and without. */
    put_file("ring", have_ring ? "yes" : "no");
}

static void probe(void) {
    refused_or_not();
    char text[64] = "";
    int fd = open(at("f"), O_CREAT | O_RDWR, 0644);
    TRY(put(fd, "0123456789", 0));
    TRY(put(fd, "abc", 4));
    TRY(make_durable(fd));
    TRY(get(fd, text, sizeof text, 2));
    puts(text);
    int pipes[2];
    pipe(pipes);
    TRY(write(pipes[1], "by a pipe", 10));
    have_ring ? get(pipes[0], text, 10, 0) : read(pipes[0], text, 10);
    puts(text);
    if (have_ring) io_uring_queue_exit(&ring);
}
