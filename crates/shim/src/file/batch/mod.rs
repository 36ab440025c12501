//! Atomic writes of one file, as programs know them from F2FS: what a program writes to an open file between `START` and `COMMIT`
//! reaches the volume as a whole or not at all.
//!
//! ```text
//!  START     a slot for the open file
//!  write ... held back in this process (`held`); reads by this open file see them, nobody else does
//!  COMMIT    one program of all of them, durable --> server
//!  ABORT, the last close, another START, exec, the end of the process: dropped
//! ```
//! A batch belongs to an open file in one process: descriptors that are duplicates share it, a forked child does not have it. It keeps
//! to the limits of a program. A write that does not fit fails with `EFBIG`, and so does the commit of its batch. Not `ENOSPC`: SQLite
//! takes that for a full disk and gives up, while it goes back to its journal after other errors.
//!
//! Locks: `STARTING` is taken before a slot's. A slot is its open file's as long as its word says so, which changes under its lock.

mod held;

use self::held::Held;
use crate::descriptors::table;
use crate::lock::Locked;
use crate::mapping::pages;
use crate::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use weft_client::proto::{is_readable, is_writable};
use weft_client::{Client, Errno, FileRef};
use weft_core::refuse;
use weft_vfs::compound::{Chain, Compare, Field};

/// Batches of a process at once.
const BATCHES_MAX: usize = 16;
/// The word of a slot that is nobody's.
const NOBODY: u64 = 0;

/// What a slot's batch is.
struct Batch {
    held: Held,
    /// A write did not fit: its commit would not be the whole.
    is_spoilt: bool,
}

struct Slot {
    /// The open file, plus one.
    file: AtomicU64,
    batch: Locked<Option<Batch>>,
}

static SLOTS: [Slot; BATCHES_MAX] =
    [const { Slot { file: AtomicU64::new(NOBODY), batch: Locked::new(None) } }; BATCHES_MAX];
/// Batches in all, so that a call costs one load when there is none.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// Whether a slot has, or had, a batch.
static IS_USED: AtomicBool = AtomicBool::new(false);
static STARTING: Locked<()> = Locked::new(());
/// Whether the volume makes several changes in one step.
static STEPS: AtomicU32 = AtomicU32::new(NOT_ASKED);
const NOT_ASKED: u32 = 0;
const CAN: u32 = 1;
const CANNOT: u32 = 2;

/// Whether this process has any batch.
#[inline(always)]
pub fn any() -> bool {
    OPEN.load(Relaxed) != 0
}

fn word(file: FileRef) -> u64 {
    file.0.wrapping_add(1)
}

/// Does something with the batch of an open file: `None` when it has none.
fn with<R>(file: FileRef, act: impl FnOnce(&Slot, &mut Batch) -> R) -> Option<R> {
    let slot = SLOTS.iter().find(|slot| slot.file.load(Acquire) == word(file))?;
    slot.batch.with(|batch| {
        let batch = batch.as_mut().filter(|_| slot.file.load(Acquire) == word(file))?;
        Some(act(slot, batch))
    })
}

/// Ends a batch, whose lock is held.
fn end(slot: &Slot, batch: &mut Batch) {
    batch.held.clear();
    slot.file.store(NOBODY, Release);
    let open = OPEN.fetch_sub(1, AcqRel);
    debug_assert!(open > 0, "every batch was counted");
}

// ---- requests -------------------------------------------------------------------------------------------------------

/// An open file that can have a batch.
fn target(file: FileRef) -> Result<&'static Client, Errno> {
    let client = process::client()?;
    let flags = client.flags(file)?;
    refuse(flags & libc::O_PATH != 0 || !is_writable(flags), libc::EBADF)?;
    Ok(client)
}

fn is_regular(client: &Client, file: FileRef) -> Result<bool, Errno> {
    Ok(client.fstat(file)?.mode & libc::S_IFMT == libc::S_IFREG)
}

/// Whether a file can be written to in batches, as far as it is not mapped.
pub fn is_possible(client: &Client, file: FileRef) -> Result<bool, Errno> {
    Ok(is_regular(client, file)? && volume_can(client)?)
}

/// Whether the volume makes several changes in one step.
pub fn volume_can(client: &Client) -> Result<bool, Errno> {
    if STEPS.load(Relaxed) == NOT_ASKED {
        // An empty program is done where others would be.
        let program = Chain::all().check().map_err(|_| libc::EINVAL)?;
        let known = match client.run_program(FileRef::ROOT, 0, &[], &program) {
            Ok(_) => CAN,
            Err(libc::EOPNOTSUPP) => CANNOT,
            Err(error) => return Err(error),
        };
        STEPS.store(known, Relaxed);
    }
    Ok(STEPS.load(Relaxed) == CAN)
}

/// Begins a batch. One that the open file has is dropped.
///
/// # Errors
/// `EBADF` when it is not open for writing, `EINVAL` for what is no file, or is open for appending, `EOPNOTSUPP` on a volume that cannot do it, `EBUSY` for a
/// file that this process has mapped, `ENOMEM` beyond 16 batches.
pub fn start(file: FileRef) -> Result<(), Errno> {
    let client = target(file)?;
    // Whatever comes of it, what was held before is not written.
    if let Err(error) = check_start(client, file) {
        let _ = with(file, end);
        return Err(error);
    }
    STARTING.with(|()| {
        // In place: no write of another thread falls between two batches.
        let begins_anew = |_: &Slot, batch: &mut Batch| {
            batch.held.clear();
            batch.is_spoilt = false;
        };
        if with(file, begins_anew).is_some() {
            return Ok(());
        }
        let slot = SLOTS.iter().find(|slot| slot.file.load(Acquire) == NOBODY).ok_or(libc::ENOMEM)?;
        slot.batch.with(|place| {
            match place {
                Some(batch) => batch.is_spoilt = false,
                None => *place = Some(Batch { held: Held::new()?, is_spoilt: false }),
            }
            IS_USED.store(true, Release);
            OPEN.fetch_add(1, AcqRel);
            slot.file.store(word(file), Release);
            Ok(())
        })
    })
}

fn check_start(client: &Client, file: FileRef) -> Result<(), Errno> {
    // Where an append goes is known only when it is made.
    refuse(client.flags(file)? & libc::O_APPEND != 0, libc::EINVAL)?;
    refuse(!is_regular(client, file)?, libc::EINVAL)?;
    refuse(!is_possible(client, file)?, libc::EOPNOTSUPP)?;
    refuse(pages::any() && pages::shows(client, file)?, libc::EBUSY)
}

/// Makes all writes of a batch in one step, and durable. Whatever comes of it, the batch has ended.
///
/// # Errors
/// `EINVAL` without a batch, `EFBIG` when a write did not fit; what the volume refuses the step with. None of the writes is done then,
/// but after `EIO`, when all may be done: of a server that has ended, or that could not make them durable.
pub fn commit(file: FileRef) -> Result<(), Errno> {
    let client = target(file)?;
    let done = with(file, |slot, batch| {
        let done =
            if batch.is_spoilt { Err(libc::EFBIG) } else { commit_held(client, file, &mut batch.held) };
        end(slot, batch);
        done
    });
    done.unwrap_or(Err(libc::EINVAL))
}

/// Drops a batch, if there is one.
///
/// # Errors
/// `EBADF` when it is not open for writing.
pub fn abort(file: FileRef) -> Result<(), Errno> {
    target(file)?;
    let _ = with(file, end);
    Ok(())
}

/// A descriptor does not lead to this file any more: the batch ends with the last one.
pub fn descriptor_closed(file: FileRef) {
    let mut is_open = false;
    table::each(0, u32::MAX, |_, other| is_open |= other == file);
    if !is_open {
        let _ = with(file, end);
    }
}

/// In a forked child, which has no batch: the memory of its parent's is not in it.
pub fn in_child() {
    STARTING.force_open();
    if IS_USED.load(Acquire) {
        for slot in &SLOTS {
            slot.batch.reset(None);
            slot.file.store(NOBODY, Release);
        }
        OPEN.store(0, Release);
        IS_USED.store(false, Release);
    }
}

fn commit_held(client: &Client, file: FileRef, held: &mut Held) -> Result<(), Errno> {
    let mut chain = Chain::all().durable();
    let target = chain.given(0);
    if let Some(cut) = held.cut() {
        let attr = chain.stat(target);
        let size = chain.field(attr, Field::Size);
        chain.when(cut, Compare::Less, size);
        chain.truncate(target, cut);
    }
    let (mut from, mut to) = (held.cut().unwrap_or(u64::MAX), 0);
    let mut is_empty = held.cut().is_none();
    held.runs(|at, bytes| {
        (from, to, is_empty) = (from.min(at), at + bytes.len() as u64, false);
        chain.write(target, at, bytes);
    });
    if held.needed() > to {
        let attr = chain.stat(target);
        let size = chain.field(attr, Field::Size);
        chain.when(size, Compare::Less, held.needed());
        chain.truncate(target, held.needed());
        is_empty = false;
    }
    if is_empty {
        return client.fsync(file);
    }
    let program = chain.check().map_err(|_| libc::EFBIG)?;
    let act = |client: &Client| {
        let answer = client.run_program(FileRef::ROOT, 0, &[file], &program)?;
        answer.failed().map_or(Ok(()), |(_, error)| Err(error))
    };
    let to = if held.cut().is_some() || held.needed() > to { u64::MAX } else { to };
    if pages::concern(client, file) { pages::change(file, from.min(to), to, act) } else { act(client) }
}

// ---- reads and writes of an open file that has a batch ---------------------------------------------------------------

/// Reads at the file offset, or at `offset`: `None` when the file has no batch.
#[cold]
pub fn read(
    client: &Client,
    file: FileRef,
    out: &mut [u8],
    offset: Option<u64>,
) -> Option<Result<usize, Errno>> {
    with(file, |_, batch| {
        refuse(!is_readable(client.flags(file)?), libc::EBADF)?;
        let at = place(client, file, offset)?;
        // The size first: what others append meanwhile is not there yet, and not zeros.
        let below = client.fstat(file)?.size;
        let filled = client.pread(file, out, at)?;
        let below = if filled < out.len() { below.min(at + filled as u64) } else { below };
        let len = batch.held.lay_over(at, out, filled, below);
        advance(client, file, offset, at + len as u64)?;
        Ok(len)
    })
}

/// Writes several pieces at the file offset, or at `offset`: `None` when the file has no batch.
#[cold]
pub fn write(
    client: &Client,
    file: FileRef,
    parts: &[&[u8]],
    offset: Option<u64>,
) -> Option<Result<usize, Errno>> {
    with(file, |_, batch| {
        if client.flags(file)? & libc::O_APPEND != 0 {
            batch.is_spoilt = true;
            return Err(libc::EINVAL);
        }
        let at = place(client, file, offset)?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let end = at.checked_add(len as u64).filter(|end| *end <= i64::MAX as u64).ok_or(libc::EFBIG)?;
        let mut at = at;
        for part in parts {
            if batch.held.write(at, part).is_err() {
                batch.is_spoilt = true;
                return Err(libc::EFBIG);
            }
            at += part.len() as u64;
        }
        advance(client, file, offset, end)?;
        Ok(len)
    })
}

fn place(client: &Client, file: FileRef, offset: Option<u64>) -> Result<u64, Errno> {
    offset.map_or_else(|| client.seek(file, 0, libc::SEEK_CUR), Ok)
}

fn advance(client: &Client, file: FileRef, offset: Option<u64>, to: u64) -> Result<(), Errno> {
    match offset {
        Some(_) => Ok(()),
        None => client.seek(file, to as i64, libc::SEEK_SET).map(drop),
    }
}

/// Sets the size: `None` when the file has no batch.
#[cold]
pub fn resize(client: &Client, file: FileRef, size: u64) -> Option<Result<(), Errno>> {
    with(file, |_, batch| {
        refuse(size > i64::MAX as u64, libc::EFBIG)?;
        batch.held.resize(client.fstat(file)?.size, size);
        Ok(())
    })
}

/// Moves the file offset to where the batch's end has a say: `None` when it has none.
#[cold]
pub fn seek(client: &Client, file: FileRef, offset: i64, whence: i32) -> Option<Result<u64, Errno>> {
    if !matches!(whence, libc::SEEK_END | libc::SEEK_DATA | libc::SEEK_HOLE) {
        return None;
    }
    with(file, |_, batch| {
        let size = batch.held.size(client.fstat(file)?.size);
        let to = match whence {
            libc::SEEK_END => (size as i64).checked_add(offset).ok_or(libc::EOVERFLOW)?,
            // All is data.
            _ if offset < 0 || offset as u64 >= size => return Err(libc::ENXIO),
            libc::SEEK_DATA => offset,
            _ => size as i64,
        };
        client.seek(file, to, libc::SEEK_SET)
    })
}

/// The size of an open file, which has `below` bytes without a batch.
#[cold]
pub fn size(file: FileRef, below: u64) -> u64 {
    with(file, |_, batch| batch.held.size(below)).unwrap_or(below)
}

/// Fails with `EBUSY` for an open file that has a batch: for what a batch does not hold back.
#[cold]
pub fn check_none(file: FileRef) -> Result<(), Errno> {
    with(file, |_, _| ()).map_or(Ok(()), |()| Err(libc::EBUSY))
}
