//! Opening files.

use super::Error::{Errno, Outside};
use super::{At, Base, Result, Session, found, is_file};
use crate::state::inodes::OpenInode;
use crate::state::open_files::{Name, NewFile, OpenFile, Opener, path_from};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use weft_client::FileRef;
use weft_client::proto::{ITSELF, is_readable, is_writable};
use weft_client::shared::volume::MAPPED;
use weft_core::{Ino, Tag, refuse};
use weft_placement::recording::Opener as RecordedOpener;
use weft_placement::{FileContext, OpenIntent, WriteHint};
use weft_vfs::path::{Last, Options, ParentAndName, Resolved};
use weft_vfs::{Access, Attr, CreateArgs, FileKind, InodeFlags, NewNode, access};

/// Flags that `fcntl(F_SETFL)` may change.
const CHANGEABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

/// An open file, and the kind and the permission bits of its inode (`st_mode`).
pub type Opened = (Arc<OpenFile>, u32);

/// How a file is opened.
struct Opening {
    flags: i32,
    /// The permission bits of a file that is made, and perhaps a umask.
    mode: u32,
    opener: Opener,
}

impl Session<'_> {
    /// Opens a file, and makes it if `flags` say so, with the permission bits in `mode`, which may hold a
    /// [umask](weft_client::proto::with_umask). The process holds a reference to it
    /// from now on.
    pub fn open(&self, at: At<'_>, mut flags: i32, mode: u32, opener: Opener) -> Result<Opened> {
        if flags & libc::O_PATH != 0 {
            // Nothing else counts then.
            flags &= libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        }
        let mut opening = Opening { flags, mode, opener };
        let unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let open = if unnamed { Self::open_unnamed } else { Self::open_named };
        self.retry_stale(|| open(self, at, &mut opening))
    }

    fn open_named(&self, at: At<'_>, opening: &mut Opening) -> Result<Opened> {
        let flags = opening.flags;
        let creates = flags & libc::O_CREAT != 0;
        refuse(creates && flags & libc::O_DIRECTORY != 0, Errno(libc::EINVAL))?;
        let exclusive = creates && flags & libc::O_EXCL != 0;
        let last = if flags & libc::O_NOFOLLOW != 0 || exclusive { Last::Stop } else { Last::Follow };
        let options = Options { creates, ..self.walking(last) };
        loop {
            let (attr, created, place) = match self.walk_with(self.cred(), at, options)? {
                Resolved::Outside(_) => return Err(Outside),
                Resolved::Found(..) if exclusive => return Err(Errno(libc::EEXIST)),
                Resolved::Found(place, attr) => {
                    // What is opened once more was created in no directory.
                    if creates && at.path != ITSELF {
                        self.check_found_for_creation(&place, &attr)?;
                    }
                    self.check_open(&attr, flags)?;
                    self.volume.fs.open(attr.ino)?;
                    (attr, false, place)
                }
                Resolved::Missing(place) if creates => {
                    self.check_writable()?;
                    match self.create(&place, at, opening) {
                        Ok(attr) => (attr, true, place),
                        // Somebody else was faster.
                        Err(Errno(libc::EEXIST)) if !exclusive => continue,
                        Err(error) => return Err(error),
                    }
                }
                Resolved::Missing(_) => return Err(Errno(libc::ENOENT)),
            };
            let (path, name) = match at.dir {
                Base::Open(file) if at.path == ITSELF => {
                    let open = self.open_file(file)?;
                    (open.path.clone(), open.name())
                }
                _ => {
                    let name = (!place.name.is_empty()).then_some(Name { dir: place.dir, name: place.name });
                    (self.canonical(at), name)
                }
            };
            return self.add_open_file(&attr, created, opening, path, name);
        }
    }

    fn open_unnamed(&self, at: At<'_>, opening: &mut Opening) -> Result<Opened> {
        let flags = opening.flags;
        refuse(flags & libc::O_ACCMODE == libc::O_RDONLY, Errno(libc::EINVAL))?;
        let attr = found(self.walk(at, Last::Follow)?)?;
        refuse(attr.kind != FileKind::Directory, Errno(libc::ENOTDIR))?;
        self.check_writable()?;
        let cred = self.cred();
        cred.check(self.fs(), &attr, access::WRITE | access::EXECUTE)?;
        // A directory that was removed has no names to give (ENOENT), and for what needs none ext4 says this.
        refuse(attr.links == 0, Errno(libc::EPERM))?;
        let path = self.canonical(at);
        let unnamed = intent(flags, true);
        let tag = self.place_tag(&opening.opener, &path, unnamed, (self.cred().uid, 0), WriteHint::NotSet);
        let new = self.new_in(&attr, FileKind::File, opening.mode)?;
        let (perm, gid, xattrs) = (new.perm, new.gid, new.xattrs());
        let args =
            CreateArgs { node: NewNode::File, perm, uid: cred.uid, gid, tag, open: true, xattrs: &xattrs };
        let file = self.volume.fs.create_unnamed(attr.ino, &args, flags & libc::O_EXCL == 0)?;
        self.record_open(file.ino, &path, &opening.opener, unnamed);
        self.add_open_file(&file, true, opening, path, None)
    }

    /// `O_CREAT` on what exists: a directory is refused whoever asks, and some files in directories for all.
    fn check_found_for_creation(&self, place: &ParentAndName, attr: &Attr) -> Result<()> {
        refuse(attr.kind == FileKind::Directory, Errno(libc::EISDIR))?;
        let dir = self.volume.fs.getattr(place.dir)?;
        Ok(self.volume.protections.check_open_for_creation(self.cred(), &dir, attr)?)
    }

    fn check_open(&self, attr: &Attr, flags: i32) -> Result<()> {
        let access_mode = flags & libc::O_ACCMODE;
        let path_only = flags & libc::O_PATH != 0;
        refuse(flags & libc::O_DIRECTORY != 0 && attr.kind != FileKind::Directory, Errno(libc::ENOTDIR))?;
        refuse(attr.kind == FileKind::Symlink && !path_only, Errno(libc::ELOOP))?;
        if path_only {
            return Ok(());
        }
        let mut wanted = match access_mode {
            libc::O_RDONLY => access::READ,
            libc::O_WRONLY => access::WRITE,
            _ => access::READ | access::WRITE,
        };
        if flags & libc::O_TRUNC != 0 {
            wanted |= access::WRITE;
        }
        refuse(attr.kind == FileKind::Directory && wanted & access::WRITE != 0, Errno(libc::EISDIR))?;
        let cred = self.cred();
        if wanted & access::WRITE != 0 && is_file(attr.kind) {
            self.check_writable()?;
        }
        cred.check(self.fs(), attr, wanted)?;
        let is_for_appends = attr.marks.flags.contains(InodeFlags::APPEND);
        let appends =
            (access_mode == libc::O_RDONLY || flags & libc::O_APPEND != 0) && flags & libc::O_TRUNC == 0;
        refuse(is_for_appends && !appends, Errno(libc::EPERM))?;
        refuse(flags & libc::O_NOATIME != 0 && !cred.owns(attr), Errno(libc::EPERM))?;
        if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
            // The server has no pipes, sockets and devices behind their names.
            return Err(Errno(libc::ENXIO));
        }
        Ok(())
    }

    fn create(&self, place: &ParentAndName, at: At<'_>, opening: &Opening) -> Result<Attr> {
        let Opening { flags, mode, ref opener } = *opening;
        let names = self.among_others()?;
        let dir = self.volume.fs.getattr(place.dir)?;
        let cred = self.cred();
        cred.check_add(self.fs(), &dir)?;
        let path = self.canonical(at);
        let tag = self.place_tag(opener, &path, intent(flags, true), (self.cred().uid, 0), WriteHint::NotSet);
        let new = self.new_in(&dir, FileKind::File, mode)?;
        let (perm, gid, xattrs) = (new.perm, new.gid, new.xattrs());
        let args =
            CreateArgs { node: NewNode::File, perm, uid: cred.uid, gid, tag, open: true, xattrs: &xattrs };
        let attr = self.volume.fs.create(place.dir, &place.name, &args)?;
        self.record_open(attr.ino, &path, opener, intent(flags, true));
        drop(names);
        // The file is there: what cannot be stored is reported when it is written or synced.
        let _ = self.sync_names(&[place.dir]);
        Ok(attr)
    }

    /// The core's open reference is taken; from here on it belongs to the table of open inodes.
    fn add_open_file(
        &self,
        attr: &Attr,
        created: bool,
        opening: &mut Opening,
        path: Vec<u8>,
        name: Option<Name>,
    ) -> Result<Opened> {
        let flags = opening.flags;
        let volume = self.volume;
        let inode = volume.inodes.acquire(attr)?;
        if is_file(attr.kind) && !created {
            if volume.orphans.settle(volume, attr) {
                volume.inodes.shared(inode.slot).by_call.fetch_or(MAPPED, SeqCst);
            }
            if let Err(error) = self.reopen(attr, &inode, opening, &path) {
                volume.inodes.release(&inode, None);
                return Err(error);
            }
        }
        if !created && attr.size > 0 && is_file(attr.kind) && is_readable(flags) && self.may_lease() {
            // So that the first read makes no call.
            self.fill_first(&inode);
        }
        if created && is_file(attr.kind) && is_writable(flags) && self.may_lease() {
            // Nor the first write.
            volume.inodes.lease_ahead(&inode);
        }
        let parent = name.as_ref().map(|name| name.dir);
        let kept = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY | libc::O_CLOEXEC);
        let new = NewFile {
            flags: kept,
            path,
            name,
            // Nothing that comes now is tried again.
            opener: std::mem::take(&mut opening.opener),
            volume_errors_seen: volume.inodes.errors.sample(),
        };
        let Some(open) = volume.files.add(inode.clone(), new) else {
            volume.inodes.release(&inode, None);
            return Err(Errno(libc::ENFILE));
        };
        self.process.hold(open.file);
        if flags & (libc::O_ACCMODE | libc::O_PATH) == libc::O_RDONLY {
            // Where one is opened for reading, more are.
            volume.grant(self.process);
            if flags & libc::O_DIRECTORY != 0 && self.may_lease() {
                self.publish_listing(open.file);
                parent.into_iter().for_each(|dir| self.list_ahead(dir, attr.ino));
            }
        }
        Ok((open, attr.mode()))
    }

    /// What opening does to a file that was there before.
    fn reopen(&self, attr: &Attr, inode: &OpenInode, opening: &Opening, path: &[u8]) -> Result<()> {
        let Opening { flags, ref opener, .. } = *opening;
        // As in Linux, even without the right to write afterwards.
        if flags & libc::O_TRUNC != 0 {
            self.set_size(attr.ino, 0, false)?;
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            // A file that is written again may be another kind of file than it was: a recycled log, a renamed table.
            let (fs, size) = (&self.volume.fs, self.volume.inodes.size(inode));
            let opened = intent(flags, false);
            let tag = self.place_tag(opener, path, opened, (attr.uid, size), WriteHint::NotSet);
            let old = fs.tag(attr.ino)?;
            if old.stream != tag.stream {
                fs.set_tag(attr.ino, Tag { flags: old.flags, ..tag })?;
            }
            self.record_open(attr.ino, path, opener, opened);
        }
        Ok(())
    }

    /// Tells the recorder, when there is one, of a file that can be written from now on.
    pub(super) fn record_open(&self, ino: Ino, path: &[u8], opener: &Opener, flags: OpenIntent) {
        if let Some(recorder) = self.volume.mounted.recorder() {
            let Opener { thread, thread_id } = opener.clone();
            let process = self.process.name();
            recorder.opened(ino, path, RecordedOpener { process, thread, thread_id, flags });
        }
    }

    /// Asks placement for a file's tag.
    pub(super) fn place_tag(
        &self,
        opener: &Opener,
        path: &[u8],
        flags: OpenIntent,
        (owner, size): (u32, u64),
        hint: WriteHint,
    ) -> Tag {
        let process = self.process.name();
        let ctx = FileContext {
            process: &process,
            thread: if opener.thread.is_empty() { &process } else { &opener.thread },
            thread_id: opener.thread_id,
            flags,
            hint,
            size,
            uid: owner,
            volume_bytes: self.volume.fs.volume_bytes(),
            now: self.volume.started.elapsed(),
            ..FileContext::new(path)
        };
        self.volume.mounted.engine().place(&ctx)
    }

    /// The path as placement and reports see it: absolute, from the volume's root, `.` and empty components left out.
    pub(super) fn canonical(&self, at: At<'_>) -> Vec<u8> {
        match at.dir {
            Base::Inode(_, itself) if at.path == ITSELF => path_from(b"", itself),
            Base::Inode(_, dir) => path_from(dir, at.path),
            Base::Open(file) => match self.open_file(file) {
                Ok(dir) => path_from(&dir.path, at.path),
                Err(_) => path_from(b"", at.path),
            },
        }
    }

    /// The flags of an open file: those that it was opened with, and what was changed since.
    pub fn flags(&self, file: FileRef) -> Result<i32> {
        Ok(self.open_flags(&*self.open_file(file)?))
    }

    /// Changes those flags of an open file that `fcntl(F_SETFL)` changes.
    pub fn set_flags(&self, file: FileRef, flags: i32) -> Result<()> {
        let open = self.open_data(file)?;
        let old = self.open_flags(&open);
        let quiet = flags & !old & libc::O_NOATIME != 0;
        refuse(quiet && !self.cred().owns(&self.volume.fs.getattr(open.inode.ino)?), Errno(libc::EPERM))?;
        let is_for_appends = open.inode.flags().contains(InodeFlags::APPEND);
        refuse((flags ^ old) & libc::O_APPEND != 0 && is_for_appends, Errno(libc::EPERM))?;
        let new = old & !CHANGEABLE | flags & CHANGEABLE;
        self.volume.files.shared(open.file).flags.store(new as u32, Relaxed);
        Ok(())
    }

    /// What the program says of a file's lifetime (`RWH_` values): the file is placed again with that knowledge. What is
    /// accepted so far still goes by the old tag.
    pub fn set_hint(&self, file: FileRef, hint: u32) -> Result<()> {
        let open = self.open_file(file)?;
        let hint = WriteHint::from_fcntl(hint).ok_or(Errno(libc::EINVAL))?;
        let size = self.volume.inodes.size(&open.inode);
        let flags = OpenIntent::CREATE | OpenIntent::WRITE;
        let (fs, ino) = (&self.volume.fs, open.inode.ino);
        let tag = self.place_tag(&open.opener, &open.path, flags, (fs.getattr(ino)?.uid, size), hint);
        fs.set_tag(ino, Tag { flags: fs.tag(ino)?.flags, ..tag })?;
        if let Some(recorder) = self.volume.mounted.recorder() {
            recorder.hinted(open.inode.ino, hint);
        }
        Ok(())
    }
}

/// The flags of `open(2)` in placement's terms.
pub fn intent(flags: i32, created: bool) -> OpenIntent {
    let mut intent = OpenIntent::empty();
    intent.set(OpenIntent::CREATE, created);
    intent.set(OpenIntent::WRITE, flags & libc::O_ACCMODE != libc::O_RDONLY);
    intent.set(OpenIntent::APPEND, flags & libc::O_APPEND != 0);
    intent.set(OpenIntent::DIRECT, flags & libc::O_DIRECT != 0);
    intent.set(OpenIntent::SYNC, flags & (libc::O_SYNC | libc::O_DSYNC) != 0);
    intent.set(OpenIntent::TMPFILE, flags & libc::O_TMPFILE == libc::O_TMPFILE);
    intent.set(OpenIntent::EXCL, flags & libc::O_EXCL != 0);
    intent.set(OpenIntent::TRUNC, flags & libc::O_TRUNC != 0);
    intent
}
