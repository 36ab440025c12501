/* Edges by key, snapshots, s-nodes with a property, and a store that is read where it is mapped. A test compiles and runs it
   (tests/c_tags.rs). */
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
#define PERSON (WEFT_KEYED | 7)

/* A person's data: the length of the name, the name, the rest. */
static uint64_t person(weft_tx *tx, uint64_t snode, const char *name, const char *rest) {
    uint8_t data[64] = {(uint8_t)strlen(name), 0};
    uint64_t node;
    memcpy(data + 2, name, strlen(name));
    memcpy(data + 2 + strlen(name), rest, strlen(rest));
    check(weft_create_node(tx, snode, PERSON, data, 2 + strlen(name) + strlen(rest), &node), "node");
    return node;
}

static void edges_by_key(weft_tags *tags) {
    weft_tx *tx;
    uint64_t root, ada, eve, found, before;
    uint32_t knows;
    check(weft_tags_root(tags, WEFT_SNODE_FIRST, &root), "root");
    check(weft_key_edge_type(tags, "knows", &knows), "edge type");
    check(weft_begin_tx(tags, &tx), "begin");
    ada = person(tx, WEFT_SNODE_FIRST, "Ada", " Lovelace");
    eve = person(tx, WEFT_SNODE_FIRST, "Ada", " the other");
    check(weft_create_key_edge(tx, root, knows, BYTES("Ada"), ada), "edge");
    expect(weft_create_key_edge(tx, root, knows, BYTES("Bob"), ada) == WEFT_EINVAL, "the key is the node's");
    check(weft_get_key_destination(tags, tx, root, knows, BYTES("Ada"), &found), "in the transaction");
    expect(found == ada, "the transaction sees its edge");
    expect(weft_get_key_destination(tags, NULL, root, knows, BYTES("Ada"), &found) == WEFT_ENOENT, "others do not");
    check(weft_set_key_edge(tx, root, knows, BYTES("Ada"), eve, &before), "lead elsewhere");
    expect(before == ada, "the old destination is returned");
    check(weft_commit_tx(tx), "commit");
    check(weft_get_key_destination(tags, NULL, root, knows, BYTES("Ada"), &found), "committed");
    expect(found == eve, "the edge leads to the other");
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_delete_key_edge(tx, root, knows, BYTES("Ada"), &found), "delete");
    expect(found == eve, "the old destination is returned");
    check(weft_commit_tx(tx), "commit");
}

static void snapshots(weft_tags *tags, weft_tags *other) {
    weft_kv *kv;
    weft_btree *tree;
    weft_snapshot *then, *strange;
    weft_tx *tx;
    uint8_t key[64], value[64];
    size_t key_bytes, bytes;
    uint64_t count, root, node;
    uint32_t next;
    check(weft_kv_open(tags, "colours", &kv), "kv");
    check(weft_btree_open(tags, "by name", WEFT_BTREE_BYTES, &tree), "btree");
    check(weft_kv_put(kv, NULL, BYTES("apple"), BYTES("red")), "put");
    check(weft_btree_put(tree, NULL, BYTES("apple"), BYTES("1")), "put");
    check(weft_btree_put(tree, NULL, BYTES("plum"), BYTES("2")), "put");
    check(weft_tags_root(tags, WEFT_SNODE_FIRST, &root), "root");
    check(weft_edge_type(tags, "next", &next), "edge type");
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_create_node(tx, WEFT_SNODE_FIRST, 5, BYTES("before"), &node), "node");
    check(weft_create_edge(tx, root, next, 0, node), "edge");
    check(weft_commit_tx(tx), "commit");

    check(weft_snapshot_begin(tags, &then), "snapshot");
    check(weft_kv_put(kv, NULL, BYTES("apple"), BYTES("green")), "put");
    check(weft_kv_put(kv, NULL, BYTES("pear"), BYTES("yellow")), "put");
    check(weft_btree_delete(tree, NULL, BYTES("plum")), "delete");
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_update_node(tx, node, 5, BYTES("after")), "update");
    check(weft_commit_tx(tx), "commit");

    check(weft_kv_get_at(kv, then, BYTES("apple"), value, sizeof value, &bytes), "get");
    expect(bytes == 3 && memcmp(value, "red", 3) == 0, "the value of then");
    expect(weft_kv_get_at(kv, then, BYTES("pear"), value, sizeof value, &bytes) == WEFT_ENOENT, "what came later");
    check(weft_kv_count_at(kv, then, &count), "count");
    expect(count == 1, "one pair then");
    check(weft_btree_get_at(tree, then, BYTES("plum"), value, sizeof value, &bytes), "get");
    expect(bytes == 1 && value[0] == '2', "what is deleted is there then");
    check(weft_btree_count_at(tree, then, &count), "count");
    expect(count == 2, "two pairs then");
    check(weft_btree_next_at(tree, then, NULL, 0, 1, key, sizeof key, &key_bytes, value, sizeof value, &bytes), "last");
    expect(key_bytes == 4 && memcmp(key, "plum", 4) == 0, "the last key then");
    check(weft_btree_next_at(tree, then, key, key_bytes, 1, key, sizeof key, &key_bytes, NULL, 0, NULL), "before it");
    expect(key_bytes == 5 && memcmp(key, "apple", 5) == 0, "the first key");
    check(weft_node_data_at(then, node, 5, value, sizeof value, &bytes), "data");
    expect(bytes == 6 && memcmp(value, "before", 6) == 0, "the data of then");

    check(weft_snapshot_begin(other, &strange), "snapshot");
    expect(weft_kv_get_at(kv, strange, BYTES("apple"), value, sizeof value, &bytes) == WEFT_EINVAL, "another store's");
    weft_snapshot_end(strange);
    weft_snapshot_end(then);
    weft_kv_close(kv);
    weft_btree_close(tree);
}

static uint16_t s_nodes(weft_tags *tags) {
    weft_snode_tags said = {.owner = 1000, .group = 100, .mode = 0640, .data_class = 2, .flags = WEFT_SECURE_DELETE};
    weft_snode_tags found;
    weft_tx *tx;
    uint64_t root, node;
    uint32_t next;
    uint64_t snode, gone;
    check(weft_edge_type(tags, "next", &next), "edge type");
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_create_snode(tx, &said, &snode), "s-node");
    check(weft_create_snode(tx, &said, &gone), "s-node");
    check(weft_tx_root(tx, snode, &root), "root");
    check(weft_create_node(tx, snode, 5, BYTES("secret"), &node), "node");
    check(weft_create_edge(tx, root, next, 0, node), "edge");
    check(weft_commit_tx(tx), "commit");
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_delete_snode(tx, gone), "delete");
    said.owner = 1001;
    check(weft_snode_tags_set(tx, snode, &said), "tags");
    check(weft_snode_tags_get(tags, tx, snode, &found), "tags");
    expect(found.owner == 1001, "the transaction sees its tags");
    said.flags = 0x80;
    expect(weft_snode_tags_set(tx, snode, &said) == WEFT_EINVAL, "there is no such flag");
    check(weft_commit_tx(tx), "commit");
    expect(weft_snode_tags_get(tags, NULL, gone, &found) == WEFT_ENOENT, "it is gone");
    return snode;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: snapshots STORE ANOTHER\n");
        return 2;
    }
    weft_tags *tags, *other;
    weft_snode_tags found;
    check(weft_tags_create_with(argv[1], 4 << 20, WEFT_READ_DIRECT, &tags), "create");
    check(weft_tags_create(argv[2], 0, &other), "create");
    expect(weft_tags_open_with(argv[2], 0, 3, &other) == WEFT_EINVAL, "there is no such read path");
    edges_by_key(tags);
    snapshots(tags, other);
    uint64_t snode = s_nodes(tags);
    check(weft_tags_close(other), "close");
    check(weft_tags_close(tags), "close");

    check(weft_tags_open_with(argv[1], 4 << 20, WEFT_READ_MAPPED, &tags), "open");
    check(weft_snode_tags_get(tags, NULL, snode, &found), "tags");
    expect(found.owner == 1001 && found.group == 100 && found.mode == 0640, "owner, group and mode");
    expect(found.data_class == 2 && found.flags == WEFT_SECURE_DELETE, "class and flags");
    check(weft_tags_close(tags), "close");
    printf("snapshots from C: ok\n");
    return 0;
}
