//! The block map of a file, in which no block is where clients could read it by themselves.

use crate::fs::TagFs;
use std::sync::Arc;
use weft_core::Ino;
use weft_vfs::{BlockMap, FsResult, MapEntry, MapObserver};

impl BlockMap for TagFs {
    fn watch(&self, ino: Ino, first_block: u64, out: &mut [MapEntry]) -> FsResult<()> {
        let mut state = self.state.write();
        let size = state.inode(&self.graph, ino)?.file()?.size;
        state.watch.begin(ino, first_block, size, out);
        Ok(())
    }

    fn unwatch(&self, ino: Ino) {
        self.state.write().watch.end(ino);
    }

    fn set_observer(&self, observer: Arc<dyn MapObserver>) {
        self.state.write().watch.set_observer(observer);
    }
}
