//! Blocks of the drive in memory, bounded.
//!
//! Direct I/O has no page cache behind it, and every read of a program would be one of the drive. What a zone holds
//! does not change until its reset, so the cache is simple: a *chunk* is 16 blocks of a zone, of which the first so
//! many are held; writes add to the last chunk of their zone, a miss reads a chunk as far as it is written, and a
//! reset drops the zone's chunks. When the bound is reached, the chunks that were not used since the hand last passed
//! them go (CLOCK).
//!
//! # Locks
//! Chunks are spread over shards by their number; each has a lock, held while bytes are copied. Nothing else is locked
//! with it. A read that misses fills its chunk only if the zone has not been reset meanwhile.

use crate::sys::aligned::AlignedBuffer;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use weft_core::BLOCK_BYTES;

/// Blocks of a chunk.
pub const CHUNK_BLOCKS: u32 = 16;
const CHUNK_BYTES: usize = CHUNK_BLOCKS as usize * BLOCK_BYTES;
const SHARDS: usize = 16;

#[derive(Debug)]
struct Chunk {
    number: u64,
    bytes: AlignedBuffer,
    /// Blocks held, from the chunk's first.
    held: u32,
    used: bool,
}

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<u64, usize>,
    chunks: Vec<Chunk>,
    hand: usize,
}

/// The cache.
#[derive(Debug)]
pub struct Cache {
    shards: Box<[Mutex<Shard>]>,
    /// Most chunks of a shard; none when there is no cache.
    chunks_max: usize,
    /// Chunks from one zone to the next.
    zone_chunks: u64,
    /// Resets of each zone, so that a read does not bring back what one has dropped.
    lives: Box<[AtomicU32]>,
}

impl Cache {
    /// A cache of at most so many bytes for zones of so many blocks.
    pub fn new(bytes_max: u64, zones: u32, zone_blocks: u32) -> Cache {
        let chunks_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / CHUNK_BYTES / SHARDS;
        Cache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            chunks_max,
            zone_chunks: u64::from(zone_blocks.div_ceil(CHUNK_BLOCKS)),
            lives: (0..zones).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Whether anything is ever kept.
    pub fn is_on(&self) -> bool {
        self.chunks_max > 0
    }

    /// The zone's life, to be given to [`fill`](Cache::fill).
    pub fn life(&self, zone: u32) -> u32 {
        self.lives[zone as usize].load(Acquire)
    }

    fn number(&self, zone: u32, at: u32) -> u64 {
        u64::from(zone) * self.zone_chunks + u64::from(at / CHUNK_BLOCKS)
    }

    fn shard(&self, number: u64) -> &Mutex<Shard> {
        &self.shards[(number % SHARDS as u64) as usize]
    }

    /// Copies blocks, all of one chunk, if they are held.
    pub fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> bool {
        let number = self.number(zone, at);
        let mut shard = self.shard(number).lock();
        let Some(&place) = shard.places.get(&number) else { return false };
        let chunk = &mut shard.chunks[place];
        let from = (at % CHUNK_BLOCKS) as usize * BLOCK_BYTES;
        if from + out.len() > chunk.held as usize * BLOCK_BYTES {
            return false;
        }
        chunk.used = true;
        out.copy_from_slice(&chunk.bytes[from..from + out.len()]);
        true
    }

    /// Takes blocks that were just written. The zone is locked, so no reset comes between.
    pub fn wrote(&self, zone: u32, mut at: u32, mut data: &[u8]) {
        while self.is_on() && !data.is_empty() {
            let within = at % CHUNK_BLOCKS;
            let (now, rest) = data.split_at(data.len().min((CHUNK_BLOCKS - within) as usize * BLOCK_BYTES));
            let number = self.number(zone, at);
            self.put(&mut self.shard(number).lock(), number, within, now);
            at += CHUNK_BLOCKS - within;
            data = rest;
        }
    }

    /// Takes the blocks of a chunk, from its first on, that were read while the zone lived that life.
    pub fn fill(&self, zone: u32, at: u32, data: &[u8], life: u32) {
        let number = self.number(zone, at);
        let mut shard = self.shard(number).lock();
        // With the shard's lock held, so that a reset drops what is put here, or is seen here.
        if self.life(zone) == life {
            self.put(&mut shard, number, 0, data);
        }
    }

    /// A zone is being reset: nothing of it is held any more.
    pub fn drop_zone(&self, zone: u32) {
        self.lives[zone as usize].fetch_add(1, AcqRel);
        let first = u64::from(zone) * self.zone_chunks;
        for number in first..first + self.zone_chunks {
            let mut shard = self.shard(number).lock();
            if let Some(place) = shard.places.remove(&number) {
                shard.chunks.swap_remove(place);
                if let Some(moved) = shard.chunks.get(place).map(|chunk| chunk.number) {
                    shard.places.insert(moved, place);
                }
            }
        }
    }

    fn put(&self, shard: &mut Shard, number: u64, within: u32, data: &[u8]) {
        let place = match shard.places.get(&number) {
            Some(&place) => place,
            // What comes before these blocks would be missing: the chunk is read when somebody wants it.
            None if within > 0 => return,
            None => shard.place_for(number, self.chunks_max),
        };
        let chunk = &mut shard.chunks[place];
        let end = within + (data.len() / BLOCK_BYTES) as u32;
        if within > chunk.held || end <= chunk.held {
            return;
        }
        let from = within as usize * BLOCK_BYTES;
        chunk.bytes[from..from + data.len()].copy_from_slice(data);
        chunk.held = end;
        chunk.used = true;
    }
}

impl Shard {
    /// A place for a new chunk; another one goes when the shard is full.
    fn place_for(&mut self, number: u64, chunks_max: usize) -> usize {
        if self.chunks.len() < chunks_max {
            self.chunks.push(Chunk { number, bytes: AlignedBuffer::new(CHUNK_BYTES), held: 0, used: true });
            self.places.insert(number, self.chunks.len() - 1);
            return self.chunks.len() - 1;
        }
        let place = loop {
            self.hand = (self.hand + 1) % self.chunks.len();
            let chunk = &mut self.chunks[self.hand];
            if !std::mem::take(&mut chunk.used) {
                break self.hand;
            }
        };
        let chunk = &mut self.chunks[place];
        self.places.remove(&chunk.number);
        (chunk.number, chunk.held) = (number, 0);
        self.places.insert(number, place);
        place
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
        let cache = Cache::new(16 << 20, 4, 40);
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
        assert!((0..40).all(|at| holds(&cache, 1, at).is_none() && holds(&cache, 2, at).is_none()));
        cache.fill(2, 16, &data[..BLOCK_BYTES], life);
        assert_eq!(holds(&cache, 2, 16), None, "what was read before the reset does not come back");
    }

    #[test]
    fn the_bound_holds_and_what_is_used_stays_longest() {
        let chunks = 2;
        let cache = Cache::new((SHARDS * chunks * CHUNK_BYTES) as u64, 1, 1 << 20);
        let shard_step = CHUNK_BLOCKS * SHARDS as u32;
        for i in 0..40 {
            cache.wrote(0, i * shard_step, &block(i as u8));
            // Used again and again, after the hand has passed it.
            cache.wrote(0, 0, &block(0));
            assert!(holds(&cache, 0, i * shard_step).is_some());
        }
        let held = (0..40).filter(|i| holds(&cache, 0, i * shard_step).is_some()).count();
        assert_eq!(held, chunks);
        assert!(!Cache::new(1000, 1, 16).is_on());
    }
}
