/* Nodes and values by parts, lists of edges by parts, and many pairs together: parts STORE. A test compiles and runs it
   (tests/c_tags.rs). */
#include "weft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOB = 3, PIECE = 100000, PIECES = 300 };

#define BYTES(text) (const uint8_t *)(text), strlen(text)

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: %d: %s\n", what, status, weft_error_message());
        exit(1);
    }
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

/* A node that is written by pieces, and read and changed in its midst. */
static void parts_of_a_node(weft_tags *tags, uint64_t root, uint32_t type) {
    static uint8_t piece[PIECE], back[PIECE];
    weft_tx *tx;
    uint64_t node, at;
    size_t bytes;
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_create_node(tx, WEFT_SNODE_FIRST, BLOB, NULL, 0, &node), "create node");
    check(weft_create_edge(tx, root, type, 1000, node), "create edge");
    for (int n = 0; n < PIECES; n++) {
        memset(piece, n, sizeof piece);
        check(weft_append_to_node(tx, node, BLOB, piece, sizeof piece, &at), "append");
        expect(at == (uint64_t)n * PIECE, "where the end was");
    }
    check(weft_write_node_part(tx, node, BLOB, 50 * PIECE - 2, BYTES("midst")), "write part");
    check(weft_commit_tx(tx), "commit");
    check(weft_read_node_part(tags, NULL, node, BLOB, 50 * PIECE - 3, back, 7, &bytes), "read part");
    expect(bytes == 7 && back[0] == 49 && memcmp(back + 1, "midst", 5) == 0 && back[6] == 50, "the part");
    check(weft_read_node_part(tags, NULL, node, BLOB, (uint64_t)PIECES * PIECE - 5, back, 10, &bytes), "read part");
    expect(bytes == 5, "the end");
}

/* A list of edges that changes while it is read. */
static void list_by_parts(weft_tags *tags, uint64_t root, uint32_t type) {
    weft_tx *tx;
    weft_placed_edge edges[16];
    weft_place place;
    size_t count;
    uint64_t seen = 0, sum = 0;
    check(weft_begin_tx(tags, &tx), "begin");
    for (uint64_t n = 0; n < 500; n++) {
        uint64_t node;
        check(weft_create_node(tx, WEFT_SNODE_FIRST, BLOB, (uint8_t *)&n, sizeof n, &node), "create node");
        check(weft_create_edge(tx, root, type, n, node), "create edge");
    }
    check(weft_commit_tx(tx), "commit");
    check(weft_edges_from(tags, NULL, root, type, NULL, 0, edges, 16, &count), "edges");
    while (count > 0) {
        for (size_t at = 0; at < count; at++) {
            if (edges[at].info < 500) {
                seen++;
                sum += edges[at].info;
            }
        }
        place = edges[count - 1].behind;
        check(weft_begin_tx(tags, &tx), "begin");
        uint64_t node;
        check(weft_create_node(tx, WEFT_SNODE_FIRST, BLOB, NULL, 0, &node), "create node");
        check(weft_create_edge(tx, root, type, 10000 + seen, node), "create edge");
        check(weft_tx_sync(tx, 0), "durability");
        check(weft_commit_tx(tx), "commit");
        check(weft_edges_from(tags, NULL, root, type, &place, 0, edges, 16, &count), "edges");
    }
    expect(seen == 500 && sum == 499 * 250, "each edge once");
    check(weft_edges_from(tags, NULL, root, type, NULL, 1, edges, 3, &count), "edges");
    expect(count == 3, "from the end down");
}

/* Pairs in an s-node of their own. */
static void pairs(weft_tags *tags) {
    weft_tx *tx;
    weft_kv *kv;
    weft_kv_scan *scan;
    uint8_t value[16], key[16];
    size_t value_bytes, key_bytes;
    uint64_t found;
    uint32_t swapped;
    uint64_t snode;
    weft_snode_tags of = {0, 0, 0600, 0, 0};
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_create_snode(tx, &of, &snode), "create s-node");
    check(weft_commit_tx(tx), "commit");
    check(weft_kv_open_in(tags, snode, "fruit", &kv), "open");

    weft_kv_change many[] = {
        {BYTES("apple"), BYTES("red")}, {BYTES("plum"), BYTES("blue")}, {BYTES("pear"), BYTES("green")},
    };
    check(weft_kv_change_many(kv, NULL, many, 3, &found), "change");
    many[2].value = NULL;
    check(weft_kv_change_many(kv, NULL, many, 3, &found), "change");
    expect(found == 3, "all had a value");

    check(weft_kv_compare_and_swap(kv, BYTES("apple"), BYTES("green"), BYTES("brown"), &swapped), "swap");
    expect(!swapped, "another value");
    check(weft_kv_compare_and_swap(kv, BYTES("apple"), BYTES("red"), BYTES("brown"), &swapped), "swap");
    check(weft_kv_compare_and_swap(kv, BYTES("cherry"), NULL, 0, BYTES("black"), &swapped), "swap");
    expect(swapped, "no value before");

    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_kv_append(kv, tx, BYTES("plum"), BYTES(" and ")), "append");
    check(weft_kv_append(kv, tx, BYTES("plum"), BYTES("white")), "append");
    check(weft_kv_get_in(kv, tx, BYTES("plum"), value, sizeof value, &value_bytes), "get in");
    expect(value_bytes == 14 && memcmp(value, "blue and white", 14) == 0, "what the transaction sees");
    expect(weft_kv_get_in(kv, tx, BYTES("never"), value, sizeof value, &value_bytes) == WEFT_ENOENT, "none");
    check(weft_commit_tx(tx), "commit");
    check(weft_kv_get_part(kv, BYTES("plum"), 9, value, sizeof value, &value_bytes), "get part");
    expect(value_bytes == 5 && memcmp(value, "white", 5) == 0, "a part of the value");

    size_t pairs = 0, bytes = 0;
    int status;
    check(weft_kv_scan_begin(kv, &scan), "scan");
    check(weft_kv_delete(kv, NULL, BYTES("cherry")), "delete");
    while ((status = weft_kv_scan_next(scan, key, sizeof key, &key_bytes, value, sizeof value, &value_bytes)) == 0) {
        pairs++;
        bytes += key_bytes + value_bytes;
    }
    expect(status == WEFT_ENOENT && pairs == 3 && bytes == 5 + 5 + 4 + 14 + 6 + 5, "the pairs of one moment");
    weft_kv_scan_end(scan);
    weft_kv_close(kv);
}

int main(int argc, char **argv) {
    weft_tags *tags;
    uint64_t root, nodes, edges;
    uint32_t type;
    if (argc != 2) {
        fprintf(stderr, "usage: parts STORE\n");
        return 2;
    }
    check(weft_tags_create(argv[1], 16 << 20, &tags), "create");
    check(weft_tags_root(tags, WEFT_SNODE_FIRST, &root), "root");
    check(weft_edge_type(tags, "item", &type), "edge type");
    parts_of_a_node(tags, root, type);
    list_by_parts(tags, root, type);
    pairs(tags);
    check(weft_tags_check(tags, &nodes, &edges), "check");
    check(weft_tags_close(tags), "close");
    puts("parts from C: ok");
    return 0;
}
