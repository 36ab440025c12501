//! Memory that the server and its clients share: the layouts, and who may touch what.
//!
//! ```text
//!  control memfd (rw)   | volume page | open files (64 B each) | inodes (256 B each) | kick bitmap | record locks |
//!  map memfd     (ro)   pages of 4 KiB: directories (1,024 x u32), chunks (512 x MapEntry), copies, listings
//!  crc memfd     (ro)   one CRC32C per device block
//!  ring memfd    (rw)   append rings and overwrite areas, RING_BYTES each
//!  image fd      (ro)   the device's data area
//!  append log fd (rw)   the image, for entries of its append log
//!  names memfd   (ro)   names and attributes that the server has looked up lately
//!  channel memfd (rw)   one per client process: call slots, latency histograms
//! ```
//!
//! Only clients that run as the server's user (or root) get the first seven: whoever can map the image can read every
//! file on it. Others do everything through their channel. The server keeps its own copy of everything it relies on
//! (ring heads, slots, references) and treats what it reads from shared memory as a hint to be validated.
//!
//! **Ordering.** `Inode::seq` is a sequence lock over the block map: odd while the server changes it. A reader takes
//! `seq` (acquire), the entries, the data, then `seq` again; a change means that the place may have been erased, and it
//! reads again. `Inode::size` is stored with release after the bytes are in the ring, `Inode::head` with release after
//! the map shows the bytes on the device: a reader that loads `head` before the map sees every byte in one of the two.

pub mod channel;
pub mod listing;
pub mod lock;
pub mod names;
pub mod overwrites;
pub mod pages;
pub mod queue;
pub mod records;
pub mod turn;
pub mod volume;

/// Version of every layout in this module and of the protocol; both sides must have the same.
pub const VERSION: u32 = 28;
