//! The job of `docs/how-to/choose-your-level.md` at the raw level: keep the newest value of each key, over a restart.
//!
//! All of it is the application's: where the next value goes, which blocks can be erased, and finding the values again.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::{GrantBlock, GrantPage, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel};

const KEYS: u64 = 100;
const ROUNDS: u64 = 200;

/// Values in a log over all blocks; a block whose values are all outdated is erased when the log comes round to it.
struct Store {
    raw: RawLevel,
    blocks: Vec<GrantBlock>,
    newest: BTreeMap<u64, (u64, GrantPage)>,
    next: (usize, u32),
    number: u64,
    now: Nanos,
}

impl Store {
    fn open(raw: RawLevel) -> Result<Store, LevelError> {
        let luns = raw.geometry().lun_list();
        let on_luns = |block| luns.iter().map(move |&(channel, lun)| GrantBlock { channel, lun, block });
        let blocks: Vec<GrantBlock> = (0..raw.geometry().blocks_per_lun).flat_map(on_luns).collect();
        let mut store =
            Store { raw, blocks, newest: BTreeMap::new(), next: (0, 0), number: 0, now: Nanos(0) };
        for at in 0..store.blocks.len() {
            let block = store.blocks[at];
            for page in 0..store.raw.look(block)?.programmed {
                let mut oob = [0; 16];
                if store.raw.page_read(store.now, block.page(page), 0, &mut [], &mut oob).is_err() {
                    continue; // torn by a power cut
                }
                let (key, number) = oob.split_at(8);
                let [key, number] = [key, number].map(|raw| raw.try_into().map_or(0, u64::from_le_bytes));
                if store.newest.get(&key).is_none_or(|(other, _)| *other < number) {
                    store.newest.insert(key, (number, block.page(page)));
                }
                if number > store.number {
                    (store.number, store.next) = (number, (at, page + 1));
                }
            }
        }
        Ok(store)
    }

    fn put(&mut self, key: u64, value: u8) -> Result<(), LevelError> {
        if self.next.1 == self.raw.geometry().pages_per_block {
            self.next = ((self.next.0 + 1) % self.blocks.len(), 0);
            // With keys that are all rewritten in turn, nothing in the oldest block is the newest of its key.
            self.now = self.raw.block_erase(self.now, self.blocks[self.next.0])?.done;
        }
        self.number += 1;
        let page = self.blocks[self.next.0].page(self.next.1);
        let mut oob = key.to_le_bytes().to_vec();
        oob.extend_from_slice(&self.number.to_le_bytes());
        let data = vec![value; self.raw.geometry().page_bytes as usize];
        self.now = self.raw.page_write(self.now, page, &data, &oob)?.done;
        self.next.1 += 1;
        self.newest.insert(key, (self.number, page));
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u8>, LevelError> {
        let Some((_, page)) = self.newest.get(&key) else { return Ok(None) };
        let mut data = [0];
        self.raw.page_read(self.now, *page, 0, &mut data, &mut [])?;
        Ok(Some(data[0]))
    }
}

fn main() -> Result<(), LevelError> {
    let device = Arc::new(OpenChannel::memory(&FlashSetup::new(Geometry::bbssd().with_size(1 << 30)))?);
    let monitor = Monitor::format(device.clone(), MonitorSetup::default())?;
    let request = GrantRequest { name: "values".into(), bytes: 16 << 20, over_provisioning_permille: 250 };
    let mut store = Store::open(RawLevel::new(monitor.allocate(&request)?))?;
    for number in 0..KEYS * ROUNDS {
        store.put(number % KEYS, (number / KEYS) as u8)?;
    }
    drop(store);

    // The restart: everything is opened again.
    drop(monitor);
    let monitor = Monitor::open(device.clone())?;
    let store = Store::open(RawLevel::new(monitor.attach("values")?))?;
    for key in 0..KEYS {
        assert_eq!(store.get(key)?, Some((ROUNDS - 1) as u8));
    }
    let counters = device.counters();
    println!(
        "raw level: {} values written, {} pages programmed, {} blocks erased; all {KEYS} are there after a restart",
        KEYS * ROUNDS,
        counters.pages_programmed,
        counters.blocks_erased
    );
    Ok(())
}
