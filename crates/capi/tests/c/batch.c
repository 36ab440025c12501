/* A chain with inputs, run alone and in batches: batch SOCKET. */
#include "checks.h"

#include <fcntl.h>

static weft_input number(uint64_t number) {
    weft_input input = {.number = number};
    return input;
}

int main(int argc, char **argv) {
    weft_files *files;
    weft_file file;
    weft_chain *add, *append;
    weft_batch *batch;
    weft_answer *answer;
    uint64_t found;
    const uint8_t zeros[16] = {0};
    HOLDS(argc == 2);
    CHECK(weft_files_connect(argv[1], NULL, &files));
    CHECK(weft_open_write(files, "/numbers", 0600, 0, zeros, sizeof zeros, 0));
    CHECK(weft_file_open(files, "/numbers", O_RDWR, 0, &file));
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &add));
    weft_value given = weft_chain_given(add, 0);
    weft_number at = weft_num_of(weft_chain_input_number(add, 0));
    weft_value before = weft_chain_unpack(add, weft_data_of(weft_chain_read(add, given, at, weft_num(8))), weft_num(0), 8);
    weft_value sum = weft_chain_arith(add, weft_num_of(before), WEFT_ADD, weft_num_of(weft_chain_input_number(add, 1)));
    CHECK(weft_chain_export(add, sum));
    weft_chain_write(add, given, at, weft_data_of(weft_chain_pack(add, weft_num_of(sum), 8)));
    for (uint64_t i = 1; i <= 3; i++) {
        weft_input inputs[] = {number(8), number(i)};
        CHECK(weft_chain_run_with(files, add, &file, 1, inputs, 2, &answer));
        CHECK(weft_answer_number(answer, sum, &found));
        HOLDS(found == i * (i + 1) / 2);
        weft_answer_free(answer);
    }
    CHECK(weft_chain_new(WEFT_CHAIN_ALL, &append));
    weft_chain_append(append, weft_chain_given(append, 0), weft_data_of(weft_chain_input_bytes(append, 0)));

    CHECK(weft_batch_new(files, &batch));
    for (uint64_t i = 0; i < 64; i++) {
        char text[] = "some text, which the batch copies";
        weft_input inputs[] = {number(0), number(i)}, bytes = {.data = (const uint8_t *)text, .data_bytes = sizeof text - 1};
        if (i == 32)
            CHECK(weft_batch_add(batch, append, &file, 1, &bytes, 1));
        else
            CHECK(weft_batch_add(batch, add, &file, 1, inputs, i == 7 ? 1 : 2));
    }
    HOLDS(weft_batch_add(batch, add, &file, 1, NULL, 0) == WEFT_EINVAL);
    HOLDS(weft_batch_take(batch, &answer) == WEFT_EINVAL && !answer);
    CHECK(weft_batch_run(batch));
    uint64_t expected = 0;
    for (uint64_t i = 0; i < 64; i++) {
        int code = weft_batch_take(batch, &answer);
        if (i == 7) {
            HOLDS(code == WEFT_EFAILED && answer);
        } else {
            HOLDS(code == 0);
            if (i != 32) {
                expected += i;
                CHECK(weft_answer_number(answer, sum, &found));
                HOLDS(found == expected);
            }
        }
        weft_answer_free(answer);
    }
    HOLDS(weft_batch_take(batch, &answer) == WEFT_EINVAL);
    /* Posted: the server is at both while this goes on. */
    weft_batch *other;
    uint32_t is_done = 0;
    CHECK(weft_batch_new(files, &other));
    HOLDS(weft_batch_wait(batch) == WEFT_EINVAL);
    for (uint64_t i = 0; i < 20; i++) {
        weft_input inputs[] = {number(0), number(1)};
        CHECK(weft_batch_add(i % 2 ? batch : other, add, &file, 1, inputs, 2));
    }
    CHECK(weft_batch_post(batch));
    CHECK(weft_batch_post(other));
    HOLDS(weft_batch_post(other) == WEFT_EINVAL && weft_batch_run(other) == WEFT_EINVAL);
    HOLDS(weft_batch_take(other, &answer) == WEFT_EINVAL);
    while (!is_done)
        CHECK(weft_batch_is_done(other, &is_done));
    CHECK(weft_batch_wait(other));
    CHECK(weft_batch_wait(batch));
    HOLDS(weft_batch_wait(batch) == WEFT_EINVAL);
    for (uint64_t i = 0, most = 0; i < 20; i++) {
        CHECK(weft_batch_take(i < 10 ? batch : other, &answer));
        CHECK(weft_answer_number(answer, sum, &found));
        HOLDS(found > expected && found <= expected + 20 && (i == 10 || found > most));
        most = found;
        weft_answer_free(answer);
    }
    /* Freed before anybody has waited, it goes on. */
    weft_input once[] = {number(0), number(100)}, none[] = {number(0), number(0)};
    CHECK(weft_batch_add(other, add, &file, 1, once, 2));
    CHECK(weft_batch_post(other));
    weft_batch_free(other);
    do {
        CHECK(weft_chain_run_with(files, add, &file, 1, none, 2, &answer));
        CHECK(weft_answer_number(answer, sum, &found));
        weft_answer_free(answer);
    } while (found != expected + 120);
    weft_batch_free(batch);
    weft_chain_free(add);
    weft_chain_free(append);
    weft_files_close(files);
    puts("batches from C: ok");
    return 0;
}
