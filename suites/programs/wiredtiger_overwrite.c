/* Overwrites records of a WiredTiger B-tree that is larger than its cache, in random order, with a checkpoint now and then.
 * wiredtiger_overwrite DIR fill|overwrite KEYS COUNT SEED
 * Each record has 8 bytes of key and 100 to 400 of value. overwrite prints how many seconds it took, the last checkpoint included. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wiredtiger.h>

enum { BETWEEN_CHECKPOINTS = 20000 };

static void try(int result, const char *what) {
    if (result) {
        fprintf(stderr, "%s: %s\n", what, wiredtiger_strerror(result));
        exit(1);
    }
}
#define TRY(call) try((call), #call)

static uint64_t state;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void put(WT_CURSOR *c, uint64_t key) {
    char value[401];
    size_t len = 100 + next() % 300;
    for (size_t n = 0; n < len; n++) value[n] = 'a' + (key + n * state) % 26;
    value[len] = 0;
    c->set_key(c, key);
    c->set_value(c, value);
    TRY(c->insert(c));
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    uint64_t keys = strtoull(argv[3], NULL, 10), count = strtoull(argv[4], NULL, 10);
    state = strtoull(argv[5], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
    WT_CONNECTION *connection;
    WT_SESSION *s;
    WT_CURSOR *c;
    TRY(wiredtiger_open(argv[1], NULL, "create,cache_size=24MB,checkpoint_sync=true,eviction=(threads_max=2)", &connection));
    TRY(connection->open_session(connection, NULL, NULL, &s));
    TRY(s->create(s, "table:t", "key_format=Q,value_format=S,leaf_page_max=16KB,checksum=on"));
    TRY(s->open_cursor(s, "table:t", NULL, "overwrite=true", &c));
    if (!strcmp(argv[2], "fill")) {
        for (uint64_t key = 0; key < keys; key++) put(c, key);
        TRY(s->checkpoint(s, NULL));
    } else {
        double begun = now();
        for (uint64_t n = 1; n <= count; n++) {
            put(c, next() % keys);
            if (n % BETWEEN_CHECKPOINTS == 0 || n == count) TRY(s->checkpoint(s, NULL));
        }
        printf("%.4f\n", now() - begun);
    }
    TRY(connection->close(connection, NULL));
    return 0;
}
