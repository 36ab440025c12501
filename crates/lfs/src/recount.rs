//! Recomputes all running sums and reports those that differ. For tests and for debugging: it visits every inode with
//! the lock held.

use crate::Lfs;
use crate::alloc::space::charge_run;
use crate::alloc::zone::ZoneUse;
use crate::layout::zone_header::ZoneKind;
use crate::state::inode::{Body, ENTRY_BYTES};
use weft_core::BLOCK_BYTES;

impl Lfs {
    /// The running counts that differ from a recount, in words; empty when all is right.
    pub fn recount(&self) -> Vec<String> {
        let guard = self.state.lock();
        let state = &*guard;
        let mut wrong = Vec::new();
        let mut compare = |what: &str, kept: u64, counted: u64| {
            if kept != counted {
                wrong.push(format!("{what}: {kept} kept, {counted} counted"));
            }
        };
        let (mut mapped, mut reserved, mut buffered, mut dirty) = (0, 0, 0, 0);
        let (mut runs, mut saved, mut inlined) = (0, 0, 0);
        let mut live = vec![0u64; self.shared.info.zones as usize];
        for (ino, inode) in state.tree.inodes.iter() {
            saved += inode.saved_bytes();
            if let Body::Directory(directory) = &inode.body {
                saved +=
                    directory.after(0).map(|(_, name, _)| (ENTRY_BYTES + name.len()) as u64).sum::<u64>();
            }
            let mut charged = 0;
            for run in inode.map().into_iter().flat_map(|map| map.iter()) {
                charged += charge_run(&run.run);
                runs += 1;
                live[state.zones.zone_of(run.run.address).index()] += charge_run(&run.run);
            }
            mapped += charged;
            charged += inode.reserved.blocks() * BLOCK_BYTES as u64;
            reserved += inode.reserved.blocks() * BLOCK_BYTES as u64;
            runs += inode.reserved.len() as u64;
            for (from, to) in inode.reserved.range(0, u64::MAX) {
                let both = inode.map().map_or(0, |map| map.range(from, to).count());
                compare(&format!("reserved blocks of inode {ino} that are mapped"), both as u64, 0);
            }
            compare(&format!("charge of inode {ino}"), inode.charged, charged);
            let fresh = inode.dirty.blocks.values().filter(|block| block.is_fresh()).count();
            compare(&format!("fresh blocks of inode {ino}"), inode.dirty.fresh as u64, fresh as u64);
            for (block, held) in &inode.dirty.blocks {
                let below = u64::from(inode.charge_of(*block));
                compare(
                    &format!("charge of inode {ino}, block {block}"),
                    u64::from(held.extra) + below,
                    BLOCK_BYTES as u64,
                );
                buffered += u64::from(held.extra);
                dirty += BLOCK_BYTES as u64;
                inlined += u64::from(held.journaled);
                let noted = state.buffer.journaled.contains(&ino) || !held.journaled;
                compare(&format!("journaled files without inode {ino}"), 0, u64::from(!noted));
            }
            let settled = if fresh == 0 { inode.size } else { inode.disk_size.min(inode.size) };
            compare(&format!("journaled size of inode {ino}"), inode.disk_size, settled);
        }
        compare("mapped space", state.space.mapped(), mapped);
        compare("reserved space", state.space.reserved(), reserved);
        compare("buffered space", state.space.buffered(), buffered);
        compare("journaled blocks", state.buffer.journaled_blocks(), inlined);
        compare("dirty bytes", state.buffer.bytes(), dirty);
        compare("runs", state.tree.runs, runs);
        compare("bytes of a checkpoint", state.tree.saved_bytes, saved);
        for (zone, z) in state.zones.iter() {
            compare(&format!("live bytes of zone {zone}"), z.live, live[zone.index()]);
            let held = state.slots.open_zones().filter(|held| *held == zone).count();
            let data = z.kind == Some(ZoneKind::Data);
            let open = data && matches!(z.state, ZoneUse::Open | ZoneUse::Parked);
            compare(&format!("slots of zone {zone}"), held as u64, u64::from(open));
        }
        wrong
    }
}
