//! Decodes requests into calls of a session, and encodes the results.
//!
//! Arguments and payload come from a process that may be broken or hostile. Lengths are checked here, against the
//! slot. The operations check the rest: open files against what the process holds, paths and names by the resolver
//! and the core.

use super::Connection;
use super::link::Payload;
use super::program::Pieces;
use crate::ops::{At, Base, Canonical, Change, Error, LockOwner, LongPiece, Position, Read, Session};
use crate::state::open_files::Opener;
use weft_client::proto::{
    ASK_AGAIN, AT_FILE_OFFSET, CLOSE_SETTLE, IDENTITY_UNKNOWN, INSPECT_SNAPSHOT, INSPECT_ZONES, ITSELF,
    LONG_BEGINS, LONG_ENDS, LONG_GOES_ON, LONG_HELD, Op, WireAttr, WireDirent, WireStatfs,
};
use weft_client::shared::channel::{PAYLOAD_BYTES, Request, Response};
use weft_client::{FileRef, LockRange, OUTSIDE};
use weft_core::refuse;
use weft_vfs::{Attr, TimeSpec};

/// Zones in one answer.
const ZONES_PER_PART: usize = 512;

pub type Outcome = Result<Response, Error>;

pub const INVALID: Error = Error::Errno(libc::EINVAL);

/// A request and its payload.
pub struct Call<'a> {
    request: &'a Request,
    payload: Payload<'a>,
}

/// What an operation that gives nothing has given, as a response.
fn done((): ()) -> Response {
    Response::default()
}

/// The same of what made an inode, of which the client asks for no more.
fn made(_: Attr) -> Response {
    Response::default()
}

fn returned(ret: i64) -> Response {
    Response { ret, ..Response::default() }
}

fn value(value: u64) -> Response {
    Response { values: [value, 0, 0, 0, 0, 0], ..Response::default() }
}

impl<'a> Call<'a> {
    pub fn arg(&self, index: usize) -> u64 {
        self.request.args[index]
    }

    fn int(&self, index: usize) -> i32 {
        self.arg(index) as i32
    }

    pub fn file(&self, index: usize) -> FileRef {
        FileRef(self.arg(index))
    }

    fn at<'p>(&self, index: usize, path: &'p [u8]) -> At<'p> {
        At { dir: Base::Open(self.file(index)), path }
    }

    /// The first part in place.
    fn data(&self) -> Result<&'a [u8], Error> {
        self.payload.part(0, self.request.len1).ok_or(INVALID)
    }

    fn data2(&self) -> Result<&'a [u8], Error> {
        self.payload.part(self.request.len1, self.request.len2).ok_or(INVALID)
    }

    /// A copy of the first part; copied because the client can change it at any time.
    pub fn part1(&self) -> Result<Vec<u8>, Error> {
        self.data().map(<[u8]>::to_vec)
    }

    pub fn part2(&self) -> Result<Vec<u8>, Error> {
        self.data2().map(<[u8]>::to_vec)
    }

    pub fn reply(&self, ret: i64, bytes: &[u8]) -> Outcome {
        refuse(bytes.len() > PAYLOAD_BYTES, Error::Errno(libc::ERANGE))?;
        self.payload.out(bytes.len()).copy_from_slice(bytes);
        Ok(Response { ret, len: bytes.len() as u64, ..Response::default() })
    }
}

/// Answers one request.
pub fn answer(
    connection: &Connection,
    request: &Request,
    payload: Payload<'_>,
    pieces: &mut Pieces,
) -> Response {
    let Some(caller) = connection.caller(request.thread) else {
        return returned(-i64::from(IDENTITY_UNKNOWN));
    };
    connection.volume.take_closed(&connection.process);
    let session = Session::new(&connection.volume, &connection.process, &caller);
    let call = Call { request, payload };
    let outcome = Op::from_u32(request.op).ok_or(Error::Errno(libc::ENOSYS));
    let perform = |op| match op {
        Op::Do => pieces.run(&session, &call),
        Op::DoKept => pieces.run_kept(&session, &call),
        Op::DoRest => pieces.more(&call),
        op => {
            // Whoever began to send a program sends it to its end.
            *pieces = Pieces::default();
            perform(&session, &call, op)
        }
    };
    outcome.and_then(perform).unwrap_or_else(|error| {
        returned(-i64::from(match error {
            Error::Errno(errno) => errno,
            Error::Outside => OUTSIDE,
            Error::Waits => ASK_AGAIN,
            // Nobody reads it.
            Error::Ended => libc::EIO,
        }))
    })
}

fn perform(session: &Session<'_>, call: &Call<'_>, op: Op) -> Outcome {
    match op {
        Op::Open => open(session, call),
        Op::Close if call.arg(1) == CLOSE_SETTLE => {
            session.closed_itself(call.arg(2) as u32);
            Ok(done(()))
        }
        Op::Close => session.close(call.file(0), call.arg(1) == 0).map(done),
        Op::Ref => session.reference(call.file(0)).map(done),
        Op::Retain => {
            let files = call.part2()?;
            let files = files.as_chunks::<8>().0.iter();
            session.retain(files.map(|file| FileRef(u64::from_le_bytes(*file))));
            Ok(done(()))
        }
        Op::Pass => session.pass(call.file(0)).map(value),
        Op::Take => session.take(call.file(0), call.arg(1), call.arg(2) != 0).map(done),
        Op::GetFlags => session.flags(call.file(0)).map(|flags| value(u64::from(flags as u32))),
        Op::SetFlags => session.set_flags(call.file(0), call.int(1)).map(done),
        Op::SetHint => session.set_hint(call.file(0), call.arg(1) as u32).map(done),
        Op::Read => read(session, call),
        Op::Write => write(session, call),
        Op::Lease => session.lease(call.file(0)).map(|leased| returned(leased.into())),
        Op::Drain => session.drain(call.file(0)).map(done),
        Op::Fsync => session.fsync(call.file(0)).map(done),
        Op::Sync => session.sync((call.arg(0) != 0).then(|| call.file(1))).map(done),
        Op::Fallocate => session.fallocate(call.file(0), call.int(1), call.arg(2), call.arg(3)).map(done),
        Op::Seek => {
            let target = session.seek(call.file(0), call.arg(1) as i64, call.int(2), call.arg(3) != 0);
            target.map(|target| returned(target as i64))
        }
        Op::ReadDir => read_dir(session, call),
        Op::PathOf => {
            let (path, deleted) = session.path_of(call.file(0))?;
            call.reply(deleted.into(), &path)
        }
        Op::Flock => session.flock(call.file(0), call.int(1), call.arg(2)).map(done),
        Op::PosixLock => record_lock(session, call),
        Op::Withdraw => {
            session.withdraw(call.arg(0));
            Ok(done(()))
        }
        Op::Statfs => statfs(session, call),
        Op::Inspect => inspect(session, call),
        Op::Note => {
            session.note(&call.part1()?);
            Ok(done(()))
        }
        _ => perform_by_path(session, call, op),
    }
}

/// What is done at the end of a path: that in the first part, but for symlinks, whose target is there.
fn perform_by_path(session: &Session<'_>, call: &Call<'_>, op: Op) -> Outcome {
    let path = call.part1()?;
    let (at, flags) = (call.at(0, &path), call.int(1));
    match op {
        Op::Stat => stat(session, call, at),
        Op::SetAttr => session.set_attr(at, flags, &change(call)).map(done),
        Op::Access => session.access(at, call.arg(1) as u32, call.int(2)).map(done),
        Op::GetXattr => call.reply(0, &session.get_xattr(at, flags, &call.part2()?)?),
        Op::SetXattr => {
            let both = call.part2()?;
            let (name, value) = both.split_at_checked(call.arg(3) as usize).ok_or(INVALID)?;
            session.set_xattr(at, flags, name, value, call.int(2)).map(done)
        }
        Op::ListXattr => call.reply(0, &session.list_xattr(at, flags)?),
        Op::RemoveXattr => session.remove_xattr(at, flags, &call.part2()?).map(done),
        Op::Mkdir => session.mkdir(at, call.arg(1) as u32).map(made),
        Op::Mknod => session.mknod(at, call.arg(1) as u32, call.arg(2)).map(made),
        Op::Symlink => session.symlink(&path, call.at(0, &call.part2()?)).map(made),
        Op::Unlink => session.unlink(at, flags).map(done),
        Op::Rename => session.rename(at, call.at(1, &call.part2()?), call.arg(2) as u32).map(done),
        Op::Link => session.link(at, call.at(1, &call.part2()?), call.int(2)).map(done),
        Op::LinkFile => session.link(call.at(0, ITSELF), call.at(1, &call.part2()?), 0).map(done),
        Op::SetInodeFlags => {
            session.set_inode_flags(at, flags, call.arg(2) as u32, call.arg(3) as u32).map(done)
        }
        Op::Readlink => call.reply(0, &session.readlink(at)?),
        Op::Resolve => match session.resolve(at, flags, call.arg(2) != 0)? {
            Canonical::Inside(path) => call.reply(0, &path),
            Canonical::Outside(path) => call.reply(1, &path),
        },
        _ => Err(Error::Errno(libc::ENOSYS)),
    }
}

fn open(session: &Session<'_>, call: &Call<'_>) -> Outcome {
    let (path, thread) = (call.part1()?, call.part2().unwrap_or_default());
    let thread = String::from_utf8(thread)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    let opener = Opener { thread, thread_id: call.arg(3) as u32 };
    let (open, mode) = session.open(call.at(0, &path), call.int(1), call.arg(2) as u32, opener)?;
    let values = [open.file.0, open.inode.slot.into(), mode.into(), 0, 0, 0];
    Ok(Response { ret: open.file.slot().into(), values, ..Response::default() })
}

fn read(session: &Session<'_>, call: &Call<'_>) -> Outcome {
    let read = Read {
        offset: Some(call.arg(1)).filter(|offset| *offset != AT_FILE_OFFSET),
        whole: call.arg(5),
        fills_map: call.arg(3) != 0,
        quiet: call.arg(4) != 0,
    };
    let done = session.read(call.file(0), read, call.payload.out(call.arg(2) as usize))?;
    let values = [done.offset, done.taken, 0, 0, 0, 0];
    Ok(Response { ret: done.len as i64, len: done.len as u64, values })
}

fn write(session: &Session<'_>, call: &Call<'_>) -> Outcome {
    let position = match (call.arg(1), call.arg(2)) {
        (AT_FILE_OFFSET, 0) => Position::FileOffset,
        (offset, 0) => Position::At(offset),
        (offset, _) => {
            let old = (call.request.len2 != 0).then(|| call.data2()).transpose()?;
            Position::InPlace { offset, old }
        }
    };
    let (file, data) = (call.file(0), call.data()?);
    let piece = match call.arg(3) {
        LONG_BEGINS => Some(LongPiece::First { thread: call.arg(4) as u32 }),
        LONG_GOES_ON => Some(LongPiece::Next),
        LONG_ENDS => Some(LongPiece::Last),
        LONG_HELD => Some(LongPiece::Held),
        _ => None,
    };
    let written = match piece {
        Some(piece) => session.write_long(file, position, data, piece),
        None => session.write(file, position, data),
    };
    written.map(|len| returned(len as i64))
}

fn read_dir(session: &Session<'_>, call: &Call<'_>) -> Outcome {
    let out = call.payload.out(call.arg(2) as usize);
    let (mut used, mut room) = (0, true);
    session.read_dir(call.file(0), call.arg(1), &mut |entry| {
        let packed = WireDirent::write(&entry, &mut out[used..]);
        used += packed.unwrap_or(0);
        room = packed.is_some();
        room
    })?;
    if used == 0 && !room {
        // Not even one entry fits.
        return Err(INVALID);
    }
    Ok(Response { ret: used as i64, len: used as u64, ..Response::default() })
}

fn stat(session: &Session<'_>, call: &Call<'_>, at: At<'_>) -> Outcome {
    let attr = session.stat(at, call.int(1))?;
    let wire = WireAttr::of(&attr, session.volume().device());
    let flags = u64::from(attr.marks.flags.bits());
    Ok(Response { values: [flags, 0, 0, 0, 0, 0], ..call.reply(0, bytemuck::bytes_of(&wire))? })
}

fn change(call: &Call<'_>) -> Change {
    let mask = call.arg(2);
    let given = |bit: u64, value: u64| (mask & bit != 0).then_some(value);
    Change {
        size: given(32, call.arg(7)),
        perm: given(1, call.arg(3)).map(|mode| mode as u32 & 0o7777),
        uid: given(2, call.arg(4) >> 32).map(|uid| uid as u32),
        gid: given(4, call.arg(4)).map(|gid| gid as u32),
        atime: given(8, call.arg(5)).map(|ns| TimeSpec(ns as i64)),
        mtime: given(16, call.arg(6)).map(|ns| TimeSpec(ns as i64)),
        ctime: None,
        touch: mask & 64 != 0,
    }
}

fn record_lock(session: &Session<'_>, call: &Call<'_>) -> Outcome {
    let file = call.file(0);
    // The process's own word for its number: a forked child's connection was made by its parent.
    let range =
        LockRange { kind: call.int(2), start: call.arg(3), len: call.arg(4), pid: call.arg(5) as u32 };
    let (owner, waits) = match call.int(1) {
        command @ (libc::F_GETLK | libc::F_OFD_GETLK) => {
            let by_file = command == libc::F_OFD_GETLK;
            let owner = if by_file { LockOwner::File } else { LockOwner::Process };
            let lock = session.get_lock(file, owner, range)?;
            let values = [lock.kind as u64, lock.start, lock.len, lock.pid.into(), 0, 0];
            return Ok(Response { values, ..Response::default() });
        }
        libc::F_SETLK => (LockOwner::Process, false),
        libc::F_SETLKW => (LockOwner::Process, true),
        libc::F_OFD_SETLK => (LockOwner::File, false),
        libc::F_OFD_SETLKW => (LockOwner::File, true),
        _ => return Err(INVALID),
    };
    session.set_lock(file, owner, range, waits.then(|| call.arg(6))).map(done)
}

fn statfs(session: &Session<'_>, call: &Call<'_>) -> Outcome {
    let (stats, volume) = (session.statfs()?, session.volume());
    let wire = WireStatfs {
        total_bytes: stats.total_bytes,
        free_bytes: stats.free_bytes,
        inodes: stats.inodes,
        free_inodes: stats.free_inodes,
        fsid: volume.id(),
        flags: if volume.fs.is_read_only() { libc::ST_RDONLY } else { 0 },
    };
    call.reply(0, bytemuck::bytes_of(&wire))
}

fn inspect(session: &Session<'_>, call: &Call<'_>) -> Outcome {
    let volume = session.volume();
    let (text, next) = match call.arg(0) {
        INSPECT_SNAPSHOT => (serde_json::to_vec(&volume.mounted.snapshot(volume.program_view())), 0),
        INSPECT_ZONES => {
            let (zones, next) = volume.mounted.zones(call.arg(1), ZONES_PER_PART);
            (serde_json::to_vec(&zones), next)
        }
        _ => return Err(INVALID),
    };
    call.reply(next as i64, &text.map_err(|_| Error::Errno(libc::EIO))?)
}
