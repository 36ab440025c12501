/* Replaces two files of a mounted volume in one step: through_a_mount DIRECTORY TEXT. Whoever reads DIRECTORY/first and DIRECTORY/second
   sees the old content of both or the new one. The program needs no connection to the server: an open directory of the mount is enough,
   so it can be linked statically. A test compiles and runs it (tests/c_mount.rs). */
#define _POSIX_C_SOURCE 200809L
#include "weft.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void replace(weft_chain *chain, const char *new_name, const char *name, weft_bytes content) {
    weft_value file = weft_chain_create(chain, weft_at(new_name), O_EXCL, 0644);
    weft_chain_append(chain, file, content);
    weft_chain_rename(chain, weft_at(new_name), weft_at(name), 0);
}

int main(int argc, char **argv) {
    weft_chain *chain;
    if (argc != 3) {
        fprintf(stderr, "usage: through_a_mount DIRECTORY TEXT\n");
        return 2;
    }
    int directory = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        perror(argv[1]);
        return 1;
    }
    if (weft_chain_new(WEFT_CHAIN_ALL, &chain) != 0) {
        fprintf(stderr, "%s\n", weft_error_message());
        return 1;
    }
    replace(chain, "first.new", "first", weft_text(argv[2]));
    replace(chain, "second.new", "second", weft_text(argv[2]));
    int status = weft_chain_run_at(directory, chain, NULL);
    if (status != 0)
        fprintf(stderr, "%s: %s\n", argv[1], weft_error_message());
    weft_chain_free(chain);
    close(directory);
    return status != 0;
}
