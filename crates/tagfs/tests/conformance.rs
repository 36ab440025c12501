//! The core passes the suite that every core must pass.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use weft_tagfs::{FormatOptions, Layout, MountOptions, TagFs};
use weft_tags::MemoryStore;
use weft_vfs::FileSystem;

fn make_as(layout: Layout) -> Box<dyn FileSystem> {
    let medium = Arc::new(MemoryStore::new());
    let options = FormatOptions { capacity_bytes: 128 << 20, layout, ..FormatOptions::default() };
    TagFs::format(Box::new(medium.clone()), &options).unwrap();
    Box::new(TagFs::mount(Box::new(medium), MountOptions::default()).unwrap())
}

mod whole {
    fn make() -> Box<dyn weft_vfs::FileSystem> {
        super::make_as(super::Layout::Whole)
    }

    weft_conformance::conformance_tests!(make);
}

mod fine {
    fn make() -> Box<dyn weft_vfs::FileSystem> {
        super::make_as(super::Layout::Fine)
    }

    weft_conformance::conformance_tests!(make);
}
