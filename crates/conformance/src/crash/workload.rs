//! What programs do to their files, in miniature: logs, replaced pointers, pages in place, tables in one go, and
//! whatever else changes names.

use super::content::Shape;
use super::recorder::Recorder;
use super::tree::{NodeId, ROOT};
use crate::fixture::{BLOCK, bytes};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use weft_vfs::{ACCESS_XATTR, FallocateMode, FileKind, FileSystem, FsResult, NewNode};

/// Most bytes that the workload keeps in its files; beyond, it deletes.
const LIVE_BYTES_MAX: usize = 3 << 20;
/// Bytes that a step may write, and a margin: with less free, it deletes, too.
const FREE_BYTES_MIN: u64 = 768 << 10;
/// Files that are deleted before a step at most.
const DELETES_PER_STEP: usize = 6;
/// Bytes at which the log is started anew.
const LOG_BYTES_MAX: usize = 64 << 10;
/// Bytes of the file whose pages are overwritten.
const TABLE_BYTES: usize = 96 << 10;
/// Subdirectories at most.
const DIRS_MAX: usize = 8;

/// A name in a directory.
type Entry = (NodeId, Vec<u8>);

pub(super) struct Workload {
    rng: StdRng,
    /// Counts names and pieces of data, so that no two are equal, nor those of two seeds on one volume.
    serial: u64,
}

impl Workload {
    /// The workload of a seed. Equal seeds do equal things to equal volumes.
    pub(super) fn new(seed: u64) -> Workload {
        Workload { rng: StdRng::seed_from_u64(seed), serial: seed << 20 }
    }

    /// Does one thing that programs do: one to some ten operations.
    pub(super) fn step(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        for _ in 0..DELETES_PER_STEP {
            let tight = fs.statfs()?.free_bytes < FREE_BYTES_MIN;
            if !tight && self.live_bytes(record) <= LIVE_BYTES_MAX {
                break;
            }
            self.delete_largest(fs, record)?;
        }
        match self.rng.random_range(0..120) {
            0..18 => self.log(fs, record),
            18..26 => self.replace_pointer(fs, record),
            26..40 => self.overwrite_pages(fs, record),
            40..48 => self.write_table(fs, record),
            48..58 => self.small_files(fs, record),
            58..66 => self.delete(fs, record),
            66..71 => self.truncate(fs, record),
            71..77 => self.directories(fs, record),
            77..81 => self.link(fs, record),
            81..89 => self.rename(fs, record),
            89..94 => self.attributes(fs, record),
            94..96 => self.unnamed(fs, record),
            96..99 => self.append_anywhere(fs, record),
            99..105 => self.cut_and_regrow(fs, record),
            105..108 => self.punch(fs, record),
            108..111 => self.shift_blocks(fs, record),
            111..115 => self.allocate(fs, record),
            _ => self.sync_something(fs, record),
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn new_name(&mut self, prefix: &str) -> Vec<u8> {
        self.serial += 1;
        format!("{prefix}{}", self.serial).into_bytes()
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        self.serial += 1;
        bytes(self.serial, len)
    }

    fn live_bytes(&self, record: &Recorder) -> usize {
        record.tree().named().map(|(id, _)| record.content(id).len()).sum()
    }

    fn dirs(&self, record: &Recorder) -> Vec<NodeId> {
        let dirs = record.tree().named().filter(|(_, node)| node.kind == FileKind::Directory);
        dirs.map(|(id, _)| id).collect()
    }

    fn dir(&mut self, record: &Recorder) -> NodeId {
        self.dirs(record).choose(&mut self.rng).copied().unwrap_or(ROOT)
    }

    /// Names of nodes of a kind.
    fn entries(&self, record: &Recorder, kind: FileKind) -> Vec<(Entry, NodeId)> {
        let mut entries = Vec::new();
        for dir in self.dirs(record) {
            let Some(node) = record.tree().node(dir) else { continue };
            for (name, child) in &node.entries {
                if record.tree().node(*child).is_some_and(|node| node.kind == kind) {
                    entries.push(((dir, name.clone()), *child));
                }
            }
        }
        entries
    }

    fn entry(&mut self, record: &Recorder, kind: FileKind) -> Option<(Entry, NodeId)> {
        self.entries(record, kind).choose(&mut self.rng).cloned()
    }

    /// The file that has this name in the root, made when it is not there.
    fn well_known(&mut self, fs: &dyn FileSystem, record: &mut Recorder, name: &[u8]) -> FsResult<NodeId> {
        match record.tree().lookup(ROOT, name) {
            Some(node) => Ok(node),
            None => record.create(fs, ROOT, name, NewNode::File),
        }
    }

    fn append(
        &mut self,
        fs: &dyn FileSystem,
        record: &mut Recorder,
        node: NodeId,
        len: usize,
    ) -> FsResult<()> {
        let data = self.data(len);
        let end = record.content(node).len() as u64;
        record.write(fs, node, end, data, false)
    }

    /// A write-ahead log: records are appended, most of them synced one by one; a long log is started anew.
    fn log(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let log = self.well_known(fs, record, b"log")?;
        for _ in 0..self.rng.random_range(1..4) {
            let len = self.rng.random_range(20..900);
            self.append(fs, record, log, len)?;
            if self.chance(60) {
                record.fsync(fs, log)?;
            }
        }
        if record.content(log).len() > LOG_BYTES_MAX {
            if self.chance(50) {
                record.remove(fs, ROOT, b"log")?;
            } else {
                record.rename(fs, (ROOT, b"log"), (ROOT, b"log.old"), false)?;
            }
        }
        Ok(())
    }

    /// A file is replaced as a whole: written under another name, synced, renamed.
    fn replace_pointer(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let node = self.well_known(fs, record, b"pointer.tmp")?;
        let len = self.rng.random_range(16..64);
        self.append(fs, record, node, len)?;
        if self.chance(85) {
            record.fsync(fs, node)?;
        }
        record.rename(fs, (ROOT, b"pointer.tmp"), (ROOT, b"pointer"), false)?;
        if self.chance(50) {
            record.fsync(fs, ROOT)?;
        }
        Ok(())
    }

    /// Pages, and now and then any bytes, of one file are overwritten.
    fn overwrite_pages(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let table = self.well_known(fs, record, b"pages")?;
        if record.content(table).len() < TABLE_BYTES {
            let missing = TABLE_BYTES - record.content(table).len();
            self.append(fs, record, table, missing)?;
            record.fsync(fs, table)?;
        }
        for _ in 0..self.rng.random_range(1..4) {
            let (offset, len) = if self.chance(70) {
                let pages = self.rng.random_range(1..4);
                (self.rng.random_range(0..TABLE_BYTES / 4096 - pages) * 4096, pages * 4096)
            } else {
                let len = self.rng.random_range(1..6000);
                (self.rng.random_range(0..TABLE_BYTES - len), len)
            };
            let (data, through) = (self.data(len), self.chance(30));
            record.write(fs, table, offset as u64, data, through)?;
        }
        if self.chance(60) {
            record.fsync(fs, table)?;
        }
        Ok(())
    }

    /// A large file in one go, through, in pieces; then synced and never changed.
    fn write_table(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let (dir, name) = (self.dir(record), self.new_name("table"));
        let node = record.create(fs, dir, &name, NewNode::File)?;
        for _ in 0..self.rng.random_range(1..5) {
            let len = if self.chance(70) { 64 << 10 } else { self.rng.random_range(1..64 << 10) };
            let (data, end) = (self.data(len), record.content(node).len() as u64);
            record.write(fs, node, end, data, true)?;
        }
        if self.chance(70) {
            record.fsync(fs, node)?;
        }
        Ok(())
    }

    /// Small files, synced or not.
    fn small_files(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        for _ in 0..self.rng.random_range(1..5) {
            let (dir, name) = (self.dir(record), self.new_name("small"));
            let node = record.create(fs, dir, &name, NewNode::File)?;
            let len = self.rng.random_range(1..3000);
            self.append(fs, record, node, len)?;
            if self.chance(20) {
                record.fsync(fs, node)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let kind = if self.chance(95) { FileKind::File } else { FileKind::Symlink };
        let Some(((dir, name), _)) = self.entry(record, kind) else { return Ok(()) };
        record.remove(fs, dir, &name)?;
        if self.chance(25) {
            record.fsync(fs, dir)?;
        }
        Ok(())
    }

    fn delete_largest(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let files = self.entries(record, FileKind::File);
        let largest = files.into_iter().max_by_key(|(_, node)| record.content(*node).len());
        let Some(((dir, name), _)) = largest else { return Ok(()) };
        record.remove(fs, dir, &name)
    }

    /// A file is cut, or made longer; often something is appended then.
    fn truncate(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let Some((_, node)) = self.entry(record, FileKind::File) else { return Ok(()) };
        let size = record.content(node).len();
        let new = match self.rng.random_range(0..10) {
            0..2 => 0,
            2..8 => self.rng.random_range(0..=size),
            _ => size + self.rng.random_range(0..10_000),
        };
        record.truncate(fs, node, new as u64)?;
        if self.chance(50) {
            let len = self.rng.random_range(1..6000);
            self.append(fs, record, node, len)?;
        }
        if self.chance(40) {
            record.fsync(fs, node)?;
        }
        Ok(())
    }

    /// A small synced file is cut and made longer again, by a truncate or over a gap: what was cut must stay away.
    fn cut_and_regrow(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let node = self.well_known(fs, record, b"recycled")?;
        if record.content(node).len() > 8000 {
            record.truncate(fs, node, 0)?;
        }
        for _ in 0..self.rng.random_range(1..3) {
            let len = self.rng.random_range(50..1500);
            self.append(fs, record, node, len)?;
            record.fsync(fs, node)?;
        }
        let size = record.content(node).len();
        let cut = self.rng.random_range(0..size);
        record.truncate(fs, node, cut as u64)?;
        if self.chance(30) {
            record.fsync(fs, node)?;
        }
        let more = self.rng.random_range(1..3000);
        if self.chance(50) {
            record.truncate(fs, node, (cut + more) as u64)?;
        } else {
            let len = self.rng.random_range(1..500);
            let data = self.data(len);
            record.write(fs, node, (cut + more) as u64, data, false)?;
        }
        if self.chance(70) {
            record.fsync(fs, node)?;
        }
        Ok(())
    }

    /// A range of any file becomes zeros.
    fn punch(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let Some((_, node)) = self.entry(record, FileKind::File) else { return Ok(()) };
        let size = record.content(node).len() as u64;
        if size < 2 {
            return Ok(());
        }
        let mut start = self.rng.random_range(0..size - 1);
        let mut end = self.rng.random_range(start + 1..=size.min(start + 20_000));
        if size > BLOCK && self.chance(50) {
            // A whole block, in which a few bytes have just been synced.
            start = self.rng.random_range(0..size / BLOCK) * BLOCK;
            end = start + BLOCK;
            let len = self.rng.random_range(1..1000);
            let (data, at) = (self.data(len), start + self.rng.random_range(0..BLOCK - len as u64));
            record.write(fs, node, at, data, false)?;
            record.fsync(fs, node)?;
        }
        let mode = if self.chance(50) {
            FallocateMode::PunchHole
        } else {
            FallocateMode::ZeroRange { keep_size: true }
        };
        record.punch(fs, node, mode, start..end)?;
        if self.chance(50) {
            record.fsync(fs, node)?;
        }
        Ok(())
    }

    /// A file is promised space, around its end most of the time, and grows into it.
    fn allocate(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let Some((_, node)) = self.entry(record, FileKind::File) else { return Ok(()) };
        let size = record.content(node).len() as u64;
        let start = if self.chance(60) { size } else { self.rng.random_range(0..=size + 5000) };
        let end = start + self.rng.random_range(1..20_000);
        let keep_size = self.chance(60);
        record.allocate(fs, node, start..end, keep_size)?;
        if self.chance(70) {
            let len = self.rng.random_range(1..6000);
            self.append(fs, record, node, len)?;
        }
        if self.chance(50) {
            record.fsync(fs, node)?;
        }
        Ok(())
    }

    /// Blocks are cut out of a synced file, or inserted.
    fn shift_blocks(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let Some((_, node)) = self.entry(record, FileKind::File) else { return Ok(()) };
        let blocks = record.content(node).len().saturating_sub(1) as u64 / BLOCK;
        if blocks < 2 {
            return Ok(());
        }
        record.fsync(fs, node)?;
        let first = self.rng.random_range(0..blocks - 1);
        let last = self.rng.random_range(first + 1..=(blocks - 1).min(first + 4));
        let (start, end) = (first * BLOCK, last * BLOCK);
        let shape = if self.chance(50) {
            Shape::Collapse { start, end }
        } else {
            Shape::Insert { start, len: end - start }
        };
        record.shift(fs, node, shape)?;
        if self.chance(50) {
            let len = self.rng.random_range(1..6000);
            self.append(fs, record, node, len)?;
        }
        Ok(())
    }

    /// Directories come, go and move.
    fn directories(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let dirs = self.entries(record, FileKind::Directory);
        if dirs.len() < DIRS_MAX && self.chance(50) {
            let (parent, name) = (self.dir(record), self.new_name("dir"));
            record.create(fs, parent, &name, NewNode::Directory)?;
            return Ok(());
        }
        let Some(((parent, name), dir)) = dirs.choose(&mut self.rng).cloned() else { return Ok(()) };
        if record.tree().node(dir).is_some_and(|node| node.entries.is_empty()) && self.chance(50) {
            return record.remove(fs, parent, &name);
        }
        let (to, new_name) = (self.dir(record), self.new_name("moved"));
        if !record.tree().is_within(to, dir) {
            record.rename(fs, (parent, &name), (to, &new_name), false)?;
        }
        Ok(())
    }

    fn link(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let Some((_, node)) = self.entry(record, FileKind::File) else { return Ok(()) };
        let (dir, name) = (self.dir(record), self.new_name("link"));
        record.link(fs, node, dir, &name)
    }

    /// A file gets a new name, or another file's, or both swap theirs.
    fn rename(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let Some(((dir, name), _)) = self.entry(record, FileKind::File) else { return Ok(()) };
        let other = self.entry(record, FileKind::File);
        let (to, new_name, exchange) = match (self.rng.random_range(0..4), other) {
            (0, Some(((to, new_name), _))) => (to, new_name, false),
            (1, Some(((to, new_name), _))) => (to, new_name, true),
            _ => (self.dir(record), self.new_name("renamed"), false),
        };
        record.rename(fs, (dir, &name), (to, &new_name), exchange)
    }

    /// Extended attributes, modes, symlinks.
    fn attributes(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let file = self.entry(record, FileKind::File).map(|(_, node)| node);
        let node = if self.chance(20) { self.dir(record) } else { file.unwrap_or(ROOT) };
        match self.rng.random_range(0..6) {
            0..2 => {
                let len = if self.chance(90) {
                    self.rng.random_range(0..200)
                } else {
                    self.rng.random_range(0..9000)
                };
                let (name, value) = (format!("user.{}", self.rng.random_range(0..3)), self.data(len));
                record.set_xattr(fs, node, name.as_bytes(), &value)
            }
            2 => match record.tree().node(node).and_then(|node| node.xattrs.keys().next().cloned()) {
                Some(name) => record.remove_xattr(fs, node, &name),
                None => Ok(()),
            },
            3 => record.chmod(fs, node, if self.chance(50) { 0o700 } else { 0o755 }),
            4 => {
                let (perm, value) = (if self.chance(50) { 0o770 } else { 0o711 }, self.data(44));
                record.set_both(fs, node, perm, (ACCESS_XATTR, &value))
            }
            _ => {
                let (dir, name, target) = (self.dir(record), self.new_name("symlink"), self.data(50));
                record.create(fs, dir, &name, NewNode::Symlink(&target)).map(|_| ())
            }
        }
    }

    /// A file without a name is written, and most of the time given one.
    fn unnamed(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let node = record.create_unnamed(fs)?;
        let len = self.rng.random_range(1..20_000);
        self.append(fs, record, node, len)?;
        if self.chance(50) {
            record.fsync(fs, node)?;
        }
        if self.chance(70) {
            let (dir, name) = (self.dir(record), self.new_name("named"));
            record.link(fs, node, dir, &name)?;
        }
        record.release(fs, node)
    }

    /// Any file grows, over a gap now and then.
    fn append_anywhere(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let Some((_, node)) = self.entry(record, FileKind::File) else { return Ok(()) };
        let gap = if self.chance(25) { self.rng.random_range(1..9000) } else { 0 };
        let len = self.rng.random_range(1..9000);
        let (data, end, through) = (self.data(len), record.content(node).len() as u64, self.chance(30));
        record.write(fs, node, end + gap, data, through)
    }

    fn sync_something(&mut self, fs: &dyn FileSystem, record: &mut Recorder) -> FsResult<()> {
        let file = self.entry(record, FileKind::File).map(|(_, node)| node);
        match (self.rng.random_range(0..5), file) {
            (0, _) => record.sync(fs),
            (1, _) => {
                let dir = self.dir(record);
                record.fsync(fs, dir)
            }
            (2 | 3, Some(node)) => record.fsync(fs, node),
            (_, Some(node)) => record.write_back(fs, node),
            (_, None) => Ok(()),
        }
    }
}
