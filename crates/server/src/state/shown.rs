//! Pages of writable shared maps show what others than programs with such maps change.
//!
//! A program of the library that writes to a mapped file takes what it changed into the pages itself, under the lock of their
//! base. The kernel, which writes for programs of a mount, and calls that name a file by its path know of no pages: the server
//! does it for them, after the change. It believes the pages of its own user only.

use super::inodes::OpenInode;
use super::orphans::{Directory, Orphans, directory, name_of, read_at};
use super::volume::Volume;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};
use weft_client::shared::pages::{BASE, HEADER_BYTES, Header, PAGE_BYTES};
use weft_core::Ino;
use weft_sys::{effective_user, file};
use weft_vfs::SeekTarget;

/// Bytes taken over at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// For how long a program may have the lock of the base: it asks the server meanwhile, and may have been stopped.
const PATIENCE: Duration = Duration::from_millis(20);
/// Between two looks at the lock.
const PAUSE: Duration = Duration::from_micros(100);

impl Orphans {
    /// Bytes `changed` of a file, or its size, have been changed by who has no pages in hand. Not to be called by who keeps the
    /// file's writers out.
    pub fn show(&self, volume: &Volume, open: &OpenInode, changed: Range<u64>) {
        if self.stays() {
            return;
        }
        let user = effective_user().0;
        // While nobody has such a map, there is none.
        let Ok(dir) = Directory::open(&directory(volume.id(), user), user) else { return };
        let Ok(attr) = volume.fs.getattr(open.ino) else { return };
        let name = name_of(&attr);
        let _alone = self.lock_pages(open.ino);
        let (Ok(pages), Ok(base)) = (dir.file(&name), dir.file(&format!("{name}{BASE}"))) else { return };
        // With what could not be shown before.
        let missed = self.missed.lock().remove(&open.ino);
        let changed = missed
            .map_or(changed.clone(), |missed| changed.start.min(missed.start)..changed.end.max(missed.end));
        if let Err(error) = show_in(volume, open, (&pages, &base), changed.clone()) {
            tracing::warn!(ino = %open.ino, %error, "a map shows what its file had before, until the next write");
            self.missed.lock().insert(open.ino, changed);
        }
    }
}

/// Takes these bytes, and all that is new at the file's end, from the volume into pages and base, and makes both as long as
/// the file is.
fn show_in(
    volume: &Volume,
    open: &OpenInode,
    (pages, base): (&File, &File),
    changed: Range<u64>,
) -> io::Result<()> {
    let begun = Instant::now();
    // The lock goes with the descriptor.
    while !file::try_record_lock(base)? {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("a program has its pages locked for longer than the server waits"));
        }
        std::thread::sleep(PAUSE);
    }
    let mut raw = [0; HEADER_BYTES];
    read_at(base, &mut raw, 0)?;
    let header = Header::decode(&raw);
    let is_linked = |file: &File| file.metadata().map(|meta| meta.nlink() > 0);
    // Those who map them have gone, or run with a server that is gone.
    if header.session != volume.session || !is_linked(pages)? || !is_linked(base)? {
        return Ok(());
    }
    // What programs have appended is in the volume while nobody can append.
    let _guard = volume.inodes.exclude_and_drain(open).map_err(io::Error::other)?;
    let (size, valid) = (volume.inodes.size(open), header.valid);
    if size < valid {
        // By way of the exact size, so that the rest of the last page is zero.
        pages.set_len(size)?;
        base.set_len(PAGE_BYTES + size)?;
        pages.set_len(size.next_multiple_of(PAGE_BYTES))?;
    } else if size > valid {
        pages.set_len(size.next_multiple_of(PAGE_BYTES).max(pages.metadata()?.len()))?;
        // Behind the file's end the last page may hold what was stored there.
        load(volume, open.ino, (pages, base), valid..size, false)?;
    }
    load(volume, open.ino, (pages, base), changed.start..changed.end.min(valid).min(size), true)?;
    base.write_all_at(&Header { valid: size, ..header }.encode(), 0)
}

/// Takes a range of the volume into pages and base. Where nothing was loaded before (`anew`: where something was), holes from the
/// second page on need nothing.
fn load(
    volume: &Volume,
    ino: Ino,
    (pages, base): (&File, &File),
    range: Range<u64>,
    anew: bool,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let first_page_end = range.start.next_multiple_of(PAGE_BYTES);
    let mut at = range.start;
    while at < range.end {
        if !anew && at > first_page_end {
            match volume.fs.seek(ino, at, SeekTarget::Data) {
                Ok(data) => at = at.max(data),
                // None to the end.
                Err(_) => break,
            }
        }
        let wanted = (range.end.saturating_sub(at)).min(CHUNK_BYTES as u64) as usize;
        let bytes = &mut chunk[..wanted];
        let read = volume.fs.read(ino, at, bytes).map_err(io::Error::other)?;
        bytes[read..].fill(0);
        pages.write_all_at(bytes, at)?;
        base.write_all_at(bytes, PAGE_BYTES + at)?;
        at += wanted as u64;
    }
    Ok(())
}
