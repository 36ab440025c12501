//! Maps for readers that read off the device.

use crate::Lfs;
use crate::layout::BLOCK;
use crate::state::inode::Inode;
use std::sync::Arc;
use weft_core::Ino;
use weft_vfs::{BlockMap, FsResult, MapEntry, MapObserver};

impl Inode {
    /// Fills in where the blocks from `first` on lie.
    pub(crate) fn fill_entries(&self, first: u64, out: &mut [MapEntry]) {
        out.fill(MapEntry::HOLE);
        let end = first + out.len() as u64;
        if let Some(map) = self.map() {
            for run in map.range(first, end) {
                let at = (run.block - first) as usize;
                if !run.run.is_whole() {
                    out[at] = MapEntry::piece(run.run.address, run.run.len as usize);
                    continue;
                }
                for (i, entry) in out[at..at + run.run.count as usize].iter_mut().enumerate() {
                    *entry = MapEntry::piece(run.run.address + i as u64 * BLOCK, BLOCK as usize);
                }
            }
        }
        for (block, _) in self.dirty.blocks.range(first..end) {
            out[(block - first) as usize] = MapEntry::ASK_CORE;
        }
    }
}

impl BlockMap for Lfs {
    fn watch(&self, ino: Ino, first_block: u64, out: &mut [MapEntry]) -> FsResult<()> {
        let mut state = self.state.lock();
        state.file(ino)?;
        if let Some(inode) = state.tree.get_mut(ino) {
            inode.watched = true;
            inode.fill_entries(first_block, out);
        }
        Ok(())
    }

    fn unwatch(&self, ino: Ino) {
        if let Some(inode) = self.state.lock().tree.get_mut(ino) {
            inode.watched = false;
        }
    }

    fn set_observer(&self, observer: Arc<dyn MapObserver>) {
        if self.shared.observer.set(observer).is_err() {
            tracing::warn!("a second map observer is ignored");
        }
    }
}
