//! Writing down what programs do to their files, in the form that `weft_placement::sim` plays
//! (`docs/formats/recording.md`).
//!
//! Two places see what happens. [`RecordedCore`] stands before the core and sees data, sizes, fsyncs, and which files
//! are gone; there the order is the one in which the core is asked, whoever asks. Who opens a file, under which path
//! and with which hint, only the serving of requests knows; it tells [`Recorder`] before it answers, and so before the
//! program can write.
//!
//! Files are numbered as they come. A file is gone when the core does not know its inode any more: after its last name
//! or, when it was still open, its last descriptor.

use crate::serve::Opener;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use weft_core::{Ino, Tag};
use weft_placement::sim::recording::{LAST_LINE, first_line};
use weft_placement::sim::{Event, Opener as RecordedOpener};
use weft_placement::{OpenIntent, WriteHint};
use weft_vfs::{
    Attr, BlockMap, CreateArgs, DirEntry, FallocateMode, FileKind, FileSystem, FsResult, FsStats,
    RenameFlags, SeekTarget, SetAttr, TimeSpec, XattrMode,
};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a recording.
pub struct Recorder {
    state: Mutex<State>,
}

struct State {
    out: BufWriter<Box<dyn Write + Send>>,
    files: FxHashMap<Ino, File>,
    /// Open references of inodes.
    open: FxHashMap<Ino, u32>,
    next: u32,
    events: u64,
    /// The first failure to write; nothing is written after it.
    failed: Option<io::Error>,
}

/// A file as the recording knows it.
struct File {
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
                    state.open(ino, full, RecordedOpener { flags, ..RecordedOpener::default() });
                    state.write(ino, 0, size);
                    state.close(ino);
                    found += 1;
                }
            }
        }
        Ok(found)
    }

    /// A core that writes down what it is asked.
    pub fn before(self: &Arc<Self>, core: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
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

    /// A file was created, or opened for writing.
    pub(crate) fn opened(&self, ino: Ino, path: &[u8], process: &str, opener: &Opener, flags: OpenIntent) {
        let opener = RecordedOpener {
            process: process.to_string(),
            thread: if opener.thread == process { String::new() } else { opener.thread.clone() },
            thread_id: opener.thread_id,
            flags,
        };
        self.state.lock().open(ino, path.to_vec(), opener);
    }

    /// The program told a file's lifetime.
    pub(crate) fn hinted(&self, ino: Ino, hint: WriteHint) {
        self.state.lock().event(ino, |file| Event::Hint { file: file.number, hint });
    }

    /// A file has another path.
    pub(crate) fn renamed(&self, ino: Ino, path: &[u8]) {
        self.state.lock().event(ino, |file| Event::Rename { file: file.number, path: path.to_vec() });
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
    fn event(&mut self, ino: Ino, event: impl FnOnce(&mut File) -> Event) {
        if let Some(file) = self.files.get_mut(&ino) {
            let event = event(file);
            self.put(&event);
        }
    }

    fn open(&mut self, ino: Ino, path: Vec<u8>, opener: RecordedOpener) {
        let event = match self.files.entry(ino) {
            Entry::Occupied(known) => Event::Reopen { file: known.get().number, path, opener },
            Entry::Vacant(place) => {
                let number = self.next;
                self.next += 1;
                place.insert(File { number, size: 0, written: false });
                Event::Create { file: number, path, opener }
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
                true => Event::Write { file: file.number, bytes },
                false => Event::Overwrite { file: file.number, offset, bytes },
            }
        });
    }

    fn resize(&mut self, ino: Ino, size: u64) {
        if self.files.get(&ino).is_some_and(|file| file.size != size) {
            self.event(ino, |file| {
                file.size = size;
                Event::Resize { file: file.number, size }
            });
        }
    }

    fn close(&mut self, ino: Ino) {
        if self.files.get(&ino).is_some_and(|file| file.written) {
            self.event(ino, |file| {
                file.written = false;
                Event::Close { file: file.number }
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
            self.put(&Event::Delete { file: file.number });
        }
    }
}

/// A core, and before it the recorder.
struct RecordedCore {
    core: Arc<dyn FileSystem>,
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
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.core.lookup(dir, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.core.getattr(ino)
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

    fn create_unnamed(&self, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        let attr = self.core.create_unnamed(args, linkable)?;
        self.recorder.state.lock().add_reference(attr.ino);
        Ok(attr)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.core.link(ino, dir, name)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let victim = self.core.lookup(dir, name);
        self.core.unlink(dir, name)?;
        if let Ok(victim) = victim {
            self.look_for(victim.ino);
        }
        Ok(())
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.core.rmdir(dir, name)
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        let replaced = self.core.lookup(to, new_name);
        self.core.rename(from, name, to, new_name, flags)?;
        if let Ok(replaced) = replaced {
            self.look_for(replaced.ino);
        }
        Ok(())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.core.readlink(ino)
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.core.parent(dir)
    }

    fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()> {
        self.core.readdir(dir, cookie, each)
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

    fn note_read(&self, ino: Ino, when: TimeSpec) {
        self.core.note_read(ino, when);
    }

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.core.read(ino, offset, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let result = self.core.write(ino, offset, data);
        self.note(result, |state| state.write(ino, offset, data.len() as u64))
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let result = self.core.write_through(ino, offset, data);
        self.note(result, |state| state.write(ino, offset, data.len() as u64))
    }

    fn write_back(&self, ino: Ino) -> FsResult<()> {
        self.core.write_back(ino)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let result = self.core.fallocate(ino, mode, offset, len);
        let size = self.core.getattr(ino).map(|attr| attr.size);
        self.note(result, |state| {
            if matches!(mode, FallocateMode::PunchHole | FallocateMode::ZeroRange { .. }) {
                state.event(ino, |file| Event::Punch { file: file.number, offset, bytes: len });
            }
            // A collapsed or inserted range is told by what it does to the size: that many bytes die, or none.
            if let Ok(size) = size {
                state.resize(ino, size);
            }
        })
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        self.core.seek(ino, offset, target)
    }

    fn fsync(&self, ino: Ino) -> FsResult<()> {
        let result = self.core.fsync(ino);
        self.note(result, |state| state.event(ino, |file| Event::Sync { file: file.number }))
    }

    fn sync(&self) -> FsResult<()> {
        self.core.sync()
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.core.getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.core.setxattr(ino, name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.core.listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.core.removexattr(ino, name)
    }

    fn statfs(&self) -> FsResult<FsStats> {
        self.core.statfs()
    }

    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        self.core.set_tag(ino, tag)
    }

    fn tag(&self, ino: Ino) -> FsResult<Tag> {
        self.core.tag(ino)
    }

    fn is_read_only(&self) -> bool {
        self.core.is_read_only()
    }

    fn block_map(&self) -> Option<&dyn BlockMap> {
        self.core.block_map()
    }
}
