/* One change, durable or not: durable SOCKET CHANGE 0|1. */
#include "checks.h"

#include <fcntl.h>

int main(int argc, char **argv) {
    weft_files *files;
    weft_file file;
    weft_chain *chain;
    HOLDS(argc == 4);
    uint32_t durable = (uint32_t)atoi(argv[3]);
    CHECK(weft_files_connect(argv[1], NULL, &files));
    CHECK(weft_open_write(files, "/file", 0600, 0, BYTES("0123456789"), 0));
    CHECK(weft_file_open(files, "/file", O_RDWR, 0, &file));
    switch (atoi(argv[2])) {
    case 0:
        CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
        if (durable)
            CHECK(weft_chain_durable(chain));
        weft_chain_append(chain, weft_chain_given(chain, 0), weft_text("x"));
        CHECK(weft_chain_run(files, chain, &file, 1, NULL));
        weft_chain_free(chain);
        break;
    case 1:
        CHECK(weft_open_write(files, "/file", 0600, 0, BYTES("x"), durable));
        break;
    case 2:
        CHECK(weft_read_modify_write(files, file, 0, NULL, 4, 2, BYTES("x"), durable));
        break;
    case 3:
        CHECK(weft_write_checksum(files, file, WEFT_END, BYTES("x"), durable, NULL));
        break;
    default:
        CHECK(weft_write_close(files, file, 0, BYTES("x"), durable));
    }
    weft_files_close(files);
    return 0;
}
