//! Old versions of pages, kept for open snapshots.
//!
//! While a snapshot is open, a page is copied before it is changed for the first time after the snapshot's birth; what its
//! descriptor said of committed nodes likewise. A page that is given up needs no copy when it is on the medium: its
//! block is kept from being reused. Without snapshots this costs one comparison at each change.
//!
//! ```text
//! page 7:  | stamp 3: copy | stamp 8: copy |  the page now      snapshots 1..=3 | 4..=8 | from 9 on
//! ```
//!
//! A version holds for snapshots up to its stamp and behind that of the version before it. A part of it that is not there
//! has not changed yet: it is that of the next version, or of the page now.
//!
//! A version goes when the last snapshot ends that it holds for. The newest of these watches it; when that ends, the next older one does, so
//! the end of a snapshot looks at what it watches alone. The versions that one watches are in the order in which older snapshots stop
//! needing them, and go to the next watcher together.
//!
//! The lock is taken before those of descriptors: a reader of a snapshot looks at descriptors while it holds the versions.
//!
//! The copies have a bound; when it is reached, those go that can be read again, and then the oldest snapshot is lost, and
//! says so.

use super::desc::{Desc, Slots};
use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::layout::node::SLOT_BYTES_MIN;
use crate::sync::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::checksum::crc32c;

/// Bytes that a version takes beside a copy, about.
const VERSION_BYTES: usize = 192;

/// A page's bytes, aligned as its words need it.
#[repr(C, align(64))]
struct PageCopy([u8; PAGE_BYTES]);

/// The versions of a store's pages.
pub(crate) struct Versions {
    /// The stamp of the newest snapshot that is open; 0 while there is none.
    newest: AtomicU64,
    state: RwLock<State>,
    /// Snapshots of which somebody may not have seen that they ended.
    missed: AtomicU64,
    bytes_max: usize,
    /// Versions, and frozen contents, that ends of snapshots have looked at.
    #[cfg(test)]
    pub(crate) looks: std::sync::atomic::AtomicUsize,
}

#[derive(Default)]
struct State {
    last: u64,
    /// How many snapshots have each stamp.
    open: BTreeMap<u64, usize>,
    /// The versions of each page by their stamps. Each holds for a snapshot that is open.
    pages: FxHashMap<u32, BTreeMap<u64, Box<Version>>>,
    /// The versions that each snapshot is the newest to need; none without any.
    watched: BTreeMap<u64, BinaryHeap<Watched>>,
    bytes: usize,
    /// Blocks that nobody needs any more, and whose they were.
    freed: Vec<(u64, u16)>,
}

/// A version: snapshots up to `behind` do not need it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Watched {
    behind: u64,
    page: u32,
    stamp: u64,
}

/// The block of a page that was freed while a snapshot still needs it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RetiredPage {
    block: u64,
    crc: u32,
    snode: u16,
}

/// What a page held.
enum VersionBytes {
    /// This.
    Copy(Box<PageCopy>),
    /// It was given up; its block has what it held, and so has a copy that was read.
    Kept(RetiredPage, Option<Box<PageCopy>>),
    /// There was no such page.
    Absent,
}

#[derive(Default)]
struct Version {
    desc: Option<Desc>,
    bytes: Option<VersionBytes>,
    /// A bit for each node that was freed meanwhile, by its place.
    freed: [AtomicU64; size_of::<Slots>() / 8],
}

/// The word and the bit of `freed` for the node at a byte of its page. Those that a snapshot has there lie at least a slot apart; what
/// comes there later is of another class only when all of them were freed.
fn freed_bit(offset: usize) -> (usize, u64) {
    let bit = offset / SLOT_BYTES_MIN;
    (bit / 64, 1 << (bit % 64))
}

impl Version {
    fn copy(&self) -> Option<&[u8; PAGE_BYTES]> {
        match &self.bytes {
            Some(VersionBytes::Copy(copy) | VersionBytes::Kept(_, Some(copy))) => Some(&copy.0),
            _ => None,
        }
    }

    fn retired(&self) -> Option<RetiredPage> {
        match &self.bytes {
            Some(VersionBytes::Kept(retired, _)) => Some(*retired),
            _ => None,
        }
    }

    fn size(&self) -> usize {
        VERSION_BYTES + self.copy().map_or(0, |_| PAGE_BYTES)
    }
}

/// Where a snapshot finds the bytes of a page.
pub(crate) enum SnapshotPage<'a> {
    /// As they are now.
    Now,
    Copy(&'a [u8; PAGE_BYTES]),
    /// On the medium, to be read first.
    OnMedium,
}

impl State {
    /// The version for the newest snapshot, if it is there.
    fn newest(&self, page: u32, newest: u64) -> Option<&Version> {
        let (stamp, last) = self.pages.get(&page)?.last_key_value()?;
        (*stamp >= newest).then_some(last)
    }

    /// The version for the newest snapshot, made if it is not there; `None` without a snapshot: the last may just have ended.
    fn version(&mut self, page: u32) -> Option<&mut Version> {
        let newest = *self.open.last_key_value()?.0;
        let versions = self.pages.entry(page).or_default();
        let behind = versions.last_key_value().map_or(0, |(stamp, _)| *stamp);
        if behind >= newest {
            return versions.get_mut(&behind).map(|version| &mut **version);
        }
        self.bytes += VERSION_BYTES;
        self.watched.entry(newest).or_default().push(Watched { behind, page, stamp: newest });
        Some(versions.entry(newest).or_default())
    }

    /// Gives up copies of what is on the medium as well, but for those of page `but`.
    fn forget_loaded(&mut self, but: Option<u32>) {
        let State { pages, bytes, .. } = self;
        for (_, versions) in pages.iter_mut().filter(|(page, _)| Some(**page) != but) {
            for version in versions.values_mut() {
                if let Some(VersionBytes::Kept(_, copy)) = &mut version.bytes {
                    *bytes -= copy.take().map_or(0, |_| PAGE_BYTES);
                }
            }
        }
    }

    /// Gives up the versions that only this snapshot has needed, which has ended; the next older one watches the others. How many versions
    /// were looked at.
    fn sweep(&mut self, ended: u64) -> usize {
        let Some(mut watched) = self.watched.remove(&ended) else { return 0 };
        let mut looks = 0;
        let older = self.open.range(..ended).next_back().map_or(0, |(stamp, _)| *stamp);
        while let Some(version) = watched.peek_mut().filter(|version| version.behind >= older) {
            let Watched { page, stamp, .. } = PeekMut::pop(version);
            looks += 1;
            self.drop_version(page, stamp);
        }
        if !watched.is_empty() {
            let more = watched.len();
            let others = self.watched.entry(older).or_default();
            // The fewer go to the more.
            looks += more.min(others.len());
            others.append(&mut watched);
        }
        looks
    }

    /// Gives up a version that no snapshot needs.
    fn drop_version(&mut self, page: u32, stamp: u64) {
        let State { pages, bytes, freed, .. } = self;
        let Some(versions) = pages.get_mut(&page) else { return };
        let Some(version) = versions.remove(&stamp) else { return };
        *bytes -= version.size();
        let retired = version.retired().map(|kept| (kept.block, kept.snode));
        // What the version before took from this one goes to it.
        let Some((_, last)) = versions.range_mut(..stamp).next_back() else {
            freed.extend(retired);
            if versions.is_empty() {
                pages.remove(&page);
            }
            return;
        };
        *bytes -= last.size();
        if last.bytes.is_some() {
            freed.extend(retired);
        }
        let Version { desc, bytes: held, freed: gone } = *version;
        last.desc = last.desc.take().or(desc);
        last.bytes = last.bytes.take().or(held);
        last.freed.iter_mut().zip(gone).for_each(|(all, more)| *all.get_mut() |= more.into_inner());
        *bytes += last.size();
    }
}

impl Versions {
    /// Versions of at most `bytes_max` bytes together.
    pub(crate) fn new(bytes_max: usize) -> Versions {
        Versions {
            newest: AtomicU64::new(0),
            state: RwLock::default(),
            missed: AtomicU64::new(0),
            bytes_max,
            #[cfg(test)]
            looks: Default::default(),
        }
    }

    fn note_looks(&self, _looks: usize) {
        #[cfg(test)]
        self.looks.fetch_add(_looks, Ordering::Relaxed);
    }

    /// How often somebody may not have seen that a snapshot ended.
    pub(crate) fn missed(&self) -> u64 {
        // Relaxed: who does not see the last one sees it the next time.
        self.missed.load(Ordering::Relaxed)
    }

    /// Notes that somebody was not told that a snapshot ended.
    pub(crate) fn note_missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// The stamp of the newest snapshot that is open; 0 while there is none.
    #[inline]
    pub(crate) fn newest(&self) -> u64 {
        // Relaxed: a snapshot begins while no commit is applied, and commits and it take the gate.
        self.newest.load(Ordering::Relaxed)
    }

    /// Begins so many snapshots of one state; returns their stamp. The caller sees to it that no commit is being applied.
    pub(crate) fn begin(&self, snapshots: usize) -> u64 {
        let mut state = self.state.write();
        state.last += 1;
        let stamp = state.last;
        state.open.insert(stamp, snapshots);
        self.newest.store(stamp, Ordering::Relaxed);
        stamp
    }

    /// Ends a snapshot; returns the blocks that can be reused, unless others have its stamp.
    pub(crate) fn end(&self, stamp: u64) -> Option<Vec<(u64, u16)>> {
        let mut state = self.state.write();
        if let Some(snapshots) = state.open.get_mut(&stamp) {
            *snapshots -= 1;
            if *snapshots > 0 {
                return None;
            }
        }
        self.close(&mut state, stamp);
        Some(std::mem::take(&mut state.freed))
    }

    fn close(&self, state: &mut State, stamp: u64) {
        if state.open.remove(&stamp).is_some() {
            let newest = state.open.last_key_value().map_or(0, |(stamp, _)| *stamp);
            self.newest.store(newest, Ordering::Relaxed);
            let looks = state.sweep(stamp);
            self.note_looks(looks);
        }
    }

    /// Whether a snapshot is open whose stamp lies in `from..=to`.
    pub(crate) fn is_open_in(&self, from: u64, to: u64) -> bool {
        self.note_looks(1);
        self.state.read().open.range(from..=to).next().is_some()
    }

    /// Blocks that are kept for snapshots, and whose they were.
    pub(crate) fn kept(&self) -> Vec<(u64, u16)> {
        let state = self.state.read();
        let kept = state.pages.values().flat_map(BTreeMap::values).filter_map(|version| version.retired());
        let freed = state.freed.iter().copied();
        kept.map(|kept| (kept.block, kept.snode)).chain(freed).collect()
    }

    /// Bytes of all versions.
    pub(crate) fn bytes(&self) -> usize {
        self.state.read().bytes
    }

    /// Notes that the descriptor of a page is about to say something else of committed nodes. The caller does not hold
    /// its lock, but its partition alone.
    #[inline]
    pub(crate) fn note_desc(&self, page: u32, desc: &Mutex<Desc>) {
        let newest = self.newest();
        let is_known = || self.state.read().newest(page, newest).is_some_and(|last| last.desc.is_some());
        if newest > 0 && !is_known() {
            let now = desc.lock().clone();
            if let Some(version) = self.state.write().version(page) {
                version.desc.get_or_insert(now);
            }
        }
    }

    /// Notes that the node at byte `offset` of a page is about to be freed, as [`Versions::note_desc`] does.
    pub(crate) fn note_freed(&self, page: u32, desc: &Mutex<Desc>, offset: usize) {
        self.note_desc(page, desc);
        let newest = self.newest();
        if newest > 0
            && let Some(last) = self.state.read().newest(page, newest)
        {
            let (word, bit) = freed_bit(offset);
            // Relaxed: who asks has a lock that is taken behind this before the place is another's.
            last.freed[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Notes that the bytes of a page are about to change.
    #[cold]
    pub(super) fn note_bytes(&self, page: u32, bytes: &[u8; PAGE_BYTES]) {
        let newest = self.newest();
        let is_known = || self.state.read().newest(page, newest).is_some_and(|last| last.bytes.is_some());
        if newest > 0 && !is_known() {
            self.keep_copy(&mut self.state.write(), page, bytes);
        }
    }

    /// Notes that a page begins to be.
    pub(super) fn note_new(&self, page: u32) {
        if self.newest() > 0
            && let Some(version) = self.state.write().version(page)
            && version.desc.is_none()
            && version.bytes.is_none()
        {
            (version.desc, version.bytes) = (Some(Desc::default()), Some(VersionBytes::Absent));
        }
    }

    /// Notes that a page is given up; `dirty` are its bytes where the medium has others. Whether its block is kept.
    pub(super) fn note_gone(&self, page: u32, desc: &Desc, dirty: Option<&[u8; PAGE_BYTES]>) -> bool {
        if self.newest() == 0 {
            return false;
        }
        let mut state = self.state.write();
        let Some(version) = state.version(page) else { return false };
        version.desc.get_or_insert_with(|| desc.clone());
        if version.bytes.is_some() {
            return false;
        }
        let kept = RetiredPage { block: desc.block, crc: desc.crc, snode: desc.snode };
        match dirty {
            Some(bytes) => self.keep_copy(&mut state, page, bytes),
            None if desc.block == 0 => {}
            None => version.bytes = Some(VersionBytes::Kept(kept, None)),
        }
        dirty.is_none() && desc.block != 0
    }

    /// Keeps what a page held for the newest snapshot, unless that is kept.
    fn keep_copy(&self, state: &mut State, page: u32, bytes: &[u8; PAGE_BYTES]) {
        if let Some(version) = state.version(page).filter(|version| version.bytes.is_none()) {
            version.bytes = Some(VersionBytes::Copy(Box::new(PageCopy(*bytes))));
            state.bytes += PAGE_BYTES;
            self.keep_bound(state);
        }
    }

    /// Loses copies that can be read again, and then the oldest snapshots, until the bound is kept.
    fn keep_bound(&self, state: &mut State) {
        if state.bytes > self.bytes_max {
            state.forget_loaded(None);
            self.lose_oldest(state);
        }
    }

    fn lose_oldest(&self, state: &mut State) {
        while state.bytes > self.bytes_max {
            let Some(oldest) = state.open.first_key_value().map(|(stamp, _)| *stamp) else { break };
            tracing::warn!(bytes = state.bytes, "a snapshot is lost: it needs more memory than it may have");
            self.close(state, oldest);
            self.note_missed();
        }
    }

    /// The versions as a snapshot sees them. They stay as they are while this is held.
    ///
    /// # Errors
    /// [`Error::SnapshotLost`].
    pub(crate) fn view(&self, stamp: u64) -> Result<View<'_>> {
        let state = self.state.read();
        if !state.open.contains_key(&stamp) {
            return Err(Error::SnapshotLost { bytes: self.bytes_max as u64 });
        }
        Ok(View { state, stamp })
    }

    /// Reads, with `read`, a page that is kept on the medium for a snapshot; `false` when it is not. Others that were read so may have to go
    /// for it, unless all of them `must_stay`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub(crate) fn load(
        &self,
        stamp: u64,
        page: u32,
        must_stay: bool,
        read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<bool> {
        let find = |state: &State| {
            let mut versions = state.pages.get(&page)?.range(stamp..);
            let (at, version) = versions.find(|(_, version)| version.bytes.is_some())?;
            version.retired().filter(|_| version.copy().is_none()).map(|kept| (*at, kept))
        };
        let Some((_, kept @ RetiredPage { block, crc, .. })) = find(&self.state.read()) else {
            return Ok(false);
        };
        let mut raw = weft_sys::AlignedBuf::zeroed(PAGE_BYTES);
        let read = read(block, &mut raw);
        if read.is_err() || crc32c(&raw) != crc {
            // With the snapshot goes the block: another page is there by now, or the medium's end is before it.
            drop(self.view(stamp)?);
            read.map_err(Error::io("read a page", block))?;
            return Err(Error::damaged(format!("page {page} at block {block}: its checksum does not hold")));
        }
        let mut copy = Box::new(PageCopy([0; PAGE_BYTES]));
        copy.0.copy_from_slice(&raw[..PAGE_BYTES]);
        let mut state = self.state.write();
        // Others may have ended or read it meanwhile; a block that is kept is not written.
        if let Some((at, _)) = find(&state).filter(|(_, now)| *now == kept)
            && let Some(version) = state.pages.get_mut(&page).and_then(|versions| versions.get_mut(&at))
        {
            version.bytes = Some(VersionBytes::Kept(kept, Some(copy)));
            state.bytes += PAGE_BYTES;
            if state.bytes > self.bytes_max && !must_stay {
                state.forget_loaded(Some(page));
            }
            self.lose_oldest(&mut state);
        }
        Ok(true)
    }
}

/// The versions of one snapshot.
pub(crate) struct View<'g> {
    state: RwLockReadGuard<'g, State>,
    stamp: u64,
}

impl View<'_> {
    fn versions(&self, page: u32) -> impl Iterator<Item = &Version> {
        let versions = self.state.pages.get(&page).map(|versions| versions.range(self.stamp..));
        versions.into_iter().flatten().map(|(_, version)| &**version)
    }

    /// The bytes of a page.
    pub(crate) fn bytes(&self, page: u32) -> SnapshotPage<'_> {
        let found = self.versions(page).find(|version| version.bytes.is_some());
        match found.map(|version| (version.copy(), version.retired())) {
            Some((Some(bytes), _)) => SnapshotPage::Copy(bytes),
            Some((None, Some(_))) => SnapshotPage::OnMedium,
            _ => SnapshotPage::Now,
        }
    }

    /// The descriptor of a page, where it is another than now.
    pub(crate) fn desc(&self, page: u32) -> Option<&Desc> {
        self.versions(page).find_map(|version| version.desc.as_ref())
    }

    /// Whether the node that the snapshot has at byte `offset` of a page was freed since.
    pub(crate) fn has_freed(&self, page: u32, offset: usize) -> bool {
        let (word, bit) = freed_bit(offset);
        self.versions(page).any(|version| version.freed[word].load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(value: u8) -> [u8; PAGE_BYTES] {
        [value; PAGE_BYTES]
    }

    fn seen(versions: &Versions, stamp: u64, at: u32) -> Option<u8> {
        let view = versions.view(stamp).unwrap();
        match view.bytes(at) {
            SnapshotPage::Copy(bytes) => Some(bytes[0]),
            SnapshotPage::Now => None,
            SnapshotPage::OnMedium => Some(255),
        }
    }

    #[test]
    fn each_snapshot_sees_the_page_as_it_was_whichever_of_them_ends_first() {
        for first in 0..3 {
            let versions = Versions::new(1 << 20);
            versions.note_bytes(7, &page(0));
            assert_eq!(versions.bytes(), 0, "no snapshot, no copy");
            let mut stamps = Vec::new();
            for value in 1..4 {
                stamps.push(versions.begin(1));
                // The second snapshot sees no change of its own: its bytes are those of the third.
                if value != 2 {
                    versions.note_bytes(7, &page(value));
                    versions.note_bytes(7, &page(99));
                } else {
                    versions.note_desc(7, &Mutex::new(Desc { block: 5, ..Desc::default() }));
                }
            }
            let wanted = [Some(1), Some(3), Some(3)];
            for (stamp, wanted) in stamps.iter().zip(wanted) {
                assert_eq!(seen(&versions, *stamp, 7), wanted);
            }
            let gone = stamps.remove(first);
            versions.end(gone);
            assert!(matches!(versions.view(gone), Err(Error::SnapshotLost { .. })));
            for (stamp, wanted) in stamps.iter().zip((0..3).filter(|at| *at != first).map(|at| wanted[at])) {
                assert_eq!(seen(&versions, *stamp, 7), wanted, "after the end of {first}");
                let desc = versions.view(*stamp).unwrap().desc(7).map(|desc| desc.block);
                assert_eq!(desc, (*stamp <= 2).then_some(5));
            }
            stamps.into_iter().for_each(|stamp| drop(versions.end(stamp)));
            assert_eq!((versions.bytes(), versions.newest()), (0, 0));
        }
    }

    #[test]
    fn a_page_on_the_medium_keeps_its_block_to_the_end_of_the_last_snapshot_that_needs_it() {
        let versions = Versions::new(1 << 20);
        let (a, b) = (versions.begin(1), versions.begin(1));
        let desc = Desc { block: 42, snode: 6, ..Desc::default() };
        assert!(versions.note_gone(7, &desc, None));
        assert!(!versions.note_gone(7, &desc, None), "once");
        versions.note_new(7);
        let c = versions.begin(1);
        versions.note_bytes(7, &page(3));
        assert_eq!([a, b, c].map(|stamp| seen(&versions, stamp, 7)), [Some(255), Some(255), Some(3)]);
        assert_eq!(versions.end(b).unwrap(), []);
        assert_eq!(seen(&versions, a, 7), Some(255));
        assert_eq!(versions.end(a).unwrap(), [(42, 6)]);
        assert_eq!(seen(&versions, c, 7), Some(3));
        assert_eq!(versions.end(c).unwrap(), []);
    }

    #[test]
    fn the_oldest_snapshot_is_lost_when_the_bound_is_reached() {
        let versions = Versions::new(10 * (PAGE_BYTES + VERSION_BYTES));
        let old = versions.begin(1);
        (0..6).for_each(|at| versions.note_bytes(at, &page(1)));
        let new = versions.begin(1);
        (6..10).for_each(|at| versions.note_bytes(at, &page(1)));
        assert!(versions.view(old).is_ok());
        versions.note_bytes(10, &page(1));
        assert!(versions.view(old).is_err());
        assert_eq!(seen(&versions, new, 10), Some(1));
        assert!(versions.bytes() < 6 * (PAGE_BYTES + VERSION_BYTES));
    }

    #[test]
    fn snapshots_with_one_stamp_see_its_state_until_the_last_of_them_ends() {
        let versions = Versions::new(1 << 20);
        let (old, both) = (versions.begin(1), versions.begin(2));
        versions.note_bytes(7, &page(1));
        let new = versions.begin(1);
        versions.note_bytes(8, &page(2));
        assert!(versions.end(both).is_none());
        assert_eq!([7, 8].map(|at| seen(&versions, both, at)), [Some(1), Some(2)]);
        assert!(versions.end(both).is_some());
        assert!(versions.view(both).is_err());
        assert_eq!([7, 8].map(|at| seen(&versions, old, at)), [Some(1), Some(2)]);
        assert_eq!([7, 8].map(|at| seen(&versions, new, at)), [None, Some(2)]);
        for stamp in [old, new] {
            assert!(versions.end(stamp).is_some());
        }
        let state = versions.state.read();
        assert_eq!((state.bytes, state.pages.len(), state.watched.len()), (0, 0, 0));
    }
}
