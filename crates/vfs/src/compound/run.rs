//! The interpreter.

use super::computed::Computed;
use super::data::Data;
use super::overlay::{Overlay, is_file};
use super::paths::{Names, Path};
use super::plan::{PlanRefused, is_made};
use super::program::Uses;
use super::{
    Access as Use, Allocate, Answer, At, Bytes, COMPRESS_BYTES_MAX, Checked, Dir, FIND_BYTES_MAX, Failure,
    Field, File, Guard, Host, Input, Kind, Num, OUTPUT_BYTES_MAX, Op, Operand, Outcome, Policy, Ref,
    SEARCH_BYTES_MAX, Stale, Value, WORK_BYTES_MAX, compute,
};
use crate::change::CHANGE_BYTES_MAX;
use crate::memfs::FILE_SIZE_MAX;
use crate::{Access, Attr, FileKind, FileSystem, FsError, InodeFlags, XattrMode, access};
use weft_compute::Limits;
use weft_core::checksum::crc32c;
use weft_core::{Ino, refuse};

/// Reads up to this long are made without a look at the file's size.
const SHORT_READ_BYTES: u64 = 8 << 10;

/// The extended attribute with what a program may do beside what its user may. Whoever writes to the program takes that away.
const CAPABILITIES: &[u8] = b"security.capability";

/// Runs a program.
///
/// Every failure is the answer's: that of the operation that failed.
pub fn run(host: &dyn Host, program: &Checked) -> Answer {
    let mut machine = Machine::new(host, program);
    match program.policy {
        Policy::Each => machine.run_each(),
        Policy::All | Policy::Prefix => {
            let mut is_again = false;
            let turn = host.turn(&program.ops, &mut || {
                if std::mem::replace(&mut is_again, true) {
                    machine.begin();
                }
                machine.run()
            });
            if let Err(FsError::Call(_)) = turn {
                machine.slots.clear();
                machine.failed = turn.err().map(|error| (0, error.into()));
            } else if let Err(error) = turn {
                let first = machine.overlay.plan.first_op().unwrap_or(0);
                machine.slots.truncate(first);
                machine.failed = Some((first, Failure::NotDurable(error)));
            }
        }
    }
    machine.answer()
}

/// A value.
#[derive(Clone, Debug)]
enum Held<'a> {
    File {
        ino: Ino,
        purpose: Use,
    },
    Bytes(Data<'a>),
    Num(u64),
    /// Apart, since it is by far the largest, and rare.
    Attr(Box<Attr>),
}

/// What became of an operation so far.
#[derive(Clone, Debug)]
enum Slot<'a> {
    Done(Option<Held<'a>>),
    Skipped,
}

/// Open references, which are given back at the end.
struct Opened<'a> {
    files: &'a dyn FileSystem,
    inos: Vec<Ino>,
}

impl Opened<'_> {
    fn close(&mut self, ino: Ino) {
        if let Some(at) = self.inos.iter().position(|open| *open == ino) {
            self.inos.swap_remove(at);
            self.files.release(ino);
        }
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.inos.iter().for_each(|ino| self.files.release(*ino));
    }
}

/// One run of a program.
struct Machine<'a> {
    host: &'a dyn Host,
    program: &'a Checked,
    overlay: Overlay<'a>,
    opened: Opened<'a>,
    slots: Vec<Slot<'a>>,
    /// Whether one of them is skipped.
    has_skipped: bool,
    failed: Option<(usize, Failure)>,
    /// Whether an operation asked for durability, or wrote to a file that asks for it.
    syncs: bool,
    /// Given files of which each write is to be durable.
    durable_files: Vec<Ino>,
    used: Used,
    computed: Computed<'a>,
}

/// What a program has used of what is limited: bytes, and what its calls have taken.
#[derive(Clone, Copy, Default)]
struct Used {
    work: usize,
    written: usize,
    output: usize,
    compressed: usize,
    searched: usize,
    calls: compute::Calls,
}

impl<'a> Machine<'a> {
    fn new(host: &'a dyn Host, program: &'a Checked) -> Machine<'a> {
        let changes = program.ops.iter().any(|op| op.kind.is_change());
        Machine {
            host,
            program,
            overlay: Overlay::new(host.files(), changes),
            opened: Opened { files: host.files(), inos: Vec::new() },
            slots: Vec::with_capacity(program.ops.len()),
            has_skipped: false,
            failed: None,
            syncs: false,
            durable_files: Vec::new(),
            used: Used::default(),
            computed: Computed::default(),
        }
    }

    /// Forgets what was done so far, but not what was computed.
    fn begin(&mut self) {
        let computed = std::mem::take(&mut self.computed);
        *self = Machine { computed, ..Machine::new(self.host, self.program) };
    }

    /// Runs all operations, and makes their changes in one step.
    fn run(&mut self) -> Result<(), Stale> {
        for at in 0..self.program.ops.len() {
            if at > 0 {
                self.host.check_point();
            }
            match self.step(at) {
                Ok(slot) => self.slots.push(slot),
                Err(failure) => {
                    let is_stale = failure.is_stale();
                    self.failed = Some((at, failure));
                    if is_stale {
                        return Err(Stale);
                    }
                    break;
                }
            }
        }
        match self.failed {
            Some((at, _)) if self.program.policy == Policy::All => self.find_refused(at),
            _ => self.commit(),
        }
    }

    /// The operation that failed may rest on a change that the core refuses: then that one has failed.
    fn find_refused(&mut self, failed: usize) -> Result<(), Stale> {
        self.overlay.plan.truncate(failed);
        let Some(PlanRefused { op, error }) = self.overlay.plan.refusal(self.host) else { return Ok(()) };
        let is_stale = matches!(error, FsError::Stale);
        self.slots.truncate(op);
        self.failed = Some((op, error.into()));
        if is_stale { Err(Stale) } else { Ok(()) }
    }

    /// Runs the operations one at a time, each with its changes.
    fn run_each(&mut self) {
        let (host, program) = (self.host, self.program);
        for (at, op) in program.ops.iter().enumerate() {
            let used = self.used;
            let mut outcome = Ok(Slot::Skipped);
            let turn = host.turn(std::slice::from_ref(op), &mut || {
                (self.used, self.overlay) = (used, Overlay::new(host.files(), false));
                outcome = self.step(at);
                if matches!(&outcome, Err(failure) if failure.is_stale()) { Err(Stale) } else { Ok(()) }
            });
            match turn.map_err(Failure::from).and(outcome) {
                Ok(slot) => self.slots.push(slot),
                Err(failure) => {
                    self.failed = Some((at, failure));
                    return;
                }
            }
        }
    }

    /// Does one operation.
    fn step(&mut self, at: usize) -> Result<Slot<'a>, Failure> {
        let op: &'a Op = &self.program.ops[at];
        let mut is_skipped = false;
        if self.has_skipped {
            op.uses(&mut |Ref(of), _| is_skipped |= matches!(self.slots[usize::from(of)], Slot::Skipped));
        }
        if let Some(guard) = op.when.as_ref().filter(|_| !is_skipped) {
            is_skipped = !self.holds(guard)?;
        }
        if is_skipped {
            self.has_skipped = true;
            return Ok(Slot::Skipped);
        }
        let mut value = self.perform(at, &op.kind)?;
        if let Some(Held::Bytes(bytes)) = &value {
            self.used.work += bytes.len();
            refuse(self.used.work > WORK_BYTES_MAX, Failure::Limit("16 MiB of values"))?;
            if op.export {
                self.used.output += bytes.len();
                refuse(self.used.output > OUTPUT_BYTES_MAX, Failure::Limit("4 MiB of exported values"))?;
            }
        }
        if self.program.policy == Policy::Each {
            self.commit_each(&mut value)?;
        }
        Ok(Slot::Done(value))
    }

    /// Carries out what one operation has planned, at once.
    fn commit_each(&mut self, value: &mut Option<Held<'a>>) -> Result<(), Failure> {
        let overlay = std::mem::replace(&mut self.overlay, Overlay::new(self.host.files(), false));
        let durable = self.program.durable || std::mem::take(&mut self.syncs);
        let made = overlay.plan.commit_each(self.host, durable);
        let made = made.map_err(|PlanRefused { error, .. }| error)?;
        if let Some(Held::File { ino, .. }) = value
            && is_made(*ino)
        {
            *ino = overlay.plan.made(&made, *ino).ok_or(FsError::Stale)?;
            self.opened.inos.push(*ino);
        }
        Ok(())
    }

    /// Carries out what all operations before the one that failed have planned, in one step.
    fn commit(&mut self) -> Result<(), Stale> {
        if let Some((at, _)) = self.failed {
            self.overlay.plan.truncate(at);
        }
        // With each turn the plan gets shorter.
        while !self.overlay.plan.is_empty() {
            let durable = self.program.durable || self.syncs;
            let PlanRefused { op, error } = match self.overlay.plan.commit(self.host, durable) {
                Ok(made) => {
                    for slot in &mut self.slots {
                        if let Slot::Done(Some(Held::Attr(attr))) = slot {
                            attr.ino = self.overlay.plan.made(&made, attr.ino).unwrap_or(attr.ino);
                        }
                    }
                    return Ok(());
                }
                Err(refused) => refused,
            };
            let is_stale = matches!(error, FsError::Stale);
            self.slots.truncate(op);
            self.failed = Some((op, error.into()));
            if is_stale {
                return Err(Stale);
            }
            if self.program.policy == Policy::All {
                return Ok(());
            }
            self.overlay.plan.truncate(op);
        }
        Ok(())
    }

    fn answer(self) -> Answer {
        let ops = &self.program.ops;
        // What the plan and later tries hold is not copied to be exported.
        drop((self.overlay, self.computed));
        let mut outcomes: Vec<Outcome> = self
            .slots
            .into_iter()
            .zip(ops)
            .map(|(slot, op)| match slot {
                Slot::Skipped => Outcome::Skipped,
                Slot::Done(value) => Outcome::Done(value.filter(|_| op.export).and_then(export)),
            })
            .collect();
        outcomes.extend(self.failed.map(|(_, failure)| Outcome::Failed(failure.errno())));
        outcomes.resize(ops.len(), Outcome::Skipped);
        Answer { outcomes }
    }

    fn perform(&mut self, at: usize, kind: &'a Kind) -> Result<Option<Held<'a>>, Failure> {
        let value = match kind {
            Kind::Open { dir, path, access, follow } => {
                let path = self.bytes(path);
                let path = (self.dir(*dir), &path[..]);
                let attr = self.names(at).open(path, *access, *follow)?;
                self.hold(attr.ino, *access)?;
                Held::File { ino: attr.ino, purpose: *access }
            }
            Kind::Create { dir, path, perm, exclusive } => {
                let path = self.bytes(path);
                let path = (self.dir(*dir), &path[..]);
                let (attr, made) = self.names(at).create(path, *perm, *exclusive)?;
                if !made {
                    self.hold(attr.ino, Use::ReadWrite)?;
                }
                Held::File { ino: attr.ino, purpose: Use::ReadWrite }
            }
            Kind::Given { number } => {
                let (ino, purpose) = self.host.given(*number).ok_or(Failure::NotOpenFor)?;
                self.hold(ino, purpose)?;
                if self.host.syncs(*number) {
                    self.durable_files.push(ino);
                }
                Held::File { ino, purpose }
            }
            Kind::InputBytes { number } => match self.host.input(*number) {
                Some(Input::Bytes(bytes)) => Held::Bytes(Data::Lit(bytes)),
                _ => return Err(Failure::NoInput),
            },
            Kind::InputNum { number } => match self.host.input(*number) {
                Some(Input::Num(num)) => Held::Num(num),
                _ => return Err(Failure::NoInput),
            },
            Kind::Close { file } => {
                // A step needs its files to its end.
                if self.program.policy == Policy::Each {
                    let (ino, _) = self.file(*file);
                    self.opened.close(ino);
                }
                return Ok(None);
            }
            Kind::Stat { file } => Held::Attr(Box::new(self.attr_of(*file)?)),
            Kind::Field { attr, field } => Held::Num(field_of(self.attr(*attr), *field)),
            Kind::Read { file, offset, len } => {
                let (offset, len) = (self.num(*offset), self.num(*len));
                Held::Bytes(self.read(*file, offset, len)?)
            }
            Kind::Write { file, at: place, data } => {
                let data = self.bytes(data);
                Held::Num(self.write(at, *file, *place, data)?)
            }
            Kind::Truncate { file, size } => {
                let (size, attr) = (self.num(*size), self.writable(*file, false)?);
                is_file(&attr)?;
                refuse(size > FILE_SIZE_MAX, FsError::TooLarge)?;
                self.lose_rights(at, &attr)?;
                self.overlay.resize(at, attr.ino, size)?;
                return Ok(None);
            }
            Kind::Fallocate { file, mode, offset, len } => {
                let (offset, len) = (self.num(*offset), self.num(*len));
                self.fallocate(at, *file, *mode, offset, len)?;
                return Ok(None);
            }
            Kind::Mkdir { dir, path, perm } => {
                let path = self.bytes(path);
                let path = (self.dir(*dir), &path[..]);
                self.names(at).mkdir(path, *perm)?;
                return Ok(None);
            }
            Kind::Symlink { target, dir, path } => {
                let (target, path) = (self.bytes(target), self.bytes(path));
                let path = (self.dir(*dir), &path[..]);
                self.names(at).symlink(target, path)?;
                return Ok(None);
            }
            Kind::Link { dir, path, to, new_path } => {
                let (path, new_path) = (self.bytes(path), self.bytes(new_path));
                let (path, new_path): (Path<'_>, Path<'_>) =
                    ((self.dir(*dir), &path), (self.dir(*to), &new_path));
                self.names(at).link(path, new_path)?;
                return Ok(None);
            }
            Kind::Rename { dir, path, to, new_path, flags } => {
                let (path, new_path) = (self.bytes(path), self.bytes(new_path));
                let (path, new_path): (Path<'_>, Path<'_>) =
                    ((self.dir(*dir), &path), (self.dir(*to), &new_path));
                self.names(at).rename(path, new_path, *flags)?;
                return Ok(None);
            }
            Kind::Unlink { dir, path } | Kind::Rmdir { dir, path } => {
                let path = self.bytes(path);
                let path = (self.dir(*dir), &path[..]);
                self.names(at).remove(path, matches!(kind, Kind::Rmdir { .. }))?;
                return Ok(None);
            }
            Kind::GetXattr { file, name } => {
                let attr = self.attr_of(*file)?;
                self.check_xattr(&attr, access::READ)?;
                Held::Bytes(self.overlay.getxattr(attr.ino, name)?.into())
            }
            Kind::SetXattr { file, name, value, mode } => {
                let value = self.bytes(value);
                self.set_xattr(at, *file, name, Some(value), *mode)?;
                return Ok(None);
            }
            Kind::RemoveXattr { file, name } => {
                self.set_xattr(at, *file, name, None, XattrMode::Replace)?;
                return Ok(None);
            }
            Kind::Sync { file } => {
                self.sync(*file)?;
                return Ok(None);
            }
            Kind::Slice { bytes, from, len } => Held::Bytes(
                compute::slice(&self.bytes(bytes), self.num(*from), self.num(*len))?.to_vec().into(),
            ),
            Kind::Concat { parts } => Held::Bytes(self.concat(parts)?),
            Kind::Len { bytes } => Held::Num(self.bytes(bytes).len() as u64),
            Kind::Pack { num, width } => Held::Bytes(compute::pack(self.num(*num), *width)?.into()),
            Kind::Unpack { bytes, from, width } => {
                Held::Num(compute::unpack(&self.bytes(bytes), self.num(*from), *width)?)
            }
            Kind::Arith { arith, left, right } => {
                Held::Num(compute::arith(*arith, self.num(*left), self.num(*right))?)
            }
            Kind::Find { bytes, what, from } => {
                let (bytes, what) = (self.bytes(bytes), self.bytes(what));
                refuse(what.len() > FIND_BYTES_MAX, Failure::Limit("4 KiB to find"))?;
                self.used.searched += bytes.len();
                refuse(self.used.searched > SEARCH_BYTES_MAX, Failure::Limit("64 MiB to search"))?;
                Held::Num(compute::find(&bytes, &what, self.num(*from)))
            }
            Kind::Patch { base, at, with } => {
                Held::Bytes(compute::patch(&self.bytes(base), self.num(*at), &self.bytes(with))?.into())
            }
            Kind::Crc32c { bytes } => Held::Num(crc32c(&self.bytes(bytes)).into()),
            Kind::Verify { bytes, crc } => {
                let is_whole = u64::from(crc32c(&self.bytes(bytes))) == self.num(*crc);
                refuse(!is_whole, Failure::Crc)?;
                return Ok(None);
            }
            Kind::Expect { guard } => {
                refuse(!self.holds(guard)?, Failure::Expect)?;
                return Ok(None);
            }
            Kind::Compress { bytes, codec, level } => {
                let bytes = self.bytes(bytes);
                self.used.compressed += bytes.len();
                let too_much = self.used.compressed > COMPRESS_BYTES_MAX;
                refuse(too_much, Failure::Limit("4 MiB to compress or decompress"))?;
                if let Some(value) = self.computed.again(at, [&bytes, &[]], 0, self.room()) {
                    return Ok(Some(Held::Bytes(value)));
                }
                let (near, host) = (self.near()?, self.host);
                let mut check_point = || host.check_point();
                let between = host.has_check_points().then_some(&mut check_point as &mut dyn FnMut());
                let make = |max| near.compress(&bytes, *codec, *level, max, between);
                let packed = compute::bounded(u64::MAX, self.room(), make)?;
                Held::Bytes(self.computed.keep(at, [bytes, Data::default()], 0, packed))
            }
            Kind::Decompress { bytes, codec, max } => {
                let (bytes, max, near) = (self.bytes(bytes), self.num(*max), self.near()?);
                self.used.compressed += bytes.len();
                let too_much = self.used.compressed > COMPRESS_BYTES_MAX;
                refuse(too_much, Failure::Limit("4 MiB to compress or decompress"))?;
                if let Some(value) = self.computed.again(at, [&bytes, &[]], max, self.room()) {
                    return Ok(Some(Held::Bytes(value)));
                }
                let make = |max| near.decompress(&bytes, *codec, max);
                let unpacked = compute::bounded(max, self.room(), make)?;
                Held::Bytes(self.computed.keep(at, [bytes, Data::default()], max, unpacked))
            }
            Kind::Call { module, input, fuel } => {
                let (module, input) = (self.bytes(module), self.bytes(input));
                let (fuel, host, room, near) = (self.num(*fuel), self.host, self.room(), self.near()?);
                if let Some(value) = self.computed.again(at, [&module, &input], fuel, room) {
                    return Ok(Some(Held::Bytes(value)));
                }
                let calls = &mut self.used.calls;
                let make = |output_bytes| {
                    calls.call(near, (&module, &input), Limits { fuel, output_bytes }, &|ns| host.goes_on(ns))
                };
                let returned = compute::bounded(u64::MAX, room, make)?;
                Held::Bytes(self.computed.keep(at, [module, input], fuel, returned))
            }
        };
        Ok(Some(value))
    }

    fn near(&self) -> Result<&'a dyn super::Near, Failure> {
        Ok(self.host.near().ok_or(FsError::Unsupported("computation near the data"))?)
    }

    /// Bytes that values may take yet.
    fn room(&self) -> usize {
        WORK_BYTES_MAX - self.used.work
    }

    fn names(&mut self, op: usize) -> Names<'_, 'a> {
        let opens = self.program.policy == Policy::Each;
        Names { host: self.host, overlay: &mut self.overlay, op, opens }
    }

    /// Keeps a file that exists from going while the program runs.
    fn hold(&mut self, ino: Ino, purpose: Use) -> Result<(), Failure> {
        if !is_made(ino) {
            self.host.open(ino, purpose)?;
            self.opened.inos.push(ino);
            self.overlay.opened(ino)?;
        }
        Ok(())
    }

    fn read(&mut self, file: File, offset: u64, len: u64) -> Result<Data<'a>, Failure> {
        let (ino, purpose) = self.file(file);
        refuse(!matches!(purpose, Use::Read | Use::ReadWrite), Failure::NotOpenFor)?;
        let mut len = len;
        // So much is taken to be there: a file that ends before reads less.
        if len > SHORT_READ_BYTES.min(self.room() as u64) {
            let attr = self.overlay.getattr(ino)?;
            is_file(&attr)?;
            len = len.min(attr.size.saturating_sub(offset));
        }
        refuse(len > self.room() as u64, Failure::Limit("16 MiB of values"))?;
        let mut bytes = vec![0; len as usize];
        let read = self.overlay.read(ino, offset, &mut bytes)?;
        bytes.truncate(read);
        if !is_made(ino) {
            self.host.files().note_read(ino, self.host.now());
        }
        Ok(bytes.into())
    }

    fn write(&mut self, op: usize, file: File, place: At, data: Data<'a>) -> Result<u64, Failure> {
        if self.program.policy == Policy::Each
            && let Some(written) = self.write_by_call(file, place, &data)?
        {
            return Ok(written);
        }
        let attr = self.writable(file, place == At::End)?;
        is_file(&attr)?;
        let offset = match place {
            At::Offset(offset) => self.num(offset),
            At::End => attr.size,
        };
        if data.is_empty() {
            return Ok(offset);
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        end.ok_or(FsError::TooLarge)?;
        self.count_written(data.len())?;
        self.lose_rights(op, &attr)?;
        self.overlay.plan_write(op, attr.ino, offset, data)?;
        self.syncs |= attr.marks.flags.contains(InodeFlags::SYNC) || self.durable_files.contains(&attr.ino);
        Ok(offset)
    }

    /// Writes by a call of the host's, if it has one: where the data begins.
    fn write_by_call(&mut self, file: File, place: At, data: &[u8]) -> Result<Option<u64>, Failure> {
        let (ino, purpose) = self.file(file);
        if data.is_empty() || !matches!(purpose, Use::Write | Use::ReadWrite) {
            return Ok(None);
        }
        let at = if let At::Offset(offset) = place { Some(self.num(offset)) } else { None };
        let before = self.used.written;
        self.count_written(data.len())?;
        let written = self.host.write(ino, at, data).transpose()?;
        if written.is_none() {
            self.used.written = before;
        }
        Ok(written)
    }

    fn count_written(&mut self, bytes: usize) -> Result<(), Failure> {
        self.used.written += bytes;
        refuse(self.used.written > CHANGE_BYTES_MAX, Failure::Limit("4 MiB of data that is written"))
    }

    fn fallocate(
        &mut self,
        op: usize,
        file: File,
        mode: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Failure> {
        let attr = self.writable(file, matches!(mode, Allocate::Extend | Allocate::KeepSize))?;
        is_file(&attr)?;
        refuse(len == 0, FsError::Invalid("an empty range"))?;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(FsError::TooLarge)?;
        self.lose_rights(op, &attr)?;
        Ok(self.overlay.allocate(op, attr.ino, mode.into(), offset..end)?)
    }

    /// The attributes of a file that is open for writing. One that only grows takes what is appended.
    fn writable(&self, file: File, appends: bool) -> Result<Attr, Failure> {
        let (_, purpose) = self.file(file);
        refuse(!matches!(purpose, Use::Write | Use::ReadWrite), Failure::NotOpenFor)?;
        let attr = self.attr_of(file)?;
        let flags = attr.marks.flags;
        let is_fixed =
            flags.contains(InodeFlags::IMMUTABLE) || !appends && flags.contains(InodeFlags::APPEND);
        refuse(is_fixed, FsError::NotPermitted)?;
        Ok(attr)
    }

    /// Before a file's content changes: what ran as its owner must not run what others wrote.
    fn lose_rights(&mut self, op: usize, attr: &Attr) -> Result<(), Failure> {
        if let Some(perm) = self.host.caller().perm_after_write(attr) {
            self.overlay.set_perm(op, attr.ino, perm)?;
        }
        if self.overlay.getxattr(attr.ino, CAPABILITIES).is_ok() {
            self.overlay.set_xattr(op, attr.ino, CAPABILITIES, None, XattrMode::Any)?;
        }
        Ok(())
    }

    fn check_xattr(&self, attr: &Attr, wanted: u32) -> Result<(), Failure> {
        let (caller, writes) = (self.host.caller(), wanted == access::WRITE);
        refuse(writes && attr.marks.flags.are_fixed(), FsError::NotPermitted)?;
        if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
            return Err(if writes { FsError::NotPermitted } else { FsError::NoAttribute }.into());
        }
        // Where all may write but not remove, they do not mark the directory either.
        let sticky = attr.kind == FileKind::Directory && attr.perm & libc::S_ISVTX != 0;
        refuse(sticky && writes && !caller.owns(attr), FsError::NotPermitted)?;
        Ok(caller.check(&self.overlay, attr, wanted)?)
    }

    fn set_xattr(
        &mut self,
        op: usize,
        file: File,
        name: &[u8],
        value: Option<Data<'a>>,
        mode: XattrMode,
    ) -> Result<(), Failure> {
        let attr = self.attr_of(file)?;
        self.check_xattr(&attr, access::WRITE)?;
        Ok(self.overlay.set_xattr(op, attr.ino, name, value, mode)?)
    }

    fn sync(&mut self, file: File) -> Result<(), Failure> {
        let (ino, _) = self.file(file);
        self.syncs = true;
        // The step makes durable what it writes, and what the files that it writes held before.
        if !is_made(ino) && !self.overlay.plan.writes(ino) {
            self.host.sync(ino)?;
        }
        Ok(())
    }

    fn concat(&self, parts: &'a [Bytes]) -> Result<Data<'a>, Failure> {
        let parts: Vec<_> = parts.iter().map(|part| self.bytes(part)).collect();
        // One value may stand in it 255 times.
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        refuse(len > self.room(), Failure::Limit("16 MiB of values"))?;
        let mut whole = Vec::with_capacity(len);
        parts.iter().for_each(|part| whole.extend_from_slice(part));
        Ok(whole.into())
    }

    fn holds(&self, guard: &'a Guard) -> Result<bool, Failure> {
        Ok(match (&guard.left, &guard.right) {
            (Operand::Num(left), Operand::Num(right)) => {
                compute::holds(&self.num(*left), guard.compare, &self.num(*right))
            }
            (Operand::Bytes(left), Operand::Bytes(right)) => {
                compute::holds(&*self.bytes(left), guard.compare, &*self.bytes(right))
            }
            _ => unreachable!("the check refuses comparisons of a number with bytes"),
        })
    }

    fn held(&self, Ref(at): Ref) -> Option<&Held<'a>> {
        match self.slots.get(usize::from(at)) {
            Some(Slot::Done(value)) => value.as_ref(),
            _ => None,
        }
    }

    fn bytes(&self, bytes: &'a Bytes) -> Data<'a> {
        match bytes {
            Bytes::Lit(bytes) => Data::Lit(bytes),
            Bytes::Of(at) => match self.held(*at) {
                Some(Held::Bytes(bytes)) => bytes.clone(),
                _ => unreachable!("the check knows all values that are bytes"),
            },
        }
    }

    fn num(&self, num: Num) -> u64 {
        match num {
            Num::Lit(num) => num,
            Num::Of(at) => match self.held(at) {
                Some(Held::Num(num)) => *num,
                _ => unreachable!("the check knows all values that are numbers"),
            },
        }
    }

    fn attr(&self, at: Ref) -> &Attr {
        match self.held(at) {
            Some(Held::Attr(attr)) => attr,
            _ => unreachable!("the check knows all values that are attributes"),
        }
    }

    fn file(&self, File(at): File) -> (Ino, Use) {
        match self.held(at) {
            Some(Held::File { ino, purpose }) => (*ino, *purpose),
            _ => unreachable!("the check knows all values that are files"),
        }
    }

    fn attr_of(&self, file: File) -> Result<Attr, Failure> {
        Ok(self.overlay.getattr(self.file(file).0)?)
    }

    fn dir(&self, dir: Dir) -> Ino {
        match dir {
            Dir::Start => self.host.start(),
            Dir::At(file) => self.file(file).0,
        }
    }
}

fn field_of(attr: &Attr, field: Field) -> u64 {
    match field {
        Field::Size => attr.size,
        Field::Mode => attr.mode().into(),
        Field::Links => attr.links.into(),
        Field::Uid => attr.uid.into(),
        Field::Gid => attr.gid.into(),
        // A time before 1970 is 0.
        Field::MtimeNs => attr.mtime.0.try_into().unwrap_or(0),
        Field::CtimeNs => attr.ctime.0.try_into().unwrap_or(0),
    }
}

/// What the answer tells of a value. What a step that did not come to be would have made has no number.
fn export(value: Held<'_>) -> Option<Value> {
    match value {
        Held::File { .. } => None,
        Held::Bytes(bytes) => Some(Value::Bytes(bytes.into_vec())),
        Held::Num(num) => Some(Value::Num(num)),
        Held::Attr(mut attr) => {
            if is_made(attr.ino) {
                attr.ino = Ino::default();
            }
            Some(Value::Attr(attr))
        }
    }
}
