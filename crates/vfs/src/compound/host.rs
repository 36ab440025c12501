//! What the interpreter needs of whoever runs a program.

use super::{Access, CALLS_NS_MAX, Input, Near, Op};
use crate::change::{Change, Made, Refused};
use crate::{Attr, FileSystem, FsResult, Protections, TimeSpec};
use weft_core::{Credentials, Ino, Tag};

/// A turn came to nothing, because what it rests on has changed meanwhile: it can begin anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stale;

/// A front's side of a program: the files, the caller, and the one way to change anything.
///
/// The interpreter walks paths and checks permissions itself, by [`path::resolve`](crate::path::resolve) and
/// [`Access`](crate::Access), so that every host does it alike.
pub trait Host {
    /// The files as they are now. The interpreter reads them, takes and gives back open references and notes reads; it changes nothing
    /// here. A front that holds data of its own before the core (a ring, a page) lends a file system that shows it.
    fn files(&self) -> &dyn FileSystem;

    /// Who runs the program.
    fn caller(&self) -> &Credentials;

    /// The directory in which paths begin that begin nowhere else.
    fn start(&self) -> Ino;

    /// A file that the caller has open and gives with the program, and what it is open for.
    fn given(&self, number: u8) -> Option<(Ino, Access)> {
        let _ = number;
        None
    }

    /// Whether what is written to a file that is given with the program is durable when the program ends: it is open so (`O_SYNC`).
    fn syncs(&self, number: u8) -> bool {
        let _ = number;
        false
    }

    /// What comes with this run of the program under a number.
    fn input(&self, number: u8) -> Option<Input<'_>> {
        let _ = number;
        None
    }

    /// Permission bits that what the program makes does not get.
    fn umask(&self) -> u32;

    /// Where the volume appears to the caller, without a slash at the end; see [`path::Options`](crate::path::Options).
    fn mount_point(&self) -> &[u8];

    /// The directory that no path of the program leads out of, if it is not the whole volume; see
    /// [`path::Options`](crate::path::Options).
    fn within(&self) -> Option<Ino> {
        None
    }

    /// Which symlinks and files of others are not followed, linked or opened.
    fn protections(&self) -> Protections;

    /// The present moment.
    fn now(&self) -> TimeSpec;

    /// The tag that the data of a file carries which the program makes under this path, from `start` on.
    fn tag(&self, start: Ino, path: &[u8]) -> Tag;

    /// The tag that a file's data gets with another path; `None`: it keeps the one that it has.
    fn tag_of_renamed(&self, file: &Attr, start: Ino, path: &[u8]) -> Option<Tag> {
        let _ = (file, start, path);
        None
    }

    /// Keeps a file from going while the program runs, until [`files`](Self::files) release it. A host that keeps others from files need not
    /// do so for what is only named.
    ///
    /// # Errors
    /// Those of [`FileSystem::open`].
    fn open(&self, ino: Ino, purpose: Access) -> FsResult<()> {
        let _ = purpose;
        self.files().open(ino)
    }

    /// Codecs and users' functions, if the host has them. Operations that need them fail with `EOPNOTSUPP` otherwise.
    fn near(&self) -> Option<&dyn Near> {
        None
    }

    /// Whether the program's calls of users' functions go on that have taken this many nanoseconds so far, all of them together. It is
    /// asked after each slice of a call, about [`SLICE_NS`](weft_compute::SLICE_NS) long, and may do something else meanwhile: what that
    /// takes counts, too. `false` ends the program with `ETIME`.
    fn goes_on(&self, ns: u64) -> bool {
        ns < CALLS_NS_MAX
    }

    /// Whether the host wants [check points](Self::check_point) in the midst of operations, too. Compression is done in slices then, and its
    /// result may be a little longer.
    fn has_check_points(&self) -> bool {
        false
    }

    /// Another operation, or a slice of one, is about to begin: the host may do something else meanwhile, such as letting another program
    /// have the processor.
    fn check_point(&self) {}

    /// Lets `run` do these operations: all of a program, or one whose changes are made [one at a time](super::Policy::Each). A host that
    /// lets others change the same files keeps them out meanwhile. `run` begins anew each time that it is called; a host calls it again
    /// when it has ended stale, some times.
    ///
    /// # Errors
    /// [`FsError::Call`](crate::FsError::Call): the operations have not been done, for this reason. All others: what the operations have changed
    /// stays, and is not as durable as they asked for.
    fn turn(&self, ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()>;

    /// Writes all of `data` to a file that is open for it, at an offset or at its end, by a call that means for others all that a write means
    /// and makes all its checks: where the data begins. `None`: the host has no such calls, and the write is made by
    /// [`change`](Self::change). For programs whose changes are made [one at a time](super::Policy::Each).
    fn write(&self, ino: Ino, at: Option<u64>, data: &[u8]) -> Option<FsResult<u64>> {
        let _ = (ino, at, data);
        None
    }

    /// Does all changes in one step, as [`FileSystem::commit`] does; durable at the end of the turn at the latest.
    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused>;

    /// Does a change by its plain operation, as every core can; the inode that it makes, should it make one.
    fn change(&self, change: &Change<'_>, durable: bool) -> FsResult<Option<Ino>>;

    /// Makes a file's data, and every metadata operation so far, survive a power cut, at the end of the turn at the latest. No later
    /// change survives a crash before.
    fn sync(&self, ino: Ino) -> FsResult<()>;
}

/// The parts of a [`Host`] without a front of its own: no umask, no mount point, no protections, and no tags.
#[macro_export]
macro_rules! without_front {
    () => {
        fn umask(&self) -> u32 {
            0
        }

        fn mount_point(&self) -> &[u8] {
            b""
        }

        fn protections(&self) -> $crate::Protections {
            $crate::Protections::default()
        }

        fn now(&self) -> $crate::TimeSpec {
            $crate::TimeSpec::now()
        }

        fn tag(&self, _start: weft_core::Ino, _path: &[u8]) -> weft_core::Tag {
            weft_core::Tag::default()
        }
    };
}
