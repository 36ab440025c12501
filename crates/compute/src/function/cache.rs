//! Modules that were compiled, so that the next call need not.

use super::{MODULES_BYTES_MAX, MODULES_MAX, Module};
use crate::Error;
use parking_lot::Mutex;
use std::sync::Arc;

/// Keeps the [`MODULES_MAX`] modules that were used last, and no more than [`MODULES_BYTES_MAX`] of them.
///
/// It finds a module by its bytes, all of which it compares: users who share it cannot give each other a module of theirs. What it costs is
/// bounded by the bytes that it keeps, and the comparison with another module mostly ends at its length.
#[derive(Debug, Default)]
pub struct Modules {
    /// The one that was used last is the last.
    kept: Mutex<Vec<Arc<Module>>>,
}

impl Modules {
    /// An empty one.
    pub const fn new() -> Modules {
        Modules { kept: Mutex::new(Vec::new()) }
    }

    /// The module of these bytes, compiled now unless it is here.
    ///
    /// # Errors
    /// Those of [`Module::compile`]. What is not a module is not remembered.
    pub fn get(&self, bytes: &[u8]) -> Result<Arc<Module>, Error> {
        if let Some(module) = take(&mut self.kept.lock(), bytes) {
            return Ok(module);
        }
        // Others need not wait for this.
        let compiled = Arc::new(Module::compile(bytes)?);
        let mut kept = self.kept.lock();
        if let Some(module) = take(&mut kept, bytes) {
            return Ok(module);
        }
        kept.push(Arc::clone(&compiled));
        let mut held: usize = kept.iter().map(|module| module.bytes.len()).sum();
        while kept.len() > MODULES_MAX || held > MODULES_BYTES_MAX {
            held -= kept.remove(0).bytes.len();
        }
        Ok(compiled)
    }

    /// How many it keeps.
    pub fn len(&self) -> usize {
        self.kept.lock().len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The module of these bytes, which is now the one that was used last.
fn take(kept: &mut [Arc<Module>], bytes: &[u8]) -> Option<Arc<Module>> {
    let at = kept.iter().rposition(|module| *module.bytes == *bytes)?;
    kept[at..].rotate_left(1);
    kept.last().cloned()
}
