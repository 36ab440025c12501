//! The in-memory core passes the suite that every core must pass.

use weft_vfs::{FileSystem, MemFs};

fn make() -> Box<dyn FileSystem> {
    Box::new(MemFs::with_capacity(96 << 20))
}

weft_conformance::conformance_tests!(make);
