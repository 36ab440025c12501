//! An open store makes and deletes [named snapshots](crate::named).

use crate::error::{Error, Result};
use crate::ids::{HomeId, PAGE_BYTES};
use crate::layout::superblock::{Blob, ERASES, Superblock};
use crate::named::{Kept, NamedSnapshot, SNAPSHOTS_MAX, blocks_of};
use crate::space::Run;
use crate::store::Store;
use std::time::{SystemTime, UNIX_EPOCH};
use weft_core::refuse;

/// The most bytes of a name.
const NAME_BYTES_MAX: usize = 255;

impl Store {
    /// Makes a snapshot of what is committed now, which stays until it is deleted. Commits wait for two checkpoints. From then on, pages that
    /// change take new blocks, and those that the snapshot has stay in use.
    ///
    /// # Errors
    /// [`Error::SnapshotExists`]; [`Error::TooLarge`] for the name, or for a 65th snapshot; [`Error::ReadOnly`]; those of
    /// [`Store::checkpoint`].
    pub fn create_snapshot(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        refuse(name.len() > NAME_BYTES_MAX, too_long(name))?;
        let _alone = self.gate.write();
        let count = {
            let named = self.named.lock();
            refuse(named.all.iter().any(|(known, _)| known == name), Error::SnapshotExists(name.into()))?;
            named.all.len()
        };
        refuse(
            count >= SNAPSHOTS_MAX,
            Error::too_large("the number of named snapshots", count + 1, SNAPSHOTS_MAX),
        )?;
        self.checkpoint_alone()?;
        let now = *self.superblock.lock();
        // What is to be erased on the medium of now is none of the snapshot's.
        let superblock = Superblock { snapshots: Blob::default(), flags: now.flags & ERASES, ..now };
        let blocks = blocks_of(&*self.medium, &superblock)?;
        self.space.lock().hold(&blocks)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.named.lock().all.push((name.into(), Kept { made_ns, superblock }));
        self.write_list().inspect_err(|_| {
            self.named.lock().all.pop();
            self.space.lock().end_hold(count, None);
        })
    }

    /// The named snapshots, the oldest first.
    pub fn named_snapshots(&self) -> Vec<NamedSnapshot> {
        let told = |(name, kept): &(String, Kept)| NamedSnapshot {
            name: name.clone(),
            made_ns: kept.made_ns,
            last_commit: kept.superblock.lsn,
        };
        self.named.lock().all.iter().map(told).collect()
    }

    /// Deletes a named snapshot. What only it has kept is free afterwards; bytes of s-nodes with secure deletion are overwritten before.
    ///
    /// # Errors
    /// [`Error::NoSuchSnapshot`]; [`Error::ReadOnly`]; those of [`Store::checkpoint`].
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let _alone = self.gate.write();
        let (at, gone) = {
            let mut named = self.named.lock();
            let at = named.all.iter().position(|(known, _)| known == name);
            let at = at.ok_or_else(|| Error::NoSuchSnapshot(name.into()))?;
            (at, named.all.remove(at))
        };
        // A class that was given since counts for what the s-node held then.
        let erases = gone.1.superblock.has(ERASES) || self.superblock.lock().has(ERASES);
        if erases {
            // Once the snapshot is off the list, nothing else may tell that blocks of it are to be overwritten.
            self.say_erasing(true)?;
        }
        self.write_list().inspect_err(|_| self.named.lock().all.insert(at, gone))?;
        // Whose a page was is known to the snapshot's own catalog alone.
        self.space.lock().end_hold(at, erases.then_some(HomeId::FIRST));
        self.checkpoint_alone()
    }

    /// Fails where snapshots keep blocks where they are.
    pub(crate) fn check_no_snapshot(&self) -> Result<()> {
        match self.named.lock().all.first() {
            Some((name, _)) => Err(Error::HasSnapshots(name.clone())),
            None => Ok(()),
        }
    }

    /// Has a checkpoint write the list. The caller has the gate alone.
    fn write_list(&self) -> Result<()> {
        let raw = self.named.lock().encode();
        let blocks = raw.len().div_ceil(PAGE_BYTES) as u64;
        let runs = if blocks == 0 { [Run { block: 0, blocks: 0 }; 2] } else { self.take_list(blocks)? };
        self.named.lock().pending = Some((raw, runs));
        let done = self.checkpoint_alone();
        // One that found no room has not come to it.
        if let Some((_, runs)) = self.named.lock().take_pending() {
            runs.into_iter().for_each(|run| self.space.lock().put_back(run));
        }
        done
    }
}

fn too_long(name: &str) -> Error {
    Error::too_large("the name of a snapshot", name.len(), NAME_BYTES_MAX)
}
