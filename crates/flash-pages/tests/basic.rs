//! A tag store on flash: what is put is there, and random transactions do what an oracle does, as on any medium.

#![allow(clippy::unwrap_used)]

#[path = "../../tags/tests/support/oracle.rs"]
mod oracle;
mod support;

use support::{LEVELS, campaign, device, geometry, options, streams};
use weft_tags::{Kv, SnodeId, Store};

#[test]
fn what_was_put_is_there_after_the_store_was_opened_again() {
    for level in LEVELS {
        let device = device(geometry(2, 2, 64, 32));
        let medium = level.create_on(device.clone(), streams(1));
        let store = Store::create(medium.boxed(), &options()).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        for key in 0..3000u32 {
            kv.put(&key.to_le_bytes(), &[key as u8; 700]).unwrap();
        }
        for key in 0..1000u32 {
            kv.delete(&key.to_le_bytes()).unwrap();
        }
        store.close().unwrap();
        medium.verify();
        drop(medium);

        let medium = level.open_on(device, streams(1)).unwrap();
        let store = Store::open(medium.boxed(), &options()).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        for key in 0..3000u32 {
            let wanted = (key >= 1000).then(|| vec![key as u8; 700]);
            assert_eq!(kv.get(&key.to_le_bytes()).unwrap(), wanted, "{level}: {key}");
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new(), "{level}");
    }
}

#[test]
fn random_transactions_do_what_the_oracle_does_while_the_flash_is_cleaned() {
    let (seeds, operations, blocks) = if campaign() { (20, 100_000, 90) } else { (2, 6_000, 40) };
    for level in LEVELS {
        let mut erased = 0;
        for seed in 0..seeds {
            let medium = level.create_on(device(geometry(2, 1, blocks, 32)), streams(seed));
            oracle::run(seed, operations, medium.shared());
            medium.verify();
            erased += medium.erased();
        }
        assert!(erased > 20 * seeds, "{level}: {erased} erases");
    }
}

#[test]
fn snapshots_see_what_was_committed_when_they_began() {
    let (seeds, operations) = if campaign() { (10, 25_000) } else { (1, 2_500) };
    for level in LEVELS {
        for seed in 0..seeds {
            let medium = level.create_on(device(geometry(2, 1, 140, 32)), streams(seed));
            oracle::run_with_snapshots(seed, operations, medium.shared());
            medium.verify();
        }
    }
}
