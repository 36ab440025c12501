//! Writing down what programs do to their files, in the form that `weft_sim` plays
//! (`docs/formats/recording.md`).
//!
//! Two places see what happens. `RecordedCore` stands before the core and sees data, sizes, fsyncs, and which files
//! are gone; there the order is the one in which the core is asked, whoever asks. Who opens a file, under which path
//! and with which hint, only the front knows; it tells [`Recorder`] before it answers, and so before the
//! program can write.
//!
//! Files are numbered as they come. A file is gone when the core does not know its inode any more: after its last name
//! or, when it was still open, its last descriptor.

use crate::error::VolumeError;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{Ino, Tag};
use weft_placement::recording::{Event, FileAction, Opener};
use weft_placement::recording::{LAST_LINE, first_line};
use weft_placement::{OpenIntent, WriteHint};
use weft_vfs::change::{Made, Refused};
use weft_vfs::{
    Attr, BlockMap, Change, Core, CoreStats, CreateArgs, DeathObserver, DirEntry, FallocateMode, FileKind,
    FileSystem, FsResult, FsStats, Node, QuotaRoom, RenameFlags, SeekTarget, SetAttr, TimeSpec, XattrChange,
    XattrMode, forward,
};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a recording.
pub struct Recorder {
    state: Mutex<State>,
}

struct State {
    out: BufWriter<Box<dyn Write + Send>>,
    files: FxHashMap<Ino, RecordedFile>,
    /// Open references of inodes.
    open: FxHashMap<Ino, u32>,
    next: u32,
    events: u64,
    /// The first failure to write; nothing is written after it.
    failed: Option<io::Error>,
}

/// A file as the recording knows it.
struct RecordedFile {
    number: u32,
    size: u64,
    /// Whether it was written to since it was last closed.
    written: bool,
}

impl Recorder {
    /// A recording of `program`.
    ///
    /// # Errors
    /// When the first line cannot be written.
    pub fn new(out: Box<dyn Write + Send>, program: &str) -> io::Result<Arc<Recorder>> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        writeln!(out, "{}", first_line(program))?;
        out.flush()?;
        let state = State {
            out,
            files: FxHashMap::default(),
            open: FxHashMap::default(),
            next: 1,
            events: 0,
            failed: None,
        };
        Ok(Arc::new(Recorder { state: Mutex::new(state) }))
    }

    /// Writes down the files that are there before anything happens, as if they were made now. Returns how many.
    pub fn note_present(&self, fs: &dyn FileSystem) -> FsResult<u64> {
        let mut state = self.state.lock();
        let mut found = 0;
        let mut dirs = vec![(Ino::ROOT, b"/".to_vec())];
        while let Some((dir, path)) = dirs.pop() {
            let mut entries = Vec::new();
            fs.readdir(dir, 0, &mut |entry| {
                let mut full = path.clone();
                full.extend_from_slice(entry.name);
                entries.push((entry.ino, entry.kind, full));
                true
            })?;
            for (ino, kind, mut full) in entries {
                if kind == FileKind::Directory {
                    full.push(b'/');
                    dirs.push((ino, full));
                } else if kind == FileKind::File && !state.files.contains_key(&ino) {
                    let size = fs.getattr(ino)?.size;
                    let flags = OpenIntent::CREATE | OpenIntent::WRITE;
                    state.open(ino, full, Opener { flags, ..Opener::default() });
                    state.write(ino, 0, size);
                    state.close(ino);
                    found += 1;
                }
            }
        }
        Ok(found)
    }

    /// A core that writes down what it is asked.
    pub fn before(self: &Arc<Self>, core: Arc<dyn Core>) -> Arc<dyn Core> {
        Arc::new(RecordedCore { core, recorder: self.clone() })
    }

    /// Ends the recording; returns the number of events.
    ///
    /// # Errors
    /// The first that writing met.
    pub fn finish(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        writeln!(state.out, "{LAST_LINE}")?;
        state.out.flush()?;
        Ok(state.events)
    }

    /// A file was created, or opened for writing. A thread called as its process is not named.
    pub fn opened(&self, ino: Ino, path: &[u8], mut opener: Opener) {
        if opener.thread == opener.process {
            opener.thread.clear();
        }
        self.state.lock().open(ino, path.to_vec(), opener);
    }

    /// The program told a file's lifetime.
    pub fn hinted(&self, ino: Ino, hint: WriteHint) {
        self.state.lock().event(ino, |_| FileAction::Hint(hint));
    }

    /// A file has another path.
    pub fn renamed(&self, ino: Ino, path: &[u8]) {
        self.state.lock().event(ino, |_| FileAction::Rename { path: path.to_vec() });
    }
}

impl State {
    fn put(&mut self, event: &Event) {
        if self.failed.is_some() {
            return;
        }
        match writeln!(self.out, "{event}") {
            Ok(()) => self.events += 1,
            Err(error) => {
                tracing::error!(%error, "the recording cannot be written and ends here");
                self.failed = Some(error);
            }
        }
    }

    /// An event of a file that the recording knows.
    fn event(&mut self, ino: Ino, action: impl FnOnce(&mut RecordedFile) -> FileAction) {
        if let Some(file) = self.files.get_mut(&ino) {
            let action = action(file);
            let event = Event { file: file.number, action };
            self.put(&event);
        }
    }

    fn open(&mut self, ino: Ino, path: Vec<u8>, opener: Opener) {
        let event = match self.files.entry(ino) {
            Entry::Occupied(known) => Event::new(known.get().number, FileAction::Reopen { path, opener }),
            Entry::Vacant(place) => {
                let number = self.next;
                self.next += 1;
                place.insert(RecordedFile { number, size: 0, written: false });
                Event::new(number, FileAction::Create { path, opener })
            }
        };
        self.put(&event);
    }

    fn write(&mut self, ino: Ino, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.event(ino, |file| {
            let appends = offset == file.size;
            file.size = file.size.max(offset + bytes);
            file.written = true;
            match appends {
                true => FileAction::Write { bytes },
                false => FileAction::Overwrite { offset, bytes },
            }
        });
    }

    fn resize(&mut self, ino: Ino, size: u64) {
        if self.files.get(&ino).is_some_and(|file| file.size != size) {
            self.event(ino, |file| {
                file.size = size;
                FileAction::Resize { size }
            });
        }
    }

    /// A range was allocated or freed within a step, by which the size follows from what is known.
    fn allocated(&mut self, ino: Ino, mode: FallocateMode, range: Range<u64>) {
        let (offset, bytes) = (range.start, range.end - range.start);
        if matches!(mode, FallocateMode::PunchHole | FallocateMode::ZeroRange { .. }) {
            self.event(ino, |_| FileAction::Punch { offset, bytes });
        }
        if matches!(mode, FallocateMode::Allocate | FallocateMode::ZeroRange { keep_size: false }) {
            let size = self.files.get(&ino).map_or(0, |file| file.size);
            self.resize(ino, size.max(range.end));
        }
    }

    fn close(&mut self, ino: Ino) {
        if self.files.get(&ino).is_some_and(|file| file.written) {
            self.event(ino, |file| {
                file.written = false;
                FileAction::Close
            });
        }
    }

    fn add_reference(&mut self, ino: Ino) {
        *self.open.entry(ino).or_insert(0) += 1;
    }

    /// One open reference less; whether it was the last.
    fn drop_reference(&mut self, ino: Ino) -> bool {
        let Some(count) = self.open.get_mut(&ino) else { return true };
        *count -= 1;
        if *count == 0 {
            self.open.remove(&ino);
        }
        !self.open.contains_key(&ino)
    }

    fn gone(&mut self, ino: Ino) {
        if let Some(file) = self.files.remove(&ino) {
            self.put(&Event::new(file.number, FileAction::Delete));
        }
    }
}

/// A core, and before it the recorder.
struct RecordedCore {
    core: Arc<dyn Core>,
    recorder: Arc<Recorder>,
}

impl RecordedCore {
    /// Writes an operation down that has succeeded.
    fn note<T>(&self, result: FsResult<T>, note: impl FnOnce(&mut State)) -> FsResult<T> {
        if result.is_ok() {
            note(&mut self.recorder.state.lock());
        }
        result
    }

    /// After a name or an open reference is gone: so may be the file.
    fn look_for(&self, ino: Ino) {
        let known = self.recorder.state.lock().files.contains_key(&ino);
        if known && self.core.getattr(ino).is_err() {
            self.recorder.state.lock().gone(ino);
        }
    }
}

impl FileSystem for RecordedCore {
    forward! {
        lookup => core.lookup(dir: Ino, name: &[u8]) -> FsResult<Attr>;
        getattr => core.getattr(ino: Ino) -> FsResult<Attr>;
        link => core.link(ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr>;
        rmdir => core.rmdir(dir: Ino, name: &[u8]) -> FsResult<()>;
        readlink => core.readlink(ino: Ino) -> FsResult<Vec<u8>>;
        parent => core.parent(dir: Ino) -> FsResult<Ino>;
        readdir => core.readdir(dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()>;
        newest_cookie => core.newest_cookie(dir: Ino) -> FsResult<u64>;
        note_read => core.note_read(ino: Ino, when: TimeSpec);
        read => core.read(ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize>;
        write_back => core.write_back(ino: Ino) -> FsResult<()>;
        write_in_order => core.write_in_order(ino: Ino) -> FsResult<()>;
        seek => core.seek(ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64>;
        sync => core.sync() -> FsResult<()>;
        getxattr => core.getxattr(ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;
        setxattr => core.setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;
        listxattr => core.listxattr(ino: Ino) -> FsResult<Vec<Vec<u8>>>;
        removexattr => core.removexattr(ino: Ino, name: &[u8]) -> FsResult<()>;
        set_with_xattrs => core.set_with_xattrs(ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr>;
        statfs => core.statfs() -> FsResult<FsStats>;
        set_tag => core.set_tag(ino: Ino, tag: Tag) -> FsResult<()>;
        tag => core.tag(ino: Ino) -> FsResult<Tag>;
        is_read_only => core.is_read_only() -> bool;
        erases => core.erases() -> bool;
        keeps_quotas => core.keeps_quotas() -> bool;
        quota_room => core.quota_room(ino: Ino) -> FsResult<Option<QuotaRoom>>;
        block_map => core.block_map() -> Option<&dyn BlockMap>;
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let result = self.core.setattr(ino, set);
        self.note(result, |state| {
            if let Some(size) = set.size {
                state.resize(ino, size);
            }
        })
    }

    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        let attr = self.core.create(dir, name, args)?;
        if args.open {
            self.recorder.state.lock().add_reference(attr.ino);
        }
        Ok(attr)
    }

    fn create_unnamed(&self, dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        let attr = self.core.create_unnamed(dir, args, linkable)?;
        self.recorder.state.lock().add_reference(attr.ino);
        Ok(attr)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.core.lookup(dir, name);
        self.core.unlink(dir, name)?;
        if let Ok(victim) = victim {
            self.look_for(victim.ino);
        }
        Ok(())
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        let replaced = self.core.lookup(to, new_name);
        self.core.rename(from, name, to, new_name, flags)?;
        if let Ok(replaced) = replaced {
            self.look_for(replaced.ino);
        }
        Ok(())
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        let names = changes.iter().filter_map(|change| match *change {
            Change::Remove { dir: Node::Ino(dir), name, .. } => Some((dir, name)),
            Change::Rename { to: Node::Ino(to), new_name, .. } => Some((to, new_name)),
            _ => None,
        });
        let victims: Vec<Ino> =
            names.filter_map(|(dir, name)| Some(self.core.lookup(dir, name).ok()?.ino)).collect();
        let made = self.core.commit(changes, durable)?;
        let ino_of = |node: Node| node.after(&made);
        {
            let mut state = self.recorder.state.lock();
            for (change, made) in changes.iter().zip(&made) {
                match *change {
                    Change::Create { ref args, .. } if args.open => {
                        made.iter().for_each(|ino| state.add_reference(*ino));
                    }
                    Change::Write { node, offset, data } => {
                        ino_of(node).into_iter().for_each(|ino| state.write(ino, offset, data.len() as u64));
                    }
                    Change::SetAttr { node, set: SetAttr { size: Some(size), .. } } => {
                        ino_of(node).into_iter().for_each(|ino| state.resize(ino, size));
                    }
                    Change::Fallocate { node, mode, offset, len } => {
                        if let Some(ino) = ino_of(node) {
                            state.allocated(ino, mode, offset..offset.saturating_add(len));
                        }
                    }
                    _ => {}
                }
            }
        }
        victims.into_iter().for_each(|ino| self.look_for(ino));
        Ok(made)
    }

    fn open(&self, ino: Ino) -> FsResult<()> {
        let result = self.core.open(ino);
        self.note(result, |state| state.add_reference(ino))
    }

    fn release(&self, ino: Ino) {
        self.core.release(ino);
        let is_last = {
            let mut state = self.recorder.state.lock();
            let is_last = state.drop_reference(ino);
            if is_last {
                state.close(ino);
            }
            is_last
        };
        if is_last {
            self.look_for(ino);
        }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let result = self.core.write(ino, offset, data);
        self.note(result, |state| state.write(ino, offset, data.len() as u64))
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let result = self.core.write_through(ino, offset, data);
        self.note(result, |state| state.write(ino, offset, data.len() as u64))
    }

    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()> {
        let result = self.core.write_late(ino, offset, data, through, when);
        self.note(result, |state| state.write(ino, offset, data.len() as u64))
    }

    fn write_accepted(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        through: bool,
        when: TimeSpec,
    ) -> FsResult<()> {
        let result = self.core.write_accepted(ino, offset, data, through, when);
        self.note(result, |state| state.write(ino, offset, data.len() as u64))
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let result = self.core.fallocate(ino, mode, offset, len);
        let size = self.core.getattr(ino).map(|attr| attr.size);
        self.note(result, |state| {
            if matches!(mode, FallocateMode::PunchHole | FallocateMode::ZeroRange { .. }) {
                state.event(ino, |_| FileAction::Punch { offset, bytes: len });
            }
            // A collapsed or inserted range is recorded by its effect on the size: that many bytes die, or none.
            if let Ok(size) = size {
                state.resize(ino, size);
            }
        })
    }

    fn fsync(&self, ino: Ino) -> FsResult<()> {
        let result = self.core.fsync(ino);
        self.note(result, |state| state.event(ino, |_| FileAction::Sync))
    }
}

impl Core for RecordedCore {
    forward! {
        tick => core.tick() -> FsResult<()>;
        volume_bytes => core.volume_bytes() -> u64;
        close => core.close() -> FsResult<()>;
        set_death_observer => core.set_death_observer(observer: DeathObserver);
        core_stats => core.core_stats() -> CoreStats;
    }
}

/// A recording to make.
#[derive(Clone, Debug)]
pub struct Record {
    /// The file to write it to.
    pub path: PathBuf,
    /// The program of which it is made.
    pub program: String,
}

impl Record {
    /// Begins the recording with what is on the volume already.
    pub(crate) fn begin(&self, fs: &dyn FileSystem) -> Result<Arc<Recorder>, VolumeError> {
        let file = File::create(&self.path).map_err(|e| self.failed(e))?;
        let recorder = Recorder::new(Box::new(file), &self.program).map_err(|e| self.failed(e))?;
        recorder.note_present(fs).map_err(VolumeError::Unrecordable)?;
        Ok(recorder)
    }

    /// The error of a recording that cannot be written.
    pub(crate) fn failed(&self, source: io::Error) -> VolumeError {
        VolumeError::Io { what: "record to", path: self.path.clone(), source }
    }
}
