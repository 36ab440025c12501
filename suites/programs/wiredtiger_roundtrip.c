/* Fills a WiredTiger table by several threads while others read and take checkpoints, and reads it back.
 * wiredtiger_roundtrip DIR fill|check|verify|acknowledge btree|lsm KEYS
 * fill and check print the number of records and a sum over all of them in order, which is the same on every run.
 * acknowledge writes for ever, each record in a transaction of its own that is durable, and prints how many there are. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

enum { THREADS = 4 };
static WT_CONNECTION *connection;
static const char *uri = "table:t";
static uint64_t keys;
static volatile int filling = 1;

static void try(int result, const char *what) {
    if (result) {
        fprintf(stderr, "%s: %s\n", what, wiredtiger_strerror(result));
        exit(1);
    }
}
#define TRY(call) try((call), #call)

static WT_SESSION *session(void) {
    WT_SESSION *s;
    TRY(connection->open_session(connection, NULL, "isolation=snapshot", &s));
    return s;
}

static void value_of(uint64_t key, int version, char *out) {
    int n = sprintf(out, "%d:%" PRIu64 ":", version, key), len = 20 + (int)(key * 2654435761u % 300);
    for (; n < len; n++) out[n] = 'a' + (key + n * 7 + version) % 26;
    out[n] = 0;
}

static void put(WT_SESSION *s, WT_CURSOR *c, uint64_t key, int version) {
    char value[400];
    value_of(key, version, value);
    for (;;) {
        TRY(s->begin_transaction(s, NULL));
        c->set_key(c, key);
        c->set_value(c, value);
        int result = c->insert(c);
        if (!result) result = s->commit_transaction(s, NULL);
        else s->rollback_transaction(s, NULL);
        if (result != WT_ROLLBACK) {
            TRY(result);
            return;
        }
    }
}

static void *fill(void *number) {
    WT_SESSION *s = session();
    WT_CURSOR *c;
    TRY(s->open_cursor(s, uri, NULL, "overwrite=true", &c));
    uint64_t mine = (uint64_t)(uintptr_t)number;
    /* In an order that is not sorted; each key belongs to one thread. */
    for (uint64_t i = mine; i < keys; i += THREADS) put(s, c, i * 7919 % keys, 1);
    for (uint64_t i = mine; i < keys; i += THREADS) {
        uint64_t key = i * 7919 % keys;
        if (key % 5 == 0) put(s, c, key, 2);
        if (key % 7 == 0) {
            c->set_key(c, key);
            int result;
            while ((result = c->remove(c)) == WT_ROLLBACK) c->set_key(c, key);
            TRY(result);
        }
    }
    TRY(s->close(s, NULL));
    return NULL;
}

static void *disturb(void *unused) {
    WT_SESSION *s = session();
    unsigned seed = 1;
    while (filling) {
        WT_CURSOR *c;
        TRY(s->checkpoint(s, NULL));
        TRY(s->open_cursor(s, uri, NULL, NULL, &c));
        for (int i = 0; i < 2000 && filling; i++) {
            uint64_t key = (uint64_t)rand_r(&seed) % keys;
            const char *value;
            c->set_key(c, key);
            int result = c->search(c);
            if (result == WT_NOTFOUND || result == WT_ROLLBACK) continue;
            TRY(result);
            TRY(c->get_value(c, &value));
            uint64_t stored;
            if (sscanf(value, "%*d:%" SCNu64, &stored) != 1 || stored != key) {
                fprintf(stderr, "key %" PRIu64 " holds %s\n", key, value);
                exit(1);
            }
        }
        TRY(c->close(c));
    }
    TRY(s->close(s, NULL));
    return unused;
}

static void report(void) {
    WT_SESSION *s = session();
    WT_CURSOR *c;
    TRY(s->open_cursor(s, uri, NULL, NULL, &c));
    uint64_t records = 0, sum = 14695981039346656037u, before = 0;
    int result;
    while (!(result = c->next(c))) {
        uint64_t key;
        const char *value;
        TRY(c->get_key(c, &key));
        TRY(c->get_value(c, &value));
        if (records && key <= before) try(1, "keys out of order");
        before = key;
        for (const char *p = value; *p; p++) sum = (sum ^ (unsigned char)*p) * 1099511628211u;
        sum = (sum ^ key) * 1099511628211u;
        records++;
    }
    if (result != WT_NOTFOUND) try(result, "next");
    printf("%" PRIu64 " records, sum %016" PRIx64 "\n", records, sum);
    TRY(s->close(s, NULL));
}

static void acknowledge(void) {
    WT_SESSION *s = session();
    WT_CURSOR *c;
    TRY(s->open_cursor(s, uri, NULL, "overwrite=true", &c));
    for (uint64_t key = 0;; key++) {
        char value[400];
        value_of(key, 1, value);
        TRY(s->begin_transaction(s, "sync=true"));
        c->set_key(c, key);
        c->set_value(c, value);
        TRY(c->insert(c));
        TRY(s->commit_transaction(s, NULL));
        if (key % 64 == 63) {
            printf("%" PRIu64 "\n", key + 1);
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    const char *action = argv[2], *kind = argv[3];
    keys = strtoull(argv[4], NULL, 10);
    TRY(wiredtiger_open(argv[1], NULL,
        "create,cache_size=24MB,log=(enabled,file_max=4MB),checkpoint_sync=true,"
        "transaction_sync=(enabled=false),eviction=(threads_max=4)",
        &connection));
    WT_SESSION *s = session();
    char table[200];
    snprintf(table, sizeof table, "key_format=Q,value_format=S,%s",
        strcmp(kind, "lsm") ? "leaf_page_max=16KB,checksum=on" : "type=lsm,lsm=(chunk_size=1MB,merge_min=2)");
    TRY(s->create(s, uri, table));
    if (!strcmp(action, "fill")) {
        pthread_t threads[THREADS], other;
        pthread_create(&other, NULL, disturb, NULL);
        for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, fill, (void *)i);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        filling = 0;
        pthread_join(other, NULL);
    }
    if (!strcmp(action, "acknowledge")) acknowledge();
    if (!strcmp(action, "verify")) {
        TRY(s->verify(s, uri, NULL));
        TRY(s->compact(s, uri, NULL));
        TRY(s->verify(s, uri, NULL));
        printf("verified\n");
    } else {
        report();
    }
    TRY(connection->close(connection, NULL));
    return 0;
}
