//! The parts of commands.

use super::address::PageAddr;
use serde::{Deserialize, Serialize};
use weft_core::Nanos;

/// When an operation took place, in device time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// When the LUN began with it.
    pub began: Nanos,
    /// When its last byte had gone over the channel: of a program, the moment from which the sender's buffer is free;
    /// of a read the same as `done`; of an erase the same as `began`.
    pub moved: Nanos,
    /// When it was over and the LUN free.
    pub done: Nanos,
}

weft_core::coded! { Done { began, moved, done } }

/// One page to program.
#[derive(Clone, Copy, Debug)]
pub struct PageProgram<'a> {
    /// Where.
    pub page: PageAddr,
    /// A whole page of data; may be empty when the device does not keep data.
    pub data: &'a [u8],
    /// Out-of-band bytes, as many as a page has or fewer; zeros follow them.
    pub oob: &'a [u8],
}

/// One page to read, or a part of it.
#[derive(Debug)]
pub struct PageRead<'a> {
    /// Where.
    pub page: PageAddr,
    /// First byte of the page's data to read.
    pub offset: u32,
    /// Gets the data; empty to read out-of-band bytes alone.
    pub data: &'a mut [u8],
    /// Gets the first out-of-band bytes.
    pub oob: &'a mut [u8],
}
