//! Newtypes for what must not be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A zone of a zoned device, counted from 0.
    ZoneId(u32)
}
id! {
    /// An inode number. 0 is never a file; [`Ino::ROOT`] is the root directory.
    Ino(u64)
}
id! {
    /// A stream: data of one affinity, written together (Reshim/Valet, section 3).
    StreamId(u16)
}
id! {
    /// A lifetime group within a stream: data expected to die at about the same time (Reshim/Valet, section 3).
    LifetimeGroup(u16)
}
id! {
    /// A duration or a moment of device time, in nanoseconds.
    Nanos(u64)
}

impl Ino {
    /// The root directory of a volume.
    pub const ROOT: Ino = Ino(1);
}

impl ZoneId {
    /// The zone's number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
