//! What a change of names must not do: the checks of all cores, in the order in which Linux makes them.
//!
//! A core tells what it has ([`Names`]), and the checks change nothing, so that a core knows that a change can be done before it does
//! any part of it. A core that plans several changes tells what those before have made of its names.

use crate::{FileKind, FsError, FsResult, LINK_MAX, NAME_MAX, NewNode, PATH_MAX, RenameFlags};
use weft_core::{Ino, refuse};

/// What the checks ask of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// What it is.
    pub kind: FileKind,
    /// Names; of a directory without any, 0.
    pub links: u32,
    /// Whether it was made without a name and may get one.
    pub linkable: bool,
    /// Entries of a directory.
    pub entries: u64,
    /// The directory that holds a directory; itself for the root, and for what is no directory.
    pub parent: Ino,
}

impl Facts {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// What a rename moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// What gets the new name.
    pub ino: Ino,
    /// What has it before.
    pub other: Option<Ino>,
    /// Whether `other` is a directory.
    pub other_is_dir: bool,
}

/// Fails unless a directory entry can have this name.
pub fn check_name(name: &[u8]) -> FsResult<()> {
    refuse(name.len() > NAME_MAX, FsError::NameTooLong)?;
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(FsError::Invalid("not a name of a directory entry"));
    }
    Ok(())
}

/// Fails unless such a node can be made.
pub fn check_node(node: &NewNode<'_>) -> FsResult<()> {
    match node {
        NewNode::Symlink([]) => Err(FsError::NotFound),
        NewNode::Symlink(target) if target.len() >= PATH_MAX => Err(FsError::NameTooLong),
        NewNode::Special(FileKind::File | FileKind::Directory | FileKind::Symlink, _) => {
            Err(FsError::Invalid("not a special file"))
        }
        _ => Ok(()),
    }
}

/// Names and inodes as a change finds them.
pub trait Names {
    /// An inode; `Stale` when there is none of this number.
    fn facts(&mut self, ino: Ino) -> FsResult<Facts>;

    /// The inode with this name in a directory, which is one.
    fn named(&mut self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>>;

    /// The inode with this name, if there is one.
    fn child(&mut self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>> {
        refuse(!self.facts(dir)?.is_dir(), FsError::NotDirectory)?;
        check_name(name)?;
        self.named(dir, name)
    }

    /// The inode with this name.
    fn entry(&mut self, dir: Ino, name: &[u8]) -> FsResult<Ino> {
        self.child(dir, name)?.ok_or(FsError::NotFound)
    }

    /// `Stale` unless this name is that of `ino`, or nobody's.
    fn check_expected(&mut self, dir: Ino, name: &[u8], ino: Option<Ino>) -> FsResult<()> {
        let is_so = self.child(dir, name).is_ok_and(|found| found == ino);
        refuse(!is_so, FsError::Stale)
    }

    /// Of a name that is to be given to something new, or to one thing more.
    fn check_free(&mut self, dir: Ino, name: &[u8]) -> FsResult<()> {
        refuse(self.child(dir, name)?.is_some(), FsError::Exists)?;
        // A directory that was removed while it is open takes no new names.
        refuse(self.facts(dir)?.links == 0, FsError::NotFound)
    }

    /// Of one more name of an inode.
    fn check_link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<()> {
        let facts = self.facts(ino)?;
        self.check_free(dir, name)?;
        refuse(facts.is_dir(), FsError::NotPermitted)?;
        refuse(facts.links == 0 && !facts.linkable, FsError::NotFound)?;
        refuse(facts.links >= LINK_MAX, FsError::TooManyLinks)
    }

    /// Of the end of a name, a directory's or another's. The inode that has it.
    fn check_remove(&mut self, dir: Ino, name: &[u8], is_dir: bool) -> FsResult<Ino> {
        let ino = self.entry(dir, name)?;
        let facts = self.facts(ino)?;
        refuse(is_dir && !facts.is_dir(), FsError::NotDirectory)?;
        refuse(!is_dir && facts.is_dir(), FsError::IsDirectory)?;
        refuse(facts.entries > 0, FsError::NotEmpty)?;
        Ok(ino)
    }

    /// Whether `dir` is `above` or lies below it. On a damaged volume directories may be each other's parents, which is an error.
    fn is_within(&mut self, mut dir: Ino, above: Ino) -> FsResult<bool> {
        // A way that ends meets none of its places again, so it is enough to look back to one of them, ever later.
        let (mut seen, mut steps) = (dir, 0u64);
        loop {
            if dir == above {
                return Ok(true);
            }
            let parent = self.facts(dir)?.parent;
            if parent == dir {
                return Ok(false);
            }
            dir = parent;
            if dir == seen {
                return Err(FsError::Device(format!("directory {dir} lies below itself")));
            }
            steps += 1;
            if steps.is_power_of_two() {
                seen = dir;
            }
        }
    }

    /// Of a rename. `None` when nothing is to be done: both names are those of one inode, and POSIX leaves both.
    fn check_rename(
        &mut self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<Option<Move>> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags != RenameFlags::EXCHANGE {
            return Err(FsError::Invalid("EXCHANGE excludes NO_REPLACE and WHITEOUT"));
        }
        refuse(!self.facts(to)?.is_dir(), FsError::NotDirectory)?;
        let ino = self.entry(from, name)?;
        let moves_dir = self.facts(ino)?.is_dir();
        let other = self.child(to, new_name)?;
        refuse(other.is_some() && flags.contains(RenameFlags::NO_REPLACE), FsError::Exists)?;
        refuse(other.is_none() && (exchange || self.facts(to)?.links == 0), FsError::NotFound)?;
        let below_itself = FsError::Invalid("a directory cannot move below itself");
        if moves_dir && self.is_within(to, ino)? {
            return Err(below_itself);
        }
        let Some(other) = other else {
            return Ok(Some(Move { ino, other: None, other_is_dir: false }));
        };
        let replaced = self.facts(other)?;
        if replaced.is_dir() && self.is_within(from, other)? {
            return Err(if exchange { below_itself } else { FsError::NotEmpty });
        }
        if other == ino {
            return Ok(None);
        }
        if !exchange {
            refuse(!moves_dir && replaced.is_dir(), FsError::IsDirectory)?;
            refuse(moves_dir && !replaced.is_dir(), FsError::NotDirectory)?;
            refuse(replaced.entries > 0, FsError::NotEmpty)?;
        }
        Ok(Some(Move { ino, other: Some(other), other_is_dir: replaced.is_dir() }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Directories, each of which is in the one whose number is at its place.
    struct Parents(Vec<u64>);

    impl Names for Parents {
        fn facts(&mut self, ino: Ino) -> FsResult<Facts> {
            let parent = Ino(*self.0.get(ino.0 as usize).ok_or(FsError::Stale)?);
            Ok(Facts { kind: FileKind::Directory, links: 2, linkable: false, entries: 0, parent })
        }

        fn named(&mut self, _dir: Ino, _name: &[u8]) -> FsResult<Option<Ino>> {
            Ok(None)
        }
    }

    #[test]
    fn a_directory_is_within_those_above_it_and_within_no_other() {
        let mut chain = Parents((0..100).map(|n: u64| n.saturating_sub(1)).collect());
        for (dir, above, is_so) in [(99, 0, true), (99, 98, true), (7, 7, true), (7, 8, false), (0, 1, false)]
        {
            assert_eq!(chain.is_within(Ino(dir), Ino(above)).unwrap(), is_so, "{dir} in {above}");
        }
    }

    #[test]
    fn directories_that_are_each_others_parents_are_an_error_and_not_an_endless_way() {
        for way_to_ring in 0..6 {
            for ring in 2..9 {
                // 0 leads to nothing here; the last of the ring leads to its first.
                let len = 1 + way_to_ring + ring;
                let parents = (0..len).map(|n| if n + 1 == len { 1 + way_to_ring } else { n + 1 }).collect();
                let found = Parents(parents).is_within(Ino(1), Ino(0));
                assert!(matches!(found, Err(FsError::Device(_))), "{way_to_ring} {ring}: {found:?}");
            }
        }
    }
}
