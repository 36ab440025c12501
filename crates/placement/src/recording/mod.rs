//! Recordings of what programs do to their files: the events, and the text that holds them.
//!
//! The recorder of a volume writes them; simulations play them.

mod events;
mod text;

pub use events::{Event, FileAction, Opener, Workload};
pub use text::{BadRecording, LAST_LINE, UnreadRecording, first_line};
