/* Flash at three levels, tag stores and programs of file operations, for C. Made from the sources of the crate weft-capi; do not edit.
   Functions return 0 or a negative WEFT_E... code, unless they say otherwise.
   A signal handler does not call them: they allocate memory. One that comes in the middle of a function, and calls one in its thread all the same, is refused:
   WEFT_EBUSY with the errno EDEADLK. Nor does it leave a function by siglongjmp. */
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

/* There is no such grant, image, file or server, no monitor on the device, or no checkpoint of the policy level on the grant; or an operation of a chain has no such value. */
#define WEFT_ENOENT -6

/* There is such a grant or image, or somebody uses it or the device; or another transaction of this thread holds the s-node; or, with the errno EDEADLK, a signal handler that has interrupted a function of this library in its thread calls one. */
#define WEFT_EBUSY -7

/* Two transactions wait for each other, or another one has held the s-node for too long: abort this one and run it again. */
#define WEFT_EAGAIN -8

/* The caller has no permission for it. */
#define WEFT_EACCES -9

/* The grant holds data of another level, which this one would erase. */
#define WEFT_ELEVEL -10

/* An operation of a chain failed. weft_error_errno has its errno. */
#define WEFT_EFAILED -11

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

/* All changes of a chain are made in one step at its end, or, when an operation fails, none. */
#define WEFT_CHAIN_ALL 0

/* As WEFT_CHAIN_ALL, but a failure leaves the changes before the operation that failed. */
#define WEFT_CHAIN_PREFIX 1

/* Each change is made for itself. A failure leaves those before the operation that failed. */
#define WEFT_CHAIN_EACH 2

/* Equal. */
#define WEFT_IS_EQUAL 0

/* Not equal. */
#define WEFT_IS_NOT_EQUAL 1

/* Less. Bytes compare as memcmp does, a shorter value before a longer one that begins with it. */
#define WEFT_IS_LESS 2

/* Less or equal. */
#define WEFT_IS_LESS_OR_EQUAL 3

/* Greater. */
#define WEFT_IS_GREATER 4

/* Greater or equal. */
#define WEFT_IS_GREATER_OR_EQUAL 5

/* Bytes of the file. */
#define WEFT_FIELD_SIZE 0

/* Kind and permission bits, as in st_mode. */
#define WEFT_FIELD_MODE 1

/* Names. */
#define WEFT_FIELD_LINKS 2

/* Owner. */
#define WEFT_FIELD_UID 3

/* Group. */
#define WEFT_FIELD_GID 4

/* Last change of the data, in nanoseconds since 1970. */
#define WEFT_FIELD_MTIME_NS 5

/* Last change of the inode, in nanoseconds since 1970. */
#define WEFT_FIELD_CTIME_NS 6

/* Where weft_chain_find finds nothing. */
#define WEFT_NOT_FOUND 0xffffffffffffffff

/* Addition. */
#define WEFT_ADD 0

/* Subtraction. */
#define WEFT_SUB 1

/* Multiplication. */
#define WEFT_MUL 2

/* Division, rounded down. */
#define WEFT_DIV 3

/* The remainder of a division. */
#define WEFT_REM 4

/* The smaller one. */
#define WEFT_MIN 5

/* The larger one. */
#define WEFT_MAX 6

/* LZ4 frames, as the command lz4 reads them. Its level is 0. */
#define WEFT_LZ4 0

/* One LZ4 block, which tells neither its size nor whether it is whole. Its level is 0. */
#define WEFT_LZ4_BLOCK 1

/* Zstandard frames, as the command zstd reads them. Levels are 1 to 9, and 0 for its usual one. */
#define WEFT_ZSTD 2

/* The operation was done. */
#define WEFT_DONE 0

/* The operation was skipped: its comparison did not hold, it uses the value of one that was skipped, or it comes behind the one that failed. */
#define WEFT_SKIPPED 1

/* The operation failed. */
#define WEFT_FAILED 2

/* As the offset of weft_write_checksum: the end of the file. */
#define WEFT_END 0xffffffffffffffff

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

/* A connection to the server of a volume. */
typedef struct weft_files weft_files;

/* An open file of a connection. */
typedef struct weft_file {
    /* The connection. */
    uint64_t files;
    /* The file. */
    uint64_t file;
} weft_file;

/* The value of an operation of a chain. Later operations of the same chain take it, and the answer is asked by it. All zero: none. */
typedef struct weft_value {
    /* The chain. */
    uint64_t chain;
    /* The place of the operation in the chain, from 1. */
    uint32_t operation;
} weft_value;

/* A number: weft_num makes one, weft_num_of takes it from an operation. */
typedef struct weft_number {
    /* The number, unless it is taken from an operation. */
    uint64_t number;
    /* The operation that gives it, or none. */
    weft_value of;
} weft_number;

/* Bytes: weft_data and weft_text make some, weft_data_of takes them from an operation. A function that adds an operation copies them. */
typedef struct weft_bytes {
    /* The bytes, unless they are taken from an operation. */
    const uint8_t *data;
    /* How many. */
    size_t data_bytes;
    /* The operation that gives them, or none. */
    weft_value of;
} weft_bytes;

/* A path: weft_at, weft_at_bytes and weft_below make one. */
typedef struct weft_path {
    /* The operation that opened the directory in which the path begins; none: it begins at the root of the volume. */
    weft_value dir;
    /* The path. */
    weft_bytes path;
} weft_path;

/* A chain: a program of at most 64 file operations. */
typedef struct weft_chain weft_chain;

/* What comes with a run of a chain: the value of weft_chain_input_number or weft_chain_input_bytes with the number that is its place. */
typedef struct weft_input {
    /* The number, where the chain takes one. */
    uint64_t number;
    /* The bytes, where the chain takes bytes. They stay where they are until the run has ended or, in a batch, until they are added. */
    const uint8_t *data;
    /* How many. */
    size_t data_bytes;
} weft_input;

/* Runs of chains that one request makes. */
typedef struct weft_batch weft_batch;

/* What became of a chain that has run. */
typedef struct weft_answer weft_answer;

/* Attributes of a file. Those of a file that the chain has changed before have its new size, owner, mode and links, but the times and the blocks of before. */
typedef struct weft_attributes {
    /* The inode's number. */
    uint64_t ino;
    /* Bytes. */
    uint64_t size;
    /* Units of 512 bytes that its data occupies. */
    uint64_t blocks;
    /* Kind and permission bits, as in st_mode. */
    uint32_t mode;
    /* Names. */
    uint32_t links;
    /* Owner. */
    uint32_t uid;
    /* Group. */
    uint32_t gid;
    /* Last access, in nanoseconds since 1970. */
    int64_t atime_ns;
    /* Last change of the data, in nanoseconds since 1970. */
    int64_t mtime_ns;
    /* Last change of the inode, in nanoseconds since 1970. */
    int64_t ctime_ns;
} weft_attributes;

/* The text of the calling thread's last error; empty when there was none. Valid until the thread's next error. */
const char *weft_error_message(void);

/* The errno of the calling thread's last error when it is one of files: of the operation that failed, or of the call. 0 when the last error was another one, and when there was none. */
int weft_error_errno(void);

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

/* Opens a tag store in a file. It is open in one process at a time: WEFT_EBUSY while another has it. A forked child does not use what its parent has open: calls that change or close it fail there (WEFT_EIO), and the file stays in use until the child has ended, too.
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

/* Connects to the server of a volume ('weft serve', 'weft run', 'weft mount') at its socket. When socket is null, at the socket in the environment variable WEFT_SOCKET, which programs under 'weft run' have. mount_point is where the volume appears: absolute symlinks below it stay on the volume. Null: what WEFT_AT says, or /weft. The connection keeps the rights that the process has now: after setuid, setgid or setgroups, connect again. A forked child connects for itself: calls with its parent's connection fail there, WEFT_EIO with the errno EIO, and its parent's connection does not end before the child has closed its copy, has executed a program, or has ended.
   Caller: socket and mount_point are null or strings; out can be written. */
int weft_files_connect(const char *socket, const char *mount_point, weft_files **out);

/* Ends a connection, and closes the files that it has opened. Runs that are posted and that the server has not begun are not made, as when the process ends. A forked child ends only what it has of its parent's connection, which goes on.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_files_close(weft_files *files);

/* Opens a file, to be given with chains. path begins at the root of the volume; flags are those of open(2); a file that is made has the permission bits mode, from which no umask is taken.
   Caller: The handle is open; path is a string; out can be written. */
int weft_file_open(const weft_files *files, const char *path, int flags, uint32_t mode, weft_file *out);

/* Closes a file.
   Caller: The handle is open. */
int weft_file_close(const weft_files *files, weft_file file);

/* A number. Like the other functions that make an argument, it cannot fail: what is wrong with it, the function says that takes it. */
weft_number weft_num(uint64_t number);

/* The number that an operation gives. */
weft_number weft_num_of(weft_value value);

/* Bytes. They stay where they are until they are passed to a function that adds an operation. */
weft_bytes weft_data(const uint8_t *data, size_t data_bytes);

/* The bytes that an operation gives. */
weft_bytes weft_data_of(weft_value value);

/* The path that these bytes hold, from the root of the volume. */
weft_path weft_at_bytes(weft_bytes path);

/* The path that these bytes hold, from an open directory, unless it begins with a slash. */
weft_path weft_below(weft_value dir, weft_bytes path);

/* The bytes of a string, without the zero byte at its end.
   Caller: text is null or a string. */
weft_bytes weft_text(const char *text);

/* A path from the root of the volume.
   Caller: path is null or a string. */
weft_path weft_at(const char *path);

/* Makes an empty chain: WEFT_CHAIN_ALL, WEFT_CHAIN_PREFIX or WEFT_CHAIN_EACH says what a failure leaves of it. The functions weft_chain_... add operations to it, which are done in this order. They return the value of the operation, or none (all zero) when an argument is wrong. Such a chain does not run: weft_chain_check and weft_chain_run return the code of the first error.
   Caller: out can be written. */
int weft_chain_new(uint32_t policy, weft_chain **out);

/* Frees a chain. Answers of it may live on.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_chain_free(weft_chain *chain);

/* The changes of the chain survive a power cut when it has run.
   Caller: The handle is open. */
int weft_chain_durable(weft_chain *chain);

/* The next operation is done only when this comparison (WEFT_IS_...) of numbers holds. Otherwise it is skipped, and so is every operation that uses its value.
   Caller: The handle is open. */
int weft_chain_when_numbers(weft_chain *chain, weft_number left, uint32_t compare, weft_number right);

/* As weft_chain_when_numbers, with bytes.
   Caller: The handle is open; the bytes are there. */
int weft_chain_when_bytes(weft_chain *chain, weft_bytes left, uint32_t compare, weft_bytes right);

/* The chain fails with ECANCELED unless this comparison (WEFT_IS_...) of numbers holds.
   Caller: The handle is open. */
weft_value weft_chain_expect_numbers(weft_chain *chain, weft_number left, uint32_t compare, weft_number right);

/* The chain fails with ECANCELED unless this comparison (WEFT_IS_...) of bytes holds.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_expect_bytes(weft_chain *chain, weft_bytes left, uint32_t compare, weft_bytes right);

/* The answer has this value. Without it, the answer has only what became of the operation. Files cannot be exported.
   Caller: The handle is open. */
int weft_chain_export(weft_chain *chain, weft_value value);

/* Checks a chain: that each value is of the type that the operation needs, that no file is used after it is closed, and that the chain keeps to the limits. A checked chain does not change any more, and runs as often as it is wanted, by several threads at once too.
   Caller: The handle is open. */
int weft_chain_check(weft_chain *chain);

/* Has the server run a chain, and checks it before if that was not done. The chain uses the open files given by weft_chain_given. out, unless null, gets the answer, which ends with weft_answer_free, or null when the server did not run the chain. WEFT_EFAILED: an operation failed; weft_answer_failed says which one. WEFT_EIO with the errno EIO: the server ended meanwhile, and the chain was run or was not. The limit on the size of files (ulimit -f) does not apply to chains.
   Caller: The handles are open; given has given_count files; out is null or can be written. */
int weft_chain_run(const weft_files *files, weft_chain *chain, const weft_file *given, size_t given_count, weft_answer **out);

/* The same through a mount ('weft mount'), without a connection: descriptor is an open file or directory there. Paths begin in the directory, those with a slash in front too, and lead nowhere else. The file 0 of weft_chain_given is the open file itself. The umask of the process is taken from permission bits. WEFT_EIO with an errno: ENOTTY, it is on no mount of a volume; EOPNOTSUPP, the mount has the option writeback; EROFS, it is read-only and the chain changes something; EAGAIN, too many chains wait; EINTR, a signal came before the chain had begun.
   Caller: The handle is open; out is null or can be written. */
int weft_chain_run_at(int descriptor, weft_chain *chain, weft_answer **out);

/* A number that comes with each run of the chain: the input at this place, from 0. The value is a number. Fails with EINVAL when the run has none there.
   Caller: The handle is open. */
weft_value weft_chain_input_number(weft_chain *chain, uint32_t place);

/* Bytes that come with each run of the chain: the input at this place, from 0. The value is bytes. Fails with EINVAL when the run has none there.
   Caller: The handle is open. */
weft_value weft_chain_input_bytes(weft_chain *chain, uint32_t place);

/* As weft_chain_run, with inputs, at most 64 and about 256 KiB. The server keeps the chain, so that later runs send only the inputs.
   Caller: The handles are open; given has given_count files, inputs has input_count inputs whose bytes are there; out is null or can be written. */
int weft_chain_run_with(const weft_files *files, weft_chain *chain, const weft_file *given, size_t given_count, const weft_input *inputs, size_t input_count, weft_answer **out);

/* Makes an empty batch: up to 64 runs of chains, which one request makes in their order. Other programs may come between two of them.
   Caller: The connection is open, and stays so as long as the batch; out can be written. */
int weft_batch_new(const weft_files *files, weft_batch **out);

/* Frees a batch, and the answers that nobody has taken.
   Caller: The handle is null or open, and no call on it is under way. */
void weft_batch_free(weft_batch *batch);

/* Adds a run of a chain, which is checked before if that was not done. The inputs are copied. WEFT_EINVAL: 64 runs are there already.
   Caller: The handles are open; given has given_count files, inputs has input_count inputs whose bytes are there. */
int weft_batch_add(weft_batch *batch, weft_chain *chain, const weft_file *given, size_t given_count, const weft_input *inputs, size_t input_count);

/* Makes all runs of a batch, which is empty then. Their answers are taken one after the other by weft_batch_take; what nobody has taken before is gone. A run that fails leaves those behind it. WEFT_EINVAL: the runs take more than about 256 KiB together, a file is not open, or more; nothing was run. WEFT_EIO with the errno EIO: the server ended meanwhile, and some were run or were not.
   Caller: The handle is open. */
int weft_batch_run(weft_batch *batch);

/* Has the server make all runs of a batch, as weft_batch_run does, and returns meanwhile. The runs of two posted batches go on at the same time. A posted batch that is freed goes on as long as the connection is open, and nobody hears how it ended: what the server has not begun when the connection is closed, or the process ends, is not made. WEFT_EINVAL, also: it is posted already.
   Caller: The handle is open. */
int weft_batch_post(weft_batch *batch);

/* Waits for the runs of a posted batch. Their answers are taken by weft_batch_take then. WEFT_EINVAL: the batch is not posted. Otherwise it fails as weft_batch_run does; in a child of the process that has posted it, WEFT_EIO with the errno EIO.
   Caller: The handle is open. */
int weft_batch_wait(weft_batch *batch);

/* Whether weft_batch_wait returns at once: 1 or 0, also 1 for a batch that is not posted.
   Caller: The handle is open; is_done can be written. */
int weft_batch_is_done(const weft_batch *batch, uint32_t *is_done);

/* Takes the answer to the next run of the batch, in the order in which they were added. WEFT_EFAILED: an operation of that run failed; out has its answer all the same. WEFT_EINVAL: there is none left.
   Caller: The handle is open; out is null or can be written. */
int weft_batch_take(weft_batch *batch, weft_answer **out);

/* Opens a file or directory. flags are O_RDONLY, O_WRONLY, O_RDWR, or O_PATH for attributes and for paths that begin there; with O_NOFOLLOW, a symlink at the end of the path fails with ELOOP. The value is a file.
   Caller: The handle is open; the path is there. */
weft_value weft_chain_open(weft_chain *chain, weft_path path, int flags);

/* Makes an empty file with the permission bits mode, from which no umask is taken, and opens it for reading and writing. When there is such a file, the operation opens it, or with the flag O_EXCL fails with EEXIST. The value is a file.
   Caller: The handle is open; the path is there. */
weft_value weft_chain_create(weft_chain *chain, weft_path path, int flags, uint32_t mode);

/* The open file with this number, from 0, among those that weft_chain_run is given. The value is a file, open for what it was opened for. Fails with EBADF when there is none.
   Caller: The handle is open. */
weft_value weft_chain_given(weft_chain *chain, uint32_t number);

/* Ends the use of a file: no later operation may use it. The end of the chain does so with all files. A file that was given stays open for the caller.
   Caller: The handle is open. */
weft_value weft_chain_close(weft_chain *chain, weft_value file);

/* Reads the attributes of a file. The value is attributes.
   Caller: The handle is open. */
weft_value weft_chain_stat(weft_chain *chain, weft_value file);

/* One of the attributes (WEFT_FIELD_...). The value is a number.
   Caller: The handle is open. */
weft_value weft_chain_field(weft_chain *chain, weft_value attributes, uint32_t field);

/* Reads at most len bytes; fewer at the end of the file. The value is bytes.
   Caller: The handle is open. */
weft_value weft_chain_read(weft_chain *chain, weft_value file, weft_number offset, weft_number len);

/* Writes at an offset. The value is the offset, a number.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_write(weft_chain *chain, weft_value file, weft_number offset, weft_bytes data);

/* Writes at the end of the file. The value is the offset where that was, a number.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_append(weft_chain *chain, weft_value file, weft_bytes data);

/* Sets the size of a file in bytes. New bytes are zeros.
   Caller: The handle is open. */
weft_value weft_chain_truncate(weft_chain *chain, weft_value file, weft_number size);

/* Allocates space. mode is that of fallocate(2): 0, FALLOC_FL_KEEP_SIZE, or FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE with FALLOC_FL_KEEP_SIZE or alone.
   Caller: The handle is open. */
weft_value weft_chain_fallocate(weft_chain *chain, weft_value file, int mode, weft_number offset, weft_number len);

/* Makes a directory with the permission bits mode, from which no umask is taken.
   Caller: The handle is open; the path is there. */
weft_value weft_chain_mkdir(weft_chain *chain, weft_path path, uint32_t mode);

/* Makes a symlink at path that holds target.
   Caller: The handle is open; target and path are there. */
weft_value weft_chain_symlink(weft_chain *chain, weft_bytes target, weft_path path);

/* Gives a file one more name. A symlink at the end of path is not followed.
   Caller: The handle is open; both paths are there. */
weft_value weft_chain_link(weft_chain *chain, weft_path path, weft_path new_path);

/* Renames a file, and replaces what has the new name. flags are those of renameat2(2): 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
   Caller: The handle is open; both paths are there. */
weft_value weft_chain_rename(weft_chain *chain, weft_path path, weft_path new_path, uint32_t flags);

/* Removes a name that is not a directory's.
   Caller: The handle is open; the path is there. */
weft_value weft_chain_unlink(weft_chain *chain, weft_path path);

/* Removes an empty directory.
   Caller: The handle is open; the path is there. */
weft_value weft_chain_rmdir(weft_chain *chain, weft_path path);

/* Reads an extended attribute in the namespace user: its name begins with "user.". The value is bytes.
   Caller: The handle is open; name is a string. */
weft_value weft_chain_get_xattr(weft_chain *chain, weft_value file, const char *name);

/* Sets an extended attribute in the namespace user. flags are those of setxattr(2): 0, XATTR_CREATE or XATTR_REPLACE.
   Caller: The handle is open; name is a string; the bytes are there. */
weft_value weft_chain_set_xattr(weft_chain *chain, weft_value file, const char *name, weft_bytes value, int flags);

/* Removes an extended attribute in the namespace user.
   Caller: The handle is open; name is a string. */
weft_value weft_chain_remove_xattr(weft_chain *chain, weft_value file, const char *name);

/* Makes a file and all names so far survive a power cut. Of a WEFT_CHAIN_ALL or WEFT_CHAIN_PREFIX, the step at the end does so for all changes.
   Caller: The handle is open. */
weft_value weft_chain_sync(weft_chain *chain, weft_value file);

/* A part of bytes. The value is bytes. Fails with ERANGE unless all of it is there.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_slice(weft_chain *chain, weft_bytes bytes, weft_number from, weft_number len);

/* Bytes, one behind the other; at most 255 parts. The value is bytes.
   Caller: The handle is open; there are count parts, whose bytes are there. */
weft_value weft_chain_concat(weft_chain *chain, const weft_bytes *parts, size_t count);

/* The number of bytes. The value is a number.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_len(weft_chain *chain, weft_bytes bytes);

/* A number in width (1 to 8) little-endian bytes. The value is bytes. Fails with EOVERFLOW when they do not hold it.
   Caller: The handle is open. */
weft_value weft_chain_pack(weft_chain *chain, weft_number number, uint32_t width);

/* The number in width (1 to 8) little-endian bytes. The value is a number. Fails with ERANGE unless all of them are there.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_unpack(weft_chain *chain, weft_bytes bytes, weft_number from, uint32_t width);

/* Of two numbers another one (WEFT_ADD, ...). The value is a number. Fails with EOVERFLOW when it does not fit into 64 bits, is below 0, or divides by 0.
   Caller: The handle is open. */
weft_value weft_chain_arith(weft_chain *chain, weft_number left, uint32_t arith, weft_number right);

/* The first offset, not before from, at which bytes have what, or WEFT_NOT_FOUND. The value is a number.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_find(weft_chain *chain, weft_bytes bytes, weft_bytes what, weft_number from);

/* base with with in place of as many bytes at offset at. The value is bytes. Fails with ERANGE when with goes beyond the end.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_patch(weft_chain *chain, weft_bytes base, weft_number at, weft_bytes with);

/* The CRC32C (Castagnoli) of bytes. The value is a number.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_crc32c(weft_chain *chain, weft_bytes bytes);

/* The chain fails with EBADMSG unless the bytes have this CRC32C.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_verify(weft_chain *chain, weft_bytes bytes, weft_number crc);

/* Bytes, compressed (WEFT_LZ4, ...), with level 0 in the codec's usual way. The value is bytes. Fails with EINVAL when the codec has no such level.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_compress(weft_chain *chain, weft_bytes bytes, uint32_t codec, int level);

/* Bytes, decompressed to at most max bytes. The value is bytes. Fails with EBADMSG when they are damaged, and with EMSGSIZE when they would become more.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_decompress(weft_chain *chain, weft_bytes bytes, uint32_t codec, weft_number max);

/* What a function makes of input, for at most fuel units: that of a WebAssembly module, which the bytes module are. The value is bytes. The server runs it; docs/how-to/compound-operations.md says what a module has to be and how it fails.
   Caller: The handle is open; the bytes are there. */
weft_value weft_chain_call(weft_chain *chain, weft_bytes module, weft_bytes input, weft_number fuel);

/* Frees an answer, and the bytes that it has lent.
   Caller: The handle is null or open. */
void weft_answer_free(weft_answer *answer);

/* What became of an operation: WEFT_DONE, WEFT_SKIPPED or WEFT_FAILED. error, unless null, gets its errno, which is 0 unless it failed.
   Caller: The handle is open; outcome can be written; error is null or can be written. */
int weft_answer_outcome(const weft_answer *answer, weft_value operation, uint32_t *outcome, int *error);

/* The operation that failed, and its errno; both are 0 when none did. error is null when it is not wanted.
   Caller: The handle is open; operation can be written; error is null or can be written. */
int weft_answer_failed(const weft_answer *answer, weft_value *operation, int *error);

/* The bytes that an operation gave. They belong to the answer, and are there until it is freed. WEFT_ENOENT: the operation was not done, or its value was not exported.
   Caller: The handle is open; data and data_bytes can be written. */
int weft_answer_bytes(const weft_answer *answer, weft_value operation, const uint8_t **data, size_t *data_bytes);

/* The number that an operation gave. WEFT_ENOENT: the operation was not done, or its value was not exported.
   Caller: The handle is open; number can be written. */
int weft_answer_number(const weft_answer *answer, weft_value operation, uint64_t *number);

/* The attributes that an operation gave. WEFT_ENOENT: the operation was not done, or its value was not exported.
   Caller: The handle is open; attributes can be written. */
int weft_answer_attributes(const weft_answer *answer, weft_value operation, weft_attributes *attributes);

/* Opens a file and reads at most capacity bytes of it; fewer at its end. read_bytes gets how many. More than 4 MiB in one call fail with EMSGSIZE. When an operation fails, this and the other calls for whole chains return WEFT_EFAILED, weft_error_errno has the errno, and nothing has changed.
   Caller: The handle is open; path is a string; data has room for capacity bytes; read_bytes can be written. */
int weft_open_read(const weft_files *files, const char *path, uint64_t offset, uint8_t *data, size_t capacity, size_t *read_bytes);

/* Opens a file, or makes it with the permission bits mode, from which no umask is taken, and writes to it: all of it, or nothing is made or changed. When durable is not 0, it survives a power cut.
   Caller: The handle is open; path is a string; data has so many bytes. */
int weft_open_write(const weft_files *files, const char *path, uint32_t mode, uint64_t offset, const uint8_t *data, size_t data_bytes, uint32_t durable);

/* Writes to an open file, and closes it. A file that could not be written to stays open. When durable is not 0, the write survives a power cut.
   Caller: The handle is open; data has so many bytes. */
int weft_write_close(const weft_files *files, weft_file file, uint64_t offset, const uint8_t *data, size_t data_bytes, uint32_t durable);

/* Replaces a part of a block of an open file: reads the block of block_bytes at offset, puts data into it from its byte at on, and writes it back. Nobody writes to the file in between. block, unless null, gets what the block was before, with zeros behind the end of the file. Fails with ERANGE when the file ends before the part does.
   Caller: The handle is open; block is null or has room for block_bytes; data has so many bytes. */
int weft_read_modify_write(const weft_files *files, weft_file file, uint64_t offset, uint8_t *block, size_t block_bytes, uint64_t at, const uint8_t *data, size_t data_bytes, uint32_t durable);

/* Writes data with its checksum to an open file, at an offset or at its end (WEFT_END). The server computes the checksum, the CRC32C of the data, and writes it behind the data in four little-endian bytes. at, unless null, gets the offset of the data.
   Caller: The handle is open; data has so many bytes; at is null or can be written. */
int weft_write_checksum(const weft_files *files, weft_file file, uint64_t offset, const uint8_t *data, size_t data_bytes, uint32_t durable, uint64_t *at);

/* Compresses data (WEFT_LZ4, ...; with level 0 in the codec's usual way), and writes that to an open file, at an offset or at its end (WEFT_END). at, unless null, gets the offset, and written_bytes, unless null, how many bytes there are.
   Caller: The handle is open; data has so many bytes; at and written_bytes are null or can be written. */
int weft_compress_write(const weft_files *files, weft_file file, uint64_t offset, const uint8_t *data, size_t data_bytes, uint32_t codec, int level, uint32_t durable, uint64_t *at, uint64_t *written_bytes);

/* Reads data that weft_write_checksum wrote to an open file. When the checksum is another one, it fails with EBADMSG, and when the file ends before, with ERANGE; data is as it was then.
   Caller: The handle is open; data has room for data_bytes. */
int weft_read_checksum(const weft_files *files, weft_file file, uint64_t offset, uint8_t *data, size_t data_bytes);

#ifdef __cplusplus
}
#endif

#endif
