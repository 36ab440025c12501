/* Flash of a monitor that another process serves ('weft flash serve'): served SOCKET. A test compiles and runs it
   (tests/c_programs.rs). */
#include "weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: %d: %s\n", what, status, weft_error_message());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: served SOCKET\n");
        return 2;
    }
    weft_grant *grant;
    weft_raw *raw;
    weft_geometry_info geometry;
    check(weft_allocate_served(argv[1], "mine", 1 << 20, 70, &grant), "allocate");
    check(weft_raw_open(grant, &raw), "raw");
    check(weft_geometry(raw, &geometry), "geometry");
    uint8_t *data = malloc(geometry.page_bytes), *back = malloc(geometry.page_bytes);
    memset(data, 42, geometry.page_bytes);
    weft_block block = {0, 0, 0};
    check(weft_page_write(raw, block, 0, data, geometry.page_bytes, NULL, 0), "page write");
    weft_grant *second;
    if (weft_attach_served(argv[1], "mine", &second) == 0) {
        fprintf(stderr, "a grant in use was given to somebody else\n");
        return 1;
    }
    weft_raw_close(raw);

    check(weft_attach_served(argv[1], "mine", &grant), "attach");
    check(weft_raw_open(grant, &raw), "raw");
    check(weft_page_read(raw, block, 0, 0, back, geometry.page_bytes, NULL, 0), "page read");
    weft_raw_close(raw);
    if (memcmp(data, back, geometry.page_bytes) != 0) {
        fprintf(stderr, "what was written is not there\n");
        return 1;
    }
    free(data);
    free(back);
    puts("flash of another process from C: ok");
    return 0;
}
