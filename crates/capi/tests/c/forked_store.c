/* A child of a process that has a tag store open: forked_store STORE. */
#include "checks.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_tags *store;
static weft_kv *pairs;

#define REFUSED(call) HOLDS((call) == WEFT_EIO && strstr(weft_error_message(), "forked") != NULL)

/* Puts a pair whose value is a number of bytes. */
static int put(const char *prefix, int number, size_t bytes) {
    static uint8_t value[1 << 20];
    char key[32];
    int length = snprintf(key, sizeof key, "%s%d", prefix, number);
    return weft_kv_put(pairs, 0, (const uint8_t *)key, (size_t)length, value, bytes);
}

static void child(void) {
    alarm(60);
    REFUSED(put("child", 0, 10));
    /* Its pages are written before its commit. */
    REFUSED(put("child", 1, 1 << 20));
    weft_kv_close(pairs);
    REFUSED(weft_tags_close(store));
    _exit(0);
}

int main(int count, char **arguments) {
    HOLDS(count == 2);
    CHECK(weft_tags_create(arguments[1], 8 << 20, &store));
    CHECK(weft_kv_open(store, "default", &pairs));
    for (int number = 0; number < 100; number++) CHECK(put("before", number, 6000));
    pid_t forked = fork();
    HOLDS(forked >= 0);
    if (forked == 0) child();
    for (int number = 0; number < 100; number++) CHECK(put("after", number, 6000));
    int status = 0;
    HOLDS(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(put("last", 0, 1 << 20));
    uint64_t found = 0;
    CHECK(weft_kv_count(pairs, &found));
    HOLDS(found == 201);
    weft_kv_close(pairs);
    CHECK(weft_tags_close(store));
    CHECK(weft_tags_open(arguments[1], 8 << 20, &store));
    CHECK(weft_kv_open(store, "default", &pairs));
    CHECK(weft_kv_count(pairs, &found));
    HOLDS(found == 201);
    weft_kv_close(pairs);
    CHECK(weft_tags_close(store));
    puts("forked with a store from C: ok");
    return 0;
}
