/* Chains on a served volume, as the environment names it. */
#define _GNU_SOURCE
#include "checks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/xattr.h>

static weft_files *files;

/* Readers see the old configuration or the new one. */
static void swap_of_a_configuration(void) {
    CHECK(weft_open_write(files, "/config", 0644, 0, BYTES("verbose = false\n"), 0));
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    CHECK(weft_chain_durable(chain));
    weft_value file = weft_chain_create(chain, weft_at("/config.new"), O_EXCL, 0640);
    weft_chain_append(chain, file, weft_text("verbose = true\n"));
    weft_chain_rename(chain, weft_at("/config.new"), weft_at("/config"), 0);
    weft_chain_sync(chain, file);
    CHECK(weft_chain_run(files, chain, NULL, 0, NULL));
    HOLDS(content_is(files, "/config", "verbose = true\n"));
    HOLDS(!exists(files, "/config.new"));
    weft_chain_free(chain);

    /* When its last operation fails, nothing of it is done. */
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    file = weft_chain_create(chain, weft_at("/config.new"), O_EXCL, 0640);
    weft_chain_append(chain, file, weft_text("verbose = never\n"));
    weft_chain_rename(chain, weft_at("/config.new"), weft_at("/config"), RENAME_NOREPLACE);
    HOLDS(weft_chain_run(files, chain, NULL, 0, NULL) == WEFT_EFAILED && weft_error_errno() == EEXIST);
    HOLDS(content_is(files, "/config", "verbose = true\n"));
    HOLDS(!exists(files, "/config.new"));
    weft_chain_free(chain);

    /* The operations before it are, when that is what the caller wants. */
    CHECK(weft_chain_new(WEFT_CHAIN_PREFIX, &chain));
    weft_chain_create(chain, weft_at("/config.new"), O_EXCL, 0640);
    weft_chain_rename(chain, weft_at("/config.new"), weft_at("/config"), RENAME_NOREPLACE);
    HOLDS(weft_chain_run(files, chain, NULL, 0, NULL) == WEFT_EFAILED);
    HOLDS(exists(files, "/config.new"));
    weft_chain_free(chain);
}

/* A chain that was checked runs many times: the second time somebody has changed the file. */
static void compare_and_swap_of_a_manifest(void) {
    CHECK(weft_open_write(files, "/MANIFEST", 0644, 0, BYTES("version 7"), 0));
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_value manifest = weft_chain_open(chain, weft_at("/MANIFEST"), O_RDWR);
    weft_value found = weft_chain_read(chain, manifest, weft_num(0), weft_num(4096));
    CHECK(weft_chain_export(chain, found));
    weft_value same =
        weft_chain_expect_bytes(chain, weft_data_of(found), WEFT_IS_EQUAL, weft_text("version 7"));
    weft_value cut = weft_chain_truncate(chain, manifest, weft_num(0));
    weft_value written = weft_chain_write(chain, manifest, weft_num(0), weft_text("version 8"));
    CHECK(weft_chain_check(chain));

    weft_answer *answer;
    CHECK(weft_chain_run(files, chain, NULL, 0, &answer));
    weft_value failed;
    uint32_t outcome;
    int error;
    const uint8_t *data;
    size_t bytes;
    CHECK(weft_answer_failed(answer, &failed, &error));
    HOLDS(failed.chain == 0 && failed.operation == 0 && error == 0);
    CHECK(weft_answer_outcome(answer, written, &outcome, NULL));
    HOLDS(outcome == WEFT_DONE);
    CHECK(weft_answer_bytes(answer, found, &data, &bytes));
    HOLDS(bytes == 9 && memcmp(data, "version 7", 9) == 0);
    weft_answer_free(answer);
    HOLDS(content_is(files, "/MANIFEST", "version 8"));

    CHECK(weft_open_write(files, "/MANIFEST", 0644, 8, BYTES("9"), 0));
    HOLDS(weft_chain_run(files, chain, NULL, 0, &answer) == WEFT_EFAILED);
    HOLDS(weft_error_errno() == ECANCELED && strstr(weft_error_message(), "operation 3 (expect)") != NULL);
    CHECK(weft_answer_failed(answer, &failed, &error));
    HOLDS(failed.chain == same.chain && failed.operation == same.operation && error == ECANCELED);
    CHECK(weft_answer_outcome(answer, same, &outcome, &error));
    HOLDS(outcome == WEFT_FAILED && error == ECANCELED);
    CHECK(weft_answer_outcome(answer, cut, &outcome, &error));
    HOLDS(outcome == WEFT_SKIPPED && error == 0);
    CHECK(weft_answer_bytes(answer, found, &data, &bytes));
    HOLDS(bytes == 9 && memcmp(data, "version 9", 9) == 0);
    /* The answer outlives its chain. */
    weft_chain_free(chain);
    HOLDS(memcmp(data, "version 9", 9) == 0);
    weft_answer_free(answer);
    HOLDS(content_is(files, "/MANIFEST", "version 9"));
}

/* No byte of a damaged block. */
static void a_read_that_verifies(void) {
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_value table = weft_chain_create(chain, weft_at("/table"), O_EXCL, 0644);
    weft_value crc = weft_chain_crc32c(chain, weft_text("a block"));
    weft_bytes parts[] = {weft_text("a block"), weft_data_of(weft_chain_pack(chain, weft_num_of(crc), 4))};
    weft_chain_append(chain, table, weft_data_of(weft_chain_concat(chain, parts, 2)));
    CHECK(weft_chain_run(files, chain, NULL, 0, NULL));
    weft_chain_free(chain);

    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    table = weft_chain_open(chain, weft_at("/table"), O_RDONLY);
    weft_value whole = weft_chain_read(chain, table, weft_num(0), weft_num(11));
    crc = weft_chain_unpack(chain, weft_data_of(whole), weft_num(7), 4);
    weft_value block = weft_chain_slice(chain, weft_data_of(whole), weft_num(0), weft_num(7));
    weft_chain_verify(chain, weft_data_of(block), weft_num_of(crc));
    weft_value again = weft_chain_slice(chain, weft_data_of(block), weft_num(0), weft_num(7));
    CHECK(weft_chain_export(chain, again));
    weft_answer *answer;
    const uint8_t *data;
    size_t bytes;
    CHECK(weft_chain_run(files, chain, NULL, 0, &answer));
    CHECK(weft_answer_bytes(answer, again, &data, &bytes));
    HOLDS(bytes == 7 && memcmp(data, "a block", 7) == 0);
    weft_answer_free(answer);

    CHECK(weft_open_write(files, "/table", 0644, 2, BYTES("d"), 0));
    HOLDS(weft_chain_run(files, chain, NULL, 0, &answer) == WEFT_EFAILED && weft_error_errno() == EBADMSG);
    HOLDS(weft_answer_bytes(answer, again, &data, &bytes) == WEFT_ENOENT);
    HOLDS(strstr(weft_error_message(), "it was skipped") != NULL);
    weft_answer_free(answer);
    weft_chain_free(chain);
}

/* What is compressed comes back, and what is no module is not called. */
static void codecs_and_functions(void) {
    static const uint32_t codecs[] = {WEFT_LZ4, WEFT_LZ4_BLOCK, WEFT_ZSTD};
    static uint8_t text[10000];
    memset(text, 'x', sizeof text);
    weft_answer *answer;
    const uint8_t *data;
    size_t bytes;
    for (int i = 0; i < 3; i++) {
        weft_chain *chain;
        CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
        weft_value packed = weft_chain_compress(chain, weft_data(text, sizeof text), codecs[i], 0);
        weft_value len = weft_chain_len(chain, weft_data_of(packed));
        CHECK(weft_chain_export(chain, len));
        weft_value whole = weft_chain_decompress(chain, weft_data_of(packed), codecs[i], weft_num(sizeof text));
        CHECK(weft_chain_export(chain, whole));
        weft_value file = weft_chain_create(chain, weft_at("/packed"), 0, 0644);
        weft_chain_append(chain, file, weft_data_of(packed));
        CHECK(weft_chain_run(files, chain, NULL, 0, &answer));
        uint64_t number;
        CHECK(weft_answer_number(answer, len, &number));
        HOLDS(number > 0 && number < 500);
        CHECK(weft_answer_bytes(answer, whole, &data, &bytes));
        HOLDS(bytes == sizeof text && memcmp(data, text, bytes) == 0);
        weft_answer_free(answer);
        weft_chain_free(chain);
    }
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_chain_compress(chain, weft_text("text"), 3, 0);
    HOLDS(weft_chain_run(files, chain, NULL, 0, NULL) == WEFT_EINVAL);
    HOLDS(strstr(weft_error_message(), "codec 3") != NULL);
    weft_chain_free(chain);
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_chain_call(chain, weft_text("no module"), weft_text("input"), weft_num(1000));
    HOLDS(weft_chain_run(files, chain, NULL, 0, NULL) == WEFT_EFAILED && weft_error_errno() == ENOEXEC);
    weft_chain_free(chain);
}

/* Operations that the others do not use: on names, attributes and space. */
static void names_attributes_and_space(void) {
    weft_chain *chain;
    weft_answer *answer;
    CHECK(weft_chain_new(WEFT_CHAIN_EACH, &chain));
    weft_chain_mkdir(chain, weft_at("/dir"), 0750);
    weft_value dir = weft_chain_open(chain, weft_at("/dir"), O_PATH);
    weft_value file = weft_chain_create(chain, weft_below(dir, weft_text("a")), 0, 0600);
    weft_chain_fallocate(chain, file, FALLOC_FL_KEEP_SIZE, weft_num(0), weft_num(8192));
    weft_chain_fallocate(chain, file, 0, weft_num(0), weft_num(100));
    weft_value attributes = weft_chain_stat(chain, file);
    CHECK(weft_chain_export(chain, attributes));
    weft_value size = weft_chain_field(chain, attributes, WEFT_FIELD_SIZE);
    weft_value twice = weft_chain_arith(chain, weft_num_of(size), WEFT_MUL, weft_num(2));
    CHECK(weft_chain_export(chain, twice));
    weft_value width = weft_chain_len(chain, weft_text("four"));
    weft_chain_set_xattr(chain, file, "user.one", weft_text("1"), XATTR_CREATE);
    weft_chain_set_xattr(chain, file, "user.two", weft_text("2"), 0);
    weft_chain_remove_xattr(chain, file, "user.two");
    weft_value xattr = weft_chain_get_xattr(chain, file, "user.one");
    CHECK(weft_chain_export(chain, xattr));
    weft_value at = weft_chain_find(chain, weft_text("one two two"), weft_text("two"), weft_num_of(width));
    CHECK(weft_chain_export(chain, at));
    weft_value none = weft_chain_find(chain, weft_text("one"), weft_text("two"), weft_num(0));
    CHECK(weft_chain_export(chain, none));
    weft_value patched = weft_chain_patch(chain, weft_text("a red box"), weft_num(2), weft_text("big"));
    CHECK(weft_chain_export(chain, patched));
    weft_chain_link(chain, weft_below(dir, weft_text("a")), weft_at("/linked"));
    weft_chain_symlink(chain, weft_text("dir/a"), weft_at_bytes(weft_data(BYTES("/symlink"))));
    weft_chain_rename(chain, weft_at("/linked"), weft_at("/config.new"), RENAME_EXCHANGE);
    weft_chain_unlink(chain, weft_at("/linked"));
    weft_chain_mkdir(chain, weft_at("/dir/gone"), 0700);
    weft_chain_rmdir(chain, weft_at("/dir/gone"));
    weft_chain_close(chain, file);
    weft_value refused = weft_chain_open(chain, weft_at("/symlink"), O_RDONLY | O_NOFOLLOW);
    HOLDS(weft_chain_run(files, chain, NULL, 0, &answer) == WEFT_EFAILED && weft_error_errno() == ELOOP);

    weft_value failed;
    weft_attributes known;
    uint64_t number;
    const uint8_t *data;
    size_t bytes;
    CHECK(weft_answer_failed(answer, &failed, NULL));
    HOLDS(failed.operation == refused.operation);
    CHECK(weft_answer_attributes(answer, attributes, &known));
    HOLDS(known.mode == 0100600 && known.size == 100 && known.links == 1 && known.ino != 0);
    HOLDS(known.blocks * 512 >= 8192 && known.mtime_ns > 1000000000000000000);
    CHECK(weft_answer_number(answer, twice, &number));
    HOLDS(number == 200);
    CHECK(weft_answer_number(answer, at, &number));
    HOLDS(number == 4);
    CHECK(weft_answer_number(answer, none, &number));
    HOLDS(number == WEFT_NOT_FOUND);
    CHECK(weft_answer_bytes(answer, xattr, &data, &bytes));
    HOLDS(bytes == 1 && data[0] == '1');
    CHECK(weft_answer_bytes(answer, patched, &data, &bytes));
    HOLDS(bytes == 9 && memcmp(data, "a big box", 9) == 0);
    weft_answer_free(answer);
    weft_chain_free(chain);
    HOLDS(!exists(files, "/linked") && exists(files, "/symlink") && exists(files, "/config.new"));
}

/* A comparison guards the next operation, and all that use its value. */
static void guards(void) {
    const uint32_t compares[] = {WEFT_IS_EQUAL, WEFT_IS_NOT_EQUAL, WEFT_IS_LESS,
                                 WEFT_IS_LESS_OR_EQUAL, WEFT_IS_GREATER, WEFT_IS_GREATER_OR_EQUAL};
    const int of_less[] = {0, 1, 1, 1, 0, 0}, of_equal[] = {1, 0, 0, 1, 0, 1};
    weft_chain *chain;
    weft_answer *answer;
    weft_value less[6], equal[6], bytes[6], after[6];
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    for (int n = 0; n < 6; n++) {
        CHECK(weft_chain_when_numbers(chain, weft_num(1), compares[n], weft_num(2)));
        less[n] = weft_chain_pack(chain, weft_num(1), 1);
        after[n] = weft_chain_len(chain, weft_data_of(less[n]));
        CHECK(weft_chain_when_numbers(chain, weft_num(2), compares[n], weft_num(2)));
        equal[n] = weft_chain_pack(chain, weft_num(1), 1);
        CHECK(weft_chain_when_bytes(chain, weft_text("ab"), compares[n], weft_text("abc")));
        bytes[n] = weft_chain_pack(chain, weft_num(1), 1);
    }
    CHECK(weft_chain_run(files, chain, NULL, 0, &answer));
    for (int n = 0; n < 6; n++) {
        uint32_t outcome;
        CHECK(weft_answer_outcome(answer, less[n], &outcome, NULL));
        HOLDS((outcome == WEFT_DONE) == of_less[n]);
        CHECK(weft_answer_outcome(answer, after[n], &outcome, NULL));
        HOLDS((outcome == WEFT_DONE) == of_less[n]);
        CHECK(weft_answer_outcome(answer, equal[n], &outcome, NULL));
        HOLDS((outcome == WEFT_DONE) == of_equal[n]);
        CHECK(weft_answer_outcome(answer, bytes[n], &outcome, NULL));
        HOLDS((outcome == WEFT_DONE) == of_less[n]);
    }
    weft_answer_free(answer);
    weft_chain_free(chain);
}

/* Files that the program has open. */
static void given_files(void) {
    weft_file log, from;
    CHECK(weft_open_write(files, "/from", 0644, 0, BYTES("a line\n"), 0));
    CHECK(weft_file_open(files, "/log", O_CREAT | O_WRONLY, 0600, &log));
    CHECK(weft_file_open(files, "/from", O_RDONLY, 0, &from));
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_value in = weft_chain_given(chain, 0), out = weft_chain_given(chain, 1);
    weft_value line = weft_chain_read(chain, in, weft_num(0), weft_num(100));
    weft_value at = weft_chain_append(chain, out, weft_data_of(line));
    CHECK(weft_chain_export(chain, at));
    weft_file both[] = {from, log}, turned[] = {log, from};
    for (uint64_t n = 0; n < 3; n++) {
        weft_answer *answer;
        uint64_t offset;
        CHECK(weft_chain_run(files, chain, both, 2, &answer));
        CHECK(weft_answer_number(answer, at, &offset));
        HOLDS(offset == 7 * n);
        weft_answer_free(answer);
    }
    HOLDS(content_is(files, "/log", "a line\na line\na line\n"));
    HOLDS(weft_chain_run(files, chain, turned, 2, NULL) == WEFT_EFAILED && weft_error_errno() == EBADF);
    HOLDS(weft_chain_run(files, chain, both, 1, NULL) == WEFT_EFAILED && weft_error_errno() == EBADF);
    weft_chain_free(chain);
    CHECK(weft_file_close(files, from));
    CHECK(weft_file_close(files, log));
}

enum { THREADS = 4, RUNS = 50 };

static void *add_many(void *chain) {
    for (int n = 0; n < RUNS; n++)
        CHECK(weft_chain_run(files, chain, NULL, 0, NULL));
    return NULL;
}

/* One chain, run by several threads at once: none of its additions is lost. */
static void threads(void) {
    CHECK(weft_open_write(files, "/counter", 0644, 0, BYTES("\x64\1\1\1"), 0));
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    weft_value file = weft_chain_open(chain, weft_at("/counter"), O_RDWR);
    weft_value found = weft_chain_read(chain, file, weft_num(0), weft_num(4));
    weft_value number = weft_chain_unpack(chain, weft_data_of(found), weft_num(0), 4);
    weft_value sum = weft_chain_arith(chain, weft_num_of(number), WEFT_ADD, weft_num(1));
    weft_chain_write(chain, file, weft_num(0), weft_data_of(weft_chain_pack(chain, weft_num_of(sum), 4)));
    pthread_t running[THREADS];
    for (int n = 0; n < THREADS; n++)
        HOLDS(pthread_create(&running[n], NULL, add_many, chain) == 0);
    for (int n = 0; n < THREADS; n++)
        HOLDS(pthread_join(running[n], NULL) == 0);
    weft_chain_free(chain);
    /* 100 and 200 are 300: 0x12c. */
    HOLDS(content_is(files, "/counter", "\x2c\2\1\1"));
}

int main(void) {
    CHECK(weft_files_connect(NULL, NULL, &files));
    swap_of_a_configuration();
    compare_and_swap_of_a_manifest();
    a_read_that_verifies();
    names_attributes_and_space();
    codecs_and_functions();
    guards();
    given_files();
    threads();
    weft_files_close(files);
    puts("chains from C: ok");
    return 0;
}
