/* Fills an LMDB environment and reads it back.
 * lmdb_roundtrip DIR fill|check|acknowledge KEYS [writemap]
 * fill and check print the number of records and a sum over all of them in order, which is the same on every run.
 * acknowledge writes for ever, each record in a transaction of its own, and prints how many are committed. */
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void try(int result, const char *what) {
    if (result) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(result));
        exit(1);
    }
}
#define TRY(call) try((call), #call)

static size_t value_of(uint64_t key, int version, char *out) {
    size_t n = 20 + (size_t)(key * 2654435761u % 3000);
    for (size_t i = 0; i < n; i++) out[i] = (char)('a' + (key + i * 7 + (size_t)version) % 26);
    return n;
}

static void put(MDB_txn *txn, MDB_dbi dbi, uint64_t key, int version) {
    char value[4096];
    MDB_val k = {sizeof key, &key}, v = {value_of(key, version, value), value};
    TRY(mdb_put(txn, dbi, &k, &v, 0));
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    uint64_t keys = strtoull(argv[3], NULL, 10);
    unsigned flags = argc > 4 ? MDB_WRITEMAP : 0;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    TRY(mdb_env_create(&env));
    TRY(mdb_env_set_mapsize(env, 256u << 20));
    TRY(mdb_env_open(env, argv[1], flags, 0644));
    TRY(mdb_txn_begin(env, NULL, 0, &txn));
    TRY(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &dbi));
    TRY(mdb_txn_commit(txn));
    if (!strcmp(argv[2], "acknowledge"))
        for (uint64_t key = 1;; key++) {
            TRY(mdb_txn_begin(env, NULL, 0, &txn));
            put(txn, dbi, key, 1);
            TRY(mdb_txn_commit(txn));
            printf("%" PRIu64 "\n", key);
            fflush(stdout);
        }
    if (!strcmp(argv[2], "fill")) {
        TRY(mdb_txn_begin(env, NULL, 0, &txn));
        for (uint64_t i = 0; i < keys; i++) {
            uint64_t key = i * 7919 % keys;
            put(txn, dbi, key, 1);
            if (i % 5 == 0) put(txn, dbi, key, 2);
            if (i % 7 == 0) {
                MDB_val k = {sizeof key, &key};
                TRY(mdb_del(txn, dbi, &k, NULL));
            }
            if (i % 100 == 99) {
                TRY(mdb_txn_commit(txn));
                TRY(mdb_txn_begin(env, NULL, 0, &txn));
            }
        }
        TRY(mdb_txn_commit(txn));
    }
    MDB_cursor *cursor;
    MDB_val k, v;
    uint64_t records = 0, sum = 0;
    TRY(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    TRY(mdb_cursor_open(txn, dbi, &cursor));
    int result;
    while (!(result = mdb_cursor_get(cursor, &k, &v, MDB_NEXT))) {
        records++;
        for (size_t i = 0; i < k.mv_size; i++) sum = sum * 31 + ((unsigned char *)k.mv_data)[i];
        for (size_t i = 0; i < v.mv_size; i++) sum = sum * 31 + ((unsigned char *)v.mv_data)[i];
    }
    if (result != MDB_NOTFOUND) TRY(result);
    printf("%" PRIu64 " records, sum %" PRIx64 "\n", records, sum);
    mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return 0;
}
