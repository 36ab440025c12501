//! The NAND model page by page, and its open-channel presentation: physical addresses, no mapping, no zones.
//!
//! ```text
//!  device -- channel 0 --+-- LUN 0 --+-- plane 0 --+-- block 0: page 0, 1, 2, ... each with its out-of-band bytes
//!         -- channel 1   +-- LUN 1   +-- plane 1   +-- block 1
//! ```
//!
//! [`OpenChannel`] carries out page reads, page programs and block erases, single, on several planes of a LUN at once,
//! or as vectors over the whole device. It keeps the rules of flash and refuses what breaks them, each rule with an
//! error of its own ([`FlashError`]), and counts the refusals ([`FlashCounters`]):
//!
//! - the pages of a block are programmed in order, each once between two erases;
//! - only programmed pages can be read;
//! - bad blocks, from the factory or grown, take no programs and no erases.
//!
//! A command that returned is carried out. There is no write buffer here: what was programmed survives a power cut,
//! and a cut in the middle of a command leaves a torn page or a half-erased block
//! ([`cut_after`](OpenChannel::cut_after)).
//!
//! A device lives in memory ([`memory`](OpenChannel::memory)), where it can be copied cheaply
//! ([`fork`](OpenChannel::fork)), or in a sparse image file ([`create`](OpenChannel::create),
//! [`open`](OpenChannel::open)).
//!
//! **Time.** Each command is given the moment at which it is issued and says when it is over ([`Done`]). A LUN carries
//! out one operation at a time, in the order of the calls; a channel carries one transfer at a time, in the first gap
//! from the moment when the transfer is ready. All of it is integer arithmetic on nanoseconds of virtual time:
//!
//! ```text
//!  read     start = max(issued, LUN free)   sensed = start + page_read_ns   done = LUN free = end of the transfer
//!  program  start = max(issued, LUN free)   taken = end of the transfer     done = LUN free = taken + program_ns
//!  erase    start = max(issued, LUN free)                                   done = LUN free = start + erase_ns
//! ```
//!
//! A transfer takes `bytes x 10^9 / channel_bytes_per_s` nanoseconds, rounded down; bytes are those of the data and of
//! the out-of-band bytes that are moved. On several planes at once the array works once, and the pages are transferred
//! one after the other.
//!
//! **Concurrency.** The state of each LUN has a lock of its own and so has each channel; a thread holds one LUN's lock
//! and, inside it, that of the LUN's channel, never two LUNs. Commands on different
//! LUNs do not wait for each other. With one thread the result is the same on every machine.
//!
//! ```
//! # use weft_core::Nanos;
//! # use weft_device::nand::{BlockAddr, FlashError, FlashSetup, OpenChannel};
//! # use weft_device::Geometry;
//! let setup = FlashSetup::new(Geometry::bbssd().with_size(64 << 20));
//! let device = OpenChannel::memory(&setup)?;
//! let block = BlockAddr { channel: 0, lun: 0, plane: 0, block: 0 };
//! let issued = Nanos(0);
//! let done = device.program(issued, block.page(0), &[7; 4096], b"lpn 12")?;
//! let (mut data, mut oob) = ([0; 4096], [0; 6]);
//! device.read(done.done, block.page(0), 0, &mut data, &mut oob)?;
//! assert_eq!((data[4095], &oob), (7, b"lpn 12"));
//! let refused = device.program(issued, block.page(0), &[8; 4096], b"");
//! assert!(matches!(refused, Err(FlashError::AlreadyProgrammed { .. })));
//! device.verify_identity()?;
//! # Ok::<(), FlashError>(())
//! ```

mod address;
mod bit_errors;
mod block;
mod command;
mod contents;
mod counters;
mod device;
mod error;
mod image;
mod lun;
mod operate;
mod power;
mod setup;
mod syncs;
mod vector;

pub use address::{BlockAddr, FlashShape, LunAddr, PageAddr};
pub use bit_errors::BitErrors;
pub use block::{BlockInfo, BlockState};
pub use command::{Done, PageProgram, PageRead};
pub use counters::FlashCounters;
pub use device::OpenChannel;
pub use error::{FlashError, Refusal, Unreadable};
pub(crate) use image::{Annex, FlashImage};
pub use lun::Fault;
pub(crate) use lun::ISSUED_MAX_NS;
pub use setup::{FlashSetup, Keep, PageTimes, Pairing};
pub use vector::VECTOR_MAX;
