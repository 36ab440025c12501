//! Programs that change one file in one place, run by the client: they append to a file that is given with them, or overwrite bytes within one
//! of its blocks.
//!
//! ```text
//!  stamp of the file -> reads, computation -> write lock -> the same stamp? -> the change -> lock given back
//!                                                            `- no: anew, or by the server
//! ```
//!
//! Such a change is made as a whole or not at all, whoever is killed meanwhile: an append counts from the one store of the size on, and a
//! block is overwritten by the one store of its [word](crate::shared::overwrites). A power cut does not divide it either: a block goes to the
//! device as a whole, and appended bytes go to the core in one step ([`Inode::unit_end`]), or to one entry of the append log.

use crate::client::{Client, Leases};
use crate::here::Stamp;
use crate::lease::{APPEND_MAX, LeaseRead, Written, appended, kick};
use crate::proto::{FileRef, access_of};
use crate::shared::volume::{Inode, OpenFile};
use crate::sys::Errno;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use weft_core::{BLOCK_BYTES, Credentials, Ino};
use weft_vfs::change::{Made, Node, Refused};
use weft_vfs::compound::{
    Access, Answer, At, Checked, File, Host, Input, Kind, Near, Op as Operation, Policy, Ref, Stale, run,
};
use weft_vfs::{Attr, Change, FileKind, FileSystem, FsError, FsResult, Marks, TimeSpec};

/// Tries before the server is asked, without those after which a block is asked for; of programs that may take long, fewer.
const TRIES: u32 = 8;
const LONG_TRIES: u32 = 2;
/// Blocks that are asked for, at most, and bytes of one read of these.
const ASKED_MAX: u32 = 4;
const ASKED_BYTES_MAX: usize = 16 << 10;

/// What became of a try: the file is another one than the program has seen.
const STALE: u8 = 1;
/// The server has to run the program.
const ASKS: u8 = 2;
const WRITTEN: u8 = 3;
/// The write lock was lost with the change made: nobody can tell whether it stays.
const UNKNOWN: u8 = 4;

/// The file, and the host of a program that changes nothing else.
struct OneFile<'a> {
    client: &'a Client,
    leases: &'a Leases,
    file: FileRef,
    open: &'a OpenFile,
    inode: &'a Inode,
    slot: u32,
    access: Access,
    stamp: Stamp,
    caller: Credentials,
    given: &'a [FileRef],
    inputs: &'a [Input<'a>],
    became: AtomicU8,
    /// What was to be read and is not known here: where it begins, and how long it is.
    unknown: (AtomicU64, AtomicUsize),
}

/// Which file that is given with a program is the only one that it changes, in one place, and where; `None` for another program.
fn place(program: &Checked) -> Option<(u8, At)> {
    if program.policy == Policy::Each || program.durable {
        return None;
    }
    let (mut place, mut given) = (None, None);
    for op in &program.ops {
        match &op.kind {
            Kind::Write { file: File(Ref(file)), at, .. } if place.is_none() => place = Some((*file, *at)),
            // Of two files, only the server can tell whether they are one.
            Kind::Given { number } if given.is_none_or(|known| known == *number) => given = Some(*number),
            Kind::Close { .. } | Kind::Read { .. } => {}
            kind if kind.only_computes() => {}
            _ => return None,
        }
    }
    let (file, at) = place?;
    match program.ops.get(usize::from(file))?.kind {
        Kind::Given { number } => Some((number, at)),
        _ => None,
    }
}

impl Client {
    /// Runs a program that changes one file in one place, if that is to be done here.
    ///
    /// # Errors
    /// `EIO`: the client was held up in the middle for so long that the program has been run, or has not.
    pub(crate) fn run_on_one_file(
        &self,
        (given, inputs): (&[FileRef], &[Input<'_>]),
        program: &Checked,
    ) -> Option<Result<Answer, Errno>> {
        let (number, at) = place(program)?;
        let file = *given.get(usize::from(number))?;
        let is_long = program.ops.iter().any(|op| op.kind.needs_codec());
        let tries = if is_long { LONG_TRIES } else { TRIES };
        let (mut stale, mut asked) = (0, 0);
        while stale < tries {
            let leases = self.leases()?;
            let one = OneFile::new(self, &leases, file, (given, inputs))?;
            // The server lends a ring, and an area, after it has run such programs.
            if at == At::End && one.stamp.ring == 0 {
                return None;
            }
            let answer = run(&one, program);
            match one.became.load(Relaxed) {
                WRITTEN => return Some(Ok(answer)),
                UNKNOWN => return Some(Err(libc::EIO)),
                ASKS => {
                    let (at, len) = (one.unknown.0.load(Relaxed), one.unknown.1.load(Relaxed));
                    if !(1..=ASKED_BYTES_MAX).contains(&len) || asked == ASKED_MAX {
                        return None;
                    }
                    drop(leases);
                    asked += 1;
                    // As a call that reads it: the server shows it to all then.
                    self.peek(file, &mut vec![0; len], at).ok()?;
                }
                // It has failed before its change, or did not want to make it: if it has seen the file as it was at one time.
                0 if one.is_still(0) => return Some(Ok(answer)),
                _ => stale += 1,
            }
        }
        None
    }
}

impl<'a> OneFile<'a> {
    fn new(
        client: &'a Client,
        leases: &'a Leases,
        file: FileRef,
        (given, inputs): (&'a [FileRef], &'a [Input<'a>]),
    ) -> Option<OneFile<'a>> {
        let (open, inode, slot) = leases.open_file(file).ok()?;
        let flags = open.flags.load(Relaxed) as i32;
        let stamp = leases.stamp(inode, 0)?;
        // Where neither is lent, there is more to a write than its bytes.
        let is_lent = stamp.ring != 0 || stamp.area.is_some();
        let is_regular = inode.kind.load(Relaxed) == libc::S_IFREG;
        let is_plain = flags & (libc::O_PATH | libc::O_SYNC | libc::O_DSYNC) == 0;
        // Another thread may have closed it, and the slot may be another file's.
        leases.open_file(file).ok()?;
        (is_lent && is_regular && is_plain).then(|| OneFile {
            client,
            leases,
            file,
            open,
            inode,
            slot,
            access: access_of(flags),
            stamp,
            caller: Credentials::default(),
            given,
            inputs,
            became: AtomicU8::new(0),
            unknown: Default::default(),
        })
    }

    /// The server has to say.
    fn ask<T>(&self) -> FsResult<T> {
        self.became.store(ASKS, Relaxed);
        Err(FsError::Unsupported("only the server can tell"))
    }

    /// Notes what would have to be known here.
    fn want(&self, offset: u64, len: usize) {
        self.unknown.0.store(offset, Relaxed);
        self.unknown.1.store(len, Relaxed);
    }

    /// Whether the file is as it was at the beginning. `holder` has its write lock.
    fn is_still(&self, holder: u32) -> bool {
        let is_alive = self.leases.control().volume.is_alive();
        is_alive && self.leases.stamp(self.inode, holder) == Some(self.stamp)
    }

    /// Makes the change, unless the file is another one since.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let OneFile { client, leases, file, open, inode, slot, .. } = *self;
        let appends = offset == self.stamp.size;
        let within = (offset % BLOCK_BYTES as u64) as usize;
        if !appends && within + data.len() > BLOCK_BYTES || data.len() > APPEND_MAX {
            return Ok(());
        }
        let act = || {
            if !self.is_still(client.holder()) {
                self.became.store(STALE, Relaxed);
                return Ok((Written::NotHere, false));
            }
            if !appends {
                let parts = [data];
                let written =
                    client.overwrite_locked(leases, inode, open, Some(offset), &parts, data.len())?;
                return Ok(written.unwrap_or((Written::NotHere, false)));
            }
            // Before the size, by which the server takes what is behind `head`.
            inode.unit_end.store(offset + data.len() as u64, Relaxed);
            let written =
                client.append_locked(leases, inode, open, Some(offset), false, &[data], data.len())?;
            Ok((written, false))
        };
        let ((written, kicks), is_kept) = client.under_write_lock((leases, open, inode, slot), file, act)?;
        let is_whole = within == 0 && data.len() == BLOCK_BYTES;
        let block_end = (offset + data.len() as u64).next_multiple_of(BLOCK_BYTES as u64);
        if matches!(written, Written::NotHere) && !appends && !is_whole && block_end <= self.stamp.head {
            // What stays of the block may be unknown.
            self.want(block_end - BLOCK_BYTES as u64, BLOCK_BYTES);
        }
        if let Written::Done = written {
            self.became.store(if is_kept { WRITTEN } else { UNKNOWN }, Relaxed);
            if appends {
                appended(leases, inode, slot, data.len());
            } else if kicks {
                kick(leases, slot);
            }
        }
        Ok(())
    }
}

impl FileSystem for OneFile<'_> {
    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let none = TimeSpec(0);
        // Of what a program may do, the size is all that it can tell by. A file with set-id bits or flags that forbid something is lent to nobody.
        Ok(Attr {
            ino,
            kind: FileKind::File,
            perm: 0,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: self.stamp.size,
            blocks: 0,
            atime: none,
            mtime: none,
            ctime: none,
            btime: none,
            marks: Marks::default(),
        })
    }

    fn open(&self, _ino: Ino) -> FsResult<()> {
        Ok(())
    }

    fn release(&self, _ino: Ino) {}

    fn read(&self, _ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        match self.client.read_here(self.leases, self.inode, offset, out) {
            Ok(LeaseRead::Done(len)) => Ok(len),
            _ => {
                self.want(offset, out.len());
                self.ask()
            }
        }
    }

    fn note_read(&self, _ino: Ino, _when: TimeSpec) {
        self.client.note_read(self.open, self.inode);
    }

    fn lookup(&self, _dir: Ino, _name: &[u8]) -> FsResult<Attr> {
        self.ask()
    }

    fn readlink(&self, _ino: Ino) -> FsResult<Vec<u8>> {
        self.ask()
    }

    fn parent(&self, _dir: Ino) -> FsResult<Ino> {
        self.ask()
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        // Only capabilities are asked for, and a file that has any is lent to nobody.
        Err(FsError::NoAttribute)
    }

    weft_vfs::only_looks!("a program on one file changes that only");
}

impl Host for OneFile<'_> {
    fn files(&self) -> &dyn FileSystem {
        self
    }

    fn caller(&self) -> &Credentials {
        &self.caller
    }

    fn start(&self) -> Ino {
        Ino::ROOT
    }

    fn given(&self, number: u8) -> Option<(Ino, Access)> {
        let file = *self.given.get(usize::from(number))?;
        if file != self.file {
            // It may be the same file all the same, and is the server's to tell.
            let _ = self.ask::<()>();
            return None;
        }
        Some((Ino(self.stamp.ino), self.access))
    }

    fn input(&self, number: u8) -> Option<Input<'_>> {
        self.inputs.get(usize::from(number)).copied()
    }

    fn near(&self) -> Option<&dyn Near> {
        self.client.near()
    }

    weft_vfs::without_front!();

    fn turn(&self, _ops: &[Operation], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()> {
        let _ = run();
        Ok(())
    }

    fn commit(&self, changes: &[Change<'_>], _durable: bool) -> Result<Made, Refused> {
        // Of a program that only the server can go on with, nothing is done here: with `prefix`, what came before would stay.
        if let [Change::Write { node: Node::Ino(_), offset, data }] = *changes
            && self.became.load(Relaxed) == 0
        {
            // A lock that is not to be had, or a file that is closed, is told by the server.
            let _ = self.write(offset, data);
        }
        match self.became.load(Relaxed) {
            WRITTEN | UNKNOWN => Ok(vec![None]),
            STALE => Err(Refused { at: 0, error: FsError::Stale }),
            _ => Err(Refused { at: 0, error: self.ask::<()>().err().unwrap_or(FsError::Stale) }),
        }
    }

    fn change(&self, change: &Change<'_>, durable: bool) -> FsResult<Option<Ino>> {
        let made = Host::commit(self, std::slice::from_ref(change), durable);
        made.map(|_| None).map_err(|refused| refused.error)
    }

    fn sync(&self, _ino: Ino) -> FsResult<()> {
        self.ask()
    }
}
