/* What is refused, and does no harm: misuse SOCKET. */
#define _GNU_SOURCE
#include "checks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

static weft_files *files;

/* The call refuses its arguments, and says so with this text. */
#define REFUSED(call, text) HOLDS((call) == WEFT_EINVAL && said(text))
/* No operation was added, because of this. */
#define NONE(call, text) HOLDS((call).operation == 0 && said(text))

static bool said(const char *text) {
    return strstr(weft_error_message(), text) != NULL && weft_error_errno() == 0;
}

static weft_chain *new_chain(void) {
    weft_chain *chain;
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &chain));
    return chain;
}

static void null_pointers(void) {
    weft_value none = {0, 0};
    weft_number zero = weft_num(0);
    weft_bytes empty = weft_data(NULL, 0);
    weft_path path = weft_at("/x");
    weft_file file = {0, 0};
    uint8_t data[4];
    size_t bytes;
    REFUSED(weft_files_connect("/nowhere", NULL, NULL), "out is a null pointer");
    REFUSED(weft_file_open(NULL, "/x", O_RDONLY, 0, &file), "files is a null pointer");
    REFUSED(weft_file_open(files, NULL, O_RDONLY, 0, &file), "path is a null pointer");
    REFUSED(weft_file_open(files, "/x", O_CREAT | O_WRONLY, 0600, NULL), "out is a null pointer");
    HOLDS(!exists(files, "/x"));
    REFUSED(weft_file_close(NULL, file), "files is a null pointer");
    REFUSED(weft_chain_new(WEFT_CHAIN_ALL, NULL), "out is a null pointer");
    REFUSED(weft_chain_durable(NULL), "chain is a null pointer");
    REFUSED(weft_chain_check(NULL), "chain is a null pointer");
    REFUSED(weft_chain_export(NULL, none), "chain is a null pointer");
    REFUSED(weft_chain_when_numbers(NULL, zero, 0, zero), "chain is a null pointer");
    REFUSED(weft_chain_when_bytes(NULL, empty, 0, empty), "chain is a null pointer");
    NONE(weft_chain_expect_numbers(NULL, zero, 0, zero), "chain is a null pointer");
    NONE(weft_chain_expect_bytes(NULL, empty, 0, empty), "chain is a null pointer");
    NONE(weft_chain_open(NULL, path, 0), "chain is a null pointer");
    NONE(weft_chain_create(NULL, path, 0, 0), "chain is a null pointer");
    NONE(weft_chain_given(NULL, 0), "chain is a null pointer");
    NONE(weft_chain_close(NULL, none), "chain is a null pointer");
    NONE(weft_chain_stat(NULL, none), "chain is a null pointer");
    NONE(weft_chain_field(NULL, none, 0), "chain is a null pointer");
    NONE(weft_chain_read(NULL, none, zero, zero), "chain is a null pointer");
    NONE(weft_chain_write(NULL, none, zero, empty), "chain is a null pointer");
    NONE(weft_chain_append(NULL, none, empty), "chain is a null pointer");
    NONE(weft_chain_truncate(NULL, none, zero), "chain is a null pointer");
    NONE(weft_chain_fallocate(NULL, none, 0, zero, zero), "chain is a null pointer");
    NONE(weft_chain_mkdir(NULL, path, 0), "chain is a null pointer");
    NONE(weft_chain_symlink(NULL, empty, path), "chain is a null pointer");
    NONE(weft_chain_link(NULL, path, path), "chain is a null pointer");
    NONE(weft_chain_rename(NULL, path, path, 0), "chain is a null pointer");
    NONE(weft_chain_unlink(NULL, path), "chain is a null pointer");
    NONE(weft_chain_rmdir(NULL, path), "chain is a null pointer");
    NONE(weft_chain_get_xattr(NULL, none, "user.x"), "chain is a null pointer");
    NONE(weft_chain_set_xattr(NULL, none, "user.x", empty, 0), "chain is a null pointer");
    NONE(weft_chain_remove_xattr(NULL, none, "user.x"), "chain is a null pointer");
    NONE(weft_chain_sync(NULL, none), "chain is a null pointer");
    NONE(weft_chain_slice(NULL, empty, zero, zero), "chain is a null pointer");
    NONE(weft_chain_concat(NULL, &empty, 1), "chain is a null pointer");
    NONE(weft_chain_len(NULL, empty), "chain is a null pointer");
    NONE(weft_chain_pack(NULL, zero, 1), "chain is a null pointer");
    NONE(weft_chain_unpack(NULL, empty, zero, 1), "chain is a null pointer");
    NONE(weft_chain_arith(NULL, zero, 0, zero), "chain is a null pointer");
    NONE(weft_chain_find(NULL, empty, empty, zero), "chain is a null pointer");
    NONE(weft_chain_patch(NULL, empty, zero, empty), "chain is a null pointer");
    NONE(weft_chain_crc32c(NULL, empty), "chain is a null pointer");
    NONE(weft_chain_verify(NULL, empty, zero), "chain is a null pointer");

    weft_chain *chain = new_chain();
    weft_answer *answer = NULL;
    uint32_t outcome;
    uint64_t number;
    int error;
    const uint8_t *lent;
    weft_attributes attributes;
    weft_value number_of = weft_chain_len(chain, empty);
    REFUSED(weft_chain_run(NULL, chain, NULL, 0, &answer), "files is a null pointer");
    REFUSED(weft_chain_run(files, NULL, NULL, 0, &answer), "chain is a null pointer");
    REFUSED(weft_chain_run(files, chain, NULL, 1, &answer), "given is a null pointer");
    HOLDS(answer == NULL);
    REFUSED(weft_answer_failed(answer, &none, &error), "answer is a null pointer");
    REFUSED(weft_answer_outcome(answer, number_of, &outcome, &error), "answer is a null pointer");
    REFUSED(weft_answer_bytes(answer, number_of, &lent, &bytes), "answer is a null pointer");
    REFUSED(weft_answer_number(answer, number_of, &number), "answer is a null pointer");
    REFUSED(weft_answer_attributes(answer, number_of, &attributes), "answer is a null pointer");
    CHECK(weft_chain_export(chain, number_of));
    CHECK(weft_chain_run(files, chain, NULL, 0, &answer));
    REFUSED(weft_answer_failed(answer, NULL, NULL), "a result is a null pointer");
    REFUSED(weft_answer_outcome(answer, number_of, NULL, NULL), "a result is a null pointer");
    REFUSED(weft_answer_number(answer, number_of, NULL), "a result is a null pointer");
    weft_answer_free(answer);
    weft_chain_free(chain);

    REFUSED(weft_open_read(NULL, "/x", 0, data, 4, &bytes), "files is a null pointer");
    REFUSED(weft_open_read(files, NULL, 0, data, 4, &bytes), "path is a null pointer");
    REFUSED(weft_open_read(files, "/x", 0, NULL, 4, &bytes), "data is a null pointer");
    REFUSED(weft_open_read(files, "/x", 0, data, 4, NULL), "a result is a null pointer");
    REFUSED(weft_open_write(files, "/x", 0644, 0, NULL, 4, 0), "data is a null pointer");
    REFUSED(weft_open_write(files, NULL, 0644, 0, data, 4, 0), "path is a null pointer");
    REFUSED(weft_write_close(NULL, file, 0, data, 4, 0), "files is a null pointer");
    REFUSED(weft_write_close(files, file, 0, NULL, 4, 0), "data is a null pointer");
    REFUSED(weft_read_modify_write(NULL, file, 0, NULL, 4, 0, data, 4, 0), "files is a null pointer");
    REFUSED(weft_read_modify_write(files, file, 0, NULL, 4, 0, NULL, 4, 0), "data is a null pointer");
    REFUSED(weft_write_checksum(NULL, file, 0, data, 4, 0, NULL), "files is a null pointer");
    REFUSED(weft_write_checksum(files, file, 0, NULL, 4, 0, NULL), "data is a null pointer");
    REFUSED(weft_read_checksum(NULL, file, 0, data, 4), "files is a null pointer");
    REFUSED(weft_read_checksum(files, file, 0, NULL, 4), "data is a null pointer");
    HOLDS(!exists(files, "/x"));
    weft_files_close(NULL);
    weft_chain_free(NULL);
    weft_answer_free(NULL);
}

/* A chain with an operation that is wrong does not run, and tells the first of its faults. */
#define WRONG(operation, text)                                                                                         \
    do {                                                                                                               \
        weft_chain *chain = new_chain();                                                                               \
        weft_value file = weft_chain_create(chain, weft_at("/wrong"), 0, 0644);                                        \
        weft_value bytes = weft_chain_read(chain, file, weft_num(0), weft_num(1));                                     \
        (void)bytes;                                                                                                   \
        operation;                                                                                                     \
        weft_chain_append(chain, (weft_value){0, 0}, weft_text("x"));                                                  \
        REFUSED(weft_chain_check(chain), text);                                                                        \
        REFUSED(weft_chain_run(files, chain, NULL, 0, NULL), text);                                                    \
        weft_chain_free(chain);                                                                                        \
    } while (0)

/* One whose fault is only seen when it is whole. */
#define FAULTY(operation, text)                                                                                        \
    do {                                                                                                               \
        weft_chain *chain = new_chain();                                                                               \
        weft_value file = weft_chain_create(chain, weft_at("/wrong"), 0, 0644);                                        \
        weft_value bytes = weft_chain_read(chain, file, weft_num(0), weft_num(1));                                     \
        (void)bytes;                                                                                                   \
        operation;                                                                                                     \
        REFUSED(weft_chain_check(chain), text);                                                                        \
        REFUSED(weft_chain_run(files, chain, NULL, 0, NULL), text);                                                    \
        weft_chain_free(chain);                                                                                        \
    } while (0)

static void wrong_chains(void) {
    weft_chain *other = new_chain();
    weft_value of_other = weft_chain_create(other, weft_at("/other"), 0, 0644);
    const weft_value none = {0, 0};
    WRONG(weft_chain_stat(chain, of_other), "operation 3: a value is of another chain");
    WRONG(weft_chain_stat(chain, none), "operation 3: a value is none");
    WRONG(weft_chain_stat(chain, ((weft_value){file.chain, 3})), "is of operation 3, and the chain has 2 so far");
    WRONG(weft_chain_stat(chain, ((weft_value){file.chain, UINT32_MAX})), "is of operation 4294967295");
    WRONG(weft_chain_truncate(chain, file, weft_num_of(none)), "operation 3: a value is none");
    WRONG(weft_chain_append(chain, file, weft_data_of(none)), "operation 3: a value is none");
    WRONG(weft_chain_open(chain, weft_below(none, weft_text("x")), 0), "operation 3: a value is none");
    WRONG(weft_chain_append(chain, file, weft_text(NULL)), "operation 3: data is a null pointer");
    WRONG(weft_chain_append(chain, file, weft_data(NULL, 7)), "operation 3: data is a null pointer");
    WRONG(weft_chain_concat(chain, NULL, 1), "operation 3: data is a null pointer");
    WRONG(weft_chain_mkdir(chain, weft_at(NULL), 0), "operation 3: data is a null pointer");
    WRONG(weft_chain_get_xattr(chain, file, NULL), "operation 3: name is a null pointer");
    WRONG(weft_chain_open(chain, weft_at("/x"), O_CREAT), "flags 0100");
    WRONG(weft_chain_create(chain, weft_at("/x"), O_TRUNC, 0), "pass O_EXCL or 0");
    WRONG(weft_chain_given(chain, 256), "given file 256");
    WRONG(weft_chain_field(chain, file, 99), "field 99");
    WRONG(weft_chain_fallocate(chain, file, FALLOC_FL_PUNCH_HOLE, weft_num(0), weft_num(1)), "mode 0x2");
    WRONG(weft_chain_rename(chain, weft_at("/x"), weft_at("/y"), 64), "flags 0x40");
    WRONG(weft_chain_set_xattr(chain, file, "user.x", weft_text("x"), 4), "flags 4");
    WRONG(weft_chain_arith(chain, weft_num(1), 99, weft_num(1)), "arithmetic 99");
    WRONG(weft_chain_expect_numbers(chain, weft_num(1), 99, weft_num(1)), "comparison 99");
    WRONG(weft_chain_when_numbers(chain, weft_num(1), 99, weft_num(1)), "comparison 99");
    WRONG(weft_chain_when_numbers(chain, weft_num_of(of_other), 0, weft_num(1)), "a value is of another chain");
    WRONG(weft_chain_export(chain, of_other), "a value is of another chain");
    WRONG((weft_chain_when_numbers(chain, weft_num(1), 0, weft_num(1)),
           weft_chain_when_numbers(chain, weft_num(1), 0, weft_num(1))), "there is a comparison for it already");
    WRONG(for (int n = 0; n < 63; n++) weft_chain_len(chain, weft_text("x")), "has 65 operations; 64 are allowed");

    FAULTY(weft_chain_stat(chain, bytes), "operation 3 uses the value of operation 2 as a file, which it is not");
    FAULTY(weft_chain_len(chain, weft_data_of(file)), "operation 3 uses the value of operation 1 as bytes");
    FAULTY(weft_chain_pack(chain, weft_num_of(bytes), 1), "operation 3 uses the value of operation 2 as a number");
    FAULTY(weft_chain_field(chain, file, 0), "operation 3 uses the value of operation 1 as attributes");
    FAULTY(weft_chain_len(chain, weft_data_of(weft_chain_mkdir(chain, weft_at("/x"), 0))), "operation 4 uses the value");
    FAULTY((weft_chain_close(chain, file), weft_chain_stat(chain, file)), "the file of operation 1, which was closed");
    FAULTY(weft_chain_export(chain, file), "operation 1 has no value that can be exported");
    FAULTY(weft_chain_pack(chain, weft_num(1), 300), "other than 1 to 8 bytes");
    FAULTY(weft_chain_mkdir(chain, weft_at("/x"), 010000), "permission bits beyond 07777");
    FAULTY(weft_chain_get_xattr(chain, file, "trusted.x"), "outside of the namespace user.");
    FAULTY(weft_chain_rename(chain, weft_at("/x"), weft_at("/y"), 3), "flags that a program cannot use");
    FAULTY(weft_chain_when_numbers(chain, weft_num(1), 0, weft_num(1)), "has no operation behind it");
    HOLDS(!exists(files, "/wrong"));
    weft_chain_free(other);

    weft_chain *chain;
    REFUSED(weft_chain_new(3, &chain), "policy 3");
    /* A value of a chain that was freed. */
    chain = new_chain();
    NONE(weft_chain_stat(chain, of_other), "a value is of another chain");
    weft_chain_free(chain);
    /* A chain that was checked. */
    chain = new_chain();
    CHECK(weft_chain_check(chain));
    NONE(weft_chain_len(chain, weft_text("x")), "has been checked");
    REFUSED(weft_chain_durable(chain), "has been checked");
    CHECK(weft_chain_run(files, chain, NULL, 0, NULL));
    weft_chain_free(chain);
}

static void wrong_answers(void) {
    weft_chain *chain = new_chain(), *other = new_chain();
    weft_value shown = weft_chain_len(chain, weft_text("x")), hidden = weft_chain_len(chain, weft_text("x"));
    weft_value of_other = weft_chain_len(other, weft_text("x"));
    CHECK(weft_chain_export(chain, shown));
    weft_answer *answer;
    uint32_t outcome;
    uint64_t number;
    const uint8_t *data;
    size_t bytes;
    weft_attributes attributes;
    CHECK(weft_chain_run(files, chain, NULL, 0, &answer));
    HOLDS(weft_answer_number(answer, hidden, &number) == WEFT_ENOENT && said("it was not exported"));
    REFUSED(weft_answer_bytes(answer, shown, &data, &bytes), "something else than bytes");
    REFUSED(weft_answer_attributes(answer, shown, &attributes), "something else than attributes");
    REFUSED(weft_answer_number(answer, of_other, &number), "not of the chain that this answers");
    REFUSED(weft_answer_outcome(answer, (weft_value){shown.chain, 0}, &outcome, NULL), "is of operation 0");
    REFUSED(weft_answer_outcome(answer, (weft_value){shown.chain, 3}, &outcome, NULL), "is of operation 3");
    weft_answer_free(answer);
    weft_chain_free(chain);
    weft_chain_free(other);
}

static void wrong_files(const char *socket) {
    weft_files *second = NULL;
    weft_file file, of_second, made_up;
    CHECK(weft_open_write(files, "/open", 0644, 0, BYTES("x"), 0));
    CHECK(weft_files_connect(socket, NULL, &second));
    CHECK(weft_file_open(files, "/open", O_RDWR, 0, &file));
    CHECK(weft_file_open(second, "/open", O_RDWR, 0, &of_second));
    weft_chain *chain = new_chain();
    weft_chain_append(chain, weft_chain_given(chain, 0), weft_text("y"));
    REFUSED(weft_chain_run(files, chain, &of_second, 1, NULL), "not of this connection");
    REFUSED(weft_file_close(files, of_second), "not of this connection");
    made_up = file;
    made_up.file = UINT64_MAX;
    REFUSED(weft_chain_run(files, chain, &made_up, 1, NULL), "not open any more");
    CHECK(weft_file_close(files, file));
    REFUSED(weft_file_close(files, file), "not open any more");
    REFUSED(weft_chain_run(files, chain, &file, 1, NULL), "not open any more");
    REFUSED(weft_write_checksum(files, file, 0, BYTES("x"), 0, NULL), "not open any more");
    /* A connection that was closed closes its files. */
    weft_files_close(second);
    REFUSED(weft_chain_run(files, chain, &of_second, 1, NULL), "not of this connection");
    HOLDS(content_is(files, "/open", "x"));
    weft_chain_free(chain);

    HOLDS(weft_files_connect("/no/server", NULL, &second) == WEFT_ENOENT && weft_error_errno() == ENOENT);
    HOLDS(strstr(weft_error_message(), "connect to /no/server") != NULL);
    unsetenv("WEFT_SOCKET");
    REFUSED(weft_files_connect(NULL, NULL, &second), "WEFT_SOCKET is not set");
    HOLDS(weft_file_open(files, "/none", O_RDONLY, 0, &file) == WEFT_ENOENT && weft_error_errno() == ENOENT);
}

int main(int argc, char **argv) {
    HOLDS(argc == 2);
    CHECK(weft_files_connect(argv[1], NULL, &files));
    null_pointers();
    wrong_chains();
    wrong_answers();
    wrong_files(argv[1]);
    weft_files_close(files);
    puts("misuse from C: ok");
    return 0;
}
