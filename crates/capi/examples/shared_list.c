/* The list of the papers on ADAPT, with deletion by id, in a tag store that several processes use at once: each has a session of the
   server ('weft tags serve'). A test runs two of them (tests/c_tags.rs).

   shared_list SOCKET insert FIRST COUNT   inserts the ids FIRST, FIRST + 1 and so on, each where the order of ids wants it
   shared_list SOCKET delete FIRST COUNT   deletes them, each as soon as it is there
   shared_list SOCKET print                prints the ids in the order of the list */
#define _POSIX_C_SOURCE 200809L
#include "weft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ITEM = 7 };

static weft_session *session;
static uint64_t root;
static uint32_t next_type;

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: %d: %s\n", what, status, weft_error_message());
        exit(1);
    }
}

/* The node behind a node, or 0; a negative code where the transaction has to be run again. */
static int behind(uint64_t node, uint64_t *to) {
    int status = weft_session_get_destination(session, node, next_type, 0, to);
    if (status == WEFT_ENOENT) {
        *to = 0;
        return 0;
    }
    return status;
}

static int id_of(uint64_t node, uint64_t *id) {
    size_t bytes;
    return weft_session_read_node(session, node, ITEM, 0, (uint8_t *)id, sizeof *id, &bytes);
}

/* The last node before those with this id or a greater one, and the node behind it, or 0, with its id. */
static int find(uint64_t id, uint64_t *before, uint64_t *node, uint64_t *found) {
    int status;
    *before = root;
    while ((status = behind(*before, node)) == 0 && *node != 0) {
        if ((status = id_of(*node, found)) != 0 || *found >= id) {
            return status;
        }
        *before = *node;
    }
    return status;
}

static int insert(uint64_t id) {
    uint64_t before, node, found, new;
    int status = find(id, &before, &node, &found);
    if (status != 0 || (status = weft_session_create_node(session, root, ITEM, (uint8_t *)&id, sizeof id, &new)) != 0) {
        return status;
    }
    if (node != 0 && (status = weft_session_set_edge(session, new, next_type, 0, node, NULL)) != 0) {
        return status;
    }
    return weft_session_set_edge(session, before, next_type, 0, new, NULL);
}

/* 1 where the id is not there. */
static int delete(uint64_t id) {
    uint64_t before, node, found, rest;
    int status = find(id, &before, &node, &found);
    if (status != 0 || node == 0 || found != id) {
        return status != 0 ? status : 1;
    }
    if ((status = behind(node, &rest)) != 0) {
        return status;
    }
    if (rest != 0) {
        if ((status = weft_session_delete_edge(session, node, next_type, 0, NULL)) != 0) {
            return status;
        }
        /* The node has lost its last edge, and goes with the commit. */
        return weft_session_set_edge(session, before, next_type, 0, rest, NULL);
    }
    return weft_session_delete_edge(session, before, next_type, 0, NULL);
}

/* Runs a change of the list as a transaction, again and again until it is done. */
static void change(int (*step)(uint64_t), uint64_t id) {
    for (int tries = 0; tries < 100000; tries++) {
        check(weft_session_begin(session), "begin");
        int status = step(id);
        if (status == 0) {
            status = weft_session_commit(session);
            if (status == 0) {
                return;
            }
        } else {
            weft_session_abort(session);
        }
        /* Another process was in the way, or has not inserted it yet. A node that was found has gone meanwhile: WEFT_ENOENT. */
        if (status != WEFT_EAGAIN && status != WEFT_ENOENT && status != 1) {
            check(status, "change");
        }
        nanosleep(&(struct timespec){0, 100000 + (tries * 7919 % 13) * 50000}, NULL);
    }
    fprintf(stderr, "%" PRIu64 " was never there\n", id);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: shared_list SOCKET insert|delete|print [FIRST COUNT]\n");
        return 2;
    }
    check(weft_session_connect(argv[1], &session), "connect");
    check(weft_session_root(session, &root), "root");
    check(weft_session_edge_type(session, "next", &next_type), "edge type");
    if (argc == 5) {
        uint64_t first = strtoull(argv[3], NULL, 10), count = strtoull(argv[4], NULL, 10);
        for (uint64_t id = first; id < first + count; id++) {
            change(strcmp(argv[2], "insert") == 0 ? insert : delete, id);
        }
    } else {
        uint64_t node, id;
        for (check(behind(root, &node), "behind"); node != 0; check(behind(node, &node), "behind")) {
            check(id_of(node, &id), "id");
            printf("%" PRIu64 "\n", id);
        }
    }
    weft_session_close(session);
    return 0;
}
