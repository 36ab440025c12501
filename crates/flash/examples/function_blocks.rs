//! The job of `docs/how-to/choose-your-level.md` at the function level: keep the newest value of each key, over a restart.
//!
//! The application fills blocks and says when one is not needed any more; allocation, erasing and wear are the library's.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::function::Mapping;
use weft_flash::{FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup};

const KEYS: u64 = 100;
const ROUNDS: u64 = 200;

/// Blocks of values, oldest first. The key of a value is in its first 8 bytes.
struct Store {
    level: FunctionLevel,
    blocks: VecDeque<(GrantBlock, u32)>,
    newest: BTreeMap<u64, (GrantBlock, u32)>,
    now: Nanos,
}

impl Store {
    fn open(level: FunctionLevel) -> Result<Store, LevelError> {
        let mut found = level.mapped_blocks();
        found.sort_by_key(|block| block.id);
        let mut store = Store { level, blocks: VecDeque::new(), newest: BTreeMap::new(), now: Nanos(0) };
        for block in found {
            for page in 0..block.written {
                let mut key = [0; 8];
                if store.level.flash_read(store.now, block.block, page, 0, &mut key).is_ok() {
                    store.newest.insert(u64::from_le_bytes(key), (block.block, page));
                }
            }
            store.blocks.push_back((block.block, block.written));
        }
        Ok(store)
    }

    fn put(&mut self, key: u64, value: u8) -> Result<(), LevelError> {
        let pages = self.level.geometry().pages_per_block;
        if self.blocks.back().is_none_or(|(_, written)| *written == pages) {
            // With keys that are all rewritten in turn, two blocks of the newest values are enough.
            while self.blocks.len() > 2
                && let Some((old, _)) = self.blocks.pop_front()
            {
                self.level.flash_trim(old)?;
            }
            let channel = key as u32 % self.level.geometry().channels();
            let taken = self.level.address_mapper(self.now, channel, Mapping::Block, 0)?;
            self.blocks.push_back((taken.block, 0));
        }
        if let Some((block, written)) = self.blocks.back_mut() {
            let mut data = vec![value; self.level.geometry().page_bytes as usize];
            data[..8].copy_from_slice(&key.to_le_bytes());
            self.now = self.level.flash_write(self.now, *block, *written, &data)?.done;
            self.newest.insert(key, (*block, *written));
            *written += 1;
        }
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u8>, LevelError> {
        let Some((block, page)) = self.newest.get(&key) else { return Ok(None) };
        let mut data = [0];
        self.level.flash_read(self.now, *block, *page, 8, &mut data)?;
        Ok(Some(data[0]))
    }
}

fn main() -> Result<(), LevelError> {
    let device = Arc::new(OpenChannel::memory(&FlashSetup::new(Geometry::bbssd().with_size(1 << 30)))?);
    let monitor = Monitor::format(device.clone(), MonitorSetup::default())?;
    let request = GrantRequest { name: "values".into(), bytes: 16 << 20, over_provisioning_permille: 250 };
    let mut store = Store::open(FunctionLevel::open(monitor.allocate(&request)?)?)?;
    for number in 0..KEYS * ROUNDS {
        store.put(number % KEYS, (number / KEYS) as u8)?;
    }
    store.level.flush(store.now)?;
    drop(store);

    // The restart: everything is opened again.
    drop(monitor);
    let monitor = Monitor::open(device.clone())?;
    let store = Store::open(FunctionLevel::open(monitor.attach("values")?)?)?;
    for key in 0..KEYS {
        assert_eq!(store.get(key)?, Some((ROUNDS - 1) as u8));
    }
    let wear = store.level.wear_leveler(store.now, 50, 4)?;
    let counters = device.counters();
    println!(
        "function level: {} values written, {} pages programmed, {} blocks erased; all {KEYS} are there after a restart; \
         a block was erased {} times at most",
        KEYS * ROUNDS,
        counters.pages_programmed,
        counters.blocks_erased,
        wear.max
    );
    Ok(())
}
