//! The in-memory core with one fault put in, to see the suite turn red.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::{Ino, Tag};
use weft_vfs::{
    Attr, CreateArgs, DirEntry, FallocateMode, FileKind, FileSystem, FsError, FsResult, FsStats, MemFs,
    RenameFlags, SeekTarget, SetAttr, TimeSpec, XattrChange, XattrMode,
};

/// What is wrong with the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// Reads return zeros past the end of the file.
    ReadPastEnd,
    /// `write_through` loses the last byte.
    WriteThroughShort,
    /// A file that was cut and extended shows what was cut off.
    TruncateKeepsTail,
    /// `NO_REPLACE` is ignored.
    NoReplaceReplaces,
    /// `EXCHANGE` is a plain rename.
    ExchangeReplaces,
    /// Open references do not keep an inode.
    OpenIsNotCounted,
    /// A cookie is a position, which shifts when entries go.
    CookiesArePositions,
    /// A name that is renamed over goes to the end of the directory.
    ReplacedNamesMove,
    /// Names are cut to 254 bytes.
    NamesAreCut,
    /// `XattrMode::Create` replaces.
    XattrCreateReplaces,
    /// SEEK_DATA skips a block.
    SeekSkipsData,
    /// `write` leaves the modification time.
    WriteKeepsMtime,
    LateWritesAreNew,
    /// A punched hole is one byte too long.
    PunchIsTooLong,
    /// Unaligned collapses are accepted.
    CollapseUnaligned,
    /// Offsets are 32 bits wide.
    Offsets32Bits,
    /// `rmdir` of a full directory is `Exists` instead of `NotEmpty`.
    NotEmptyIsExists,
    /// Files have one link whatever their names.
    LinksAreNotCounted,
    /// A write is two writes.
    TornWrites,
    /// Zero-length writes extend.
    EmptyWriteExtends,
    /// What was made to have no name can get one.
    AnythingIsLinkable,
    /// Directories do not know where they moved.
    ParentIsStale,
}

/// The core in memory, behind a fault.
pub struct Broken {
    pub inner: Arc<MemFs>,
    fault: Fault,
    /// What truncates cut off, by inode: offset and bytes.
    cut: Mutex<BTreeMap<Ino, (u64, Vec<u8>)>>,
    /// The first parent of each directory.
    parents: Mutex<BTreeMap<Ino, Ino>>,
}

impl Broken {
    pub fn new(inner: Arc<MemFs>, fault: Fault) -> Broken {
        Broken { inner, fault, cut: Mutex::default(), parents: Mutex::default() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn name<'a>(&self, name: &'a [u8]) -> &'a [u8] {
        if self.has(Fault::NamesAreCut) && name.len() == 255 { &name[..254] } else { name }
    }

    fn attr(&self, attr: Attr) -> Attr {
        if self.has(Fault::LinksAreNotCounted) && attr.kind != FileKind::Directory {
            return Attr { links: attr.links.min(1), ..attr };
        }
        attr
    }
}

impl FileSystem for Broken {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.inner.lookup(dir, self.name(name)).map(|attr| self.attr(attr))
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.inner.getattr(ino).map(|attr| self.attr(attr))
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let (Some(size), true) = (set.size, self.has(Fault::TruncateKeepsTail)) else {
            return self.inner.setattr(ino, set);
        };
        let old = self.inner.getattr(ino)?.size;
        if size < old && old - size < 1 << 20 {
            let mut tail = vec![0; (old - size) as usize];
            self.inner.read(ino, size, &mut tail)?;
            self.cut.lock().insert(ino, (size, tail));
        }
        self.inner.setattr(ino, set)?;
        if size > old
            && let Some((at, tail)) = self.cut.lock().remove(&ino)
            && at + tail.len() as u64 <= size
        {
            self.inner.write(ino, at, &tail)?;
        }
        self.inner.getattr(ino)
    }

    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        let attr = self.inner.create(dir, self.name(name), args)?;
        self.parents.lock().insert(attr.ino, dir);
        Ok(attr)
    }

    fn create_unnamed(&self, dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        self.inner.create_unnamed(dir, args, linkable || self.has(Fault::AnythingIsLinkable))
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.inner.link(ino, dir, self.name(name)).map(|attr| self.attr(attr))
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.unlink(dir, self.name(name))
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        match self.inner.rmdir(dir, self.name(name)) {
            Err(FsError::NotEmpty) if self.has(Fault::NotEmptyIsExists) => Err(FsError::Exists),
            other => other,
        }
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        if self.has(Fault::ReplacedNamesMove)
            && flags.is_empty()
            && let Ok(other) = self.inner.lookup(to, new_name)
            && other.kind != FileKind::Directory
            && self.inner.lookup(from, name).is_ok_and(|attr| attr.ino != other.ino)
        {
            self.inner.unlink(to, new_name)?;
        }
        let ignored = match self.fault {
            Fault::NoReplaceReplaces => RenameFlags::NO_REPLACE,
            Fault::ExchangeReplaces => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        self.inner.rename(from, self.name(name), to, self.name(new_name), flags - ignored)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.inner.readlink(ino)
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        let parent = self.inner.parent(dir)?;
        if self.has(Fault::ParentIsStale) {
            return Ok(self.parents.lock().get(&dir).copied().unwrap_or(parent));
        }
        Ok(parent)
    }

    fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()> {
        if !self.has(Fault::CookiesArePositions) {
            return self.inner.readdir(dir, cookie, each);
        }
        let mut position = 0;
        self.inner.readdir(dir, 0, &mut |entry| {
            position += 1;
            position <= cookie || each(DirEntry { cookie: position, ..entry })
        })
    }

    fn newest_cookie(&self, dir: Ino) -> FsResult<u64> {
        self.inner.newest_cookie(dir)
    }

    fn open(&self, ino: Ino) -> FsResult<()> {
        if self.has(Fault::OpenIsNotCounted) {
            return self.inner.getattr(ino).map(|_| ());
        }
        self.inner.open(ino)
    }

    fn release(&self, ino: Ino) {
        self.inner.release(ino);
    }

    fn note_read(&self, ino: Ino, when: TimeSpec) {
        self.inner.note_read(ino, when);
    }

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let read = self.inner.read(ino, offset, out)?;
        if self.has(Fault::ReadPastEnd) && read > 0 {
            out[read..].fill(0);
            return Ok(out.len());
        }
        Ok(read)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        match self.fault {
            Fault::Offsets32Bits if offset < 1 << 62 => self.inner.write(ino, offset & 0xffff_ffff, data),
            Fault::WriteKeepsMtime => {
                let mtime = self.inner.getattr(ino)?.mtime;
                self.inner.write(ino, offset, data)?;
                self.inner.setattr(ino, &SetAttr { mtime: Some(mtime), ..SetAttr::default() }).map(|_| ())
            }
            Fault::TornWrites => {
                let (first, second) = data.split_at(data.len() / 2);
                self.inner.write(ino, offset, first)?;
                std::thread::sleep(std::time::Duration::from_micros(200));
                self.inner.write(ino, offset + first.len() as u64, second)
            }
            Fault::EmptyWriteExtends if data.is_empty() && offset < 1 << 40 => {
                let size = self.inner.getattr(ino)?.size.max(offset);
                self.inner.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).map(|_| ())
            }
            _ => self.inner.write(ino, offset, data),
        }
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        let short = usize::from(self.has(Fault::WriteThroughShort) && data.len() > 1);
        self.inner.write_through(ino, offset, &data[..data.len() - short])
    }

    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()> {
        if self.has(Fault::LateWritesAreNew) {
            return self.inner.write(ino, offset, data);
        }
        self.inner.write_late(ino, offset, data, through, when)
    }

    fn write_back(&self, ino: Ino) -> FsResult<()> {
        self.inner.write_back(ino)
    }

    fn write_in_order(&self, ino: Ino) -> FsResult<()> {
        self.inner.write_in_order(ino)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        match (self.fault, mode) {
            (Fault::PunchIsTooLong, FallocateMode::PunchHole) => {
                self.inner.fallocate(ino, mode, offset, len + 1)
            }
            (Fault::CollapseUnaligned, FallocateMode::CollapseRange) => {
                let (offset, len) = (offset / 4096 * 4096, len.div_ceil(4096) * 4096);
                self.inner.fallocate(ino, mode, offset, len)
            }
            _ => self.inner.fallocate(ino, mode, offset, len),
        }
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        let found = self.inner.seek(ino, offset, target)?;
        if self.has(Fault::SeekSkipsData) && target == SeekTarget::Data && found > 0 {
            return Ok((found + 4096).min(self.inner.getattr(ino)?.size));
        }
        Ok(found)
    }

    fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.inner.fsync(ino)
    }

    fn sync(&self) -> FsResult<()> {
        self.inner.sync()
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.inner.getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let mode = if self.has(Fault::XattrCreateReplaces) { XattrMode::Any } else { mode };
        self.inner.setxattr(ino, name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.inner.listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.removexattr(ino, name)
    }

    fn set_with_xattrs(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr> {
        self.inner.set_with_xattrs(ino, set, xattrs)
    }

    fn statfs(&self) -> FsResult<FsStats> {
        self.inner.statfs()
    }

    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        self.inner.set_tag(ino, tag)
    }

    fn tag(&self, ino: Ino) -> FsResult<Tag> {
        self.inner.tag(ino)
    }
}
