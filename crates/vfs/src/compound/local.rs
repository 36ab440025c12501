//! A host over any file system, in the same process.

use super::{Access, Host, Input, Native, Near, Op, Stale, TRIES_MAX};
use crate::change::{Change, Made, Refused};
use crate::{FileSystem, FsResult};
use weft_core::{Credentials, Ino};

/// Runs programs on a file system that this process has for itself: paths begin at the root, the caller is the superuser unless another is
/// named, and what is made carries no tag.
///
/// It takes no lock: who changes the same files meanwhile by other calls may come between a program's reads and its step.
pub struct Local<'a> {
    fs: &'a dyn FileSystem,
    caller: Credentials,
    given: &'a [(Ino, Access)],
    inputs: &'a [Input<'a>],
}

impl<'a> Local<'a> {
    /// For the superuser.
    pub fn new(fs: &'a dyn FileSystem) -> Local<'a> {
        Local::of(fs, Credentials::default())
    }

    /// For somebody else.
    pub fn of(fs: &'a dyn FileSystem, caller: Credentials) -> Local<'a> {
        Local { fs, caller, given: &[], inputs: &[] }
    }

    /// Open files that are given with programs, and what they are open for.
    pub fn given(self, given: &'a [(Ino, Access)]) -> Local<'a> {
        Local { given, ..self }
    }

    /// What comes with a run.
    pub fn inputs(self, inputs: &'a [Input<'a>]) -> Local<'a> {
        Local { inputs, ..self }
    }
}

impl Host for Local<'_> {
    fn files(&self) -> &dyn FileSystem {
        self.fs
    }

    fn near(&self) -> Option<&dyn Near> {
        Some(&Native)
    }

    fn caller(&self) -> &Credentials {
        &self.caller
    }

    fn start(&self) -> Ino {
        Ino::ROOT
    }

    fn given(&self, number: u8) -> Option<(Ino, Access)> {
        self.given.get(usize::from(number)).copied()
    }

    fn input(&self, number: u8) -> Option<Input<'_>> {
        self.inputs.get(usize::from(number)).copied()
    }

    crate::without_front!();

    fn turn(&self, _ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()> {
        (0..TRIES_MAX).find(|_| run().is_ok());
        Ok(())
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        self.fs.commit(changes, durable)
    }

    fn change(&self, change: &Change<'_>, durable: bool) -> FsResult<Option<Ino>> {
        let made = change.alone(self.fs)?;
        if durable {
            self.fs.sync()?;
        }
        Ok(made)
    }

    fn sync(&self, ino: Ino) -> FsResult<()> {
        self.fs.fsync(ino)
    }
}
