/* A signal handler that comes again and again while its thread runs chains on a file: signals SOCKET pwrite|chain PATH. It writes to the
   same file, by the path where the program has it, or runs a chain on it, too. */
#define _GNU_SOURCE
#include "checks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>
#include <unistd.h>

#define HANDLERS 400
/* Where the handler's write of mode pwrite goes. */
#define SLOT 3000

static weft_files *files;
static weft_file file;
static weft_chain *of_main, *of_handler;
static bool runs_chain;
static int descriptor = -1;
static volatile uint64_t handled, made, refused, wrong;

/* Adds one to the number at an offset of the file. */
static weft_chain *counter(uint64_t at) {
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_value given = weft_chain_given(chain, 0);
    weft_value found = weft_chain_read(chain, given, weft_num(at), weft_num(8));
    weft_value number = weft_chain_unpack(chain, weft_data_of(found), weft_num(0), 8);
    weft_value next = weft_chain_arith(chain, weft_num_of(number), WEFT_ADD, weft_num(1));
    weft_value packed = weft_chain_pack(chain, weft_num_of(next), 8);
    weft_chain_write(chain, given, weft_num(at), weft_data_of(packed));
    CHECK(weft_chain_check(chain));
    return chain;
}

static uint64_t number_at(uint64_t at) {
    uint64_t number;
    size_t bytes;
    CHECK(weft_open_read(files, "/signals", at, (uint8_t *)&number, sizeof number, &bytes));
    HOLDS(bytes == sizeof number);
    return number;
}

static void handler(int signal) {
    (void)signal;
    int before = errno;
    uint64_t next = handled + 1;
    if (!runs_chain) {
        if (pwrite(descriptor, &next, sizeof next, SLOT) == sizeof next) made++;
    } else if (weft_chain_run(files, of_handler, &file, 1, NULL) == 0) {
        made++;
    } else if (weft_error_errno() == EDEADLK && strstr(weft_error_message(), "signal handler") != NULL) {
        refused++;
    } else {
        wrong++;
    }
    handled = next;
    errno = before;
}

int main(int argc, char **argv) {
    HOLDS(argc == 4);
    runs_chain = strcmp(argv[2], "chain") == 0;
    CHECK(weft_files_connect(argv[1], NULL, &files));
    CHECK(weft_file_open(files, "/signals", O_RDWR | O_CREAT, 0644, &file));
    static uint8_t zeros[8192];
    CHECK(weft_open_write(files, "/signals", 0644, 0, zeros, sizeof zeros, 1));
    of_main = counter(0);
    of_handler = counter(8);
    if (!runs_chain) {
        descriptor = open(argv[3], O_RDWR);
        HOLDS(descriptor >= 0);
    }
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    HOLDS(sigaction(SIGALRM, &action, NULL) == 0);
    uint64_t runs = 0;
    for (uint64_t signals = 0; signals < HANDLERS; signals++) {
        struct itimerval soon = {{0, 0}, {0, 1000}};
        HOLDS(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        for (; handled == signals; runs++) CHECK(weft_chain_run(files, of_main, &file, 1, NULL));
        HOLDS(runs_chain || number_at(SLOT) == handled);
    }
    HOLDS(number_at(0) == runs);
    HOLDS(wrong == 0 && made + refused == HANDLERS);
    HOLDS(!runs_chain || number_at(8) == made);
    /* What a handler was refused is no harm to the thread. */
    CHECK(weft_chain_run(files, of_main, &file, 1, NULL));
    weft_files_close(files);
    printf("made %" PRIu64 ", refused %" PRIu64 "\n", made, refused);
    return 0;
}
