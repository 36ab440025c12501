//! Secure deletion leaves nothing on a medium that overwrites in place, nor on flash at either level, whenever the power fails.
//!
//! By default a slice of the campaign runs; `WEFT_CAMPAIGN=1` runs it whole.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::flash::{LEVELS, Level, campaign, device, geometry, streams};
use rig::{PowerCutStore, formatted, options};
use std::sync::Arc;
use weft_conformance::erase::{Campaign, EraseRig, run};
use weft_core::{Ino, Nanos};
use weft_device::nand::{OpenChannel, PageRead};
use weft_tagfs::{FormatOptions, TagFs, TagFsError};
use weft_tags::MemoryStore;
use weft_vfs::{CreateArgs, FLAGS_XATTR, FileSystem, FsError, FsResult, InodeFlags, NewNode, SetAttr};

const CAPACITY_BYTES: u64 = 24 << 20;

fn failed(error: TagFsError) -> FsError {
    FsError::Device(error.to_string())
}

/// A medium that overwrites in place.
struct InPlace {
    bytes: Vec<u8>,
    medium: Option<Arc<PowerCutStore>>,
}

impl EraseRig for InPlace {
    fn mount(&mut self, operations: u64) -> FsResult<Box<dyn FileSystem>> {
        let medium = Arc::new(PowerCutStore::new(self.bytes.clone(), operations));
        self.medium = Some(medium.clone());
        Ok(Box::new(TagFs::mount(Box::new(medium), options()).map_err(failed)?))
    }

    fn lose(&mut self, fs: Box<dyn FileSystem>, seed: u64) {
        drop(fs);
        self.lose_mount(seed);
    }

    fn lose_mount(&mut self, seed: u64) {
        self.bytes = self.medium.take().unwrap().after_power_cut(seed).to_bytes();
    }

    fn raw(&self, show: &mut dyn FnMut(&[u8])) {
        self.medium.as_ref().unwrap().raw().iter().for_each(|bytes| show(bytes));
    }
}

/// Flash, whose pages stay until their block is erased.
struct Flash {
    level: Level,
    device: Arc<OpenChannel>,
}

impl EraseRig for Flash {
    fn mount(&mut self, operations: u64) -> FsResult<Box<dyn FileSystem>> {
        if operations != u64::MAX {
            self.device.cut_after(operations, operations);
        }
        let opened = self.level.open_on(self.device.clone(), streams(1));
        let medium = opened.map_err(|error| FsError::Device(error.to_string()))?;
        Ok(Box::new(TagFs::mount(medium.boxed(), options()).map_err(failed)?))
    }

    fn lose(&mut self, fs: Box<dyn FileSystem>, seed: u64) {
        drop(fs);
        self.lose_mount(seed);
    }

    fn lose_mount(&mut self, _seed: u64) {
        self.device.power_on();
    }

    fn raw(&self, show: &mut dyn FnMut(&[u8])) {
        let shape = self.device.shape();
        for block in (0..shape.blocks()).map(|number| shape.block_at(number)) {
            for page in 0..self.device.block_info(block).unwrap().programmed {
                let (mut data, mut oob) =
                    (vec![0; shape.page_bytes as usize], vec![0; shape.oob_bytes as usize]);
                let mut read = PageRead { page: block.page(page), offset: 0, data: &mut data, oob: &mut oob };
                // What fails to be corrected is returned as it is.
                let _ = self.device.read_planes(Nanos(0), std::slice::from_mut(&mut read));
                show(&data);
                show(&oob);
            }
        }
    }
}

fn campaign_on(rig: &mut dyn EraseRig, seed: u64) -> Campaign {
    let done = run(rig, seed, if campaign() { 10_000 } else { 300 });
    println!("seed {seed}: {done:?}");
    assert!(done.erased > 100 && done.left > 100 && done.recoveries > 3, "{done:?}");
    done
}

#[test]
fn nothing_of_what_was_deleted_securely_is_on_a_medium_that_overwrites_in_place() {
    for seed in 1..=2 {
        campaign_on(&mut InPlace { bytes: formatted(CAPACITY_BYTES), medium: None }, seed);
    }
}

#[test]
fn nothing_of_what_was_deleted_securely_is_in_a_page_of_flash() {
    for level in LEVELS {
        let device = device(geometry(2, 2, 80, 64));
        let medium = level.create_on(device.clone(), streams(1));
        let capacity_bytes = medium.shared().blocks() * 4096;
        TagFs::format(medium.boxed(), &FormatOptions { capacity_bytes, ..FormatOptions::default() }).unwrap();
        drop(medium);
        campaign_on(&mut Flash { level, device }, 3);
    }
}

#[test]
fn an_fsync_erases_once_after_something_was_given_up_and_not_after_appends_and_new_names() {
    let medium = Arc::new(MemoryStore::from_bytes(formatted(CAPACITY_BYTES)));
    let fs = TagFs::mount(Box::new(medium), options()).unwrap();
    let value = InodeFlags::SECURE_DELETE.to_value();
    let xattrs: [(&[u8], &[u8]); 1] = [(FLAGS_XATTR, &value)];
    let make = |dir, name: &[u8], node| {
        let args = CreateArgs { xattrs: &xattrs, ..CreateArgs::new(node, 0o755) };
        fs.create(dir, name, &args).unwrap().ino
    };
    let dir = make(Ino::ROOT, b"dir", NewNode::Directory);
    let file = make(dir, b"file", NewNode::File);
    // A checkpoint leaves an empty journal.
    let erases = |act: &dyn Fn(), ino| {
        act();
        let before = fs.store().report().journal_bytes;
        fs.fsync(ino).unwrap();
        fs.store().report().journal_bytes < before
    };
    let add = |round| {
        make(dir, &[b'a' + round], NewNode::File);
    };
    let append = || fs.write(file, fs.getattr(file).unwrap().size, &[7; 5_000]).unwrap();
    let touch = || {
        let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
        fs.setattr(dir, &set).unwrap();
    };
    for round in 0..3 {
        assert!(!erases(&append, file), "round {round}: an append");
        assert!(!erases(&|| add(round), dir), "round {round}: a new name");
        assert!(erases(&|| fs.write(file, 10, b"other").unwrap(), file), "round {round}: an overwrite");
        assert!(!erases(&append, file), "round {round}: an append after it");
        assert!(erases(&|| fs.unlink(dir, &[b'a' + round]).unwrap(), dir), "round {round}: a name that goes");
        assert!(!erases(&touch, dir), "round {round}: a mode");
    }
}
