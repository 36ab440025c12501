//! A device with processors of its own, in virtual time: who runs next on them, and what off-loading to them gains.
//!
//! [`run`] plays the operations of [`Tenant`]s on a [`Machine`] under a [`Scheduler`](weft_vfs::compound::schedule::Scheduler), the same code
//! that a server calls. An [`Operation`] is a row of [`Step`]s: on a host processor, or on a device processor behind the link.
//!
//! ```text
//!   tenant --issue--> host step: host processors, first come first served
//!                     device step: link, scheduler, device processor at its slowdown, link
//!                     ... next step ...                        --> answered: latency is from issue to here
//! ```
//!
//! The [`Outcome`] counts processor time from what ran, not from what the scheduler believes. Results are the same on every machine.
//! The machine of CompoundFS (HotStorage 2020) is [`Machine::paper`]: slow processors behind a link of 900 ns.
//!
//! What is not modelled: locks of inodes, the medium, caches, and contention on the link.

mod costs;
pub mod experiments;
mod host;
mod machine;
mod meter;
mod run;
mod scheduling;
mod tenant;
mod trace;

pub use costs::{
    Costs, LZ4_NS_PER_KIB, LZ4_PERCENT, MEASURED, NAMES_NS, REQUEST_NS, SYSCALL_NS, ZSTD_NS_PER_KIB,
};
pub use machine::{Machine, SetupError};
pub use meter::{Outcome, Served, WINDOWS};
pub use run::{Setup, run};
pub use scheduling::Scheduling;
pub use tenant::{Load, Operation, Phase, Step, Tenant};
pub use trace::Trace;
