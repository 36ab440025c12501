//! What the interpreter needs of whoever runs a program.

use crate::change::{Change, Made, Refused};
use crate::{Attr, FileSystem, FsResult, Protections, TimeSpec};
use weft_core::{Credentials, Ino, Tag};

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

    /// Permission bits that what the program makes does not get.
    fn umask(&self) -> u32;

    /// Where the volume appears to the caller, without a slash at the end; see [`path::Options`](crate::path::Options).
    fn mount_point(&self) -> &[u8];

    /// Which symlinks and files of others are not followed, linked or opened.
    fn protections(&self) -> Protections;

    /// The present moment.
    fn now(&self) -> TimeSpec;

    /// The tag that the data of a file carries which the program makes with this name in `dir`.
    fn tag(&self, dir: &Attr, name: &[u8]) -> Tag;

    /// Does all changes in one step, as [`FileSystem::commit`] does. A single change must be possible on every core, by its plain
    /// operation; several are refused with `Unsupported` by a core that cannot do them in one step.
    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused>;

    /// Makes a file's data, and every metadata operation so far, survive a power cut.
    fn sync(&self, ino: Ino) -> FsResult<()>;
}
