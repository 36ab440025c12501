/* Pages of several LUNs and planes written and read together, at the raw and the function level, from C. A test compiles and
   runs it (tests/c_programs.rs). */
#include "weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES = 2 };

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

static int same_tag(weft_tag a, weft_tag b) {
    return a.death == b.death && a.owner == b.owner && a.stream == b.stream && a.lifetime_group == b.lifetime_group
        && a.data_class == b.data_class && a.flags == b.flags;
}

int main(void) {
    weft_monitor *monitor;
    weft_tag tag;
    weft_grant *grant;
    weft_geometry_info geometry;
    size_t at;
    /* A preset with two planes. */
    check(weft_monitor_format(NULL, "mlc", (uint64_t)8 << 30, &monitor), "format");

    /* Raw: a page in each plane of two LUNs, all issued at once. */
    weft_raw *raw;
    check(weft_allocate(monitor, "raw", (uint64_t)300 << 20, 0, &grant), "allocate raw");
    check(weft_raw_open(grant, &raw), "raw");
    check(weft_geometry(raw, &geometry), "geometry");
    expect(geometry.planes == 2 && geometry.luns >= 2, "two planes and several LUNs");
    size_t count = 2 * geometry.planes, bytes = geometry.page_bytes;
    uint8_t *data = malloc(count * bytes), *back = malloc(count * bytes);
    weft_write *writes = calloc(count, sizeof *writes);
    weft_read *reads = calloc(count, sizeof *reads);
    weft_block *blocks = calloc(count, sizeof *blocks);
    int *statuses = calloc(count, sizeof *statuses);
    for (at = 0; at < count; at++) {
        weft_block block = {(uint32_t)(at / geometry.planes), 0, (uint32_t)(at % geometry.planes)};
        memset(data + at * bytes, (int)at + 1, bytes);
        blocks[at] = block;
        writes[at].block = reads[at].block = block;
        writes[at].data = data + at * bytes;
        reads[at].data = back + at * bytes;
        writes[at].data_bytes = reads[at].data_bytes = bytes;
        writes[at].tag.owner = 1000 + (uint32_t)at;
        writes[at].tag.death = (uint64_t)at << 40;
        writes[at].tag.data_class = (uint8_t)at;
        writes[at].tag.flags = WEFT_SECURE_DELETE;
    }
    check(weft_page_write_vector(raw, writes, count), "page write vector");
    check(weft_page_read_vector(raw, reads, count), "page read vector");
    expect(memcmp(data, back, count * bytes) == 0, "the raw level gives back what was written together");
    for (at = 0; at < count; at++) {
        check(weft_page_tag(raw, blocks[at], 0, &tag), "page tag");
        expect(same_tag(tag, writes[at].tag), "a page keeps its tag");
    }
    /* One that is refused does not keep the others from being done. */
    for (at = 1; at < count; at++) {
        writes[at].page = 1;
    }
    expect(weft_page_write_vector(raw, writes, count) == WEFT_ERULE, "a page is written once");
    for (at = 0; at < count; at++) {
        expect(writes[at].status == (at == 0 ? WEFT_ERULE : 0), "each page has its own status");
    }
    check(weft_block_erase_vector(raw, blocks, statuses, count), "block erase vector");
    expect(weft_page_read_vector(raw, reads, count) == WEFT_ERULE, "erased pages are not read");
    expect(reads[count - 1].status == WEFT_ERULE, "none of them");
    writes[0].tag.data_class = 7;
    expect(weft_page_write_vector(raw, writes, 1) == WEFT_EINVAL, "no such class");
    writes[0].tag.data_class = 0;
    expect(weft_page_write_vector(raw, writes, 0) == WEFT_EINVAL, "no pages are no command");
    weft_raw_close(raw);

    /* Function: a row of blocks, a page of each at a time. */
    weft_function *function;
    check(weft_allocate(monitor, "function", (uint64_t)300 << 20, 250, &grant), "allocate function");
    check(weft_function_open(grant, &function), "function");
    check(weft_function_geometry(function, &geometry), "function geometry");
    expect(weft_address_mapper_row(function, 2, WEFT_MAP_BLOCK, 7, blocks, count - 1) == WEFT_EINVAL, "the row needs room");
    check(weft_address_mapper_row(function, 2, WEFT_MAP_BLOCK, 7, blocks, count), "address mapper row");
    uint32_t page;
    for (page = 0; page < PAGES; page++) {
        for (at = 0; at < count; at++) {
            writes[at].block = reads[at].block = blocks[at];
            writes[at].page = reads[at].page = page;
        }
        check(weft_flash_write_vector(function, writes, count), "flash write vector");
        memset(back, 0, count * bytes);
        check(weft_flash_read_vector(function, reads, count), "flash read vector");
        expect(memcmp(data, back, count * bytes) == 0, "the function level gives back what was written together");
        check(weft_flash_tag(function, blocks[1], page, &tag), "flash tag");
        expect(same_tag(tag, writes[1].tag), "a page of a block keeps its tag");
    }
    /* An address outside the grant is refused, and the others are written and count. */
    for (page = PAGES; page < PAGES + 2; page++) {
        for (at = 0; at < count; at++) {
            writes[at].page = page;
        }
        writes[0].block.channel = geometry.channels;
        expect(weft_flash_write_vector(function, writes, count) == WEFT_EOUTSIDE, "a block that the grant does not have");
        for (at = 0; at < count; at++) {
            expect(writes[at].status == (at == 0 ? WEFT_EOUTSIDE : 0), "each block has its own status");
        }
    }
    writes[0].block = blocks[0];
    writes[0].page = 0;
    expect(weft_flash_write_vector(function, writes, count) != 0, "a page of a block-mapped block is written once");
    for (at = 0; at < count; at++) {
        expect(writes[at].status != 0, "each page of the row is refused");
        check(weft_flash_trim(function, blocks[at]), "flash trim");
    }
    weft_function_close(function);

    /* Policy: pages keep their tags, too. */
    weft_policy *policy;
    check(weft_allocate(monitor, "policy", (uint64_t)300 << 20, 250, &grant), "allocate policy");
    check(weft_policy_open(grant, 1, &policy), "policy");
    check(weft_ftl_ioctl(policy, WEFT_FTL_PAGE, WEFT_GC_GREEDY, 0, 1000, 250), "ftl ioctl");
    check(weft_ftl_write_tagged(policy, 3, data, bytes, &writes[1].tag), "ftl write tagged");
    check(weft_ftl_tag(policy, 3, &tag), "ftl tag");
    expect(same_tag(tag, writes[1].tag), "a page of a range keeps its tag");
    expect(weft_ftl_write_tagged(policy, 3, data, bytes, NULL) == WEFT_EINVAL, "no tag");
    weft_policy_close(policy);
    weft_monitor_close(monitor);
    free(data);
    free(back);
    free(writes);
    free(reads);
    free(blocks);
    free(statuses);
    printf("pages together from C: ok\n");
    return 0;
}
