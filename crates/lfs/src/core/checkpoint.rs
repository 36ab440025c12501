//! Writes checkpoints.
//!
//! The parts are written first, then the device is flushed, then the end frame is written. So a complete checkpoint
//! refers only to durable data.
//!
//! A volume is closed with two checkpoints that say the same, in different zones: one damaged block of either costs
//! nothing. The first of them is the *spare*: its zones are kept as long as no other checkpoint is written. While a
//! volume is in use the journal goes on behind the second.

use crate::core::State;
use crate::layout::checkpoint::{CRCS_MAX, Item, RUNS_MAX, SavedInode, ZONES_MAX};
use crate::layout::frame::{FrameKind, HEADER_BYTES, TRANSACTION_MAX};
use crate::layout::record::{FileRun, NewInode};
use crate::layout::zone_header::{HEADER_BLOCKS, ZoneKind};
use crate::state::inode::{Body, Inode};
use smallvec::SmallVec;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_core::{Ino, ZoneId};
use weft_sys::paging;
use weft_vfs::{FsError, FsResult, TimeSpec};

impl State {
    /// Whether the room that is left for the journal is only what writing back before a checkpoint may need.
    pub(crate) fn checkpoint_due(&self) -> bool {
        let zone_blocks = u64::from(self.reserve.capacity - HEADER_BLOCKS);
        let rest = u64::from(self.journal_zone_rest()) + u64::from(self.chain_zones_left()) * zone_blocks;
        rest < self.reserve.checkpoint_mark()
    }

    /// Writes a checkpoint; `clean` when nothing follows it. What only the journal has goes to data zones first.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> FsResult<()> {
        self.settling = true;
        let settled = self.settle_journaled();
        self.settling = false;
        settled?;
        self.write_checkpoint(false)?;
        tracing::info!(runs = self.tree.runs, clean, "checkpoint written");
        // The volume is closed when both copies are there.
        if clean { self.write_second() } else { Ok(()) }
    }

    /// Writes the checkpoint that was just written once more, from a fresh zone on; what there is becomes the spare.
    fn write_second(&mut self) -> FsResult<()> {
        let blocks = self.reserve.checkpoint_blocks_now(self.saved(), self.buffer.journaled_blocks());
        if self.reserve.zones_of_blocks(blocks) > self.zones.free_count() {
            // The zones that are kept for a checkpoint are not free, because readers hold what is to be reset.
            tracing::warn!("no zones are free for a second copy of the checkpoint");
            return self.write_checkpoint(true);
        }
        if let Some(zone) = self.journal.zone {
            self.finish_meta(zone)?;
        }
        let first_copy = self.journal.zones.len();
        self.write_parts_and_end(true)?;
        self.journal.spare.extend(self.journal.zones.drain(..first_copy));
        Ok(())
    }

    /// Gives up the spare: the checkpoint that the journal goes on behind says what it says.
    fn drop_spare(&mut self) -> FsResult<()> {
        let durable = self.shared.durable_seq.load(Acquire);
        for zone in std::mem::take(&mut self.journal.spare) {
            self.zones.set_dying(zone, durable);
        }
        self.reset_dead()
    }

    /// Writes a checkpoint of what memory has. Blocks that only the journal has stand in the checkpoint itself: it may
    /// be written whenever a transaction may begin, and by a mount, which may not journal anything before.
    pub(crate) fn write_checkpoint(&mut self, clean: bool) -> FsResult<()> {
        let _in_order = paging::in_order();
        self.commit()?;
        self.check_sums()?;
        // The next checkpoint needs its zones.
        self.drop_spare()?;
        self.leave_zone_unless_it_fits()?;
        let chain_before = self.journal.zones.len();
        let began_in = self.journal.zone;
        self.write_parts_and_end(clean)?;
        let seq = self.journal.next_seq - 1;
        // Everything before the zone with the first part is of no use now.
        let keep_from = match began_in {
            Some(zone) => {
                self.journal.zones.iter().position(|z| *z == zone).unwrap_or(self.journal.zones.len())
            }
            None => chain_before,
        };
        for zone in self.journal.zones.drain(..keep_from) {
            self.zones.set_dying(zone, seq);
        }
        self.journal.changed = false;
        self.stats.checkpoints += 1;
        self.reset_dead()
    }

    fn write_parts_and_end(&mut self, clean: bool) -> FsResult<()> {
        assert_eq!(self.journal.pending(), 0, "a transaction is within a checkpoint");
        let first_seq = self.journal.next_seq;
        self.write_parts()?;
        let parts = (self.journal.next_seq - first_seq) as u32;
        self.commit_durably()?;
        assert_eq!(self.journal.next_seq, first_seq + u64::from(parts), "the end follows its parts");
        let mut end = vec![0; HEADER_BYTES];
        self.write_frame(&mut end, FrameKind::End, parts, clean)?;
        self.commit_durably()
    }

    /// A checkpoint begins in a fresh zone, so that all zones before can be reset, unless the one in use takes it whole
    /// and still some journal.
    fn leave_zone_unless_it_fits(&mut self) -> FsResult<()> {
        let Some(zone) = self.journal.zone else { return Ok(()) };
        let needed = self.reserve.checkpoint_blocks_now(self.saved(), self.buffer.journaled_blocks());
        let after = 2 * self.reserve.checkpoint_mark();
        if u64::from(self.journal_zone_rest()) < needed + after { self.finish_meta(zone) } else { Ok(()) }
    }

    fn write_parts(&mut self) -> FsResult<()> {
        let mut out = vec![0; HEADER_BYTES];
        Item::Volume {
            label: self.volume.label.as_bytes(),
            formatted_at: self.volume.formatted_at.0,
            next_ino: self.tree.next_ino,
            // The parts themselves may open zones.
            next_sequence: self.zones.next_sequence(),
        }
        .encode(&mut out);
        self.secrets.is_marked = self.erases();
        if self.secrets.is_marked {
            let zones = self.marked_zones();
            for zones in
                zones.chunks(ZONES_MAX).map(<[ZoneId]>::to_vec).chain(zones.is_empty().then(Vec::new))
            {
                Item::Secrets { zones }.encode(&mut out);
                self.part_if_full(&mut out)?;
            }
        }
        // Numbers are gathered first: writing a frame needs the whole state.
        let inos: Vec<u64> = self.tree.inodes.keys().collect();
        let (mut runs_saved, mut blocks_saved) = (0, 0);
        for &ino in &inos {
            if let Some(inode) = self.tree.inodes.get(ino) {
                put_inode(Ino(ino), inode, &mut out);
            }
            self.part_if_full(&mut out)?;
            let mut first = 0;
            while let Some(map) = self.tree.get(Ino(ino)).and_then(Inode::map) {
                let runs: SmallVec<[FileRun; 1]> = map.range(first, u64::MAX).take(RUNS_MAX).collect();
                let Some(last) = runs.last() else { break };
                first = last.block + u64::from(last.run.count);
                runs_saved += runs.len() as u64;
                Item::Runs { ino: Ino(ino), runs }.encode(&mut out);
                self.part_if_full(&mut out)?;
            }
            let mut first = 0;
            while let Some(inode) = self.tree.inodes.get(ino) {
                let ranges: Vec<_> = inode.reserved.range(first, u64::MAX).take(RUNS_MAX).collect();
                let Some((_, end)) = ranges.last() else { break };
                first = *end;
                runs_saved += ranges.len() as u64;
                let ranges = ranges.into_iter().map(|(from, to)| (from, to - from)).collect();
                Item::Reserved { ino: Ino(ino), ranges }.encode(&mut out);
                self.part_if_full(&mut out)?;
            }
        }
        for &dir in &inos {
            let mut cookie = 0;
            while let Some(directory) = self.tree.get(Ino(dir)).and_then(Inode::directory) {
                let before = cookie;
                for (at, name, ino) in directory.after(cookie).take(128) {
                    Item::Entry { dir: Ino(dir), cookie: at, ino, name }.encode(&mut out);
                    cookie = at;
                }
                if cookie == before {
                    break;
                }
                self.part_if_full(&mut out)?;
            }
        }
        let journaled: Vec<u64> = self.buffer.journaled.iter().copied().collect();
        for ino in journaled {
            let mut first = 0;
            while let Some((block, len)) = self.journaled_block(ino, first) {
                if let Some(dirty) =
                    self.tree.inodes.get(ino).and_then(|inode| inode.dirty.blocks.get(&block))
                {
                    blocks_saved += 1;
                    Item::Block { ino: Ino(ino), block, bytes: &dirty.data[..len] }.encode(&mut out);
                }
                first = block + 1;
                self.part_if_full(&mut out)?;
            }
        }
        let open: Vec<(ZoneId, u32)> = self
            .zones
            .iter()
            .filter(|(_, z)| z.kind == Some(ZoneKind::Data) && !z.footer && z.live > 0)
            .map(|(id, z)| (id, z.write_pointer))
            .collect();
        for (zone, written) in open {
            let mut block = HEADER_BLOCKS;
            while block < written {
                let count = (written - block).min(CRCS_MAX as u32);
                let first = self.shared.device_block(zone, block) as usize;
                let table = &self.shared.crcs()[first..first + count as usize];
                let crcs = table.iter().map(|crc| crc.load(Relaxed)).collect();
                Item::Crcs { zone, block, crcs }.encode(&mut out);
                block += count;
                self.part_if_full(&mut out)?;
            }
        }
        self.part(&mut out)?;
        if (runs_saved, blocks_saved) == (self.tree.runs, self.buffer.journaled_blocks()) {
            return Ok(());
        }
        Err(self.fail(FsError::Device(format!(
            "a checkpoint has {runs_saved} runs and {blocks_saved} blocks; {} and {} are counted",
            self.tree.runs,
            self.buffer.journaled_blocks()
        ))))
    }

    /// The next block of a file that the journal has and its data zone has not, and its length.
    fn journaled_block(&self, ino: u64, first: u64) -> Option<(u64, usize)> {
        let inode = self.tree.inodes.get(ino)?;
        let mut blocks = inode.dirty.blocks.range(first..);
        blocks.find(|(_, dirty)| dirty.journaled).map(|(block, _)| (*block, inode.len_in_block(*block)))
    }

    /// Writes a part when the next record might not fit its frame.
    fn part_if_full(&mut self, out: &mut Vec<u8>) -> FsResult<()> {
        let full = out.len() - HEADER_BYTES + TRANSACTION_MAX > self.payload_limit();
        if full { self.part(out) } else { Ok(()) }
    }

    fn part(&mut self, out: &mut Vec<u8>) -> FsResult<()> {
        if out.len() > HEADER_BYTES {
            self.write_frame(out, FrameKind::Part, 0, false)?;
            out.truncate(HEADER_BYTES);
        }
        Ok(())
    }
}

fn put_inode(ino: Ino, inode: &Inode, out: &mut Vec<u8>) {
    let target = match &inode.body {
        Body::Symlink(target) => &target[..],
        _ => &[],
    };
    let node = NewInode {
        ino,
        kind: inode.kind,
        perm: inode.perm,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        target,
        tag: inode.tag,
        time: TimeSpec(inode.btime).0,
        born_at: inode.born_at,
    };
    let (parent, next_cookie) = inode.directory().map_or((Ino(0), 0), |d| (d.parent, d.next_cookie));
    let times = [inode.atime, inode.mtime, inode.ctime];
    let saved = SavedInode {
        node,
        links: inode.links,
        size: inode.disk_size,
        times,
        parent,
        next_cookie,
        runs: inode.map().map_or(0, |map| map.len() as u64),
        xattrs: inode.xattrs.len() as u32,
        blocks: inode.dirty.blocks.values().filter(|dirty| dirty.journaled).count() as u32,
    };
    Item::Inode(saved).encode(out);
    for (name, value) in inode.xattrs.iter() {
        Item::Xattr { ino, name, value }.encode(out);
    }
}
