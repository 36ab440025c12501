//! A store that fills its flash: what is new is refused, what is there is read, deleted and opened, and the flash takes as much again.

#![allow(clippy::unwrap_used)]

#[path = "../../tags/tests/support/filling.rs"]
mod filling;
mod support;

use filling::{Pairs, check, delete, fill, is_as};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{LEVELS, campaign, device, geometry, options, streams};
use weft_tags::{Durability, Kv, SnodeId, Store};

#[test]
fn full_flash_is_opened_read_and_emptied_and_filled_again() {
    let seeds = if campaign() { 60 } else { 3 };
    for level in LEVELS {
        for seed in 0..seeds {
            let mut rng = StdRng::seed_from_u64(seed);
            let device = device(geometry(2, 1, 34 + seed as u32 % 20, 16));
            let mut medium = level.create_on(device.clone(), streams(seed));
            let mut store = Store::create(medium.boxed(), &options()).unwrap();
            let (mut pairs, mut next, mut filled) = (Pairs::new(), 0, 0);
            for round in 0..6 {
                let mut kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
                kv.durability(if rng.random() { Durability::None } else { Durability::Sync });
                fill(&kv, &mut pairs, &mut rng, &mut next);
                filled += pairs.len();
                is_as(&kv, &pairs);
                let killed = rng.random::<bool>();
                if killed {
                    // What nobody was told to be durable may go.
                    store.sync().unwrap();
                    drop(store);
                } else {
                    let _ = store.close();
                }
                medium.verify();
                drop(medium);
                medium = level.open_on(device.clone(), streams(seed)).unwrap();
                store = Store::open(medium.boxed(), &options()).unwrap();
                let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
                is_as(&kv, &pairs);
                delete(&kv, &mut pairs, &mut rng);
                is_as(&kv, &pairs);
                store
                    .checkpoint()
                    .unwrap_or_else(|error| panic!("{level}, seed {seed}, round {round}: {error}"));
                check(&store);
            }
            assert!(filled > 50, "{level}, seed {seed}: {filled}");
        }
    }
}
