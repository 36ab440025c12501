//! Several changes in one step.
//!
//! The step runs on the state itself, after a copy of it was kept; a change that is refused brings the copy back. So each change meets
//! exactly the code of its plain operation, and nothing needs an undo of its own.
//!
//! During the step no inode goes and no space of one is given back: it is as if somebody held every inode open from the first change to
//! the last.

use super::State;
use crate::change::{self, Change, Made, Node, Refused};
use crate::names::Names;
use crate::{FsError, FsResult};
use weft_core::Ino;

impl State {
    /// Does all changes, or none.
    pub(super) fn step(&mut self, changes: &[Change<'_>]) -> Result<Made, Refused> {
        change::check(changes)?;
        let before = self.clone();
        self.nameless = Some(Vec::new());
        let mut made = Made::with_capacity(changes.len());
        for (at, change) in changes.iter().enumerate() {
            match self.change(&made, change) {
                Ok(ino) => made.push(ino),
                Err(error) => {
                    *self = before;
                    return Err(Refused { at, error });
                }
            }
        }
        for ino in self.nameless.take().unwrap_or_default() {
            self.collect(ino);
        }
        Ok(made)
    }

    /// Does one change; returns the inode that it makes.
    fn change(&mut self, made: &[Option<Ino>], change: &Change<'_>) -> FsResult<Option<Ino>> {
        let ino = |node| match node {
            Node::Ino(ino) => Ok(ino),
            Node::Made(at) => made.get(at).copied().flatten().ok_or(FsError::Stale),
        };
        match *change {
            Change::Expect { dir, name, ino: expected } => self.check_expected(ino(dir)?, name, expected)?,
            Change::Create { dir, name, ref args } => {
                return self.create(ino(dir)?, name, args).map(|attr| Some(attr.ino));
            }
            Change::Link { node, dir, name } => drop(self.link(ino(node)?, ino(dir)?, name)?),
            Change::Remove { dir, name, is_dir: true } => self.rmdir(ino(dir)?, name)?,
            Change::Remove { dir, name, is_dir: false } => self.unlink(ino(dir)?, name)?,
            Change::Rename { from, name, to, new_name, flags } => {
                self.rename(ino(from)?, name, ino(to)?, new_name, flags)?;
            }
            Change::SetAttr { node, ref set } => drop(self.setattr(ino(node)?, set)?),
            Change::Xattr { node, name, value: Some(value), mode } => {
                self.inode_mut(ino(node)?)?.set_xattr(name, value, mode)?;
            }
            Change::Xattr { node, name, value: None, .. } => {
                self.inode_mut(ino(node)?)?.remove_xattr(name)?;
            }
            Change::Write { node, offset, data } => self.write(ino(node)?, offset, data)?,
            Change::Fallocate { node, mode, offset, len } => {
                self.fallocate(ino(node)?, mode, offset, len)?;
            }
            Change::SetTag { node, tag } => self.inode_mut(ino(node)?)?.set_tag(tag),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
