//! Online backup: copies the blocks of one checkpoint while commits continue.
//!
//! A checkpoint never changes once it is written, and its blocks are given out again only after the next one. So the backup
//! takes a checkpoint, keeps what that refers to from being given out, and copies it, each block to the same place, each
//! page against its checksum. The target's superblocks come last: until then it is no store.

use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use crate::journal::log::FIRST_BLOCKS;
use crate::layout::leaves::Leaf;
use crate::layout::superblock::{Blob, COPIES, Superblock};
use crate::page_store::PageStore;
use crate::reads::{self, KnownPages};
use crate::space::{Run, in_runs};
use crate::store::Store;
use std::collections::BTreeMap;
use weft_core::Tag;
use weft_core::checksum::crc32c;
use weft_sys::AlignedBuf;

/// Blocks copied by one read and one write.
const COPY_BLOCKS: u64 = 256;

/// Checkpoints that are written, at most, until both copies of all leaves can be read.
const CHECKPOINTS_MAX: usize = 4;

/// What a backup has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Bytes that were copied.
    pub bytes: u64,
    /// The last commit that is in the copy.
    pub last_commit: u64,
}

/// Blocks, with the checksums of those that have one each, and the tags that they are written with.
type Blocks = BTreeMap<u64, (Option<u32>, Tag)>;

/// Lets blocks be given out again, however the backup ends.
struct Hold<'s>(&'s Store);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.space.lock().end_copy();
    }
}

impl Store {
    /// Copies the store, as it is now, to an empty medium. Commits wait only for the checkpoint at its beginning. `progress`
    /// gets the bytes copied and the total, every megabyte.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Target`] of the other medium; [`Error::Damaged`] for a page whose checksum does not hold; [`Error::Stopped`];
    /// [`Error::NotRecovered`]: opened by [`Store::open_read_only`], the store can be copied.
    pub fn backup(&self, target: &dyn PageStore, mut progress: impl FnMut(u64, u64)) -> Result<BackupReport> {
        self.check_recovered()?;
        self.space.lock().begin_copy();
        let _hold = Hold(self);
        let whole = (0..CHECKPOINTS_MAX).find_map(|_| self.checkpoint_to_copy().transpose());
        let lost = || Error::damaged("leaves of descriptors cannot be written so that both copies hold");
        let (superblock, blocks) = whole.ok_or_else(lost)??;
        let end = blocks.keys().next_back().map_or(0, |block| block + 1);
        let journal_end = superblock.journal_block + superblock.journal_blocks;
        let is_used = target.blocks() > 0;
        let room = target.grow(end.max(journal_end)).and_then(|()| {
            target.reserve(0, COPIES + FIRST_BLOCKS)?;
            target.reserve(journal_end, end.saturating_sub(journal_end))
        });
        room.map_err(Error::io("make room for a backup", 0)).map_err(Error::of_target)?;
        let put = |what, at, tag: &Tag, raw: &[u8]| target.put(what, at, tag, raw).map_err(Error::of_target);
        let zeros = AlignedBuf::zeroed(COPY_BLOCKS as usize * PAGE_BYTES);
        // What was there must not pass for a store of its own, nor its records for this one's.
        let cleared = if is_used { journal_end } else { COPIES };
        for block in (0..cleared).step_by(COPY_BLOCKS as usize) {
            let bytes = COPY_BLOCKS.min(cleared - block) as usize * PAGE_BYTES;
            put("clear a backup's medium", block, &Tag::METADATA, &zeros[..bytes])?;
        }
        let total = blocks.len() as u64 * PAGE_BYTES as u64;
        let mut copied = 0;
        let blocks: Vec<(u64, (Option<u32>, Tag))> = blocks.into_iter().collect();
        let mut raw = AlignedBuf::zeroed(COPY_BLOCKS as usize * PAGE_BYTES);
        for run in in_runs(&blocks, COPY_BLOCKS as usize, |(block, _)| *block) {
            let (first, bytes) = (run[0].0, &mut raw[..run.len() * PAGE_BYTES]);
            self.medium.read(first, bytes).map_err(Error::io("read for a backup", first))?;
            for ((block, (crc, _)), raw) in run.iter().zip(bytes.chunks_exact(PAGE_BYTES)) {
                if crc.is_some_and(|crc| crc32c(raw) != crc) {
                    return Err(Error::damaged(format!("block {block}: its checksum does not hold")));
                }
            }
            copied += bytes.len() as u64;
            let mut bytes = &bytes[..];
            for alike in run.chunk_by(|(_, (_, a)), (_, (_, b))| a == b) {
                let (part, rest) = bytes.split_at(alike.len() * PAGE_BYTES);
                let (block, (_, tag)) = alike[0];
                put("write a backup", block, &tag, part)?;
                bytes = rest;
            }
            progress(copied, total);
        }
        target.flush("sync a backup").map_err(Error::of_target)?;
        for block in 0..COPIES {
            put("write a backup's superblock", block, &Tag::METADATA, &superblock.encode())?;
            target.flush("sync a backup").map_err(Error::of_target)?;
        }
        Ok(BackupReport { bytes: total, last_commit: superblock.lsn })
    }

    /// Writes a checkpoint; its superblock and its blocks, or `None` where a copy of a leaf is damaged, which the next checkpoint mends.
    fn checkpoint_to_copy(&self) -> Result<Option<(Superblock, Blocks)>> {
        self.checkpoint()?;
        let (superblock, leaves) = {
            // Before another can be written. Commits since then have changed what is in memory, not the leaves on the medium.
            let _alone = self.gate.write();
            let leaves: Vec<_> =
                self.leaves.lock().at.iter().map(|(number, leaf)| (*number, *leaf)).collect();
            // A copy has no snapshots: it is of one state.
            (Superblock { snapshots: Blob::default(), ..*self.superblock.lock() }, leaves)
        };
        let of_copy = |run: Run| run.block..run.block + run.blocks;
        let lists = [superblock.leaves, superblock.catalog].into_iter().flat_map(|blob| blob.copies());
        let mut blocks: Blocks =
            lists.flat_map(of_copy).map(|block| (block, (None, Tag::METADATA))).collect();
        let (mut is_whole, mut known) = (true, KnownPages::default());
        reads::each_leaf(&*self.medium, leaves, |leaf, Leaf { blocks: copies, crc }, raw| {
            let lost = || Error::damaged(format!("leaf {leaf} of descriptors: no copy's checksum holds"));
            let (copy, raw) = raw.ok_or_else(lost)?;
            if copy > 0 || reads::page(&*self.medium, copies[1], crc).is_none() {
                // The next checkpoint writes both copies anew.
                self.leaves.lock().stale.insert(leaf);
                is_whole = false;
            }
            copies.iter().for_each(|block| _ = blocks.insert(*block, (Some(crc), Tag::METADATA)));
            // What a transaction has made and not committed may never have been written, and a copy gives it up when it is opened.
            known.add_leaf(leaf, raw)
        })?;
        let pages = known.into_pages();
        blocks.extend(pages.map(|page| (page.block, (Some(page.crc), self.pool.tag_of(page.snode)))));
        Ok(is_whole.then_some((superblock, blocks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kv, MemoryStore, Options, SnodeId};
    use std::io::IoSlice;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    fn options() -> Options {
        Options { cache_bytes: 2 << 20, journal_bytes: 256 << 10, ..Options::default() }
    }

    #[test]
    fn nodes_that_a_transaction_is_making_do_not_fail_a_backup() {
        use crate::NodeType;

        let store = Store::create(Box::new(MemoryStore::new()), &options()).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ending = Ending(&ended);
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    let mut tx = store.begin();
                    for _ in 0..200 {
                        tx.create_node(SnodeId::FIRST, NodeType(1), &[1; 3000]).unwrap();
                    }
                    tx.abort();
                }
            });
            for n in 0..400 {
                let done = store.backup(&MemoryStore::new(), |_, _| ());
                assert!(done.is_ok(), "backup {n}: {done:?}");
            }
        });
    }

    /// Ends the writer, also when the test fails: else its scope would wait for ever.
    struct Ending<'a>(&'a AtomicBool);

    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_backup_is_the_store_of_one_commit_while_others_go_on() {
        let store = Store::create(Box::new(MemoryStore::new()), &options()).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        let put = |round: u64| {
            // All pairs change together, so a mixture of two commits would show.
            let (keys, value): (Vec<_>, _) =
                ((0..300u64).map(|key| key.to_le_bytes()).collect(), round.to_le_bytes());
            let changes: Vec<_> = keys.iter().map(|key| crate::KvChange::Put(key, &value)).collect();
            kv.change(&changes).unwrap();
        };
        put(0);
        let (ended, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    put(rounds.load(Ordering::Relaxed) + 1);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _ending = Ending(&ended);
            let mut last = 0;
            for _ in 0..6 {
                let target = Arc::new(MemoryStore::new());
                let report = store.backup(&target, |done, total| assert!(done <= total)).unwrap();
                assert!(report.bytes > 0 && report.last_commit > 0);
                let copy = Store::open(Box::new(target), &options()).unwrap();
                assert_eq!((copy.report().recovered_commits, copy.check().unwrap().problems.len()), (0, 0));
                assert_eq!(copy.last_commit(), report.last_commit);
                let kv = Kv::find(&copy, SnodeId::FIRST, "pairs").unwrap().unwrap();
                let mut values: Vec<_> = kv.scan().unwrap().map(|pair| pair.unwrap().1).collect();
                assert_eq!(values.len(), 300);
                values.dedup();
                assert_eq!(values.len(), 1, "pairs of two commits");
                let round = u64::from_le_bytes(values[0].clone().try_into().unwrap());
                assert!(round >= last);
                last = round;
                // The next one finds something new.
                let now = rounds.load(Ordering::Relaxed);
                while rounds.load(Ordering::Relaxed) == now {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        assert!(store.space.lock().settles(), "what backups kept can be free again");
    }

    #[test]
    fn a_backup_of_a_damaged_store_says_so_and_leaves_no_store() {
        let medium = Arc::new(MemoryStore::new());
        let store = Store::create(Box::new(medium.clone()), &options()).unwrap();
        let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
        (0..2000u64).for_each(|key| kv.put(&key.to_le_bytes(), b"a value to be damaged").unwrap());
        store.checkpoint().unwrap();
        let bytes = medium.to_bytes();
        // Some of the pages that have values may be free again.
        for block in 0..bytes.len() / PAGE_BYTES {
            let mut page = AlignedBuf::zeroed(PAGE_BYTES);
            page.copy_from_slice(&bytes[block * PAGE_BYTES..(block + 1) * PAGE_BYTES]);
            if let Some(at) = page.windows(21).position(|window| window == b"a value to be damaged") {
                page[at] ^= 1;
                medium.write(block as u64, &Tag::default(), &[IoSlice::new(&page)]).unwrap();
            }
        }
        let target = Arc::new(MemoryStore::new());
        assert!(matches!(store.backup(&target, |_, _| ()), Err(Error::Damaged { .. })));
        assert!(matches!(Store::open(Box::new(target), &options()), Err(Error::NotAStore { .. })));
    }
}
