/* Flash at three levels, for C. Made from the sources of the crate weft-capi; do not edit.
   Functions return 0 or a negative WEFT_E... code. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An argument is a null pointer or cannot be. */
#define WEFT_EINVAL -1

/* The address is outside the grant, or in no range. */
#define WEFT_EOUTSIDE -2

/* The rules of flash forbid it: wrong order, programmed already, not programmed, not mapped. */
#define WEFT_ERULE -3

/* No flash, no block or no page is left for it. */
#define WEFT_ENOSPC -4

/* The page cannot be read, or the block is bad. */
#define WEFT_EIO -5

/* There is no such grant, or no monitor on the device. */
#define WEFT_ENOENT -6

/* There is such a grant, or somebody uses it or the device. */
#define WEFT_EBUSY -7

/* Pages of a block are written in order. */
#define WEFT_MAP_BLOCK 0

/* Pages of a block are written in any order, and again. */
#define WEFT_MAP_PAGE 1

/* The range is mapped page by page. */
#define WEFT_FTL_PAGE 0

/* The range is mapped block by block. */
#define WEFT_FTL_BLOCK 1

/* Cleaning takes the block with the fewest valid pages. */
#define WEFT_GC_GREEDY 0

/* Cleaning takes the block that was filled first. */
#define WEFT_GC_FIFO 1

/* Cleaning takes the block that has not changed for longest. */
#define WEFT_GC_LRU 2

/* Cleaning weighs valid pages and age. */
#define WEFT_GC_COST_BENEFIT 3

/* A flash monitor. */
typedef struct weft_monitor weft_monitor;

/* A grant, which becomes one of the levels. */
typedef struct weft_grant weft_grant;

/* A block of a grant. */
typedef struct weft_block {
    /* Channel of the grant. */
    uint32_t channel;
    /* LUN on the channel. */
    uint32_t lun;
    /* Block in the LUN. */
    uint32_t block;
} weft_block;

/* A grant at the raw level. */
typedef struct weft_raw weft_raw;

/* What a grant has. */
typedef struct weft_geometry_info {
    /* Channels. */
    uint32_t channels;
    /* LUNs of all channels together; channels may differ by some. */
    uint32_t luns;
    /* Blocks of a LUN. */
    uint32_t blocks_per_lun;
    /* Pages of a block. */
    uint32_t pages_per_block;
    /* Bytes of a page. */
    uint32_t page_bytes;
    /* Out-of-band bytes of a page. */
    uint32_t oob_bytes;
} weft_geometry_info;

/* A grant at the function level. */
typedef struct weft_function weft_function;

/* A block that wear leveling moved. */
typedef struct weft_shuffle {
    /* Where it was. */
    weft_block from;
    /* Where it is. */
    weft_block to;
    /* The label that it was taken with. */
    uint64_t label;
} weft_shuffle;

/* How evenly a grant is worn. */
typedef struct weft_spread {
    /* Erases of the most worn block. */
    uint32_t erases_max;
    /* Erases of the least worn block. */
    uint32_t erases_min;
    /* Mean erases of a block. */
    double erases_mean;
} weft_spread;

/* A grant at the policy level. */
typedef struct weft_policy weft_policy;

/* The text of the calling thread's last error; empty when there was none. Valid until the thread's next error. */
const char *weft_error_message(void);

/* Makes a flash device of a preset (bbssd, tlc, mlc, slc, qlc or zn540) in an image file, or in memory when path is null, with a monitor on it. An existing file is refused.
   Caller: Strings end with a zero byte; out can be written. */
int weft_monitor_format(const char *path, const char *preset, uint64_t size_bytes, weft_monitor **out);

/* Opens an image file with a monitor on it. One process at a time.
   Caller: The path ends with a zero byte; out can be written. */
int weft_monitor_open(const char *path, weft_monitor **out);

/* Closes a monitor. Grants and levels of it may live on.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_monitor_close(weft_monitor *monitor);

/* Asks for flash: bytes, and over-provisioning in thousandths of them on top.
   Caller: The handle is open; the name ends with a zero byte; out can be written. */
int weft_allocate(const weft_monitor *monitor, const char *name, uint64_t size_bytes, uint32_t over_provisioning_permille, weft_grant **out);

/* Attaches to flash that was asked for earlier.
   Caller: The handle is open; the name ends with a zero byte; out can be written. */
int weft_attach(const weft_monitor *monitor, const char *name, weft_grant **out);

/* Asks a monitor that another process serves on this socket ('weft flash serve') for flash.
   Caller: The strings end with a zero byte; out can be written. */
int weft_allocate_served(const char *socket, const char *name, uint64_t size_bytes, uint32_t over_provisioning_permille, weft_grant **out);

/* Attaches to flash that was asked for earlier, of a monitor that another process serves on this socket.
   Caller: The strings end with a zero byte; out can be written. */
int weft_attach_served(const char *socket, const char *name, weft_grant **out);

/* Gives flash back that nobody is attached to.
   Caller: The handle is open; the name ends with a zero byte. */
int weft_release(const weft_monitor *monitor, const char *name);

/* Gives flash back that another process's monitor gave, and that nobody is attached to.
   Caller: Both texts end with a zero byte. */
int weft_release_served(const char *socket, const char *name);

/* Lets go of a grant that has not become a level.
   Caller: The handle is null or open. */
void weft_grant_close(weft_grant *grant);

/* Exchanges worn, busy LUNs and fresh, quiet ones of any grants, up to swaps_max pairs; says how many it were.
   Caller: The handle is open; swaps can be written. */
int weft_level_wear(const weft_monitor *monitor, uint32_t swaps_max, uint32_t *swaps);

/* Makes a grant one of the raw level; the grant's handle is used up, also on failure.
   Caller: The grant is open; out can be written. */
int weft_raw_open(weft_grant *grant, weft_raw **out);

/* Closes a raw level.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_raw_close(weft_raw *raw);

/* What there is to address.
   Caller: The handle is open; out can be written. */
int weft_geometry(const weft_raw *raw, weft_geometry_info *out);

/* Reads a part of a page's data from offset on, and its first out-of-band bytes.
   Caller: The handle is open; data and oob have so many bytes. */
int weft_page_read(const weft_raw *raw, weft_block block, uint32_t page, uint32_t offset, uint8_t *data, size_t data_bytes, uint8_t *oob, size_t oob_bytes);

/* Programs the next page of a block, whole.
   Caller: The handle is open; data and oob have so many bytes. */
int weft_page_write(const weft_raw *raw, weft_block block, uint32_t page, const uint8_t *data, size_t data_bytes, const uint8_t *oob, size_t oob_bytes);

/* Erases a block.
   Caller: The handle is open. */
int weft_block_erase(const weft_raw *raw, weft_block block);

/* Makes a grant one of the function level and finds the blocks that were written; the grant's handle is used up, also on failure.
   Caller: The grant is open; out can be written. */
int weft_function_open(weft_grant *grant, weft_function **out);

/* Closes a function level.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_function_close(weft_function *function);

/* Takes a block of a channel, with a label of the caller's, and says how many are free there then.
   Caller: The handle is open; block and free_blocks can be written. */
int weft_address_mapper(const weft_function *function, uint32_t channel, uint32_t mapping, uint64_t label, weft_block *block, uint32_t *free_blocks);

/* Reads a part of a page of a block.
   Caller: The handle is open; data has so many bytes. */
int weft_flash_read(const weft_function *function, weft_block block, uint32_t page, uint32_t offset, uint8_t *data, size_t data_bytes);

/* Writes a page of a block.
   Caller: The handle is open; data has so many bytes. */
int weft_flash_write(const weft_function *function, weft_block block, uint32_t page, const uint8_t *data, size_t data_bytes);

/* Gives a block back; it is erased later.
   Caller: The handle is open. */
int weft_flash_trim(const weft_function *function, weft_block block);

/* Erases every block that was given back.
   Caller: The handle is open. */
int weft_flash_flush(const weft_function *function);

/* Moves up to moves_max blocks that are more than threshold erases younger than a free one of their channel; writes what was moved to moves, how many to moved, and how evenly the grant is worn to spread.
   Caller: The handle is open; moves has room for moves_max; moved and spread can be written. */
int weft_wear_leveler(const weft_function *function, uint32_t threshold, weft_shuffle *moves, uint32_t moves_max, uint32_t *moved, weft_spread *spread);

/* Sets the over-provisioning, in thousandths; refused when too many blocks are mapped.
   Caller: The handle is open. */
int weft_set_ops(const weft_function *function, uint32_t over_provisioning_permille);

/* Makes a grant one of the policy level, anew (create not 0) or as it was left; the grant's handle is used up, also on failure.
   Caller: The grant is open; out can be written. */
int weft_policy_open(weft_grant *grant, int create, weft_policy **out);

/* Closes a policy level.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_policy_close(weft_policy *policy);

/* Sets up logical pages: how they are mapped, how they are cleaned, and over-provisioning in thousandths.
   Caller: The handle is open. */
int weft_ftl_ioctl(const weft_policy *policy, uint32_t mapping, uint32_t gc, uint64_t start_page, uint64_t pages, uint32_t over_provisioning_permille);

/* Reads whole pages.
   Caller: The handle is open; data has so many bytes. */
int weft_ftl_read(const weft_policy *policy, uint64_t page, uint8_t *data, size_t data_bytes);

/* Writes whole pages; data of different streams and lifetime groups is kept apart on the flash.
   Caller: The handle is open; data has so many bytes. */
int weft_ftl_write(const weft_policy *policy, uint64_t page, const uint8_t *data, size_t data_bytes, uint16_t stream, uint16_t lifetime_group);

/* Forgets pages.
   Caller: The handle is open. */
int weft_ftl_trim(const weft_policy *policy, uint64_t page, uint64_t pages);

/* Makes trims durable.
   Caller: The handle is open. */
int weft_ftl_flush(const weft_policy *policy);

#ifdef __cplusplus
}
#endif

#endif
