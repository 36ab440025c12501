/* A key-value store and a B+tree in one tag store, changed together. A test compiles and runs it (tests/c_tags.rs). */
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

static void expect(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

#define BYTES(text) (const uint8_t *)(text), strlen(text)

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: maps STORE\n");
        return 2;
    }
    weft_tags *tags;
    weft_kv *kv;
    weft_btree *tree;
    weft_tx *tx;
    uint8_t value[64], key[64];
    size_t bytes, key_bytes = 0;
    uint64_t count;
    uint32_t savepoint;
    check(weft_tags_create(argv[1], 0, &tags), "create");
    check(weft_kv_open(tags, "colours", &kv), "kv");
    check(weft_btree_open(tags, "by name", WEFT_BTREE_BYTES, &tree), "btree");

    /* Both change together, or neither. */
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_tx_sync_within(tx, 20), "durability");
    check(weft_kv_put(kv, tx, BYTES("apple"), BYTES("red")), "put");
    check(weft_btree_put(tree, tx, BYTES("apple"), BYTES("1")), "put");
    check(weft_btree_put(tree, tx, BYTES("plum"), BYTES("2")), "put");
    check(weft_savepoint(tx, &savepoint), "savepoint");
    check(weft_btree_put(tree, tx, BYTES("fig"), BYTES("3")), "put");
    check(weft_undo_tx(tx, savepoint), "undo");
    check(weft_commit_tx(tx), "commit");
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_kv_put(kv, tx, BYTES("never"), BYTES("seen")), "put");
    weft_abort_tx(tx);

    check(weft_kv_get(kv, BYTES("apple"), value, sizeof value, &bytes), "get");
    expect(bytes == 3 && memcmp(value, "red", 3) == 0, "the value comes back");
    expect(weft_kv_get(kv, BYTES("never"), value, sizeof value, &bytes) == WEFT_ENOENT, "what is aborted is not there");
    check(weft_kv_get(kv, BYTES("apple"), value, 1, &bytes), "get");
    expect(bytes == 3, "the size is returned when the room is too small");
    check(weft_btree_put(tree, NULL, BYTES("pear"), BYTES("4")), "put");
    check(weft_btree_count(tree, &count), "count");
    expect(count == 3, "three pairs are in the tree");

    /* In order, up and down. */
    char seen[64] = "";
    int status;
    const uint8_t *from = NULL;
    while ((status = weft_btree_next(tree, from, key_bytes, 0, key, sizeof key, &key_bytes, value, 0, NULL)) == 0) {
        strncat(seen, (const char *)key, key_bytes);
        strcat(seen, " ");
        from = key;
    }
    expect(status == WEFT_ENOENT && strcmp(seen, "apple pear plum ") == 0, "the keys come in their order");
    check(weft_btree_next(tree, NULL, 0, 1, key, sizeof key, &key_bytes, value, sizeof value, &bytes), "last");
    expect(key_bytes == 4 && memcmp(key, "plum", 4) == 0 && value[0] == '2', "the last comes first, downwards");
    check(weft_btree_delete(tree, NULL, BYTES("plum")), "delete");
    expect(weft_btree_delete(tree, NULL, BYTES("plum")) == WEFT_ENOENT, "a key is deleted once");
    check(weft_kv_delete(kv, NULL, BYTES("apple")), "delete");
    check(weft_kv_count(kv, &count), "count");
    expect(count == 0, "nothing is left");

    weft_tags *again;
    expect(weft_tags_open(argv[1], 0, &again) == WEFT_EBUSY, "a store is open once");
    expect(weft_kv_open(NULL, "x", &kv) == WEFT_EINVAL, "a null handle is refused");
    weft_btree_close(tree);
    weft_kv_close(kv);
    check(weft_tags_close(tags), "close");
    printf("maps from C: ok\n");
    return 0;
}
