//! Secure deletion reaches the flash: what is given up of an s-node of that class is in no page of the device after the next checkpoint, in
//! none that counts and in none that does not.

#![allow(clippy::unwrap_used)]

#[path = "../../tags/tests/support/secrets.rs"]
mod secrets;
mod support;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use secrets::{Marker, begin, found, give_up, is_whole, options, run, secret, write};
use std::sync::Arc;
use support::{LEVELS, Level, campaign, device, geometry, streams};
use weft_core::Nanos;
use weft_device::nand::{FlashSetup, OpenChannel, PageRead};
use weft_tags::{Info, SnodeTags, Store};

/// What all programmed pages hold, out-of-band bytes included. A page that cannot be read holds what its program left.
fn raw(device: &OpenChannel) -> Vec<u8> {
    let shape = device.shape();
    let mut all = Vec::new();
    for block in (0..shape.blocks()).map(|number| shape.block_at(number)) {
        for page in 0..device.block_info(block).unwrap().programmed {
            let (mut data, mut oob) = (vec![0; shape.page_bytes as usize], vec![0; shape.oob_bytes as usize]);
            let mut read = PageRead { page: block.page(page), offset: 0, data: &mut data, oob: &mut oob };
            // What fails to be corrected is returned as it is.
            let _ = device.read_planes(Nanos(0), std::slice::from_mut(&mut read));
            all.extend_from_slice(&data);
            all.extend_from_slice(&oob);
        }
    }
    all
}

fn work(level: Level, tags: &SnodeTags, seed: u64) -> (usize, usize) {
    work_on(device(geometry(2, 2, 80, 64)), raw, level, tags, seed)
}

/// How often the marker is on a device, before and after the checkpoint.
fn work_on(
    device: Arc<OpenChannel>,
    raw: impl Fn(&OpenChannel) -> Vec<u8>,
    level: Level,
    tags: &SnodeTags,
    seed: u64,
) -> (usize, usize) {
    let marker: Marker = StdRng::seed_from_u64(seed).random();
    let medium = level.create_on(device.clone(), streams(seed));
    let store = Store::create(medium.boxed(), &options()).unwrap();
    let world = begin(&store, tags);
    write(&store, &world, &marker).unwrap();
    give_up(&store, &world, &marker).unwrap();
    let before = found(&raw(&device), &marker);
    store.checkpoint().unwrap();
    let after = found(&raw(&device), &marker);
    is_whole(&store, &world);
    store.close().unwrap();
    medium.verify();
    drop(medium);
    let store = Store::open(level.open_on(device, streams(seed)).unwrap().boxed(), &options()).unwrap();
    is_whole(&store, &world);
    (before, after)
}

#[test]
fn after_a_checkpoint_no_page_of_the_flash_has_what_was_given_up() {
    for level in LEVELS {
        for seed in 0..2 {
            let (before, after) = work(level, &secret(), seed);
            assert!(before > 100, "{level}: the test writes it: {before}");
            assert_eq!(after, 0, "{level}");
        }
    }
}

#[test]
fn after_a_checkpoint_nothing_of_it_is_in_the_file_of_an_image_either() {
    let folder = tempfile::tempdir().unwrap();
    for level in LEVELS {
        let path = folder.path().join(level.to_string());
        let setup = FlashSetup::new(geometry(2, 2, 80, 64));
        drop(OpenChannel::create(&path, &setup, false).unwrap());
        // Of what an earlier process has left there, the file alone knows.
        let device = Arc::new(OpenChannel::open(&path).unwrap());
        let file = |_: &OpenChannel| std::fs::read(&path).unwrap();
        let (before, after) = work_on(device, file, level, &secret(), 4);
        assert!(before > 100, "{level}: the test writes it: {before}");
        assert_eq!(after, 0, "{level}");
    }
}

#[test]
fn without_the_class_the_flash_still_has_it() {
    for level in LEVELS {
        let (_, after) = work(level, &SnodeTags::default(), 1);
        assert!(after > 100, "{level}: {after}");
    }
}

#[test]
fn a_power_cut_while_secrets_are_given_up_leaves_no_more_on_the_flash_than_an_opening_finds() {
    let step = if campaign() { 1 } else { 23 };
    for level in LEVELS {
        let marker: Marker = StdRng::seed_from_u64(30).random();
        let begun = device(geometry(2, 1, 40, 16));
        let medium = level.create_on(begun.clone(), streams(1));
        let store = Store::create(medium.boxed(), &options()).unwrap();
        let world = begin(&store, &secret());
        store.close().unwrap();
        drop(medium);
        let operations =
            |device: &OpenChannel| device.counters().pages_programmed + device.counters().blocks_erased;
        let work = |device: &Arc<OpenChannel>, cut: Option<u64>| {
            let medium = level.open_on(device.clone(), streams(1)).unwrap();
            let before = operations(device);
            if let Some(cut) = cut {
                device.cut_after(cut, cut);
            }
            let done = run(medium.boxed(), &world, &marker);
            (done, operations(device) - before)
        };
        let whole = Arc::new(begun.fork().unwrap());
        let (done, all) = work(&whole, None);
        done.unwrap();
        assert_eq!(found(&raw(&whole), &marker), 0, "{level}");
        let (mut left, mut cuts) = (0, 0);
        for cut in (0..all).step_by(step) {
            let device = Arc::new(begun.fork().unwrap());
            assert!(work(&device, Some(cut)).0.is_err());
            device.power_on();
            left += usize::from(found(&raw(&device), &marker) > 0);
            // Power fails once more, while the opening erases.
            device.cut_after(cut % 29, cut);
            if let Ok(medium) = level.open_on(device.clone(), streams(1)) {
                drop(Store::open(medium.boxed(), &options()));
            }
            device.power_on();
            let medium = level.open_on(device.clone(), streams(1)).unwrap();
            let store = Store::open(medium.boxed(), &options()).unwrap();
            let edges = store.edges(world.root).unwrap();
            if edges.is_empty() {
                assert_eq!(found(&raw(&device), &marker), 0, "{level}, cut at {cut}: opened");
            }
            let mut tx = store.begin();
            for edge in edges {
                tx.delete_edge(world.root, edge.etype, Info::Number(edge.number.unwrap())).unwrap();
            }
            tx.commit().unwrap();
            store.checkpoint().unwrap();
            assert_eq!(found(&raw(&device), &marker), 0, "{level}, cut at {cut}");
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
            medium.verify();
            cuts += 1;
        }
        assert!(left * 4 > cuts, "{level}: {left} of {cuts} cuts left something");
    }
}
