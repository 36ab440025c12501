//! Opening files.

use super::{Ask, Failure, Outcome, done, is_file, outside};
use crate::state::open_files::{Name, Opener};
use crate::state::volume::Volume;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use weft_client::proto::ITSELF;
use weft_client::shared::channel::Response;
use weft_core::{Ino, Tag};
use weft_placement::sim::Opener as RecordedOpener;
use weft_placement::{FileContext, OpenIntent, WriteHint};
use weft_vfs::path::{Last, Place, Resolved};
use weft_vfs::{Attr, CreateArgs, FileKind, FileSystem, FsError, NewNode, access};

/// Flags that `fcntl(F_SETFL)` may change.
const CHANGEABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

pub fn open(ask: &Ask<'_>) -> Outcome {
    let path = ask.part1()?;
    let mut flags = ask.arg(1) as i32;
    if flags & libc::O_PATH != 0 {
        // Nothing else counts then.
        flags &= libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    }
    let mode = ask.arg(2) as u32 & 0o7777;
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return open_unnamed(ask, &path, flags, mode);
    }
    let creates = flags & libc::O_CREAT != 0;
    if creates && flags & libc::O_DIRECTORY != 0 {
        return Err(Failure(libc::EINVAL));
    }
    let exclusive = creates && flags & libc::O_EXCL != 0;
    let last = if flags & libc::O_NOFOLLOW != 0 || exclusive { Last::Stop } else { Last::Follow };
    loop {
        let (attr, created, place) = match ask.walk_to(0, &path, last, creates)? {
            Resolved::Outside(_) => return outside(),
            Resolved::Found(..) if exclusive => return Err(Failure(libc::EEXIST)),
            Resolved::Found(place, attr) => {
                // What is opened once more was created in no directory.
                if creates && path != ITSELF {
                    check_found_for_creation(ask, &place, &attr)?;
                }
                check_open(ask, &attr, flags)?;
                ask.volume.fs.open(attr.ino)?;
                (attr, false, place)
            }
            Resolved::Missing(place) if creates => {
                ask.check_writable()?;
                match create(ask, &place, &path, flags, mode) {
                    Ok(attr) => (attr, true, place),
                    // Somebody else was faster.
                    Err(FsError::Exists) if !exclusive => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            Resolved::Missing(_) => return Err(Failure(libc::ENOENT)),
        };
        let (path, name) = if path == ITSELF {
            let open = ask.open_file(0)?;
            (open.path.clone(), open.name())
        } else {
            let name = (!place.name.is_empty()).then_some(Name { dir: place.dir, name: place.name });
            (canonical_hint(ask, &path), name)
        };
        return finish(ask, &attr, created, flags, path, name);
    }
}

/// `O_CREAT` on what exists: a directory is refused whoever asks, and some files in directories for all.
fn check_found_for_creation(ask: &Ask<'_>, place: &Place, attr: &Attr) -> Result<(), Failure> {
    if attr.kind == FileKind::Directory {
        return Err(Failure(libc::EISDIR));
    }
    let dir = ask.volume.fs.getattr(place.dir)?;
    Ok(ask.volume.protections.check_open_for_creation(&ask.identity.cred, &dir, attr)?)
}

/// The core's open reference is taken; from here on it belongs to the table of open inodes.
fn finish(
    ask: &Ask<'_>,
    attr: &Attr,
    created: bool,
    flags: i32,
    path: Vec<u8>,
    name: Option<Name>,
) -> Outcome {
    let volume = ask.volume;
    let inode = volume.inodes.acquire(attr)?;
    if is_file(attr.kind) && !created {
        volume.leftovers.settle(volume, attr);
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    // As in Linux, even without the right to write afterwards.
    if is_file(attr.kind) && !created && flags & libc::O_TRUNC != 0 {
        let result = super::data::set_size(ask, attr.ino, 0);
        if let Err(failure) = result {
            volume.inodes.release(&inode, None);
            return Err(failure);
        }
    }
    if is_file(attr.kind) && !created && writes {
        // A file that is written again may be another kind of file than it was: a recycled log, a renamed table.
        let size = volume.inodes.size(&inode);
        let opened = intent(flags, false);
        let tag = place_tag(ask, &opener(ask), &path, opened, size, WriteHint::NotSet);
        let tagged = volume
            .fs
            .tag(attr.ino)
            .and_then(|old| if old.stream != tag.stream { volume.fs.set_tag(attr.ino, tag) } else { Ok(()) });
        if let Err(error) = tagged {
            volume.inodes.release(&inode, None);
            return Err(error.into());
        }
        record_open(ask, attr.ino, &path, opened);
    }
    let kept = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY | libc::O_CLOEXEC);
    let heard = volume.inodes.failures.heard_by_newcomers();
    let Some(open) = volume.files.add(inode.clone(), kept, path, name, opener(ask), heard) else {
        volume.inodes.release(&inode, None);
        return Err(Failure(libc::ENFILE));
    };
    ask.connection.process.hold(open.file);
    let values = [open.file.0, u64::from(inode.slot), u64::from(attr.mode()), 0, 0, 0];
    Ok(Response { ret: i64::from(open.file.slot()), values, ..Response::default() })
}

fn check_open(ask: &Ask<'_>, attr: &Attr, flags: i32) -> Result<(), Failure> {
    let access_mode = flags & libc::O_ACCMODE;
    let path_only = flags & libc::O_PATH != 0;
    if flags & libc::O_DIRECTORY != 0 && attr.kind != FileKind::Directory {
        return Err(Failure(libc::ENOTDIR));
    }
    if attr.kind == FileKind::Symlink && !path_only {
        return Err(Failure(libc::ELOOP));
    }
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
    if attr.kind == FileKind::Directory && wanted & access::WRITE != 0 {
        return Err(Failure(libc::EISDIR));
    }
    let cred = &ask.identity.cred;
    if wanted & access::WRITE != 0 && is_file(attr.kind) {
        ask.check_writable()?;
    }
    cred.check(attr, wanted)?;
    if flags & libc::O_NOATIME != 0 && !cred.owns(attr) {
        return Err(Failure(libc::EPERM));
    }
    if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
        // The server has no pipes, sockets and devices behind their names.
        return Err(Failure(libc::ENXIO));
    }
    Ok(())
}

fn create(ask: &Ask<'_>, place: &Place, path: &[u8], flags: i32, mode: u32) -> Result<Attr, FsError> {
    let _names = ask.volume.permissions.read();
    let dir = ask.volume.fs.getattr(place.dir)?;
    let cred = &ask.identity.cred;
    cred.check_add(&dir)?;
    let path = canonical_hint(ask, path);
    let tag = place_tag(ask, &opener(ask), &path, intent(flags, true), 0, WriteHint::NotSet);
    let (perm, gid) = cred.perm_for_new(&dir, FileKind::File, mode);
    let args = CreateArgs { node: NewNode::File, perm, uid: cred.uid, gid, tag, open: true };
    let attr = ask.volume.fs.create(place.dir, &place.name, &args)?;
    record_open(ask, attr.ino, &path, intent(flags, true));
    Ok(attr)
}

/// Tells the recorder, when there is one, of a file that can be written from now on.
fn record_open(ask: &Ask<'_>, ino: Ino, path: &[u8], flags: OpenIntent) {
    if let Some(recorder) = ask.volume.mounted.recorder() {
        let process = ask.connection.process.name();
        let Opener { thread, thread_id } = opener(ask);
        recorder.opened(ino, path, RecordedOpener { process, thread, thread_id, flags });
    }
}

fn open_unnamed(ask: &Ask<'_>, path: &[u8], flags: i32, mode: u32) -> Outcome {
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(Failure(libc::EINVAL));
    }
    let attr = match ask.walk(0, path, Last::Follow)? {
        Resolved::Outside(_) => return outside(),
        Resolved::Missing(_) => return Err(Failure(libc::ENOENT)),
        Resolved::Found(_, attr) => attr,
    };
    if attr.kind != FileKind::Directory {
        return Err(Failure(libc::ENOTDIR));
    }
    ask.check_writable()?;
    let cred = &ask.identity.cred;
    cred.check_add(&attr)?;
    let path = canonical_hint(ask, path);
    let unnamed = intent(flags, true) | OpenIntent::TMPFILE;
    let tag = place_tag(ask, &opener(ask), &path, unnamed, 0, WriteHint::NotSet);
    let (perm, gid) = cred.perm_for_new(&attr, FileKind::File, mode);
    let args = CreateArgs { node: NewNode::File, perm, uid: cred.uid, gid, tag, open: true };
    let file = ask.volume.fs.create_unnamed(&args, flags & libc::O_EXCL == 0)?;
    record_open(ask, file.ino, &path, unnamed);
    finish(ask, &file, true, flags, path, None)
}

fn intent(flags: i32, created: bool) -> OpenIntent {
    let mut intent = OpenIntent::empty();
    intent.set(OpenIntent::CREATE, created);
    intent.set(OpenIntent::WRITE, flags & libc::O_ACCMODE != libc::O_RDONLY);
    intent.set(OpenIntent::APPEND, flags & libc::O_APPEND != 0);
    intent.set(OpenIntent::DIRECT, flags & libc::O_DIRECT != 0);
    intent.set(OpenIntent::SYNC, flags & (libc::O_SYNC | libc::O_DSYNC) != 0);
    intent.set(OpenIntent::EXCL, flags & libc::O_EXCL != 0);
    intent.set(OpenIntent::TRUNC, flags & libc::O_TRUNC != 0);
    intent
}

/// The thread that asks for an open.
fn opener(ask: &Ask<'_>) -> Opener {
    let name = ask.part2().unwrap_or_default();
    Opener { thread: String::from_utf8_lossy(&name).into_owned(), thread_id: ask.arg(3) as u32 }
}

/// Asks placement for a file's tag.
pub(crate) fn place_tag(
    ask: &Ask<'_>,
    opener: &Opener,
    path: &[u8],
    flags: OpenIntent,
    size: u64,
    hint: WriteHint,
) -> Tag {
    let volume: &Volume = ask.volume;
    let comm = ask.connection.process.name();
    let ctx = FileContext {
        process: &comm,
        thread: if opener.thread.is_empty() { &comm } else { &opener.thread },
        thread_id: opener.thread_id,
        flags,
        hint,
        size,
        uid: ask.identity.cred.uid,
        volume_bytes: volume.fs.volume_bytes(),
        now: volume.started.elapsed(),
        ..FileContext::new(path)
    };
    volume.mounted.engine().place(&ctx)
}

/// The path as placement and reports see it: absolute, from the volume's root, `.` and empty components left out.
pub(crate) fn canonical_hint(ask: &Ask<'_>, path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 1);
    if path.first() != Some(&b'/')
        && let Ok(dir) = ask.open_file(0)
    {
        out.extend_from_slice(&dir.path);
    }
    append_components(&mut out, path);
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

fn append_components(out: &mut Vec<u8>, path: &[u8]) {
    if out.as_slice() == b"/" {
        out.clear();
    }
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                let cut = out.iter().rposition(|&b| b == b'/').unwrap_or(0);
                out.truncate(cut);
            }
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
            }
        }
    }
}

pub fn set_flags(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_data(0)?;
    let shared = ask.volume.files.shared(open.file);
    let old = shared.flags.load(Relaxed) as i32;
    let quiet = ask.arg(1) as i32 & !old & libc::O_NOATIME != 0;
    if quiet && !ask.identity.cred.owns(&ask.volume.fs.getattr(open.inode.ino)?) {
        return Err(Failure(libc::EPERM));
    }
    let new = old & !CHANGEABLE | ask.arg(1) as i32 & CHANGEABLE;
    shared.flags.store(new as u32, Relaxed);
    done(0)
}

/// What the program says of a file's lifetime: the file is placed again with that knowledge.
pub fn set_hint(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_file(0)?;
    let hint = WriteHint::from_fcntl(ask.arg(1) as u32).ok_or(Failure(libc::EINVAL))?;
    let size = ask.volume.inodes.size(&open.inode);
    let flags = OpenIntent::CREATE | OpenIntent::WRITE;
    let tag = place_tag(ask, &open.opener, &open.path, flags, size, hint);
    retag(ask.volume, open.inode.ino, tag)?;
    if let Some(recorder) = ask.volume.mounted.recorder() {
        recorder.hinted(open.inode.ino, hint);
    }
    done(0)
}

/// Gives a file another tag; what is accepted so far still goes by the old one.
pub(crate) fn retag(volume: &Arc<Volume>, ino: Ino, tag: Tag) -> Result<(), Failure> {
    let fs: &dyn FileSystem = volume.fs.as_ref();
    fs.set_tag(ino, tag)?;
    Ok(())
}
