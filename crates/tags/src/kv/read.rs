//! Reads of pairs: in the last committed state, and in that of a snapshot.

use super::scan::{KvScan, ScanSource};
use super::{Kv, PAIR};
use crate::committed::Committed;
use crate::edges::many::GROUP;
use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::layout::node::split_key;
use crate::pages::access::Pages;
use crate::partition::{FAULT_ROUNDS, begins_with_key, visit_data};
use crate::snapshot::Snapshot;

/// A key-value store as it was when a snapshot began: see [`Kv::at`].
pub struct KvSnapshot<'k, 's> {
    kv: &'k Kv<'s>,
    snapshot: &'k Snapshot<'s>,
}

impl<'s> Kv<'s> {
    /// The value of a key.
    ///
    /// # Errors
    /// What reading the medium gives; [`Error::TooLarge`](crate::Error::TooLarge) for the key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_on(self.store, key)
    }

    /// Fills `out` with the value of a key from byte `at` on, and returns how many bytes it has there; `None` without such a key. Fewer than
    /// `out` at the end, and where `out` is more than about half of the cache; none behind the end.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn get_at(&self, key: &[u8], at: u64, out: &mut [u8]) -> Result<Option<usize>> {
        self.get_at_on(self.store, key, at, out)
    }

    /// Calls `each` with the place of each key in `keys` and its value, in order. Misses of the processor's cache overlap, so
    /// that many keys at once cost much less than one by one.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], each: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.get_many_on::<GROUP, _>(self.store, keys, each)
    }

    /// How many keys there are.
    ///
    /// # Errors
    /// What reading the medium gives. [`Error::SnapshotLost`](crate::Error::SnapshotLost) where half of the cache has not room for
    /// the table of the pairs, and so much is changed meanwhile.
    pub fn count(&self) -> Result<u64> {
        let counted = self.store.read(self.anchor.home(), |pages, contents| {
            let bundle = contents.edges.bundle(pages, self.anchor, self.etype)?;
            let table = bundle.and_then(|id| contents.edges.bundles.get(&id));
            if table.is_some_and(|table| table.walk().count() > pages.step_pages()) {
                return Ok(None);
            }
            contents.edges.count_out(pages, self.anchor, |of| of == self.etype, u64::MAX).map(Some)
        })?;
        // Page by page then, of one state.
        let by_page = || KvScan::new(self, ScanSource::Scan(self.store.snapshot())).count_pairs();
        counted.map_or_else(by_page, Ok)
    }

    /// This key-value store as it was when a snapshot of its store began, to be read while others commit.
    ///
    /// ```
    /// # use weft_tags::{Kv, MemoryStore, Options, SnodeId, Store};
    /// # let store = Store::create(Box::new(MemoryStore::new()), &Options::default())?;
    /// let kv = Kv::open(&store, SnodeId::FIRST, "fruit")?;
    /// kv.put(b"apple", b"red")?;
    /// let snapshot = store.snapshot();
    /// kv.put(b"apple", b"green")?;
    /// assert_eq!(kv.at(&snapshot)?.get(b"apple")?.as_deref(), Some(&b"red"[..]));
    /// # Ok::<(), weft_tags::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchNode`](crate::Error::NoSuchNode) when it was made later;
    /// [`Error::SnapshotLost`](crate::Error::SnapshotLost).
    pub fn at<'k>(&'k self, snapshot: &'k Snapshot<'s>) -> Result<KvSnapshot<'k, 's>> {
        snapshot.look_for(self.anchor)?;
        Ok(KvSnapshot { kv: self, snapshot })
    }

    fn get_at_on(&self, of: &impl Committed, key: &[u8], at: u64, out: &mut [u8]) -> Result<Option<usize>> {
        let hash = self.hash(key)?;
        // One step, so that the value is still that of the key.
        of.step(self.anchor.home(), |pages, contents| {
            let is_it = |to| begins_with_key(pages, to, key);
            let found = contents.edges.find(pages, self.anchor, self.etype, hash, is_it)?;
            let Some((_, node)) = found else { return Ok(None) };
            let (_, end, place) = contents.open_node(pages, node)?;
            let start = (at.saturating_add(2 + key.len() as u64)).min(end as u64) as usize;
            let most = (pages.step_pages().max(4) - 3) * PAGE_BYTES;
            let len = out.len().min(end - start).min(most);
            let mut done = 0;
            visit_data(pages, place, start..start + len, |piece| {
                out[done..done + piece.len()].copy_from_slice(piece);
                done += piece.len();
            })?;
            Ok(Some(len))
        })
    }

    fn get_on(&self, state: &impl Committed, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.get_many_on::<1, _>(state, &[key], |_, found| value = found.map(<[u8]>::to_vec))?;
        Ok(value)
    }

    fn get_many_on<const N: usize, K: AsRef<[u8]>>(
        &self,
        state: &impl Committed,
        keys: &[K],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut hashes = [0; N];
        let mut spilt = Vec::new();
        for (group_at, group) in keys.chunks(N).enumerate() {
            for (hash, key) in hashes.iter_mut().zip(group) {
                *hash = self.hash(key.as_ref())?;
            }
            let (mut next, mut rounds) = (0, FAULT_ROUNDS);
            // A pair that is too large for a step is read by itself.
            while let Some(large) = state.step(self.anchor.home(), |pages, contents| {
                let (first, mut large) = (next, None);
                let (of, wanted) = ((self.anchor, self.etype), &hashes[first..group.len()]);
                let key = |at: usize| group[first + at].as_ref();
                contents.find_pairs::<N>(pages, of, (wanted, &[], &mut rounds), key, |at, node, value| {
                    if let (Some(node), None) = (node, value) {
                        let (_, len, place) = contents.open_node(pages, node)?;
                        if len > (pages.step_pages() - 1) * PAGE_BYTES {
                            large = Some(node);
                            return Ok(false);
                        }
                        spilt.clear();
                        visit_data(pages, place, 0..len, |piece| spilt.extend_from_slice(piece))?;
                        each(group_at * N + next, spilt.get(2 + key(at).len()..));
                    } else {
                        each(group_at * N + next, value);
                    }
                    next += 1;
                    Ok(true)
                })?;
                Ok(large)
            })? {
                let data = match state.data_of(large, PAIR) {
                    // It has gone meanwhile, and something else may be in its place.
                    Err(Error::NoSuchNode(_) | Error::WrongType { .. }) => continue,
                    data => data?,
                };
                if let Some((key, value)) = split_key(&data)
                    && key == group[next].as_ref()
                {
                    each(group_at * N + next, Some(value));
                    next += 1;
                }
            }
        }
        Ok(())
    }
}

impl<'k> KvSnapshot<'k, '_> {
    /// As [`Kv::get_at`].
    ///
    /// # Errors
    /// As [`KvSnapshot::get`].
    pub fn get_at(&self, key: &[u8], at: u64, out: &mut [u8]) -> Result<Option<usize>> {
        self.kv.get_at_on(self.snapshot, key, at, out)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Kv::get`]; [`Error::SnapshotLost`](crate::Error::SnapshotLost).
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.kv.get_on(self.snapshot, key)
    }

    /// Calls `each` with the place of each key in `keys` and its value, in order.
    ///
    /// # Errors
    /// As [`KvSnapshot::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], each: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.kv.get_many_on::<GROUP, _>(self.snapshot, keys, each)
    }

    /// How many keys there are.
    ///
    /// # Errors
    /// What reading the medium gives; [`Error::SnapshotLost`](crate::Error::SnapshotLost).
    pub fn count(&self) -> Result<u64> {
        self.scan().count_pairs()
    }

    /// All pairs, in the order of their hashes. Nobody waits for it.
    pub fn scan(&self) -> KvScan<'k> {
        KvScan::new(self.kv, ScanSource::Caller(self.snapshot))
    }
}
