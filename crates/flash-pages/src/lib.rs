//! The medium of a tag store on flash.
//!
//! ```text
//!  tag store          pages of nodes and edges | checkpoints | journal          [weft_tags::Store]
//!                       write(block, tag)   free(blocks)   sync                 [weft_tags::PageStore]
//!  ------------------------------------------------------------------------
//!  this crate         blocks on a range of the policy level                     [PolicyPages]
//!                     blocks on log blocks of the function level                [FunctionPages]
//!  levels of flash    streams, cleaning, wear                                   [weft_flash]
//! ```
//!
//! What the store knows of its data reaches the flash. Each page has its tag (owner, class, flags) in its out-of-band bytes, and is written to
//! an open unit with others of its kind ([`StreamChoice`]): checkpoints, the journal, and pages by class and by whether they are to be erased.
//! A block that no durable checkpoint refers to any more is trimmed, so the cleaner does not move it.

mod clock;
mod error;
mod function;
mod policy;
mod spec;
mod stream;

pub use error::FlashPagesError;
pub use function::{FunctionPages, FunctionPagesSetup};
pub use policy::{PolicyPages, PolicyPagesSetup};
pub use spec::{CreateRequest, FlashSpec, GRANT_DEFAULT};
pub use stream::StreamChoice;
