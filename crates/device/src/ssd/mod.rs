//! An ordinary SSD: logical blocks, with a translation layer inside. It has two presentations.
//!
//! **Conventional**: blocks of 4 KiB are written anywhere; the drive maps them to flash, out of place, and cleans.
//! **FDP** (NVMe Flexible Data Placement): the same, but each write may name a placement handle. What is written through
//! one handle fills reclaim units of its own, and the drive reports what reached the flash, so that a program that
//! separates its data by lifetime sees what it wins.
//!
//! ```text
//!  logical block --map--> slot of a reclaim unit            reclaim unit: one erase block in every plane of n LUNs
//!
//!    unit 0 [ pages of LUN 0, all planes ]   unit 1 [ LUN 1 ]  ...  unit n [ LUN 0 ]      slots are filled in this order
//! ```
//!
//! The map and the cleaning are [`gc::PageMapper`](crate::gc::PageMapper), the flash is
//! [`nand::OpenChannel`](crate::nand::OpenChannel): every byte that the drive programs is programmed there, and takes
//! there the time that it takes. Pages are sensed once for all blocks that are wanted of them. Bad blocks are replaced
//! by spare blocks of the same plane, as long as there are some.
//!
//! Blocks wait in the drive's write buffer until a program unit (one page in every plane of a LUN) is full; the buffer
//! has capacitors, as in data-centre drives, so a write is durable when it is complete. A write is complete when its
//! blocks are in the drive and every program unit that it filled has gone over its channel to a LUN that was free to
//! take it.
//!
//! A drive lives in memory ([`new`](Ssd::new)) or in an image file ([`create`](Ssd::create), [`open`](Ssd::open)). In an
//! image, the memory behind the capacitors lies beside the flash: the write buffer, what each slot of the flash holds, and
//! what was counted. After a loss of power the drive finds its map by that, and reads no flash for it.
//!
//! One lock guards the drive. With one thread the result is the same on every machine.

mod commands;
mod error;
mod evacuate;
mod fdp;
mod media;
mod protected;
mod recover;
mod setup;

pub use commands::Ssd;
pub use error::SsdError;
pub use fdp::{EVENTS_MAX, FdpEvent, FdpStatistics, HandleUsage};
pub use setup::{Isolation, SsdSetup};
