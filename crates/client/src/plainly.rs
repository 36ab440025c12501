//! Programs whose changes are made one at a time, run by the client as the plain calls that they stand for.
//!
//! Only on files that are given with them: what is written goes by leases then, without a call.

use crate::client::{Client, Leases};
use crate::files::ends_nowhere;
use crate::here::attr_of;
use crate::lease::Written;
use crate::proto::{FileRef, Op, access_of, is_readable, is_writable};
use crate::shared::channel::PAYLOAD_BYTES;
use crate::shared::names::SlotWord;
use crate::shared::volume::{APPEND_ONLY, RING_BYTES};
use crate::sys::Errno;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{Credentials, Ino, refuse};
use weft_vfs::change::{Made, Refused};
use weft_vfs::compound::{
    Access, Answer, At, Chain, Checked, Host, Input, Kind, Near, Op as Operation, Policy, Stale, run,
};
use weft_vfs::{Attr, Change, FileSystem, FsError, FsResult, TimeSpec};

/// What is written at once, at most: it is accepted whole or not at all.
const WRITE_BYTES_MAX: usize = if PAYLOAD_BYTES < RING_BYTES / 2 { PAYLOAD_BYTES } else { RING_BYTES / 2 };

/// A program's view of the files that are given with it, and its host.
struct Plainly<'a> {
    client: &'a Client,
    caller: Credentials,
    files: Vec<Given>,
    inputs: &'a [Input<'a>],
}

/// A file that is given with a program.
#[derive(Clone, Copy)]
struct Given {
    file: FileRef,
    ino: Ino,
    flags: i32,
}

/// Whether an operation is about nothing but given files and values.
fn is_plain(op: &Operation) -> bool {
    let is_about_files = matches!(
        &op.kind,
        Kind::Given { .. } | Kind::Close { .. } | Kind::Read { .. } | Kind::Write { .. } | Kind::Sync { .. }
    );
    is_about_files || op.kind.only_computes()
}

impl Client {
    /// Runs a program of the policy `each` that reads and writes no files but those that are given with it.
    pub(crate) fn run_plainly(
        &self,
        (given, inputs): (&[FileRef], &[Input<'_>]),
        program: &Checked,
    ) -> Option<Answer> {
        let is_plain_program = program.policy == Policy::Each
            && !program.durable
            && !program.ops.is_empty()
            && program.ops.iter().all(is_plain);
        if !is_plain_program {
            return None;
        }
        let files = {
            let leases = self.leases()?;
            given.iter().map(|file| Given::of(&leases, *file)).collect::<Option<Vec<_>>>()?
        };
        // As in Linux, a call that writes at an offset of such a file appends. An operation of a program does not.
        let writes_within = |op: &Operation| matches!(op.kind, Kind::Write { at: At::Offset(_), .. });
        let appends = |given: &Given| given.flags & libc::O_APPEND != 0;
        if files.iter().any(appends) && program.ops.iter().any(writes_within) {
            return None;
        }
        Some(run(&Plainly { client: self, caller: Credentials::default(), files, inputs }, program))
    }

    /// Writes bytes, as many as are accepted at once, at an offset or at the end of the file: where they begin.
    fn write_whole(&self, file: FileRef, at: Option<u64>, data: &[u8]) -> Result<u64, Errno> {
        // An offset that a call refuses is too large for a program, which fails otherwise.
        if data.len() > WRITE_BYTES_MAX || at.is_some_and(|at| ends_nowhere(at, data.len())) {
            return self.write_by_program(file, at, data);
        }
        match at {
            Some(at) => {
                let written = self.pwrite(file, data, at)?;
                refuse(written < data.len(), libc::ENOSPC)?;
                Ok(at)
            }
            None => self.append(file, data),
        }
    }

    /// Appends bytes, also to a file that is not open to append.
    fn append(&self, file: FileRef, data: &[u8]) -> Result<u64, Errno> {
        let mut asked = false;
        while let Some(leases) = self.leases() {
            let (written, at) = self.append_at_end(&leases, file, data)?;
            drop(leases);
            match written {
                Written::Done => return Ok(at),
                Written::Full => drop(self.call(Op::Drain, &[file.0])?.run()?),
                Written::NoRing if !asked && self.call(Op::Lease, &[file.0])?.run()?.ret() != 0 => {
                    asked = true
                }
                Written::NoRing | Written::NotHere => break,
            }
        }
        self.write_by_program(file, None, data)
    }

    /// Has the server write, by a program of one operation.
    fn write_by_program(&self, file: FileRef, at: Option<u64>, data: &[u8]) -> Result<u64, Errno> {
        let mut chain = Chain::each();
        let given = chain.given(0);
        let written = match at {
            Some(at) => chain.write(given, at, data),
            None => chain.append(given, data),
        };
        chain.export(written);
        let program = chain.check().map_err(|_| libc::EINVAL)?;
        let answer = self.run_by_server(FileRef::ROOT, 0, &[file], &program)?;
        match answer.failed() {
            Some((_, errno)) => Err(errno),
            None => answer.num(1).ok_or(libc::EIO),
        }
    }
}

impl Given {
    fn of(leases: &Leases, file: FileRef) -> Option<Given> {
        let (open, inode, _) = leases.open_file(file).ok()?;
        let flags = open.flags.load(Relaxed) as i32;
        let (kind, ino) = (inode.kind.load(Relaxed), Ino(inode.ino.load(Relaxed)));
        // Its writes are for the server to judge.
        let only_grows = inode.by_call.load(Relaxed) & APPEND_ONLY != 0;
        // Another thread may have closed it, and the slot may be another file's.
        leases.open_file(file).ok()?;
        (kind == libc::S_IFREG && flags & libc::O_PATH == 0 && !only_grows).then_some(Given {
            file,
            ino,
            flags,
        })
    }
}

impl Plainly<'_> {
    /// A file that is open for what is asked.
    fn file(&self, ino: Ino, is_open_for: impl Fn(i32) -> bool) -> FsResult<FileRef> {
        let found = self.files.iter().find(|given| given.ino == ino && is_open_for(given.flags));
        found.map(|given| given.file).ok_or(FsError::Call(libc::EBADF))
    }

    fn any_file(&self, ino: Ino) -> FsResult<FileRef> {
        self.file(ino, |_| true)
    }
}

impl FileSystem for Plainly<'_> {
    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let attr = self.client.fstat(self.any_file(ino)?).map_err(FsError::Call)?;
        attr_of(&attr, SlotWord::default()).ok_or(FsError::Stale)
    }

    fn open(&self, _ino: Ino) -> FsResult<()> {
        Ok(())
    }

    fn release(&self, _ino: Ino) {}

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let file = self.file(ino, is_readable)?;
        if ends_nowhere(offset, out.len()) {
            // A call refuses this. To a program, there is just nothing at such an offset.
            return Ok(0);
        }
        let mut read = 0;
        while read < out.len() {
            match self
                .client
                .pread(file, &mut out[read..], offset.saturating_add(read as u64))
                .map_err(FsError::Call)?
            {
                0 => break,
                len => read += len,
            }
        }
        Ok(read)
    }

    fn note_read(&self, _ino: Ino, _when: TimeSpec) {}

    fn lookup(&self, _dir: Ino, _name: &[u8]) -> FsResult<Attr> {
        Err(FsError::NotFound)
    }

    fn readlink(&self, _ino: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::NotFound)
    }

    fn parent(&self, _dir: Ino) -> FsResult<Ino> {
        Err(FsError::NotFound)
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoAttribute)
    }

    weft_vfs::only_looks!("calls change files");
}

impl Host for Plainly<'_> {
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
        self.files.get(usize::from(number)).map(|given| (given.ino, access_of(given.flags)))
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

    fn write(&self, ino: Ino, at: Option<u64>, data: &[u8]) -> Option<FsResult<u64>> {
        let file = self.file(ino, is_writable);
        Some(file.and_then(|file| self.client.write_whole(file, at, data).map_err(FsError::Call)))
    }

    fn commit(&self, _changes: &[Change<'_>], _durable: bool) -> Result<Made, Refused> {
        Err(Refused { at: 0, error: FsError::Unsupported("calls are no steps") })
    }

    fn change(&self, _change: &Change<'_>, _durable: bool) -> FsResult<Option<Ino>> {
        Err(FsError::Unsupported("calls change files"))
    }

    fn sync(&self, ino: Ino) -> FsResult<()> {
        // All names so far go with it: the client cannot tell whether there are any.
        self.client.fsync_by_server(self.any_file(ino)?).map_err(FsError::Call)
    }
}
