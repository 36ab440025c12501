//! A medium that loses power: for tests of the store and of what stands on it.
//!
//! Until a sync, each block of each write is in a volatile cache. At the cut every such block by itself reaches the
//! medium whole, not at all, or torn at sectors of 512 bytes, whatever was written before or after it.

#![allow(dead_code, reason = "not every test looks at everything")]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
#[cfg(weft_shuttle)]
use shuttle::sync::{Mutex, MutexGuard};
use std::io::{self, IoSlice};
use std::sync::Arc;
#[cfg(not(weft_shuttle))]
use std::sync::{Mutex, MutexGuard};
use weft_tags::{MemoryStore, PAGE_BYTES, PageStore, PendingWrite};

const SECTOR_BYTES: usize = 512;

/// Blocks in memory behind a volatile write cache, with power that fails at a chosen operation.
pub struct PowerCutStore {
    state: Arc<Mutex<State>>,
}

struct State {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// What was done since the last sync, in order.
    cached: Vec<Cached>,
    operations: u64,
    cut_at: u64,
}

/// What may or may not have reached the medium.
enum Cached {
    /// A block was written.
    Block(u64, Vec<u8>),
    /// The medium was made so many bytes long.
    Length(usize),
}

impl PowerCutStore {
    /// A medium that holds `bytes`; power fails at write or sync number `cut_at`, counted from 0.
    pub fn new(bytes: Vec<u8>, cut_at: u64) -> PowerCutStore {
        let state = State { seen: bytes.clone(), durable: bytes, cached: Vec::new(), operations: 0, cut_at };
        PowerCutStore { state: Arc::new(Mutex::new(state)) }
    }

    /// Writes and syncs so far.
    pub fn operations(&self) -> u64 {
        lock(&self.state).operations
    }

    /// What the medium holds, as it is read and as it is durable.
    pub fn raw(&self) -> [Vec<u8>; 2] {
        let state = lock(&self.state);
        [state.seen.clone(), state.durable.clone()]
    }

    /// Whether power has failed.
    pub fn is_cut(&self) -> bool {
        let state = lock(&self.state);
        state.operations > state.cut_at
    }

    /// What the medium holds when power comes back. Which unsynced sectors survived is drawn from `seed`.
    pub fn after_power_cut(&self, seed: u64) -> MemoryStore {
        let state = lock(&self.state);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = state.durable.clone();
        // Half of the outcomes lose or keep nearly everything: the ends of the range are where code forgets a case.
        let kept = *[0.03, 0.5, 0.97].get(rng.random_range(0..3usize)).unwrap_or(&0.5);
        for done in &state.cached {
            let torn = rng.random_bool(0.2);
            let whole = rng.random_bool(kept);
            let (block, data) = match done {
                Cached::Block(block, data) => (*block, data),
                Cached::Length(len) => {
                    // A medium that was not made longer has lost what was written there.
                    if whole {
                        bytes.resize(*len, 0);
                    }
                    continue;
                }
            };
            let at = block as usize * PAGE_BYTES;
            for sector in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
                let survives = if torn { rng.random_bool(0.5) } else { whole };
                let place = bytes.get_mut(at + sector..at + sector + SECTOR_BYTES);
                if let Some(place) = place.filter(|_| survives) {
                    place.copy_from_slice(&data[sector..sector + SECTOR_BYTES]);
                }
            }
        }
        MemoryStore::from_bytes(bytes)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

fn beyond_end(block: u64) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("block {block} is beyond the end of the medium"))
}

/// Pages of a write that is under way.
struct Later(Vec<*const [u8; PAGE_BYTES]>);

// SAFETY: by the promise of `begin_write` the pages can be read, from any thread, until the write was waited for.
unsafe impl Send for Later {}

impl Later {
    fn pages(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: as above.
        self.0.iter().map(|page| unsafe { &**page }.as_slice())
    }
}

impl State {
    fn write<'p>(&mut self, block: u64, pages: impl Iterator<Item = &'p [u8]>) -> io::Result<()> {
        let cut = self.operate();
        if self.operations > self.cut_at.saturating_add(1) {
            return cut;
        }
        // The write during which power fails may reach the medium in part as well.
        for (at, page) in (block as usize..).zip(pages) {
            let range = at * PAGE_BYTES..(at + 1) * PAGE_BYTES;
            self.seen.get_mut(range).ok_or_else(|| beyond_end(block))?.copy_from_slice(page);
            self.cached.push(Cached::Block(at as u64, page.to_vec()));
        }
        cut
    }

    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        if self.operations > self.cut_at { Err(io::Error::other("power is off")) } else { Ok(()) }
    }
}

impl PageStore for PowerCutStore {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        let state = lock(&self.state);
        let at = block as usize * PAGE_BYTES;
        out.copy_from_slice(state.seen.get(at..at + out.len()).ok_or_else(|| beyond_end(block))?);
        Ok(())
    }

    fn write(&self, block: u64, _tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let pages = parts.iter().flat_map(|part| part.chunks_exact(PAGE_BYTES));
        lock(&self.state).write(block, pages)
    }

    /// The first half of the pages reaches the medium when the write begins, the others when it is waited for, as they are
    /// then.
    unsafe fn begin_write(
        &self,
        block: u64,
        _tag: &weft_core::Tag,
        pages: &[*const [u8; PAGE_BYTES]],
    ) -> io::Result<PendingWrite> {
        let (now, later) = pages.split_at(pages.len() / 2);
        // SAFETY: the caller's promise.
        let now = now.iter().map(|page| unsafe { &**page }.as_slice());
        lock(&self.state).write(block, now)?;
        let (block, later, state) =
            (block + (pages.len() / 2) as u64, Later(later.to_vec()), self.state.clone());
        Ok(PendingWrite::until(move || lock(&state).write(block, later.pages())))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.operate()?;
        let state = &mut *state;
        for done in state.cached.drain(..) {
            match done {
                Cached::Block(block, data) => {
                    let at = block as usize * PAGE_BYTES;
                    state.durable[at..at + PAGE_BYTES].copy_from_slice(&data);
                }
                Cached::Length(len) => state.durable.resize(len, 0),
            }
        }
        Ok(())
    }

    fn blocks(&self) -> u64 {
        (lock(&self.state).seen.len() / PAGE_BYTES) as u64
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let bytes = blocks as usize * PAGE_BYTES;
        if state.seen.len() < bytes {
            state.seen.resize(bytes, 0);
            state.cached.push(Cached::Length(bytes));
        }
        Ok(())
    }

    fn touch(&self, block: u64, blocks: u64) -> io::Result<()> {
        let zeros = vec![0; blocks as usize * PAGE_BYTES];
        self.write(block, &weft_core::Tag::METADATA, &[IoSlice::new(&zeros)])
    }

    fn cut(&self, blocks: u64) -> io::Result<u64> {
        let mut state = lock(&self.state);
        let (now, bytes) = (state.seen.len(), blocks as usize * PAGE_BYTES);
        if bytes < now {
            let cut = state.operate();
            if state.operations > state.cut_at.saturating_add(1) {
                return cut.map(|()| blocks);
            }
            state.seen.truncate(bytes);
            state.cached.push(Cached::Length(bytes));
            cut?;
        }
        Ok((state.seen.len() / PAGE_BYTES) as u64)
    }
}
