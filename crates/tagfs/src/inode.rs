//! An i-node in memory: what its record says, and file data that is not stored yet.

use crate::layout::{DirectoryForm, FileForm, Form, Record, Xattrs};
use crate::record::Stored;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::{BLOCK_BYTES, DataClass, Ino, Tag, TagFlags, refuse};
use weft_tags::{NodeId, SnodeTags};
use weft_vfs::memfs::XATTR_NAME_MAX;
use weft_vfs::{
    Attr, FLAGS_XATTR, FsError, FsResult, InodeFlags, Marks, SetAttr, TimeSpec, XATTR_VALUE_MAX, XattrMode,
};

/// The attribute that holds the name of a class of data. What is made in a directory begins with that of the directory.
pub const CLASS_XATTR: &[u8] = b"user.weft.class";

/// A block of a file.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// An i-node. Copies share what is large until one of them changes it.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub root: NodeId,
    /// Where the record lies; nowhere before it was stored.
    pub stored: Option<Stored>,
    pub tags: SnodeTags,
    pub record: Record,
    pub xattrs: Arc<Xattrs>,
    /// Of a file, what its record says of its data where that is stored: without what is buffered.
    pub stored_form: FileForm,
    /// Blocks that were written and are not stored.
    pub buffer: Arc<BTreeMap<u64, Arc<Block>>>,
    /// Of these, blocks that take space which they did not have before.
    pub reserved: u64,
    /// The chunks there are, in their order, once somebody has asked.
    pub chunks: Option<Arc<Vec<u64>>>,
    /// What was stored of it before is not what it holds in memory: bytes were overwritten or taken away.
    pub gives_up: bool,
    /// Open references.
    pub opens: u64,
    /// An edge says that it has no name.
    pub is_orphan: bool,
}

impl Inode {
    pub(crate) fn attr(&self, ino: Ino) -> Attr {
        let Record { links, atime, mtime, ctime, btime, form, .. } = &self.record;
        let (size, blocks, rdev) = match form {
            Form::File(file) => (file.size, file.blocks * (BLOCK_BYTES as u64 / 512), 0),
            Form::Directory(_) => (BLOCK_BYTES as u64, 0, 0),
            Form::Symlink(target) => (target.len() as u64, 0, 0),
            Form::Special(_, rdev) => (0, 0, *rdev),
        };
        Attr {
            ino,
            kind: self.record.kind(),
            perm: self.tags.mode.into(),
            links: *links,
            uid: self.tags.owner,
            gid: self.tags.group,
            rdev,
            size,
            blocks,
            atime: *atime,
            mtime: *mtime,
            ctime: *ctime,
            btime: *btime,
            marks: Marks::of(|name| self.xattrs.get(name).map(Vec::as_slice)),
        }
    }

    pub(crate) fn file(&self) -> FsResult<&FileForm> {
        match &self.record.form {
            Form::File(file) => Ok(file),
            Form::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    pub(crate) fn file_mut(&mut self) -> FsResult<&mut FileForm> {
        match &mut self.record.form {
            Form::File(file) => Ok(file),
            Form::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    pub(crate) fn directory(&self) -> FsResult<&DirectoryForm> {
        match &self.record.form {
            Form::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    pub(crate) fn directory_mut(&mut self) -> FsResult<&mut DirectoryForm> {
        match &mut self.record.form {
            Form::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.record.form, Form::Directory(_))
    }

    /// Whether nothing leads to it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.record.links == 0 && self.opens == 0
    }

    /// Changes all that is given but the size.
    pub(crate) fn set(&mut self, set: &SetAttr) {
        let (tags, record) = (&mut self.tags, &mut self.record);
        tags.mode = set.perm.map_or(tags.mode, |perm| (perm & 0o7777) as u16);
        tags.owner = set.uid.unwrap_or(tags.owner);
        tags.group = set.gid.unwrap_or(tags.group);
        record.atime = set.atime.unwrap_or(record.atime);
        record.mtime = set.mtime.unwrap_or(record.mtime);
        record.ctime = set.ctime.unwrap_or_else(TimeSpec::now);
    }

    /// Whether bytes that it held are to be erased with the step that stores it.
    pub(crate) fn leaves_secrets(&self) -> bool {
        self.gives_up && self.tags.flags.contains(TagFlags::SECURE_DELETE)
    }

    /// What the i-node holds has changed now.
    pub(crate) fn touch_data(&mut self) {
        let now = TimeSpec::now();
        (self.record.mtime, self.record.ctime) = (now, now);
    }

    /// The class that its flags ask for.
    fn flags_of_tag(&self) -> TagFlags {
        self.xattrs.get(FLAGS_XATTR).map(|value| InodeFlags::from_value(value).of_tag()).unwrap_or_default()
    }

    /// The class that was asked for by an attribute.
    pub(crate) fn class_asked(&self) -> Option<DataClass> {
        class_named(self.xattrs.get(CLASS_XATTR)?)
    }

    /// The tags go with the flags and the class, if the attribute that has changed holds them.
    fn note_tags(&mut self, name: &[u8]) {
        if name == FLAGS_XATTR {
            (self.tags.flags, self.record.tag.flags) = (self.flags_of_tag(), self.flags_of_tag());
        } else if name == CLASS_XATTR {
            self.tags.class = self.class_asked().unwrap_or(self.record.tag.class);
        }
    }

    /// The data that is stored from here on carries this tag.
    pub(crate) fn set_tag(&mut self, tag: Tag) {
        let flags = tag.flags | self.flags_of_tag();
        self.record.tag = Tag { flags, ..tag };
        (self.tags.class, self.tags.flags) = (self.class_asked().unwrap_or(tag.class), flags);
    }

    pub(crate) fn set_xattr(&mut self, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        refuse(name.len() > XATTR_NAME_MAX || value.len() > XATTR_VALUE_MAX, FsError::AttributeTooLarge)?;
        let is_no_class = name == CLASS_XATTR && class_named(value).is_none();
        refuse(is_no_class, FsError::Invalid("the value of user.weft.class is no class of data"))?;
        match (mode, self.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(FsError::Exists),
            (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
            _ => {}
        }
        let before = Arc::make_mut(&mut self.xattrs).insert(name.to_vec(), value.to_vec());
        self.gives_up |= before.is_some();
        self.note_tags(name);
        self.record.ctime = TimeSpec::now();
        Ok(())
    }

    pub(crate) fn remove_xattr(&mut self, name: &[u8]) -> FsResult<()> {
        refuse(!self.xattrs.contains_key(name), FsError::NoAttribute)?;
        Arc::make_mut(&mut self.xattrs).remove(name);
        self.gives_up = true;
        self.note_tags(name);
        self.record.ctime = TimeSpec::now();
        Ok(())
    }
}

/// The class with this name.
pub(crate) fn class_named(name: &[u8]) -> Option<DataClass> {
    DataClass::named(std::str::from_utf8(name).ok()?)
}
