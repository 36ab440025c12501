/* The server ends while the program has a connection, a file and a chain: server_ends SOCKET. */
#include "checks.h"

#include <errno.h>
#include <fcntl.h>

int main(int argc, char **argv) {
    weft_files *files;
    weft_file file;
    weft_chain *chain;
    weft_answer *answer = NULL;
    uint8_t data[4];
    size_t bytes;
    HOLDS(argc == 2);
    CHECK(weft_files_connect(argv[1], NULL, &files));
    CHECK(weft_file_open(files, "/file", O_CREAT | O_RDWR, 0600, &file));
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_chain_append(chain, weft_chain_given(chain, 0), weft_text("x"));
    CHECK(weft_chain_run(files, chain, &file, 1, NULL));
    puts("ready");
    fflush(stdout);
    getchar();

    HOLDS(weft_chain_run(files, chain, &file, 1, &answer) == WEFT_EIO && weft_error_errno() == EIO);
    HOLDS(answer == NULL);
    HOLDS(weft_open_read(files, "/file", 0, data, sizeof data, &bytes) == WEFT_EIO && weft_error_errno() == EIO);
    HOLDS(weft_file_open(files, "/file", O_RDONLY, 0, &file) == WEFT_EIO);
    weft_chain_free(chain);
    weft_files_close(files);
    puts("the end of a server from C: ok");
    return 0;
}
