//! Writes commit records to the journal and finds them again after a crash.
//!
//! The journal is an area of fixed size that is written from its start after each checkpoint. Records follow each other;
//! each write of the area begins at a block of its own, so that a block with a durable record is never written again
//! before the next checkpoint. Commits that wait for durability at the same time share one write and one sync; later ones are written while
//! that sync is under way, and are durable when theirs has ended and all before it have.
//!
//! A record carries the epoch of its checkpoint and its number; a chain of records ends where the next number does not
//! follow. It also carries how far the journal was known to be durable, so that recovery knows which records may have
//! reached the medium without the pages that they speak of: those are checked against their checksums.

use super::writes::Writes;
use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::layout::superblock::JOURNAL_BYTES_MIN;
use crate::page_store::{JOURNAL_TAG, PageStore};
use crate::space::{Run, reason};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use weft_core::checksum::{crc32c, crc32c_append};
use weft_core::refuse;
use weft_sys::AlignedBuf;
use weft_sys::fork::Process;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"WTJ1");
/// Bytes before a record's entries.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();
/// Epochs of stores that were on the same medium are multiples of this apart, those of one store never so far.
pub(crate) const EPOCHS_APART: u64 = 1 << 24;
/// Blocks of the area that have room on the medium from the beginning: for these a full medium takes what takes away.
pub(crate) const FIRST_BLOCKS: u64 = JOURNAL_BYTES_MIN / PAGE_BYTES as u64;
/// What is buffered is written at the latest when it is so much, or an eighth of the area, durable or not.
const BUFFER_BYTES: usize = 1 << 20;
/// Blocks that are written ahead of small commits, at most: so many of these share one longer write.
const AHEAD_BLOCKS: u64 = 256;
/// Syncs that are under way at once, at most: each has written what was appended since the one before.
const SYNCS_MAX: u64 = 2;
/// The most bytes of a commit for which blocks are written ahead.
const AHEAD_BYTES: usize = 64 * PAGE_BYTES;

/// The journal of an open store.
pub(crate) struct Journal {
    state: Mutex<State>,
    written: Condvar,
    /// Writes of pages that records speak of.
    pub(crate) writes: Writes,
    first_block: u64,
    blocks: u64,
}

#[derive(Default)]
struct State {
    epoch: u64,
    /// Records that are not written yet, from block `at` on.
    buffer: Vec<u8>,
    /// What is written is copied there. They are used again: their memory was touched.
    pages: Option<AlignedBuf>,
    /// The block, counted from the area's start, that the buffer goes to.
    at: u64,
    /// Blocks of the area, from its start, for which the medium has taken room.
    roomy: u64,
    /// Blocks of the area, from its start, that were written since the store was opened.
    touched: u64,
    /// Bytes that commits under way may still append.
    reserved: usize,
    last: u64,
    durable: u64,
    /// Somebody writes to the area: one at a time.
    writing: bool,
    /// Syncs that have begun, and that have ended: in the order in which they began.
    begun: u64,
    ended: u64,
    /// The last record that one of them makes durable.
    target: u64,
    /// Why nothing may be written any more.
    failed: Option<Arc<str>>,
    /// Who may write.
    process: Process,
}

impl State {
    /// Stops the journal, unless it has stopped before.
    fn fail(&mut self, error: &Error) {
        self.failed.get_or_insert_with(|| error.reason());
    }

    fn check(&self) -> Result<()> {
        refuse(!self.process.is_current(), Error::Forked)?;
        self.failed.clone().map_or(Ok(()), |reason| Err(Error::Stopped { reason }))
    }
}

/// Room in the journal for a record. It is given back when this is dropped, after the record was appended or was not.
pub(crate) struct JournalReservation<'j> {
    journal: &'j Journal,
    bytes: usize,
}

impl Drop for JournalReservation<'_> {
    fn drop(&mut self) {
        let mut state = self.journal.state.lock();
        assert!(self.bytes <= state.reserved, "the journal's reservations add up");
        state.reserved -= self.bytes;
    }
}

impl Journal {
    /// A journal that begins empty after record `lsn`.
    pub(crate) fn new(first_block: u64, blocks: u64, epoch: u64, lsn: u64) -> Journal {
        let roomy = blocks.min(FIRST_BLOCKS);
        let state = State { epoch, roomy, last: lsn, durable: lsn, ..State::default() };
        Journal {
            state: Mutex::new(state),
            written: Condvar::new(),
            writes: Writes::default(),
            first_block,
            blocks,
        }
    }

    /// Bytes of a record that the area could hold if it were empty. Two blocks are kept back, as they are by who asks
    /// for a checkpoint: a record that no checkpoint makes room for would be waited for in vain.
    pub(crate) fn capacity(&self) -> usize {
        (self.blocks as usize).saturating_sub(2) * PAGE_BYTES - HEADER_BYTES
    }

    /// Bytes of the area that are taken.
    pub(crate) fn taken(&self) -> usize {
        let state = self.state.lock();
        state.at as usize * PAGE_BYTES + state.buffer.len()
    }

    /// Keeps room for a record of `bytes` with its header. `None` when what was appended, and what others have kept, leaves
    /// too little: a checkpoint, which waits for the others, empties the area.
    ///
    /// # Errors
    /// [`Error::Full`] when the area is empty and the medium has no room for so much of it; [`Error::Io`].
    pub(crate) fn reserve(
        &self,
        bytes: usize,
        store: &dyn PageStore,
    ) -> Result<Option<JournalReservation<'_>>> {
        let mut state = self.state.lock();
        let taken = state.at as usize * PAGE_BYTES + state.buffer.len() + state.reserved;
        let wanted = taken + bytes + 2 * PAGE_BYTES;
        if wanted > self.size() {
            return Ok(None);
        }
        if let Err(error) = self.take_room(&mut state, wanted.div_ceil(PAGE_BYTES) as u64, store) {
            return if taken > 0 && matches!(error, Error::Full { .. }) { Ok(None) } else { Err(error) };
        }
        // A write begins at a block, so one behind this record may begin up to a block later.
        let bytes = bytes + PAGE_BYTES;
        state.reserved += bytes;
        Ok(Some(JournalReservation { journal: self, bytes }))
    }

    /// Takes room on the medium for the first `wanted` blocks of the area, and as many again where it has that.
    fn take_room(&self, state: &mut State, wanted: u64, store: &dyn PageStore) -> Result<()> {
        if wanted <= state.roomy {
            return Ok(());
        }
        let (block, mut full) = (self.first_block + state.roomy, "journal");
        for end in [(2 * wanted).min(self.blocks), wanted] {
            match store.reserve(block, end - state.roomy) {
                Ok(()) => {
                    state.roomy = end;
                    return Ok(());
                }
                Err(source) => match reason(&source) {
                    Some(reason) => full = reason,
                    None => return Err(Error::Io { what: "take room for the journal", block, source }),
                },
            }
        }
        Err(Error::Full { what: full })
    }

    /// Bytes of the area.
    fn size(&self) -> usize {
        self.blocks as usize * PAGE_BYTES
    }

    /// The number of the last record.
    pub(crate) fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// The number of the last record that is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.state.lock().durable
    }

    /// Refuses what is written after a write that failed.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub(crate) fn check(&self) -> Result<()> {
        self.state.lock().check()
    }

    /// Nothing may be written any more: what is in memory is not what is on the medium, for this reason.
    pub(crate) fn stop(&self, reason: &Error) {
        self.state.lock().fail(reason);
    }

    /// Appends a record and returns its number. It is durable after [`Journal::sync_to`].
    ///
    /// # Errors
    /// [`Error::Full`] when the area is full: a checkpoint empties it. [`Error::Stopped`].
    pub(crate) fn append(&self, entries: &[u8], store: &dyn PageStore) -> Result<u64> {
        let mut state = self.state.lock();
        state.check()?;
        let taken = state.at as usize * PAGE_BYTES + state.buffer.len();
        if taken + HEADER_BYTES + entries.len() + 8 + PAGE_BYTES > self.size() {
            return Err(Error::Full { what: "journal" });
        }
        let lsn = state.last + 1;
        let (bytes, epoch, durable) = (entries.len() as u32, state.epoch, state.durable);
        let mut header = Header { magic: MAGIC, crc: 0, bytes, zero: 0, epoch, lsn, durable };
        header.crc = header.crc_with(entries);
        debug_assert!(durable <= state.last, "a record is durable before it is appended");
        debug_assert!(state.buffer.len().is_multiple_of(8), "a record begins where no reader looks");
        state.buffer.extend_from_slice(header.as_bytes());
        state.buffer.extend_from_slice(entries);
        let end = state.buffer.len().next_multiple_of(8);
        state.buffer.resize(end, 0);
        debug_assert!(state.at as usize * PAGE_BYTES + state.buffer.len() <= self.size());
        state.last = lsn;
        if state.buffer.len() >= BUFFER_BYTES.min(self.size() / 8) && !state.writing {
            self.write(state, store, || ()).1?;
        }
        Ok(lsn)
    }

    /// Does `first`, and writes what is buffered. Others append meanwhile, and nobody else writes.
    fn write<'j>(
        &'j self,
        mut state: MutexGuard<'j, State>,
        store: &dyn PageStore,
        first: impl FnOnce(),
    ) -> (MutexGuard<'j, State>, Result<()>) {
        state.writing = true;
        let (len, block) = (state.buffer.len(), self.first_block + state.at);
        // With zeros to the end of the last page.
        let bytes = len.next_multiple_of(PAGE_BYTES);
        let kept = state.pages.take().filter(|pages| pages.len() >= bytes);
        let mut pages = kept.unwrap_or_else(|| AlignedBuf::zeroed(bytes.next_power_of_two()));
        pages[..len].copy_from_slice(&state.buffer);
        pages[len..bytes].fill(0);
        state.buffer.clear();
        // Those of a large record are not kept.
        state.buffer.shrink_to(2 * BUFFER_BYTES);
        state.at += (bytes / PAGE_BYTES) as u64;
        let ahead = ahead_of(&mut state, bytes);
        drop(state);
        first();
        if !ahead.is_empty() {
            // Where this fails, the records tell.
            let _ = store.touch(self.first_block + ahead.start, ahead.end - ahead.start);
        }
        let done = match &pages[..bytes] {
            [] => Ok(()),
            bytes => store.put("write the journal", block, &JOURNAL_TAG, bytes),
        };
        let mut state = self.state.lock();
        state.writing = false;
        state.pages = Some(pages).filter(|pages| pages.len() <= 2 * BUFFER_BYTES);
        if let Err(error) = &done {
            state.fail(error);
        }
        self.written.notify_all();
        (state, done)
    }

    /// Makes the records up to `lsn` durable, together with all pages that were written before this call.
    ///
    /// # Errors
    /// [`Error::Io`] for the one who wrote; [`Error::Stopped`] for the others and from then on.
    pub(crate) fn sync_to(&self, lsn: u64, store: &dyn PageStore) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.durable >= lsn {
                return Ok(());
            }
            // Records that nobody makes durable yet are written while those before them are synced.
            let is_next = state.target < lsn && state.begun - state.ended < SYNCS_MAX;
            if is_next && !state.writing {
                break;
            }
            self.written.wait(&mut state);
        }
        state.begun += 1;
        state.target = state.last;
        let (turn, target) = (state.begun, state.target);
        let (state, done) = self.write(state, store, || self.writes.begin(store));
        drop(state);
        let done = done.and_then(|()| {
            // The writes of all pages that records up to here speak of were begun, or are due, before.
            self.writes.arrive(store)?;
            store.sync().map_err(Error::io("sync the journal", self.first_block))
        });
        let mut state = self.state.lock();
        // What the one before could not make durable, this one has not either.
        while state.ended + 1 < turn {
            self.written.wait(&mut state);
        }
        state.ended = turn;
        let checked = state.check();
        match &done {
            Ok(()) if checked.is_ok() => state.durable = state.durable.max(target),
            Ok(()) => {}
            Err(error) => state.fail(error),
        }
        self.written.notify_all();
        done.and(checked)
    }

    /// A checkpoint with all records so far is durable: the area is empty again. Nobody appends meanwhile. Returns how many of its
    /// blocks were used.
    pub(crate) fn restart(&self, epoch: u64) -> u64 {
        let mut state = self.state.lock();
        assert!(epoch > state.epoch, "records of two checkpoints would have one epoch");
        let used = state.at;
        state.buffer.clear();
        (state.epoch, state.at) = (epoch, 0);
        state.durable = state.last;
        used
    }

    /// The area, when no write to it is under way any more. The caller has seen to it that nobody appends.
    pub(crate) fn area_at_rest(&self) -> Run {
        let mut state = self.state.lock();
        while state.writing {
            self.written.wait(&mut state);
        }
        Run { block: self.first_block, blocks: self.blocks }
    }
}

/// The blocks to be written ahead, with zeros, when `bytes` are written. The first write of a block that a file system has set aside changes its
/// metadata, and then a sync writes these too: it takes twice as long as one of a block that was written before.
fn ahead_of(state: &mut State, bytes: usize) -> Range<u64> {
    state.touched = state.touched.max(state.at);
    if bytes > AHEAD_BYTES || state.touched > state.at {
        return 0..0;
    }
    // No more than was written: a store that takes few commits stays small.
    state.touched = (state.at + state.at.min(AHEAD_BLOCKS)).min(state.roomy).max(state.at);
    state.at..state.touched
}

/// What stands before the entries of a record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Header {
    pub magic: u32,
    /// Of what follows it, and of the entries.
    crc: u32,
    /// Of the entries.
    bytes: u32,
    zero: u32,
    pub epoch: u64,
    pub lsn: u64,
    durable: u64,
}

impl Header {
    /// The bytes there as a header, which they need not be.
    pub(crate) fn at(area: &[u8], at: usize) -> Option<Header> {
        Header::read_from_prefix(area.get(at..)?).ok().map(|(header, _)| header)
    }

    /// Whether it may be the header of a record of this epoch.
    pub(crate) fn is_of(&self, epoch: u64) -> bool {
        self.magic == MAGIC && self.epoch == epoch
    }

    fn crc_with(&self, entries: &[u8]) -> u32 {
        crc32c_append(crc32c(&self.as_bytes()[8..]), entries)
    }
}

/// A record as it was found.
pub(crate) struct Found {
    pub lsn: u64,
    /// Records up to this one were durable when this one was written.
    pub durable: u64,
    /// Where its entries are in the area's bytes.
    pub entries: std::ops::Range<usize>,
}

/// Finds the records of `epoch` after `lsn` in the area's bytes.
///
/// # Errors
/// [`Error::Damaged`] when records are missing before one that says that they were durable.
pub(crate) fn find_records(area: &[u8], epoch: u64, lsn: u64) -> Result<Vec<Found>> {
    let (found, at, next) = follow_chain(area, 0, epoch, lsn + 1);
    for block in (at.next_multiple_of(PAGE_BYTES)..area.len()).step_by(PAGE_BYTES) {
        let record = record_at(area, block, epoch);
        if let Some(record) = record.filter(|record| record.lsn >= next && record.durable >= next) {
            let durable = record.durable;
            return Err(Error::damaged(format!(
                "journal: commits {next} to {durable} were durable and cannot be read"
            )));
        }
    }
    Ok(found)
}

/// The records of `epoch` that follow each other from `at` on, the first of which has the number `next`; where they end, and the
/// number that would come then.
pub(crate) fn follow_chain(area: &[u8], at: usize, epoch: u64, next: u64) -> (Vec<Found>, usize, u64) {
    let mut found: Vec<Found> = Vec::new();
    let (mut at, mut next) = (at, next);
    loop {
        match record_at(area, at, epoch) {
            Some(record) if record.lsn == next => {
                at = record.entries.end.next_multiple_of(8);
                next += 1;
                found.push(record);
            }
            // The rest of a block that a write did not fill is zero.
            None if at % PAGE_BYTES != 0 => at = at.next_multiple_of(PAGE_BYTES),
            _ => return (found, at, next),
        }
    }
}

/// Whether a block may begin with a record of `epoch`.
pub(crate) fn may_begin_record(block: &[u8], epoch: u64) -> bool {
    Header::at(block, 0).is_some_and(|header| header.is_of(epoch))
}

/// Whether a block may begin with a record of a checkpoint of this store that came after `epoch`.
pub(crate) fn may_begin_later_record(block: &[u8], epoch: u64) -> bool {
    let later = 1..EPOCHS_APART;
    Header::at(block, 0)
        .is_some_and(|header| header.is_of(header.epoch) && later.contains(&header.epoch.wrapping_sub(epoch)))
}

pub(crate) fn record_at(area: &[u8], at: usize, epoch: u64) -> Option<Found> {
    let header = Header::at(area, at).filter(|header| header.is_of(epoch))?;
    let entries = at + HEADER_BYTES..at + HEADER_BYTES + header.bytes as usize;
    let is_whole = header.crc_with(area.get(entries.clone())?) == header.crc;
    is_whole.then_some(Found { lsn: header.lsn, durable: header.durable, entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_store::MemoryStore;
    use std::io::IoSlice;

    fn area(store: &MemoryStore) -> Vec<u8> {
        store.to_bytes()[2 * PAGE_BYTES..].to_vec()
    }

    #[test]
    fn records_are_found_in_order_and_those_of_another_epoch_are_not() {
        let store = MemoryStore::new();
        store.grow(34).unwrap();
        let journal = Journal::new(2, 32, 7, 100);
        for n in 0..5u8 {
            let lsn = journal.append(&vec![n; 1000 * n as usize], &store).unwrap();
            if n % 2 == 0 {
                journal.sync_to(lsn, &store).unwrap();
            }
        }
        journal.sync_to(105, &store).unwrap();
        let bytes = area(&store);
        let found = find_records(&bytes, 7, 100).unwrap();
        let lens: Vec<_> = found.iter().map(|record| (record.lsn, record.entries.len())).collect();
        assert_eq!(lens, [(101, 0), (102, 1000), (103, 2000), (104, 3000), (105, 4000)]);
        assert!(find_records(&bytes, 8, 100).unwrap().is_empty());
        assert!(bytes[found[3].entries.clone()].iter().all(|b| *b == 3));
    }

    #[test]
    fn a_lost_record_that_was_durable_is_damage_and_a_lost_tail_is_not() {
        let store = MemoryStore::new();
        store.grow(34).unwrap();
        let journal = Journal::new(2, 32, 7, 0);
        for n in 1..=3u8 {
            let lsn = journal.append(&[n; 100], &store).unwrap();
            journal.sync_to(lsn, &store).unwrap();
        }
        let mut bytes = area(&store);
        bytes[PAGE_BYTES * 2 + 60] ^= 1;
        assert_eq!(find_records(&bytes, 7, 0).unwrap().len(), 2, "the third may never have been written");
        bytes[PAGE_BYTES + 60] ^= 1;
        assert_eq!(find_records(&bytes, 7, 0).unwrap().len(), 1, "the third cannot be read either");
        bytes[PAGE_BYTES * 2 + 60] ^= 1;
        let error = find_records(&bytes, 7, 0).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("commits 2 to 2")));
    }

    #[test]
    fn a_full_area_refuses_until_a_checkpoint() {
        let store = MemoryStore::new();
        store.grow(6).unwrap();
        let journal = Journal::new(2, 4, 1, 0);
        journal.append(&[1; 8000], &store).unwrap();
        assert!(matches!(journal.append(&[1; 8000], &store), Err(Error::Full { .. })));
        journal.restart(2);
        assert_eq!(journal.append(&[1; 8000], &store).unwrap(), 2);
    }

    /// Its blocks cannot be written.
    struct Broken(MemoryStore);

    impl PageStore for Broken {
        fn read(&self, block: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.0.read(block, out)
        }

        fn write(&self, _: u64, _: &weft_core::Tag, _: &[IoSlice<'_>]) -> std::io::Result<()> {
            Err(std::io::Error::other("a bad block"))
        }

        fn sync(&self) -> std::io::Result<()> {
            Ok(())
        }

        fn blocks(&self) -> u64 {
            self.0.blocks()
        }

        fn grow(&self, blocks: u64) -> std::io::Result<()> {
            self.0.grow(blocks)
        }
    }

    #[test]
    fn no_sync_says_that_a_record_is_durable_whose_write_has_failed() {
        let store = Broken(MemoryStore::new());
        store.grow(66).unwrap();
        let journal = Journal::new(2, 64, 7, 0);
        // So much is written before a sync asks for it.
        assert!(matches!(journal.append(&[1; 40_000], &store), Err(Error::Io { .. })));
        assert!(matches!(journal.sync_to(1, &store), Err(Error::Stopped { .. })));
        assert_eq!(journal.durable(), 0);
    }

    /// Syncs end when they are told to, and how.
    #[derive(Default)]
    struct Told {
        blocks: MemoryStore,
        /// What each sync that was begun is to return, once that is said.
        syncs: std::sync::Mutex<Vec<Option<bool>>>,
        changed: std::sync::Condvar,
    }

    impl Told {
        fn wait_for(
            &self,
            is_so: impl Fn(&[Option<bool>]) -> bool,
        ) -> std::sync::MutexGuard<'_, Vec<Option<bool>>> {
            let syncs = self.syncs.lock().unwrap();
            let long = std::time::Duration::from_secs(60);
            let (syncs, waited) =
                self.changed.wait_timeout_while(syncs, long, |syncs| !is_so(syncs)).unwrap();
            assert!(!waited.timed_out());
            syncs
        }

        fn tell(&self, sync: usize, succeeds: bool) {
            self.wait_for(|syncs| syncs.len() > sync)[sync] = Some(succeeds);
            self.changed.notify_all();
        }
    }

    impl PageStore for Told {
        fn read(&self, block: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.blocks.read(block, out)
        }

        fn write(&self, block: u64, tag: &weft_core::Tag, parts: &[IoSlice<'_>]) -> std::io::Result<()> {
            self.blocks.write(block, tag, parts)
        }

        fn sync(&self) -> std::io::Result<()> {
            let mut syncs = self.syncs.lock().unwrap();
            let mine = syncs.len();
            syncs.push(None);
            drop(syncs);
            self.changed.notify_all();
            let succeeds = self.wait_for(|syncs| syncs[mine].is_some())[mine] == Some(true);
            if succeeds { Ok(()) } else { Err(std::io::Error::other("the power is weak")) }
        }

        fn blocks(&self) -> u64 {
            self.blocks.blocks()
        }

        fn grow(&self, blocks: u64) -> std::io::Result<()> {
            self.blocks.grow(blocks)
        }
    }

    #[test]
    fn records_are_written_while_those_before_them_are_synced_and_are_durable_only_with_them() {
        for succeeds in [true, false] {
            let store = Told::default();
            store.grow(34).unwrap();
            let journal = Journal::new(2, 32, 7, 0);
            std::thread::scope(|scope| {
                journal.append(&[1; 100], &store).unwrap();
                let first = scope.spawn(|| journal.sync_to(1, &store));
                drop(store.wait_for(|syncs| syncs.len() == 1));
                journal.append(&[2; 100], &store).unwrap();
                let second = scope.spawn(|| journal.sync_to(2, &store));
                // The first has not ended, and both records are there.
                store.tell(1, true);
                let lsns: Vec<_> = find_records(&area(&store.blocks), 7, 0)
                    .unwrap()
                    .iter()
                    .map(|record| record.lsn)
                    .collect();
                assert_eq!((lsns, journal.durable()), (vec![1, 2], 0));
                store.tell(0, succeeds);
                let (first, second) = (first.join().unwrap(), second.join().unwrap());
                if succeeds {
                    assert!(first.is_ok() && second.is_ok() && journal.durable() == 2);
                } else {
                    assert!(matches!(first, Err(Error::Io { .. })), "{first:?}");
                    assert!(matches!(second, Err(Error::Stopped { .. })), "{second:?}");
                    assert_eq!(journal.durable(), 0);
                }
            });
        }
    }
}
