/* A linked list that lives in a tag store, as in the papers on ADAPT (figure 3.1.4): nothing is serialised, nothing is
   loaded, and whatever kills the program, the list is a list. A test compiles and runs it (tests/c_tags.rs).

   list STORE push    puts an item at the head: one more than the head's, or 0
   list STORE pop     takes the head away
   list STORE print   prints the items from the head on, and checks the store
   list STORE churn   pushes and pops until it is killed; 'ready' when it has begun */
#include "weft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM = 7 };

static weft_tags *tags;
static uint32_t next_type;
static uint64_t root;

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: %d: %s\n", what, status, weft_error_message());
        exit(1);
    }
}

/* The item of a node. */
static uint64_t item_of(weft_tx *tx, uint64_t node) {
    uint64_t item;
    size_t bytes;
    check(weft_node_data(tags, tx, node, ITEM, (uint8_t *)&item, sizeof item, &bytes), "node data");
    return item;
}

/* The node behind a node, or 0. */
static uint64_t behind(weft_tx *tx, uint64_t node) {
    uint64_t to;
    int status = weft_get_destination(tags, tx, node, next_type, 0, &to);
    if (status == WEFT_ENOENT) {
        return 0;
    }
    check(status, "get destination");
    return to;
}

static void push(int sync) {
    weft_tx *tx;
    uint64_t node;
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_tx_sync(tx, sync), "durability");
    uint64_t head = behind(tx, root);
    uint64_t item = head ? item_of(tx, head) + 1 : 0;
    check(weft_create_node(tx, WEFT_SNODE_FIRST, ITEM, (const uint8_t *)&item, sizeof item, &node), "create node");
    if (head) {
        check(weft_create_edge(tx, node, next_type, 0, head), "create edge");
        check(weft_delete_edge(tx, root, next_type, 0, NULL), "delete edge");
    }
    check(weft_create_edge(tx, root, next_type, 0, node), "create edge");
    check(weft_commit_tx(tx), "commit");
}

static void pop(int sync) {
    weft_tx *tx;
    check(weft_begin_tx(tags, &tx), "begin");
    check(weft_tx_sync(tx, sync), "durability");
    uint64_t head = behind(tx, root);
    if (!head) {
        weft_abort_tx(tx);
        return;
    }
    uint64_t second = behind(tx, head);
    check(weft_delete_edge(tx, root, next_type, 0, NULL), "delete edge");
    if (second) {
        check(weft_delete_edge(tx, head, next_type, 0, NULL), "delete edge");
        check(weft_create_edge(tx, root, next_type, 0, second), "create edge");
    }
    check(weft_delete_node(tx, head, ITEM), "delete node");
    check(weft_commit_tx(tx), "commit");
}

static void print(void) {
    uint64_t items = 0, nodes, edges;
    for (uint64_t node = behind(NULL, root); node; node = behind(NULL, node)) {
        printf("%s%" PRIu64, items++ ? " " : "", item_of(NULL, node));
    }
    printf("\n");
    check(weft_tags_check(tags, &nodes, &edges), "check");
    if (nodes != items + 1 || edges != items) {
        fprintf(stderr, "%" PRIu64 " items, %" PRIu64 " nodes, %" PRIu64 " edges\n", items, nodes, edges);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: list STORE push|pop|print|churn\n");
        return 2;
    }
    int status = weft_tags_open(argv[1], 4 << 20, &tags);
    if (status == WEFT_ENOENT) {
        status = weft_tags_create(argv[1], 4 << 20, &tags);
    }
    check(status, argv[1]);
    check(weft_tags_root(tags, WEFT_SNODE_FIRST, &root), "root");
    check(weft_edge_type(tags, "next", &next_type), "edge type");
    if (strcmp(argv[2], "push") == 0) {
        push(1);
    } else if (strcmp(argv[2], "pop") == 0) {
        pop(1);
    } else if (strcmp(argv[2], "print") == 0) {
        print();
    } else {
        printf("ready\n");
        fflush(stdout);
        for (unsigned n = 0;; n++) {
            if (n * 2654435761u >> 16 & 1) {
                push(n % 8 == 0);
            } else if (n % 3) {
                pop(n % 8 == 0);
            }
        }
    }
    check(weft_tags_close(tags), "close");
    return 0;
}
