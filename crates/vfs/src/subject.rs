//! Who asks, and for what.

use weft_core::{Capability, Credentials};

/// May read.
pub const READ: u32 = 4;
/// May write.
pub const WRITE: u32 = 2;
/// May execute or search.
pub const EXECUTE: u32 = 1;

/// Who asks, as far as permission bits are concerned.
pub trait Subject {
    /// User.
    fn uid(&self) -> u32;
    /// Whether it is in a group.
    fn in_group(&self, gid: u32) -> bool;
    /// Whether it has a right of the superuser.
    fn may(&self, capability: Capability) -> bool;
}

impl Subject for Credentials {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn in_group(&self, gid: u32) -> bool {
        Credentials::in_group(self, gid)
    }

    fn may(&self, capability: Capability) -> bool {
        Credentials::may(self, capability)
    }
}
