/* A child of a process that has a connection: forked SOCKET. */
#define _GNU_SOURCE
#include "checks.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_files *files;
static weft_file file;
static weft_chain *chain;
static weft_batch *batch;

/* The call fails because the connection is the parent's. */
#define REFUSED(call) \
    HOLDS((call) == WEFT_EIO && weft_error_errno() == EIO && strstr(weft_error_message(), "connect again") != NULL)

static void child(const char *socket) {
    uint8_t data[4];
    size_t bytes;
    weft_file other;
    weft_batch *of_parent;
    REFUSED(weft_chain_run(files, chain, &file, 1, NULL));
    REFUSED(weft_chain_run_with(files, chain, &file, 1, NULL, 0, NULL));
    REFUSED(weft_batch_wait(batch));
    REFUSED(weft_file_open(files, "/forked", O_RDWR, 0, &other));
    REFUSED(weft_file_close(files, file));
    REFUSED(weft_open_read(files, "/forked", 0, data, sizeof data, &bytes));
    REFUSED(weft_batch_new(files, &of_parent));
    weft_batch_free(batch);
    weft_files_close(files);
    CHECK(weft_files_connect(socket, NULL, &files));
    CHECK(weft_file_open(files, "/forked", O_RDWR, 0, &file));
    CHECK(weft_chain_run(files, chain, &file, 1, NULL));
    weft_files_close(files);
}

int main(int argc, char **argv) {
    HOLDS(argc == 2);
    CHECK(weft_files_connect(argv[1], NULL, &files));
    CHECK(weft_file_open(files, "/forked", O_RDWR | O_CREAT, 0644, &file));
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_chain_append(chain, weft_chain_given(chain, 0), weft_text("a"));
    /* The server's: it is durable. */
    CHECK(weft_chain_durable(chain));
    CHECK(weft_batch_new(files, &batch));
    for (int run = 0; run < 8; run++) CHECK(weft_batch_add(batch, chain, &file, 1, NULL, 0));
    CHECK(weft_batch_post(batch));
    pid_t pid = fork();
    if (pid == 0) {
        child(argv[1]);
        _exit(0);
    }
    int status;
    HOLDS(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(weft_batch_wait(batch));
    for (int run = 0; run < 8; run++) CHECK(weft_batch_take(batch, NULL));
    HOLDS(content_is(files, "/forked", "aaaaaaaaa"));
    weft_files_close(files);
    puts("forked from C: ok");
    return 0;
}
