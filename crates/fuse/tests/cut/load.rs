//! A process that works on the mount, and notes beside it how far it is.

use super::Case;
use super::operations::{File as Number, How, Op, Operations, SHARED, fill, shared_bytes};
use super::progress::Progress;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weft_core::BLOCK_BYTES;
use weft_core::random::spread;

/// Bytes that a full volume leaves to the processes.
const ROOM_BYTES: u64 = 3 << 20;

/// The variable that tells a process of the load what it is.
pub const WHAT: &str = "WEFT_CUT_LOAD";

pub fn describe(case: &Case, mnt: &Path, beside: &Path, process: u64) -> String {
    let Case { seed, processes, operations, .. } = case;
    format!("{seed} {process} {processes} {operations} {} {}", beside.display(), mnt.display())
}

/// What is there before the first cut.
pub fn prepare(mnt: &Path, case: &Case) {
    let processes = case.processes;
    if case.is_full {
        fill_up(mnt);
    }
    for process in 0..processes {
        fs::create_dir(mnt.join(format!("p{process}"))).unwrap();
    }
    let shared = File::create_new(mnt.join("shared")).unwrap();
    shared.write_all_at(&vec![0; shared_bytes(processes) as usize], 0).unwrap();
    shared.sync_all().unwrap();
    File::open(mnt).unwrap().sync_all().unwrap();
}

/// Leaves little room, in zones of which each holds something that is needed.
fn fill_up(mnt: &Path) {
    let stats = rustix::fs::statvfs(mnt).unwrap();
    let blocks = (stats.f_bavail * stats.f_frsize).saturating_sub(ROOM_BYTES) / BLOCK_BYTES as u64;
    let ballast = File::create_new(mnt.join("ballast")).unwrap();
    // In no order that would come again: what is written in the same order twice dies zone by zone.
    for i in 0..3 * blocks {
        let block = spread(i) % blocks;
        ballast.write_all_at(&[i as u8; BLOCK_BYTES], block * BLOCK_BYTES as u64).unwrap();
        if i % 64 == 0 {
            ballast.sync_all().unwrap();
        }
    }
    ballast.sync_all().unwrap();
}

/// Does what [`describe`] says.
pub fn work(what: &str) {
    let words: Vec<&str> = what.splitn(6, ' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let (seed, process, processes, operations) = (number(0), number(1), number(2), number(3));
    let progress = Progress::open(Path::new(words[4]));
    let mnt = PathBuf::from(words[5]);
    let mut load = Load { process, dir: mnt.join(format!("p{process}")), ..Load::default() };
    let shared = OpenOptions::new().read(true).write(true).open(mnt.join("shared")).unwrap();
    load.open.insert(SHARED, shared);
    load.paths.insert(SHARED, mnt.join("shared"));
    for (number, op) in (0..operations).zip(Operations::new(seed, process, processes)) {
        progress.begin(process, number);
        load.act(number, &op).unwrap_or_else(|error| panic!("operation {number}, {op:?}: {error}"));
        progress.returned(process, number);
    }
}

#[derive(Default)]
struct Load {
    process: u64,
    dir: PathBuf,
    open: BTreeMap<Number, File>,
    paths: BTreeMap<Number, PathBuf>,
    /// The mapped file, once it is there.
    map: Option<(usize, usize)>,
}

impl Load {
    fn file(&mut self, number: Number) -> std::io::Result<&File> {
        if !self.open.contains_key(&number) {
            let file = OpenOptions::new().read(true).write(true).open(&self.paths[&number])?;
            self.open.insert(number, file);
        }
        Ok(&self.open[&number])
    }

    /// A file that lost its name is closed.
    fn drop_name(&mut self, path: &Path) {
        self.paths.retain(|number, known| {
            let goes = known == path;
            if goes {
                self.open.remove(number);
            }
            !goes
        });
    }

    fn map(&mut self, number: Number) -> std::io::Result<(usize, usize)> {
        if let Some(map) = self.map {
            return Ok(map);
        }
        let file = self.file(number)?;
        let len = file.metadata()?.len() as usize;
        // SAFETY: a new mapping of a file that nobody cuts any more; it stays for the life of this process.
        let at = unsafe {
            let flags = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), len, flags, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(*self.map.insert((at as usize, len)))
    }

    fn write(
        &mut self,
        operation: u64,
        number: Number,
        offset: u64,
        len: u64,
        how: How,
    ) -> std::io::Result<()> {
        let mut bytes = vec![0; len as usize];
        fill(self.process, operation, offset, &mut bytes);
        let mut options = OpenOptions::new();
        match how {
            How::Plain => return self.file(number)?.write_all_at(&bytes, offset),
            How::Store => {
                let (at, mapped) = self.map(number)?;
                assert!((offset + len) as usize <= mapped);
                // SAFETY: within the mapping, which only this process stores to.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        bytes.as_ptr(),
                        (at as *mut u8).add(offset as usize),
                        bytes.len(),
                    );
                }
                return Ok(());
            }
            How::Append => {
                return options.append(true).open(&self.paths[&number])?.write_all(&bytes);
            }
            How::Sync => options.custom_flags(libc::O_SYNC),
            How::DataSync => options.custom_flags(libc::O_DSYNC),
        };
        options.write(true).open(&self.paths[&number])?.write_all_at(&bytes, offset)
    }

    fn act(&mut self, operation: u64, op: &Op) -> std::io::Result<()> {
        let at = |path: &str| self.dir.join(path);
        let called = |done: i32| if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        match op {
            Op::Create { file, path } => {
                let path = at(path);
                let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
                self.open.insert(*file, made);
                self.paths.insert(*file, path);
                Ok(())
            }
            Op::Write { file, offset, len, how } => self.write(operation, *file, *offset, *len, *how),
            Op::Truncate { file, size } => self.file(*file)?.set_len(*size),
            Op::Punch { file, offset, len } => {
                let fd = self.file(*file)?.as_raw_fd();
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: a system call without pointers.
                called(unsafe { libc::fallocate(fd, mode, *offset as i64, *len as i64) })
            }
            Op::Fsync { file } => self.file(*file)?.sync_all(),
            Op::Fdatasync { file } => self.file(*file)?.sync_data(),
            Op::Msync { file } => {
                let (at, len) = self.map(*file)?;
                // SAFETY: the mapping of this process.
                called(unsafe { libc::msync(at as *mut libc::c_void, len, libc::MS_SYNC) })
            }
            Op::Close { file } => {
                self.open.remove(file);
                Ok(())
            }
            Op::Rename { from, to } => {
                let (from, to) = (at(from), at(to));
                fs::rename(&from, &to)?;
                self.drop_name(&to);
                self.paths.values_mut().filter(|path| **path == from).for_each(|path| path.clone_from(&to));
                Ok(())
            }
            Op::Unlink { path } => {
                let path = at(path);
                fs::remove_file(&path)?;
                self.drop_name(&path);
                Ok(())
            }
            Op::Mkdir { path } => fs::create_dir(at(path)),
            Op::Rmdir { path } => fs::remove_dir(at(path)),
            Op::FsyncDir { path } => File::open(at(path))?.sync_all(),
            Op::Syncfs => {
                let dir = File::open(&self.dir)?;
                // SAFETY: a system call without pointers.
                called(unsafe { libc::syncfs(dir.as_raw_fd()) })
            }
        }
    }
}
