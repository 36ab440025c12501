//! `weft import`: copies the files of a tar archive to a volume.
//!
//! Nothing lands outside the directory that was named: members with `..` in their path, and those that would go through a
//! symlink, are refused one by one. Modes and times of directories are set last.

use super::{named, volume};
use crate::access::Access;
use crate::archive::reader::Reader;
use crate::archive::{ArchiveError, Content, Member};
use crate::command::files::Failures;
use crate::command::kv::open;
use crate::error::CliError;
use crate::progress;
use crate::sys::signal;
use crate::tree::DEPTH_MAX;
use crate::tree::{Meta, Tree, join};
use clap::Args;
use indicatif::ProgressBar;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use weft_vfs::{FileKind, acl};

/// Bytes of a read and a write.
const COPY_BYTES: usize = 256 << 10;
/// What a file is called until it is whole, when another one has its name. A killed import leaves it, the next one removes it.
const PART_NAME: &[u8] = b".weft-import";
/// Mode of directories that the archive does not hold.
const DIRECTORY_MODE: u32 = 0o755;

/// `weft import`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft import vol.img vol.tar\n  zstd -dc db.tar.zst | weft import vol.img:/db\n\n\
    'weft import' replaces existing files and adds to existing directories. It refuses each member whose path contains \
    .. or leads through a symlink, and imports the others."
)]
pub struct ImportArgs {
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// The volume, or a directory on it; the command makes a missing directory.
    #[arg(value_name = "IMAGE[:/path]")]
    pub to: OsString,
    /// The archive; - means standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
}

/// Reads an archive.
pub fn run(args: &ImportArgs) -> Result<(), CliError> {
    let (image, target) = volume(&args.to)?;
    signal::notice_interrupts();
    if named(&args.file).is_none() && io::stdin().is_terminal() {
        return Err(CliError::said(
            "standard input is a terminal, and an archive is not text",
            "name a file, or use a pipe: zstd -dc vol.tar.zst | weft import vol.img",
        ));
    }
    let (input, _, len) = open(&args.file)?;
    let access = Access::open(&image)?;
    let bar = progress::bytes("import", len, args.quiet);
    let done = read_all(&access.tree(), &target, input, &args.file, &bar);
    bar.finish_and_clear();
    let synced = access.sync();
    access.close()?;
    done.and(synced)
}

fn read_all(
    tree: &dyn Tree,
    target: &[u8],
    input: Box<dyn BufRead>,
    file: &Path,
    bar: &ProgressBar,
) -> Result<(), CliError> {
    let refused = |error| unreadable(file, error);
    let mut import = Import {
        tree,
        target,
        reader: Reader::new(input),
        buffer: vec![0; COPY_BYTES],
        known: HashSet::new(),
        directories: Vec::new(),
        failures: Failures::default(),
        bar,
    };
    // Before anything is made: is it an archive?
    let mut next = import.reader.next().map_err(refused)?;
    let mut result = import.make_all(target).map_err(|e| CliError::file("import into", tree, target, e));
    while let (Ok(()), Some(member)) = (&result, &next) {
        import.take(member);
        import.bar.set_position(import.reader.position());
        if signal::was_interrupted() {
            result = Err(CliError::of(
                file,
                "interrupted",
                "the files read so far are on the volume; import again to complete it",
            ));
            break;
        }
        match import.reader.next() {
            Ok(member) => next = member,
            Err(error) => result = Err(unreadable(file, error)),
        }
    }
    import.end_directories();
    result.and(import.failures.result())
}

fn unreadable(file: &Path, error: ArchiveError) -> CliError {
    let name = file.display();
    let remedy = match &error {
        ArchiveError::Io(_) => String::new(),
        ArchiveError::Compressed { program } => format!("{program} -dc {name} | weft import VOLUME"),
        ArchiveError::Header { at: 0 } => "weft import reads tar archives".into(),
        _ => "what stands before is on the volume; the archive is damaged or not complete".into(),
    };
    CliError::said(format!("{name}: {error}"), remedy)
}

struct Import<'a> {
    tree: &'a dyn Tree,
    target: &'a [u8],
    reader: Reader<Box<dyn BufRead>>,
    buffer: Vec<u8>,
    /// Directories of which it is known that they are no symlinks.
    known: HashSet<Vec<u8>>,
    /// Directories whose mode and times are still to be set, and their default lists: what is made in them meanwhile has lists of its own.
    directories: Vec<(Vec<u8>, Meta, Option<Vec<u8>>)>,
    failures: Failures,
    bar: &'a ProgressBar,
}

impl Import<'_> {
    fn take(&mut self, member: &Member) {
        if let Err(error) = self.make(member) {
            let name = String::from_utf8_lossy(&member.path).into_owned();
            let bar = self.bar.clone();
            bar.suspend(|| self.failures.tell("import", &name, &error));
        }
    }

    fn make(&mut self, member: &Member) -> io::Result<()> {
        let path = self.place(&member.path)?;
        if let Some(parent) = parent(&path)
            && parent.len() >= self.target.len()
        {
            self.make_all(parent)?;
        }
        let kind = match &member.content {
            Content::File { size, parts } => return self.file(&path, member, *size, parts),
            Content::Symlink(target) => {
                self.tree.unlink_if_there(&path)?;
                self.tree.symlink(target, &path)?;
                FileKind::Symlink
            }
            Content::Directory => {
                self.make_all(&path)?;
                FileKind::Directory
            }
            Content::Special(kind, number) => {
                self.tree.unlink_if_there(&path)?;
                self.tree.mknod(&path, *kind, member.perm, *number)?;
                *kind
            }
            Content::Link(first) => {
                let first = self.place(first)?;
                if let Some(parent) = parent(&first) {
                    self.check(parent)?;
                }
                if first == path {
                    return Ok(());
                }
                self.tree.unlink_if_there(&path)?;
                return self.tree.link(&first, &path);
            }
            Content::Unknown(letter) => {
                let letter = char::from(*letter);
                return Err(io::Error::other(format!("a member of kind {letter:?}, which is not known")));
            }
            Content::OldSparse => {
                return Err(io::Error::other(
                    "a sparse file in an old form; write the archive with tar --sparse-version=1.0",
                ));
            }
        };
        let meta = meta_of(member, kind);
        self.owner_and_attributes(&path, member, &meta)?;
        if meta.is_dir() {
            let default = member.xattrs.iter().find(|(name, _)| name == acl::DEFAULT);
            self.directories.push((path, meta, default.map(|(_, value)| value.clone())));
            return Ok(());
        }
        self.tree.set_meta(&path, &meta)
    }

    fn owner_and_attributes(&self, path: &[u8], member: &Member, meta: &Meta) -> io::Result<()> {
        self.tree.set_owner(path, meta)?;
        for (name, value) in member.xattrs.iter().filter(|(name, _)| name != acl::DEFAULT) {
            match self.tree.set_xattr(path, name, value) {
                // Others belong to a file system or to the superuser.
                Err(error) if name.starts_with(b"user.") => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a file, under another name until it is whole when there is one already.
    fn file(&mut self, path: &[u8], member: &Member, size: u64, parts: &[(u64, u64)]) -> io::Result<()> {
        let part = match self.tree.stat(path, false) {
            Ok(meta) if meta.is_dir() => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            Ok(_) => join(parent(path).unwrap_or(b"/"), PART_NAME),
            Err(_) => path.to_vec(),
        };
        if part != path {
            self.tree.unlink_if_there(&part)?;
        }
        let meta = meta_of(member, FileKind::File);
        let made = self
            .content(&part, size, parts)
            .and_then(|()| self.owner_and_attributes(&part, member, &meta))
            .and_then(|()| self.tree.set_meta(&part, &meta))
            .and_then(|()| if part == path { Ok(()) } else { self.tree.rename(&part, path) });
        if made.is_err() {
            // Of no use to anybody.
            let _ = self.tree.unlink(&part);
        }
        made
    }

    fn content(&mut self, path: &[u8], size: u64, parts: &[(u64, u64)]) -> io::Result<()> {
        let mut sink = self.tree.create(path, 0o600)?;
        for &(offset, len) in parts {
            let (mut offset, end) = (offset, offset + len);
            while offset < end {
                let wanted = usize::try_from(end - offset).unwrap_or(COPY_BYTES).min(COPY_BYTES);
                let n = self.reader.read(&mut self.buffer[..wanted]).map_err(io::Error::other)?;
                let piece = &self.buffer[..n];
                // What is zero stays a hole.
                if piece.iter().any(|&byte| byte != 0) {
                    sink.write_at(piece, offset)?;
                }
                offset += n as u64;
                self.bar.set_position(self.reader.position());
                if signal::was_interrupted() {
                    return Err(crate::command::files::interrupted());
                }
            }
        }
        sink.set_len(size)
    }

    /// Where a member goes.
    fn place(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        // The walk checks each directory of the path.
        let directories = name.split(|&byte| byte == b'/').count();
        if name.len() > weft_vfs::PATH_MAX && directories > DEPTH_MAX {
            return Err(io::Error::other(format!(
                "its path has {} bytes; {} are the most, or {DEPTH_MAX} directories",
                name.len(),
                weft_vfs::PATH_MAX
            )));
        }
        let mut path = self.target.to_vec();
        for part in name.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(io::Error::other("its path has .. in it")),
                name if name.contains(&0) => return Err(io::Error::other("its path has a zero byte in it")),
                name => path = join(&path, name),
            }
        }
        Ok(path)
    }

    /// Refuses a directory that is a symlink, or is reached by one.
    fn check(&mut self, path: &[u8]) -> io::Result<()> {
        if path.len() <= self.target.len() || self.known.contains(path) {
            return Ok(());
        }
        if let Some(parent) = parent(path) {
            self.check(parent)?;
        }
        if !self.tree.stat(path, false)?.is_dir() {
            let name = String::from_utf8_lossy(path);
            return Err(io::Error::other(format!("{name} on the way to it is no directory")));
        }
        self.known.insert(path.to_vec());
        Ok(())
    }

    /// Makes a directory and those above it, as far as they are not there.
    fn make_all(&mut self, path: &[u8]) -> io::Result<()> {
        match self.check(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other if path.len() > self.target.len() => return other,
            _ if self.tree.stat(path, true).is_ok_and(|meta| meta.is_dir()) => return Ok(()),
            _ => {}
        }
        if let Some(parent) = parent(path)
            && parent.len() < path.len()
        {
            self.make_all(parent)?;
        }
        self.tree.mkdir(path, DIRECTORY_MODE)
    }

    fn end_directories(&mut self) {
        // Those within others first: a mode may shut out what is below.
        let directories = std::mem::take(&mut self.directories);
        for (path, meta, default) in directories.iter().rev() {
            if let Some(default) = default {
                // As other attributes that belong to a file system.
                let _ = self.tree.set_xattr(path, acl::DEFAULT, default);
            }
            if let Err(error) = self.tree.set_meta(path, meta) {
                self.failures.tell("import", &self.tree.show(path), &error);
            }
        }
    }
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let slash = trimmed.iter().rposition(|&byte| byte == b'/')?;
    Some(if slash == 0 { &path[..1] } else { &path[..slash] })
}

fn meta_of(member: &Member, kind: FileKind) -> Meta {
    Meta {
        kind,
        perm: member.perm,
        links: 1,
        uid: member.uid,
        gid: member.gid,
        rdev: 0,
        size: 0,
        blocks: 0,
        id: (0, 0),
        atime_ns: member.atime_ns,
        mtime_ns: member.mtime_ns,
        ctime_ns: member.mtime_ns,
    }
}
