/* A value written and read at each of the three levels, from C. A test compiles and runs it (tests/c_programs.rs). */
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

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : NULL;
    weft_monitor *monitor;
    weft_grant *grant;
    check(weft_monitor_format(path, "bbssd", 1u << 30, &monitor), "format");
    weft_monitor *other;
    expect(weft_monitor_format(NULL, "none", 1u << 30, &other) == WEFT_EINVAL, "there is no such preset");
    expect(weft_monitor_format("/none/image", "bbssd", 1u << 30, &other) == WEFT_ENOENT, "there is no such directory");
    expect(weft_monitor_open("/none/image", &other) == WEFT_ENOENT, "there is no such image");
    if (path != NULL) {
        expect(weft_monitor_format(path, "bbssd", 1u << 30, &other) == WEFT_EBUSY, "a file that exists is kept");
        expect(weft_monitor_open(path, &other) == WEFT_EBUSY, "one process at a time has an image");
    }

    /* Raw: blocks and pages. */
    weft_raw *raw;
    weft_geometry_info geometry;
    check(weft_allocate(monitor, "raw", 1 << 20, 70, &grant), "allocate raw");
    check(weft_raw_open(grant, &raw), "raw");
    check(weft_geometry(raw, &geometry), "geometry");
    uint8_t *data = malloc(geometry.page_bytes), *back = malloc(geometry.page_bytes);
    memset(data, 42, geometry.page_bytes);
    weft_block block = {0, 0, 0};
    check(weft_page_write(raw, block, 0, data, geometry.page_bytes, (const uint8_t *)"note", 4), "page write");
    check(weft_page_read(raw, block, 0, 0, back, geometry.page_bytes, NULL, 0), "page read");
    expect(memcmp(data, back, geometry.page_bytes) == 0, "the raw level gives back what was written");
    expect(weft_page_write(raw, block, 0, data, geometry.page_bytes, NULL, 0) == WEFT_ERULE, "a page is written once");
    block.channel = geometry.channels;
    expect(weft_block_erase(raw, block) == WEFT_EOUTSIDE, "an address outside the grant is refused");
    weft_raw_close(raw);

    /* Function: blocks that are taken and given back. */
    weft_function *function;
    uint32_t free_blocks, moved;
    weft_spread spread;
    weft_shuffle moves[4];
    check(weft_allocate(monitor, "function", 1 << 20, 250, &grant), "allocate function");
    check(weft_function_open(grant, &function), "function");
    check(weft_address_mapper(function, 0, WEFT_MAP_BLOCK, 7, &block, &free_blocks), "address mapper");
    check(weft_flash_write(function, block, 0, data, geometry.page_bytes), "flash write");
    check(weft_flash_read(function, block, 0, 0, back, geometry.page_bytes), "flash read");
    expect(memcmp(data, back, geometry.page_bytes) == 0, "the function level gives back what was written");
    expect(weft_set_ops(function, 4000000) == WEFT_ENOSPC, "over-provisioning that mapped blocks leave no room for");
    expect(weft_wear_leveler(function, 10, NULL, 4, &moved, &spread) == WEFT_EINVAL, "what is moved has to be told");
    check(weft_wear_leveler(function, 10, moves, 4, &moved, &spread), "wear leveler");
    check(weft_flash_trim(function, block), "flash trim");
    check(weft_flash_flush(function), "flash flush");
    check(weft_address_mapper(function, 0, WEFT_MAP_BLOCK, 7, &block, &free_blocks), "address mapper");
    check(weft_flash_write(function, block, 0, data, geometry.page_bytes), "flash write");
    weft_function_close(function);

    /* Policy: logical pages. */
    weft_policy *policy;
    check(weft_allocate(monitor, "policy", 32 << 20, 250, &grant), "allocate policy");
    check(weft_policy_open(grant, 1, &policy), "policy");
    check(weft_ftl_ioctl(policy, WEFT_FTL_PAGE, WEFT_GC_GREEDY, 0, 1000, 250), "ftl ioctl");
    check(weft_ftl_write(policy, 12, data, geometry.page_bytes, 1, 0), "ftl write");
    check(weft_ftl_read(policy, 12, back, geometry.page_bytes), "ftl read");
    expect(memcmp(data, back, geometry.page_bytes) == 0, "the policy level gives back what was written");
    check(weft_ftl_trim(policy, 12, 1), "ftl trim");
    check(weft_ftl_flush(policy), "ftl flush");
    check(weft_ftl_read(policy, 12, back, geometry.page_bytes), "ftl read");
    expect(back[0] == 0, "a trimmed page reads as zeros");
    weft_policy_close(policy);

    /* A level refuses the data of another one, which it would erase. */
    check(weft_attach(monitor, "function", &grant), "attach function");
    expect(weft_policy_open(grant, 1, &policy) == WEFT_ELEVEL, "the policy level refuses blocks of the function level");
    check(weft_attach(monitor, "policy", &grant), "attach policy");
    expect(weft_function_open(grant, &function) == WEFT_ELEVEL, "the function level refuses pages of the policy level");

    weft_monitor_close(monitor);
    if (path != NULL) {
        /* All handles are closed, so the image can be opened again. */
        check(weft_monitor_open(path, &monitor), "open");
        check(weft_attach(monitor, "policy", &grant), "attach");
        check(weft_policy_open(grant, 0, &policy), "policy again");
        weft_policy_close(policy);
        check(weft_release(monitor, "policy"), "release");
        weft_monitor_close(monitor);
    }
    free(data);
    free(back);
    printf("three levels from C: ok\n");
    return 0;
}
