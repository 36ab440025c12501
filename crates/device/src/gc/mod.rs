//! Garbage collection apart from any device: which block to clean, and a page map that cleans.
//!
//! [`Victims`] answers which of the closed blocks to clean next, by [`VictimPolicy`], in constant or logarithmic time.
//! [`PageMapper`] maps logical pages to slots of blocks, out of place, and cleans when free blocks run short; what a
//! slot physically is, and how long things take, is the business of the [`Media`] that it is given. The translation
//! layer inside a modelled drive is built on both, and so is that of a program that manages flash itself.
//!
//! [`waf`] computes the theoretical write amplification; tests compare it with the measured one.

mod mapper;
mod media;
mod victim;
pub mod waf;

pub(crate) use mapper::div_rem;
pub use mapper::{MapperCounts, PageMapper};
pub use media::{COPY_BATCH, GcError, MapperSetup, Media, Outcome, RestoredBlock};
pub use victim::{ClosedBlock, VictimPolicy, Victims};
