/* What the programs of these tests share. */
#include "weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(text) (const uint8_t *)(text), strlen(text)

/* The call returned 0. */
#define CHECK(call) check((call), #call, __LINE__)
/* The condition holds. */
#define HOLDS(condition) holds((condition), #condition, __LINE__)

static inline void check(int status, const char *what, int line) {
    if (status != 0) {
        fprintf(stderr, "line %d: %s: %d: %s\n", line, what, status, weft_error_message());
        exit(1);
    }
}

static inline void holds(int condition, const char *what, int line) {
    if (!condition) {
        fprintf(stderr, "line %d: does not hold: %s (%s)\n", line, what, weft_error_message());
        exit(1);
    }
}

/* The whole of a file. */
static inline int content_is(const weft_files *files, const char *path, const char *wanted) {
    uint8_t data[256];
    size_t bytes;
    check(weft_open_read(files, path, 0, data, sizeof data, &bytes), path, __LINE__);
    return bytes == strlen(wanted) && memcmp(data, wanted, bytes) == 0;
}

static inline int exists(const weft_files *files, const char *path) {
    uint8_t data[1];
    size_t bytes;
    return weft_open_read(files, path, 0, data, sizeof data, &bytes) == 0;
}
