/* Flash at three levels and tag stores, for C. Made from the sources of the crate weft-capi; do not edit.
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

/* No flash, no block or no page is left for it, or no space on the file system of the device's image. */
#define WEFT_ENOSPC -4

/* The page cannot be read, or the block is bad. */
#define WEFT_EIO -5

/* There is no such grant or image, no monitor on the device, or no checkpoint of the policy level on the grant. */
#define WEFT_ENOENT -6

/* There is such a grant or image, or somebody uses it or the device; or another transaction of this thread holds the s-node. */
#define WEFT_EBUSY -7

/* Two transactions wait for each other, or another one has held the s-node for too long: abort this one and run it again. */
#define WEFT_EAGAIN -8

/* The caller has no permission for it. */
#define WEFT_EACCES -9

/* The grant holds data of another level, which this one would erase. */
#define WEFT_ELEVEL -10

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

/* The s-node that every store is made with. */
#define WEFT_SNODE_FIRST 1

/* Read the store through the kernel's cache, as weft_tags_open does. */
#define WEFT_READ_KERNEL 0

/* Read past the kernel's cache: memory is bounded by the store's own. */
#define WEFT_READ_DIRECT 1

/* Read where the kernel's cache is mapped, without a copy. The medium must not fail meanwhile, nor the file be shortened: SIGBUS. */
#define WEFT_READ_MAPPED 2

/* Added to the type of a node: its data begins with a key, the key's length in two bytes, little-endian, before it. Edges by key lead to such nodes. */
#define WEFT_KEYED 0x80000000

/* A flag of s-nodes: what is given up of them is overwritten by the next checkpoint. */
#define WEFT_SECURE_DELETE 1

/* Keys and values of any size. */
#define WEFT_BTREE_BYTES 0

/* Keys of 4 bytes, in the order of big-endian numbers, and values of 8 bytes. */
#define WEFT_BTREE_FIXED 1

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

/* What is known of a page's data. The page keeps it in its out-of-band bytes, also when it is moved. All zero: nothing. */
typedef struct weft_tag {
    /* When the data is expected to die, in bytes written to the volume by then. 0: not known. */
    uint64_t death;
    /* The user who owns it. */
    uint32_t owner;
    /* Its stream. Data of different streams and lifetime groups is kept apart by the policy level. */
    uint16_t stream;
    /* Its lifetime group in the stream. */
    uint16_t lifetime_group;
    /* Its class, 0 to 6, as of s-nodes. 0: not known. */
    uint8_t data_class;
    /* WEFT_SECURE_DELETE or 0. */
    uint8_t flags;
} weft_tag;

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
    /* Planes of a LUN, which work together: block b of a LUN is in plane b % planes. */
    uint32_t planes;
} weft_geometry_info;

/* A page to be written, one of several. */
typedef struct weft_write {
    /* The block. */
    weft_block block;
    /* The page in the block. */
    uint32_t page;
    /* The page's data. */
    const uint8_t *data;
    /* Bytes of it. */
    size_t data_bytes;
    /* Its out-of-band bytes, at the raw level; not looked at elsewhere. */
    const uint8_t *oob;
    /* How many. */
    size_t oob_bytes;
    /* What is known of the data. */
    weft_tag tag;
    /* What became of it, 0 or a code: the call writes this. */
    int status;
} weft_write;

/* A part of a page to be read, one of several. */
typedef struct weft_read {
    /* The block. */
    weft_block block;
    /* The page in the block. */
    uint32_t page;
    /* Where in the page's data to begin. */
    uint32_t offset;
    /* Where the data goes. */
    uint8_t *data;
    /* Bytes of it. */
    size_t data_bytes;
    /* Where the first out-of-band bytes go, at the raw level; not looked at elsewhere. */
    uint8_t *oob;
    /* How many. */
    size_t oob_bytes;
    /* What became of it, 0 or a code: the call writes this. */
    int status;
} weft_read;

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

/* An open tag store. */
typedef struct weft_tags weft_tags;

/* A transaction on a tag store, of one thread at a time. */
typedef struct weft_tx weft_tx;

/* A place in the order of a list of edges. It can be kept: it holds as long as the store. */
typedef struct weft_place {
    /* Its upper half. */
    uint64_t upper;
    /* Its lower half. */
    uint64_t lower;
} weft_place;

/* An edge and its place in the order of its list. */
typedef struct weft_placed_edge {
    /* The place before the edge. */
    weft_place place;
    /* The place behind it: where to go on. */
    weft_place behind;
    /* Its number; 0 for edges by key. */
    uint64_t info;
    /* Where it leads. */
    uint64_t to;
} weft_placed_edge;

/* What an s-node says of all its nodes. */
typedef struct weft_snode_tags {
    /* The user that controls it. */
    uint32_t owner;
    /* Its group. */
    uint32_t group;
    /* Who may read and write, as of a file: 0700 for the owner, 0070 for others of the group, 0007 for others. At most 07777. */
    uint16_t mode;
    /* The kind of data: 0 unknown, 1 metadata, 2 log, 3 immutable, 4 overwritten in place, 5 small, 6 temporary. */
    uint8_t data_class;
    /* WEFT_SECURE_DELETE or 0. */
    uint8_t flags;
} weft_snode_tags;

/* A key-value store in a tag store. */
typedef struct weft_kv weft_kv;

/* A B+tree in a tag store. */
typedef struct weft_btree weft_btree;

/* A scan over the pairs of a key-value store. */
typedef struct weft_kv_scan weft_kv_scan;

/* A change of a pair: the key has this value, or, where value is null, goes. */
typedef struct weft_kv_change {
    /* The key. */
    const uint8_t *key;
    /* Its bytes. */
    size_t key_bytes;
    /* The value, or null. */
    const uint8_t *value;
    /* Its bytes. */
    size_t value_bytes;
} weft_kv_change;

/* The state of a tag store between two commits. */
typedef struct weft_snapshot weft_snapshot;

/* A session of a tag store in another process. Ids of nodes are its own: they mean nothing in another session. */
typedef struct weft_session weft_session;

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

/* The tag that a page was written with.
   Caller: The handle is open; out can be written. */
int weft_page_tag(const weft_raw *raw, weft_block block, uint32_t page, weft_tag *out);

/* Erases a block.
   Caller: The handle is open. */
int weft_block_erase(const weft_raw *raw, weft_block block);

/* Programs several pages, all issued at once: LUNs work at the same time, and planes of a LUN too when their pages have one number and follow each other in the list. Each has its own status; returns that of the first that failed.
   Caller: The handle is open; writes has count entries, whose data and out-of-band bytes are there. */
int weft_page_write_vector(const weft_raw *raw, weft_write *writes, size_t count);

/* Reads parts of several pages, all issued at once, as weft_page_write_vector programs them.
   Caller: The handle is open; reads has count entries, whose buffers do not overlap. */
int weft_page_read_vector(const weft_raw *raw, weft_read *reads, size_t count);

/* Erases several blocks, all issued at once, as weft_page_write_vector programs pages; statuses gets what became of each.
   Caller: The handle is open; blocks and statuses have count entries. */
int weft_block_erase_vector(const weft_raw *raw, const weft_block *blocks, int *statuses, size_t count);

/* Makes a grant one of the function level and finds the blocks that were written; the grant's handle is used up, also on failure. A grant with data of the policy level is refused: WEFT_ELEVEL.
   Caller: The grant is open; out can be written. */
int weft_function_open(weft_grant *grant, weft_function **out);

/* Closes a function level.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_function_close(weft_function *function);

/* What there is to address.
   Caller: The handle is open; out can be written. */
int weft_function_geometry(const weft_function *function, weft_geometry_info *out);

/* Takes a block of a channel, with a label of the caller's, and says how many are free there then.
   Caller: The handle is open; block and free_blocks can be written. */
int weft_address_mapper(const weft_function *function, uint32_t channel, uint32_t mapping, uint64_t label, weft_block *block, uint32_t *free_blocks);

/* Takes a row, all of it or nothing: a block in each plane of luns neighbouring LUNs, all with this label. Pages of one number of a row that are written together keep these LUNs and planes at work at the same time. The row has as many blocks as luns times the planes of a LUN; blocks_max, the room of blocks, must suffice.
   Caller: The handle is open; blocks has room for blocks_max. */
int weft_address_mapper_row(const weft_function *function, uint32_t luns, uint32_t mapping, uint64_t label, weft_block *blocks, size_t blocks_max);

/* Reads a part of a page of a block.
   Caller: The handle is open; data has so many bytes. */
int weft_flash_read(const weft_function *function, weft_block block, uint32_t page, uint32_t offset, uint8_t *data, size_t data_bytes);

/* Writes a page of a block.
   Caller: The handle is open; data has so many bytes. */
int weft_flash_write(const weft_function *function, weft_block block, uint32_t page, const uint8_t *data, size_t data_bytes);

/* The tag that a page was written with.
   Caller: The handle is open; out can be written. */
int weft_flash_tag(const weft_function *function, weft_block block, uint32_t page, weft_tag *out);

/* Writes several pages, all issued at once, as weft_page_write_vector does at the raw level. Each has its own status; returns that of the first that failed.
   Caller: The handle is open; writes has count entries, whose data is there. */
int weft_flash_write_vector(const weft_function *function, weft_write *writes, size_t count);

/* Reads parts of several pages, all issued at once. Each has its own status; returns that of the first that failed.
   Caller: The handle is open; reads has count entries, whose buffers do not overlap. */
int weft_flash_read_vector(const weft_function *function, weft_read *reads, size_t count);

/* Gives a block back; it is erased later.
   Caller: The handle is open. */
int weft_flash_trim(const weft_function *function, weft_block block);

/* Erases every block that was given back.
   Caller: The handle is open. */
int weft_flash_flush(const weft_function *function);

/* Moves up to moves_max blocks that are more than threshold erases younger than a free one of their channel; writes what was moved to moves, how many to moved, and how evenly the grant is worn to spread. All three are written on failure too: the first moved blocks have moved then, and are at their new places.
   Caller: The handle is open; moves has room for moves_max; moved and spread can be written. */
int weft_wear_leveler(const weft_function *function, uint32_t threshold, weft_shuffle *moves, uint32_t moves_max, uint32_t *moved, weft_spread *spread);

/* Sets the over-provisioning, in thousandths; refused when too many blocks are mapped.
   Caller: The handle is open. */
int weft_set_ops(const weft_function *function, uint32_t over_provisioning_permille);

/* Makes a grant one of the policy level, anew (create not 0) or as it was left; the grant's handle is used up, also on failure. A grant with data of the function level is refused: WEFT_ELEVEL.
   Caller: The grant is open; out can be written. */
int weft_policy_open(weft_grant *grant, int create, weft_policy **out);

/* Closes a policy level.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_policy_close(weft_policy *policy);

/* Sets up logical pages: how they are mapped, how they are cleaned, and over-provisioning in thousandths. A page-mapped range takes the units of its pages and its over-provisioning and 8 more, so at least 9; a block-mapped one takes those of its pages, and those of its over-provisioning or 3, whichever is more, so at least 4. A unit is an erase block in each plane of up to 8 LUNs, or of more if that leaves 64 units. WEFT_ENOSPC says how many pages fit.
   Caller: The handle is open. */
int weft_ftl_ioctl(const weft_policy *policy, uint32_t mapping, uint32_t gc, uint64_t start_page, uint64_t pages, uint32_t over_provisioning_permille);

/* Gives the range that begins at start_page another end, another cleaning and other over-provisioning; its mapping stays. Pages beyond a new end are gone.
   Caller: The handle is open. */
int weft_ftl_change(const weft_policy *policy, uint32_t mapping, uint32_t gc, uint64_t start_page, uint64_t pages, uint32_t over_provisioning_permille);

/* Removes the range that begins at start_page: its pages are gone, and its flash is free.
   Caller: The handle is open. */
int weft_ftl_remove(const weft_policy *policy, uint64_t start_page);

/* Reads whole pages.
   Caller: The handle is open; data has so many bytes. */
int weft_ftl_read(const weft_policy *policy, uint64_t page, uint8_t *data, size_t data_bytes);

/* Writes whole pages; data of different streams and lifetime groups is kept apart on the flash.
   Caller: The handle is open; data has so many bytes. */
int weft_ftl_write(const weft_policy *policy, uint64_t page, const uint8_t *data, size_t data_bytes, uint16_t stream, uint16_t lifetime_group);

/* Writes whole pages with a tag, which they keep. Data of different streams and lifetime groups is kept apart on the flash.
   Caller: The handle is open; data has so many bytes; tag can be read. */
int weft_ftl_write_tagged(const weft_policy *policy, uint64_t page, const uint8_t *data, size_t data_bytes, const weft_tag *tag);

/* The tag that a page was written with.
   Caller: The handle is open; out can be written. */
int weft_ftl_tag(const weft_policy *policy, uint64_t page, weft_tag *out);

/* Forgets pages; they read as zeros. Durable after weft_ftl_flush. A block-mapped range erases units that are named as a whole. Of another unit it writes each page that is named as zeros, and may rewrite the unit first: that costs what writing them costs, and WEFT_ENOSPC can be the answer.
   Caller: The handle is open. */
int weft_ftl_trim(const weft_policy *policy, uint64_t page, uint64_t pages);

/* Makes trims durable.
   Caller: The handle is open. */
int weft_ftl_flush(const weft_policy *policy);

/* Makes an empty tag store in a new file. cache_bytes is the memory for pages; 0 stands for 256 MiB.
   Caller: path is a string; out can be written. */
int weft_tags_create(const char *path, uint64_t cache_bytes, weft_tags **out);

/* As weft_tags_create, with a choice of how the store is read: WEFT_READ_KERNEL, WEFT_READ_DIRECT or WEFT_READ_MAPPED.
   Caller: path is a string; out can be written. */
int weft_tags_create_with(const char *path, uint64_t cache_bytes, int reads, weft_tags **out);

/* Opens a tag store in a file. It is open in one process at a time: WEFT_EBUSY while another has it.
   Caller: path is a string; out can be written. */
int weft_tags_open(const char *path, uint64_t cache_bytes, weft_tags **out);

/* As weft_tags_open, with a choice of how the store is read: WEFT_READ_KERNEL, WEFT_READ_DIRECT or WEFT_READ_MAPPED.
   Caller: path is a string; out can be written. */
int weft_tags_open_with(const char *path, uint64_t cache_bytes, int reads, weft_tags **out);

/* Closes a tag store: writes a checkpoint, so that the next opening has nothing to replay. The handle is used up, also on failure; what was committed durably stays in any case.
   Caller: The handle is null or open, and all transactions, snapshots and maps on it are closed. */
int weft_tags_close(weft_tags *tags);

/* Checks every page, edge and count. WEFT_EIO when something does not hold; the message has the first of it.
   Caller: The handle is open; nodes and edges can be written. */
int weft_tags_check(const weft_tags *tags, uint64_t *nodes, uint64_t *edges);

/* The root of an s-node: a node that is always there, to hang others on.
   Caller: The handle is open; out can be written. */
int weft_tags_root(const weft_tags *tags, uint64_t snode, uint64_t *out);

/* The edge type of this name, whose edges carry a number; registered if it is new.
   Caller: The handle is open; name is a string; out can be written. */
int weft_edge_type(const weft_tags *tags, const char *name, uint32_t *out);

/* Deletes an edge type, which has no edges any more: WEFT_ERULE while it has. Its number is not given out again.
   Caller: The handle is open. */
int weft_delete_edge_type(const weft_tags *tags, uint32_t etype);

/* Begins a transaction. It ends with weft_commit_tx or weft_abort_tx.
   Caller: The handle is open; out can be written. */
int weft_begin_tx(const weft_tags *tags, weft_tx **out);

/* Whether the commit waits until it is durable: 1, as it does unless said, or 0: a power cut, or the end of the process by a signal, may take the last commits.
   Caller: The transaction is open. */
int weft_tx_sync(weft_tx *tx, uint32_t sync);

/* Lets the commit return at once and be durable soon: at most so many milliseconds later the store begins a sync, one for all that wait. When that fails, the next commit or the close says so. A power cut, or the end of the process by a signal, may take the commits since the last sync.
   Caller: The transaction is open. */
int weft_tx_sync_within(weft_tx *tx, uint32_t milliseconds);

/* Makes all changes of a transaction visible and, unless said otherwise, durable. The handle is used up, also on failure. WEFT_EAGAIN: nothing has changed, run the transaction again.
   Caller: The transaction is open. */
int weft_commit_tx(weft_tx *tx);

/* Forgets all changes of a transaction. The handle is used up.
   Caller: The handle is null or open. */
void weft_abort_tx(weft_tx *tx);

/* Begins a transaction within a transaction: a place to come back to with weft_undo_tx. out is its number.
   Caller: The transaction is open; out can be written. */
int weft_savepoint(weft_tx *tx, uint32_t *out);

/* Undoes everything since a savepoint, which stays. Later savepoints are gone.
   Caller: The transaction is open. */
int weft_undo_tx(weft_tx *tx, uint32_t savepoint);

/* Makes a node. It becomes visible with the commit, if an edge leads to it or out of it then.
   Caller: The transaction is open; data has so many bytes; out can be written. */
int weft_create_node(weft_tx *tx, uint64_t snode, uint32_t kind, const uint8_t *data, size_t data_bytes, uint64_t *out);

/* Gives a node new data, of any size.
   Caller: The transaction is open; data has so many bytes. */
int weft_update_node(weft_tx *tx, uint64_t node, uint32_t kind, const uint8_t *data, size_t data_bytes);

/* Deletes a node, which has no edges any more. A node that loses its last edge goes with the commit anyway.
   Caller: The transaction is open. */
int weft_delete_node(weft_tx *tx, uint64_t node, uint32_t kind);

/* Copies a node's data, as much as there is room for, and tells how many bytes it has. Without a transaction, that is null, the last committed state.
   Caller: The handles are open; data has room for capacity bytes; data_bytes can be written. */
int weft_node_data(const weft_tags *tags, weft_tx *tx, uint64_t node, uint32_t kind, uint8_t *data, size_t capacity, size_t *data_bytes);

/* Copies a part of a node's data, from byte at on: as much as there is room for, and less at the end. part_bytes tells how much. Only the pages are read that it is in. Without a transaction, that is null, the last committed state.
   Caller: The handles are open; part has room for capacity bytes; part_bytes can be written. */
int weft_read_node_part(const weft_tags *tags, weft_tx *tx, uint64_t node, uint32_t kind, uint64_t at, uint8_t *part, size_t capacity, size_t *part_bytes);

/* Writes into a node's data, from byte at on. Data that ends before is made as long, by zeros. The cost is that of the bytes, not of the node, which may have 2 GiB.
   Caller: The transaction is open; part has so many bytes. */
int weft_write_node_part(weft_tx *tx, uint64_t node, uint32_t kind, uint64_t at, const uint8_t *part, size_t part_bytes);

/* Writes behind the end of a node's data. Many pieces cost about as much as all of it at once. at, unless null, gets where the end was.
   Caller: The transaction is open; part has so many bytes; at is null or can be written. */
int weft_append_to_node(weft_tx *tx, uint64_t node, uint32_t kind, const uint8_t *part, size_t part_bytes, uint64_t *at);

/* Makes an edge. Both nodes are there; there is no such edge yet.
   Caller: The transaction is open. */
int weft_create_edge(weft_tx *tx, uint64_t source, uint32_t edge_type, uint64_t info, uint64_t to);

/* Leads an edge to another node, or makes it. before, unless null, gets the node it led to, or 0.
   Caller: The transaction is open; before is null or can be written. */
int weft_set_edge(weft_tx *tx, uint64_t source, uint32_t edge_type, uint64_t info, uint64_t to, uint64_t *before);

/* Deletes an edge. to, unless null, gets the node it led to.
   Caller: The transaction is open; to is null or can be written. */
int weft_delete_edge(weft_tx *tx, uint64_t source, uint32_t edge_type, uint64_t info, uint64_t *to);

/* Edges of one type out of a node, by parts, in an order that stays as it is whatever comes and goes: each edge that is there all the time is seen once. from is a place; null stands for the beginning, or, where down is not 0, for the end. Going down goes on from the place before the last edge. count tells how many edges there are, fewer than capacity at the end. Without a transaction, that is null, the last committed state.
   Caller: The handles are open; from is null or can be read; edges has room for capacity; count can be written. */
int weft_edges_from(const weft_tags *tags, weft_tx *tx, uint64_t source, uint32_t edge_type, const weft_place *from, uint32_t down, weft_placed_edge *edges, size_t capacity, size_t *count);

/* Where an edge leads; WEFT_ENOENT when there is none. Without a transaction, that is null, the last committed state.
   Caller: The handles are open; out can be written. */
int weft_get_destination(const weft_tags *tags, weft_tx *tx, uint64_t source, uint32_t edge_type, uint64_t info, uint64_t *out);

/* The edge type of this name, whose edges carry a key of any bytes; registered if it is new.
   Caller: The handle is open; name is a string; out can be written. */
int weft_key_edge_type(const weft_tags *tags, const char *name, uint32_t *out);

/* Makes an edge by key. to is a node in the same s-node of a type with WEFT_KEYED, whose data begins with this key; there is no such edge yet.
   Caller: The transaction is open; key has so many bytes. */
int weft_create_key_edge(weft_tx *tx, uint64_t source, uint32_t edge_type, const uint8_t *key, size_t key_bytes, uint64_t to);

/* Leads an edge by key to another node, or makes it. before, unless null, gets the node it led to, or 0.
   Caller: The transaction is open; key has so many bytes; before is null or can be written. */
int weft_set_key_edge(weft_tx *tx, uint64_t source, uint32_t edge_type, const uint8_t *key, size_t key_bytes, uint64_t to, uint64_t *before);

/* Deletes an edge by key. to, unless null, gets the node it led to.
   Caller: The transaction is open; key has so many bytes; to is null or can be written. */
int weft_delete_key_edge(weft_tx *tx, uint64_t source, uint32_t edge_type, const uint8_t *key, size_t key_bytes, uint64_t *to);

/* Where an edge by key leads; WEFT_ENOENT when there is none. Without a transaction, that is null, the last committed state.
   Caller: The handles are open; key has so many bytes; out can be written. */
int weft_get_key_destination(const weft_tags *tags, weft_tx *tx, uint64_t source, uint32_t edge_type, const uint8_t *key, size_t key_bytes, uint64_t *out);

/* Makes an s-node. out gets its id; nodes are made in it from now on, in this transaction, and after the commit in others.
   Caller: The transaction is open; tags can be read; out can be written. */
int weft_create_snode(weft_tx *tx, const weft_snode_tags *tags, uint64_t *out);

/* Deletes an s-node that has no nodes but its root, whose root has no edges.
   Caller: The transaction is open. */
int weft_delete_snode(weft_tx *tx, uint64_t snode);

/* The root of an s-node, which the transaction itself may have made.
   Caller: The transaction is open; out can be written. */
int weft_tx_root(weft_tx *tx, uint64_t snode, uint64_t *out);

/* The tags of an s-node. Without a transaction, that is null, the last committed state.
   Caller: The handles are open; out can be written. */
int weft_snode_tags_get(const weft_tags *tags, weft_tx *tx, uint64_t snode, weft_snode_tags *out);

/* Gives an s-node other tags. What is given up of one with WEFT_SECURE_DELETE is overwritten from the commit on.
   Caller: The transaction is open; tags can be read. */
int weft_snode_tags_set(weft_tx *tx, uint64_t snode, const weft_snode_tags *tags);

/* Opens the key-value store of this name in the first s-node; makes it if there is none.
   Caller: The handle is open; name is a string; out can be written. */
int weft_kv_open(const weft_tags *tags, const char *name, weft_kv **out);

/* As weft_kv_open, in an s-node.
   Caller: The handle is open; name is a string; out can be written. */
int weft_kv_open_in(const weft_tags *tags, uint64_t snode, const char *name, weft_kv **out);

/* Closes a key-value store.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_kv_close(weft_kv *kv);

/* Gives a key a value, as part of a transaction, or, when that is null, durably by itself.
   Caller: The handles are open; key and value have so many bytes. */
int weft_kv_put(const weft_kv *kv, weft_tx *tx, const uint8_t *key, size_t key_bytes, const uint8_t *value, size_t value_bytes);

/* Copies the value of a key, as much as there is room for, and tells how many bytes it has; WEFT_ENOENT when the key is not there. It sees the last committed state.
   Caller: The handle is open; key has so many bytes, value room for capacity; value_bytes can be written. */
int weft_kv_get(const weft_kv *kv, const uint8_t *key, size_t key_bytes, uint8_t *value, size_t capacity, size_t *value_bytes);

/* As weft_kv_get, as a transaction sees it.
   Caller: The handles are open; key has so many bytes, value room for capacity; value_bytes can be written. */
int weft_kv_get_in(const weft_kv *kv, weft_tx *tx, const uint8_t *key, size_t key_bytes, uint8_t *value, size_t capacity, size_t *value_bytes);

/* Copies a part of a key's value, from byte at on, and tells how many bytes it is: fewer than there is room for at the end, none behind it. A value of any size is read so by parts. It sees the last committed state.
   Caller: The handle is open; key has so many bytes, part room for capacity; part_bytes can be written. */
int weft_kv_get_part(const weft_kv *kv, const uint8_t *key, size_t key_bytes, uint64_t at, uint8_t *part, size_t capacity, size_t *part_bytes);

/* Writes behind the end of a key's value, which is made if there is none, as part of a transaction, or, when that is null, durably by itself. A value of any size is put in so by pieces.
   Caller: The handles are open; key and part have so many bytes. */
int weft_kv_append(const weft_kv *kv, weft_tx *tx, const uint8_t *key, size_t key_bytes, const uint8_t *part, size_t part_bytes);

/* Makes many changes together, as part of a transaction, or, when that is null, durably by themselves: all or none. found, unless null, gets how many of the keys had a value before.
   Caller: The handles are open; there are so many changes, whose keys and values have their bytes; found is null or can be written. */
int weft_kv_change_many(const weft_kv *kv, weft_tx *tx, const weft_kv_change *changes, size_t count, uint64_t *found);

/* Gives a key the value value, or takes it away where that is null, if its value is expected, where null stands for none. Durable by itself. swapped is 1, or 0 where the value is another.
   Caller: The handle is open; key, expected and value have so many bytes; swapped can be written. */
int weft_kv_compare_and_swap(const weft_kv *kv, const uint8_t *key, size_t key_bytes, const uint8_t *expected, size_t expected_bytes, const uint8_t *value, size_t value_bytes, uint32_t *swapped);

/* Begins to go through all pairs of a key-value store, as they are now. Others go on meanwhile. It ends with weft_kv_scan_end.
   Caller: The handle is open; out can be written. */
int weft_kv_scan_begin(const weft_kv *kv, weft_kv_scan **out);

/* The next pair of a scan; WEFT_ENOENT at the end. Copies as much of key and value as there is room for, and stores their sizes; a size that is not wanted is null.
   Caller: The scan is open, and no other thread uses it; the outs have room as said. */
int weft_kv_scan_next(weft_kv_scan *scan, uint8_t *key, size_t key_capacity, size_t *key_bytes, uint8_t *value, size_t value_capacity, size_t *value_bytes);

/* Ends a scan.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_kv_scan_end(weft_kv_scan *scan);

/* Takes a key away, as part of a transaction, or, when that is null, durably by itself; WEFT_ENOENT when it is not there.
   Caller: The handles are open; key has so many bytes. */
int weft_kv_delete(const weft_kv *kv, weft_tx *tx, const uint8_t *key, size_t key_bytes);

/* How many keys there are.
   Caller: The handle is open; out can be written. */
int weft_kv_count(const weft_kv *kv, uint64_t *out);

/* Opens the B+tree of this name in the first s-node, WEFT_BTREE_BYTES or WEFT_BTREE_FIXED; makes it if there is none.
   Caller: The handle is open; name is a string; out can be written. */
int weft_btree_open(const weft_tags *tags, const char *name, int form, weft_btree **out);

/* Closes a B+tree.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_btree_close(weft_btree *tree);

/* Gives a key a value, as part of a transaction, or, when that is null, durably by itself.
   Caller: The handles are open; key and value have so many bytes. */
int weft_btree_put(const weft_btree *tree, weft_tx *tx, const uint8_t *key, size_t key_bytes, const uint8_t *value, size_t value_bytes);

/* Copies the value of a key, as much as there is room for, and tells how many bytes it has; WEFT_ENOENT when the key is not there. It sees the last committed state.
   Caller: The handle is open; key has so many bytes, value room for capacity; value_bytes can be written. */
int weft_btree_get(const weft_btree *tree, const uint8_t *key, size_t key_bytes, uint8_t *value, size_t capacity, size_t *value_bytes);

/* Takes a key away, as part of a transaction, or, when that is null, durably by itself; WEFT_ENOENT when it is not there.
   Caller: The handles are open; key has so many bytes. */
int weft_btree_delete(const weft_btree *tree, weft_tx *tx, const uint8_t *key, size_t key_bytes);

/* The pair with the next greater key, or, when down is not 0, the next smaller one; WEFT_ENOENT at the end. A null key stands for the beginning, or the end. Copies as much of key and value as there is room for, and stores their sizes; a size that is not wanted is null. It sees the last committed state, so a loop stays valid while others change the tree.
   Caller: The handle is open; key is null or has so many bytes; the outs have room as said. */
int weft_btree_next(const weft_btree *tree, const uint8_t *key, size_t key_bytes, uint32_t down, uint8_t *next, size_t next_capacity, size_t *next_bytes, uint8_t *value, size_t value_capacity, size_t *value_bytes);

/* How many pairs there are.
   Caller: The handle is open; out can be written. */
int weft_btree_count(const weft_btree *tree, uint64_t *out);

/* Begins a snapshot: the last committed state, to be read while others commit, until weft_snapshot_end. What is changed meanwhile is copied; when that takes more than half of the cache the oldest snapshot is lost, and its reads say so.
   Caller: The handle is open; out can be written. */
int weft_snapshot_begin(const weft_tags *tags, weft_snapshot **out);

/* Ends a snapshot.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_snapshot_end(weft_snapshot *snapshot);

/* As weft_node_data, in a snapshot.
   Caller: The handle is open; data has room for capacity bytes; data_bytes can be written. */
int weft_node_data_at(const weft_snapshot *snapshot, uint64_t node, uint32_t kind, uint8_t *data, size_t capacity, size_t *data_bytes);

/* As weft_kv_get, in a snapshot.
   Caller: The handles are open; key has so many bytes, value room for capacity; value_bytes can be written. */
int weft_kv_get_at(const weft_kv *kv, const weft_snapshot *snapshot, const uint8_t *key, size_t key_bytes, uint8_t *value, size_t capacity, size_t *value_bytes);

/* As weft_kv_count, in a snapshot.
   Caller: The handles are open; out can be written. */
int weft_kv_count_at(const weft_kv *kv, const weft_snapshot *snapshot, uint64_t *out);

/* As weft_btree_get, in a snapshot.
   Caller: The handles are open; key has so many bytes, value room for capacity; value_bytes can be written. */
int weft_btree_get_at(const weft_btree *tree, const weft_snapshot *snapshot, const uint8_t *key, size_t key_bytes, uint8_t *value, size_t capacity, size_t *value_bytes);

/* As weft_btree_next, in a snapshot.
   Caller: The handles are open; key is null or has so many bytes; the outs have room as said. */
int weft_btree_next_at(const weft_btree *tree, const weft_snapshot *snapshot, const uint8_t *key, size_t key_bytes, uint32_t down, uint8_t *next, size_t next_capacity, size_t *next_bytes, uint8_t *value, size_t value_capacity, size_t *value_bytes);

/* As weft_btree_count, in a snapshot.
   Caller: The handles are open; out can be written. */
int weft_btree_count_at(const weft_btree *tree, const weft_snapshot *snapshot, uint64_t *out);

/* Opens a session of the store that is served at this path. Who the caller is, the kernel says.
   Caller: path is a string; out can be written. */
int weft_session_connect(const char *path, weft_session **out);

/* Ends a session; its transaction is aborted.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_session_close(weft_session *session);

/* The node that the session began at.
   Caller: The handle is open; out can be written. */
int weft_session_root(const weft_session *session, uint64_t *out);

/* Begins a transaction; a session has one at a time.
   Caller: The handle is open. */
int weft_session_begin(const weft_session *session);

/* Commits the transaction. WEFT_EAGAIN: somebody else has changed what it has read; run it again.
   Caller: The handle is open. */
int weft_session_commit(const weft_session *session);

/* Aborts the transaction.
   Caller: The handle is open. */
int weft_session_abort(const weft_session *session);

/* The edge type of this name, whose edges carry a number; registered if it is new and the caller may write at the root.
   Caller: The handle is open; name is a string; out can be written. */
int weft_session_edge_type(const weft_session *session, const char *name, uint32_t *out);

/* Makes a node in the s-node of another one, in the transaction.
   Caller: The handle is open; data has so many bytes; out can be written. */
int weft_session_create_node(const weft_session *session, uint64_t near, uint32_t kind, const uint8_t *data, size_t data_bytes, uint64_t *out);

/* Copies a part of a node's data, from byte at on: as much as there is room for, and less at the end. part_bytes tells how much.
   Caller: The handle is open; part has room for capacity bytes; part_bytes can be written. */
int weft_session_read_node(const weft_session *session, uint64_t node, uint32_t kind, uint64_t at, uint8_t *part, size_t capacity, size_t *part_bytes);

/* Gives a node new data, in the transaction.
   Caller: The handle is open; data has so many bytes. */
int weft_session_update_node(const weft_session *session, uint64_t node, uint32_t kind, const uint8_t *data, size_t data_bytes);

/* Writes into a node's data, in the transaction, from byte at on, which is not behind its end.
   Caller: The handle is open; part has so many bytes. */
int weft_session_write_node(const weft_session *session, uint64_t node, uint32_t kind, uint64_t at, const uint8_t *part, size_t part_bytes);

/* Deletes a node without edges, in the transaction.
   Caller: The handle is open. */
int weft_session_delete_node(const weft_session *session, uint64_t node, uint32_t kind);

/* Leads an edge to a node, or makes it, in the transaction. before, unless null, gets the node it led to, or 0.
   Caller: The handle is open; before is null or can be written. */
int weft_session_set_edge(const weft_session *session, uint64_t source, uint32_t edge_type, uint64_t info, uint64_t to, uint64_t *before);

/* Deletes an edge, in the transaction. to, unless null, gets the node it led to.
   Caller: The handle is open; to is null or can be written. */
int weft_session_delete_edge(const weft_session *session, uint64_t source, uint32_t edge_type, uint64_t info, uint64_t *to);

/* Where an edge leads; WEFT_ENOENT when there is none.
   Caller: The handle is open; out can be written. */
int weft_session_get_destination(const weft_session *session, uint64_t source, uint32_t edge_type, uint64_t info, uint64_t *out);

#ifdef __cplusplus
}
#endif

#endif
