//! Blocks of the drive in memory, bounded, and shared with clients.
//!
//! Direct I/O has no page cache behind it, and every read of a program would be one of the drive. What a zone holds
//! does not change until its reset, so the cache is simple: a *chunk* is 16 blocks of a zone, of which the first so
//! many are held in a slot; writes add to the last chunk of their zone, a miss reads a chunk as far as it is written,
//! and a reset drops the zone's chunks. When the slots are used up, the chunks that were not used since the hand last
//! passed them go (CLOCK).
//!
//! The slots lie in memory that clients map, with a table that leads to them ([`weft_core::cached`]): what is held they
//! read without the server. The hand does not see these uses; a chunk that goes in spite of them comes back with the
//! next read.
//!
//! # Locks
//! Chunks and slots are spread over shards; each has a lock, held while bytes are copied. Nothing else is locked with
//! it. A read that misses fills its chunk only if the zone has not been reset meanwhile.

use crate::sys::pool::Pool;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use weft_core::BLOCK_BYTES;
use weft_core::cached::{CHUNK_BYTES, CacheWord, table_bytes};

/// Blocks of a chunk.
pub const CHUNK_BLOCKS: u32 = weft_core::cached::CHUNK_BLOCKS as u32;
const SHARDS: usize = 16;

/// A chunk in a slot.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    number: u64,
    used: bool,
}

#[derive(Debug, Default)]
struct Shard {
    /// Where among `slots` a chunk is.
    places: HashMap<u64, usize>,
    /// The shard's slots, as far as they were ever used.
    slots: Vec<Option<Chunk>>,
    free: Vec<usize>,
    hand: usize,
}

#[derive(Debug)]
pub struct Cache {
    shards: Box<[Mutex<Shard>]>,
    /// None when there is no cache.
    pool: Option<Pool>,
    shard_slots: usize,
    zone_blocks: u64,
    /// Resets of each zone, so that a read does not bring back what one has dropped.
    lives: Box<[AtomicU32]>,
}

/// Memory from which others may read what the cache holds.
#[derive(Clone, Copy, Debug)]
pub struct SharedCache {
    /// The memory file; owned by the cache.
    pub fd: RawFd,
    /// Its bytes: the table, then the slots.
    pub bytes: u64,
}

impl Cache {
    /// A cache of at most so many bytes for zones of so many blocks. There is none for zones that are not whole chunks.
    pub fn new(bytes_max: u64, zones: u32, zone_blocks: u32) -> io::Result<Cache> {
        let slots = usize::try_from(bytes_max).unwrap_or(usize::MAX) / CHUNK_BYTES / SHARDS * SHARDS;
        let pool = if slots > 0 && zone_blocks.is_multiple_of(CHUNK_BLOCKS) {
            let table = table_bytes(u64::from(zones) * u64::from(zone_blocks));
            Some(Pool::new(table as usize, CHUNK_BYTES, slots)?)
        } else {
            None
        };
        Ok(Cache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            pool,
            shard_slots: slots / SHARDS,
            zone_blocks: u64::from(zone_blocks),
            lives: (0..zones).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    /// Whether anything is ever kept.
    pub fn is_on(&self) -> bool {
        self.pool.is_some()
    }

    /// What others may map.
    pub fn shared(&self) -> Option<SharedCache> {
        self.pool.as_ref().map(|pool| SharedCache { fd: pool.fd(), bytes: pool.bytes() as u64 })
    }

    /// The zone's life, to be given to [`fill`](Cache::fill).
    pub fn life(&self, zone: u32) -> u32 {
        self.lives[zone as usize].load(Acquire)
    }

    fn number(&self, zone: u32, at: u32) -> u64 {
        (u64::from(zone) * self.zone_blocks + u64::from(at)) / u64::from(CHUNK_BLOCKS)
    }

    fn shard_index(number: u64) -> usize {
        (number % SHARDS as u64) as usize
    }

    /// Copies blocks, all of one chunk, if they are held.
    pub fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> bool {
        let Some(pool) = &self.pool else { return false };
        let number = self.number(zone, at);
        let index = Cache::shard_index(number);
        let mut shard = self.shards[index].lock();
        let Some(&place) = shard.places.get(&number) else { return false };
        let from = (at % CHUNK_BLOCKS) as usize * BLOCK_BYTES;
        let held = CacheWord(pool.words()[number as usize].load(Relaxed)).held() as usize * BLOCK_BYTES;
        if from + out.len() > held {
            return false;
        }
        if let Some(chunk) = &mut shard.slots[place] {
            chunk.used = true;
        }
        pool.read(index * self.shard_slots + place, from, out)
    }

    /// Takes blocks that were just written. The zone is locked, so no reset comes between.
    pub fn wrote(&self, zone: u32, mut at: u32, mut data: &[u8]) {
        let Some(pool) = &self.pool else { return };
        while !data.is_empty() {
            let within = at % CHUNK_BLOCKS;
            let (now, rest) = data.split_at(data.len().min((CHUNK_BLOCKS - within) as usize * BLOCK_BYTES));
            let number = self.number(zone, at);
            let index = Cache::shard_index(number);
            self.put(pool, &mut self.shards[index].lock(), number, within, now, true);
            at += CHUNK_BLOCKS - within;
            data = rest;
        }
    }

    /// Takes the blocks of a chunk, from its first on, that were read while the zone lived that life.
    pub fn fill(&self, zone: u32, at: u32, data: &[u8], life: u32) {
        let Some(pool) = &self.pool else { return };
        let number = self.number(zone, at);
        let mut shard = self.shards[Cache::shard_index(number)].lock();
        // With the shard's lock held, so that a reset drops what is put here, or is seen here.
        if self.life(zone) == life {
            self.put(pool, &mut shard, number, 0, data, false);
        }
    }

    /// A zone is being reset: nothing of it is held any more.
    pub fn drop_zone(&self, zone: u32) {
        let Some(pool) = &self.pool else { return };
        self.lives[zone as usize].fetch_add(1, AcqRel);
        let (first, end) = (self.number(zone, 0), self.number(zone + 1, 0));
        for number in first..end {
            let mut shard = self.shards[Cache::shard_index(number)].lock();
            if let Some(place) = shard.places.remove(&number) {
                take_back(&pool.words()[number as usize]);
                shard.slots[place] = None;
                shard.free.push(place);
            }
        }
    }

    fn put(
        &self,
        pool: &Pool,
        shard: &mut Shard,
        number: u64,
        mut within: u32,
        mut data: &[u8],
        written: bool,
    ) {
        let place = match shard.places.get(&number) {
            Some(&place) => place,
            // What comes before these blocks would be missing: the chunk is read when somebody wants it.
            None if within > 0 => return,
            None => shard.place_for(number, self.shard_slots, pool.words()),
        };
        let word = &pool.words()[number as usize];
        let now = CacheWord(word.load(Relaxed));
        let end = within + (data.len() / BLOCK_BYTES) as u32;
        if within > now.held() || end <= now.held() {
            return;
        }
        // What is held stays: others may be copying it, in the belief that it is as it was written.
        data = &data[(now.held() - within) as usize * BLOCK_BYTES..];
        within = now.held();
        let slot = Cache::shard_index(number) * self.shard_slots + place;
        // Nobody looks at blocks beyond those that are held, and the word of whoever had the slot was taken back before
        // this (`take_back` has the fence).
        pool.write(slot, within as usize * BLOCK_BYTES, data);
        let after = CacheWord::new(now.generation(), slot as u32, end);
        let as_written = written && (now.held() == 0 || now.is_as_written());
        word.store(if as_written { after.as_written() } else { after }.0, Release);
        if let Some(chunk) = &mut shard.slots[place] {
            chunk.used = true;
        }
    }
}

/// Makes a word lead nowhere, for all who look at it after they see any change of the slot that it led to.
fn take_back(word: &AtomicU64) {
    word.store(CacheWord(word.load(Relaxed)).taken_back().0, Relaxed);
    fence(Release);
}

impl Shard {
    /// A slot for a new chunk; another chunk goes when all are used.
    fn place_for(&mut self, number: u64, slots_max: usize, words: &[AtomicU64]) -> usize {
        let chunk = Some(Chunk { number, used: true });
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() < slots_max => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => self.evict(words),
        };
        self.slots[place] = chunk;
        self.places.insert(number, place);
        place
    }

    fn evict(&mut self, words: &[AtomicU64]) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            match &mut self.slots[self.hand] {
                Some(chunk) if chunk.used => chunk.used = false,
                Some(chunk) => {
                    take_back(&words[chunk.number as usize]);
                    self.places.remove(&chunk.number);
                    return self.hand;
                }
                None => return self.hand,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Vec<u8> {
        vec![byte; BLOCK_BYTES]
    }

    fn holds(cache: &Cache, zone: u32, at: u32) -> Option<u8> {
        let mut out = block(0);
        cache.read(zone, at, &mut out).then(|| out[0])
    }

    #[test]
    fn what_was_written_or_filled_is_held_and_a_reset_drops_it() {
        let cache = Cache::new(16 << 20, 4, 48).unwrap();
        let data: Vec<u8> = (0..20).flat_map(block).collect();
        cache.wrote(1, 0, &data);
        cache.wrote(1, 20, &block(20));
        assert_eq!(
            (holds(&cache, 1, 0), holds(&cache, 1, 20), holds(&cache, 1, 21)),
            (Some(0), Some(20), None)
        );
        cache.wrote(1, 33, &block(33));
        assert_eq!(holds(&cache, 1, 33), None, "what comes before it in its chunk is missing");
        let life = cache.life(2);
        cache.fill(2, 16, &data[..3 * BLOCK_BYTES], life);
        assert_eq!((holds(&cache, 2, 18), holds(&cache, 2, 19)), (Some(2), None));
        cache.drop_zone(1);
        cache.drop_zone(2);
        assert!((0..48).all(|at| holds(&cache, 1, at).is_none() && holds(&cache, 2, at).is_none()));
        cache.fill(2, 16, &data[..BLOCK_BYTES], life);
        assert_eq!(holds(&cache, 2, 16), None, "what was read before the reset does not come back");
    }

    #[test]
    fn only_what_was_all_written_counts_as_written() {
        let cache = Cache::new(16 << 20, 2, 48).unwrap();
        let word = |at: u32| {
            let words = cache.pool.as_ref().unwrap().words();
            CacheWord(words[(at / CHUNK_BLOCKS) as usize].load(Acquire))
        };
        let data: Vec<u8> = (0..16).flat_map(block).collect();
        cache.wrote(0, 0, &data[..2 * BLOCK_BYTES]);
        cache.wrote(0, 2, &data[2 * BLOCK_BYTES..3 * BLOCK_BYTES]);
        assert!(word(0).is_as_written() && word(0).held() == 3);
        // What the drive gives back comes behind it, and does not replace what is held.
        let read: Vec<u8> = (100..116).flat_map(block).collect();
        cache.fill(0, 0, &read[..5 * BLOCK_BYTES], cache.life(0));
        assert!(!word(0).is_as_written() && word(0).held() == 5);
        assert_eq!((holds(&cache, 0, 2), holds(&cache, 0, 3)), (Some(2), Some(103)));
        cache.wrote(0, 5, &data[..BLOCK_BYTES]);
        assert!(!word(0).is_as_written() && word(0).held() == 6);
        cache.fill(0, 16, &read, cache.life(0));
        assert!(!word(16).is_as_written());
        cache.drop_zone(0);
        cache.wrote(0, 16, &data[..BLOCK_BYTES]);
        assert!(word(16).is_as_written());
    }

    #[test]
    fn the_bound_holds_and_what_is_used_stays_longest() {
        let slots = 2;
        let cache = Cache::new((SHARDS * slots * CHUNK_BYTES) as u64, 1, 1 << 20).unwrap();
        let shard_step = CHUNK_BLOCKS * SHARDS as u32;
        for i in 0..40 {
            cache.wrote(0, i * shard_step, &block(i as u8));
            assert_eq!(holds(&cache, 0, i * shard_step), Some(i as u8));
        }
        let held: Vec<u32> = (0..40).filter(|i| holds(&cache, 0, i * shard_step).is_some()).collect();
        assert_eq!(held, [38, 39]);
        assert!(!Cache::new(1000, 1, 16).unwrap().is_on());
        assert!(!Cache::new(16 << 20, 4, 40).unwrap().is_on(), "a chunk would reach over two zones");
    }

    #[test]
    fn a_word_leads_others_to_the_slot_and_never_again_once_it_is_taken_back() {
        let cache = Cache::new((SHARDS * CHUNK_BYTES) as u64, 2, 1 << 20).unwrap();
        let pool = cache.pool.as_ref().unwrap();
        let word = |at: u32| CacheWord(pool.words()[(at / CHUNK_BLOCKS) as usize].load(Acquire));
        let mut out = block(0);
        cache.wrote(0, 32, &block(7));
        let first = word(32);
        assert_eq!(first.held(), 1);
        assert!(pool.read(first.slot() as usize, 0, &mut out) && out == block(7));
        cache.wrote(0, 33, &block(8));
        assert!(word(32).is_same_place(first) && word(32).held() == 2, "it holds more of the same");
        let other = 32 + CHUNK_BLOCKS * SHARDS as u32;
        cache.wrote(0, other, &block(9));
        assert_eq!((word(32).held(), word(other).slot()), (0, first.slot()), "the slot is another chunk's");
        cache.wrote(0, 32, &block(7));
        assert_eq!(word(32).slot(), first.slot());
        assert!(!word(32).is_same_place(first), "the same content in the same slot is another place");
        cache.drop_zone(0);
        assert_eq!(word(32).held(), 0);
    }
}
