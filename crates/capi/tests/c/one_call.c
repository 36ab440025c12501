/* Pairs of operations in one call, on a served volume: one_call SOCKET. */
#include "checks.h"

#include <errno.h>
#include <fcntl.h>

int main(int argc, char **argv) {
    weft_files *files;
    weft_file file;
    uint8_t data[16] = {0};
    size_t bytes = 99;
    HOLDS(argc == 2);
    CHECK(weft_files_connect(argv[1], "/weft", &files));

    /* Open and read. */
    HOLDS(weft_open_read(files, "/none", 0, data, sizeof data, &bytes) == WEFT_EFAILED);
    HOLDS(weft_error_errno() == ENOENT && bytes == 0);
    CHECK(weft_open_write(files, "/file", 0640, 0, BYTES("0123456789"), 1));
    CHECK(weft_open_read(files, "/file", 7, data, sizeof data, &bytes));
    HOLDS(bytes == 3 && memcmp(data, "789", 3) == 0);
    CHECK(weft_open_read(files, "/file", 2, data, 4, &bytes));
    HOLDS(bytes == 4 && memcmp(data, "2345", 4) == 0);

    /* Open and write: what is there stays where nothing is written. */
    CHECK(weft_open_write(files, "/file", 0640, 8, BYTES("abc"), 0));
    HOLDS(content_is(files, "/file", "01234567abc"));
    HOLDS(weft_open_write(files, "/none/file", 0640, 0, BYTES("x"), 0) == WEFT_EFAILED);
    HOLDS(weft_error_errno() == ENOENT);
    /* A write that fails makes no file. */
    HOLDS(weft_open_write(files, "/large", 0640, UINT64_MAX - 4, BYTES("x"), 0) == WEFT_EFAILED);
    HOLDS(weft_error_errno() == EFBIG && !exists(files, "/large"));

    /* Write and close. */
    CHECK(weft_file_open(files, "/file", O_RDONLY, 0, &file));
    HOLDS(weft_write_close(files, file, 0, BYTES("x"), 0) == WEFT_EFAILED && weft_error_errno() == EBADF);
    CHECK(weft_file_close(files, file));
    CHECK(weft_file_open(files, "/file", O_WRONLY, 0, &file));
    CHECK(weft_write_close(files, file, 0, BYTES("AB"), 1));
    HOLDS(content_is(files, "/file", "AB234567abc"));
    HOLDS(weft_file_close(files, file) == WEFT_EINVAL);
    HOLDS(weft_write_close(files, file, 0, BYTES("x"), 0) == WEFT_EINVAL);

    /* Read, change a part, write. */
    CHECK(weft_file_open(files, "/file", O_RDWR, 0, &file));
    CHECK(weft_read_modify_write(files, file, 2, data, 6, 1, BYTES("xy"), 0));
    HOLDS(memcmp(data, "234567", 6) == 0);
    HOLDS(content_is(files, "/file", "AB2xy567abc"));
    CHECK(weft_read_modify_write(files, file, 0, NULL, 11, 10, BYTES("!"), 1));
    HOLDS(content_is(files, "/file", "AB2xy567ab!"));
    HOLDS(weft_read_modify_write(files, file, 8, NULL, 6, 2, BYTES("xy"), 0) == WEFT_EFAILED);
    HOLDS(weft_error_errno() == ERANGE);
    HOLDS(content_is(files, "/file", "AB2xy567ab!"));
    memset(data, 'z', sizeof data);
    CHECK(weft_read_modify_write(files, file, 8, data, sizeof data, 0, BYTES("c"), 0));
    HOLDS(memcmp(data, "ab!\0\0", 5) == 0 && data[sizeof data - 1] == 0);
    HOLDS(content_is(files, "/file", "AB2xy567cb!"));
    CHECK(weft_file_close(files, file));

    /* Compress and write. */
    static uint8_t text[5000], packed[5000];
    memset(text, 'y', sizeof text);
    uint64_t place = 99, written = 0;
    CHECK(weft_open_write(files, "/packed", 0640, 0, BYTES("head"), 0));
    CHECK(weft_file_open(files, "/packed", O_RDWR, 0, &file));
    CHECK(weft_compress_write(files, file, WEFT_END, text, sizeof text, WEFT_ZSTD, 0, 0, &place, &written));
    HOLDS(place == 4 && written > 0 && written < 200);
    CHECK(weft_open_read(files, "/packed", 4, packed, sizeof packed, &bytes));
    HOLDS(bytes == written && memcmp(packed, "\x28\xb5\x2f\xfd", 4) == 0);
    HOLDS(weft_compress_write(files, file, 0, text, sizeof text, 3, 0, 0, NULL, NULL) == WEFT_EINVAL);
    CHECK(weft_file_close(files, file));

    /* What one call can carry. */
    const size_t half = 3 << 20;
    uint8_t *large = calloc(2, half);
    CHECK(weft_open_write(files, "/halves", 0600, 0, large, half, 0));
    CHECK(weft_open_write(files, "/halves", 0600, half, large, half, 0));
    CHECK(weft_open_read(files, "/halves", 0, large, 4 << 20, &bytes));
    HOLDS(bytes == 4 << 20);
    HOLDS(weft_open_read(files, "/halves", 0, large, 2 * half, &bytes) == WEFT_EFAILED && bytes == 0);
    HOLDS(weft_error_errno() == EMSGSIZE);
    HOLDS(weft_open_write(files, "/halves", 0600, 0, large, 2 * half, 0) == WEFT_EINVAL);
    HOLDS(strstr(weft_error_message(), "4194304 are allowed") != NULL);
    free(large);

    /* Data with its checksum. */
    uint64_t at = 99;
    CHECK(weft_file_open(files, "/log", O_CREAT | O_RDWR, 0600, &file));
    CHECK(weft_write_checksum(files, file, WEFT_END, BYTES("123456789"), 0, &at));
    HOLDS(at == 0);
    CHECK(weft_write_checksum(files, file, WEFT_END, BYTES("second"), 1, &at));
    HOLDS(at == 13);
    CHECK(weft_write_checksum(files, file, 13, BYTES("SECOND"), 0, NULL));
    /* The CRC32C of these digits is known: e3069283. */
    CHECK(weft_open_read(files, "/log", 9, data, 4, &bytes));
    HOLDS(data[0] == 0x83 && data[1] == 0x92 && data[2] == 0x06 && data[3] == 0xe3);
    CHECK(weft_read_checksum(files, file, 0, data, 9));
    HOLDS(memcmp(data, "123456789", 9) == 0);
    CHECK(weft_read_checksum(files, file, at, data, 6));
    HOLDS(memcmp(data, "SECOND", 6) == 0);
    CHECK(weft_open_write(files, "/log", 0600, 14, BYTES("e"), 0));
    memcpy(data, "before", 6);
    HOLDS(weft_read_checksum(files, file, at, data, 6) == WEFT_EFAILED && weft_error_errno() == EBADMSG);
    HOLDS(memcmp(data, "before", 6) == 0);
    HOLDS(weft_read_checksum(files, file, at, data, 7) == WEFT_EFAILED && weft_error_errno() == ERANGE);
    CHECK(weft_file_close(files, file));

    weft_files_close(files);
    puts("one call from C: ok");
    return 0;
}
