//! `weft export`: writes the files of a volume to a tar archive.

use super::{named, volume as volume_of};
use crate::access::Access;
use crate::archive::writer::Writer;
use crate::archive::{Content, Member};
use crate::command::copy::weigh;
use crate::command::files::{Failures, interrupted};
use crate::error::CliError;
use crate::progress;
use crate::say::{self, warn};
use crate::sys::file::{Removed, with_suffix};
use crate::sys::signal;
use crate::tree::DEPTH_MAX;
use crate::tree::damage::ZeroingReader;
use crate::tree::{Meta, Source, Tree, base_name, data_parts, join};
use crate::volume;
use clap::Args;
use indicatif::ProgressBar;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{DirEntry, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weft_lfs::salvage::LOST_AND_FOUND;
use weft_sys::file::try_lock;
use weft_vfs::FileKind;

/// Bytes of a read.
const READ_BYTES: usize = 256 << 10;
/// A file whose data is no more than this many bytes is in memory before its name is written.
const KEPT_BYTES: u64 = 4 << 20;
/// Parts of a sparse file that its map in the archive lists; readers of archives have the map in memory.
const PARTS_MAX: usize = 1 << 18;
/// Bytes that are collected for a write to the archive's file.
const WRITE_BYTES: usize = 1 << 20;
/// What stands behind the name of an archive that is not whole yet, before the number of the process that writes it.
const UNFINISHED: &str = ".unfinished-";

/// `weft export`
#[derive(Args, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft export vol.img vol.tar\n  weft export vol.img:/db | zstd > db.tar.zst\n\n\
    The archive keeps names, modes, owners, times, links, extended attributes and holes. GNU tar, bsdtar and Python \
    can read the archive. When a program changes the volume during the export, the archive contains files from \
    different moments. Stop \
    the program for a consistent copy."
)]
pub struct ExportArgs {
    /// Replace an existing archive.
    #[arg(short, long)]
    pub force: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// The volume, or a directory or file on it.
    #[arg(value_name = "IMAGE[:/path]")]
    pub from: OsString,
    /// The archive; - means standard output.
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
}

/// Writes an archive.
pub fn run(args: &ExportArgs) -> Result<(), CliError> {
    let (image, path) = volume_of(&args.from)?;
    signal::notice_interrupts();
    let Some(file) = named(&args.file) else {
        if io::stdout().is_terminal() {
            return Err(CliError::said(
                "standard output is a terminal, and an archive is not text",
                "name a file, or use a pipe: weft export vol.img | zstd > vol.tar.zst",
            ));
        }
        let writer = Writer::new(say::out());
        let (_, failures) = write_all(args, (&image, &path), writer, Path::new("standard output"), None)?;
        return failures.result();
    };
    CliError::unless_forced(file, file.exists(), args.force)?;
    if let (Ok(from), Ok(to)) = (image.metadata(), file.metadata())
        && (from.dev(), from.ino()) == (to.dev(), to.ino())
    {
        return Err(CliError::said(
            format!("{} is the volume that is exported", file.display()),
            "give another name for the archive",
        ));
    }
    // What a symlink leads to is replaced, and not the link.
    let resolved = file.canonicalize();
    let file = resolved.as_deref().unwrap_or(file);
    if file.metadata().is_ok_and(|meta| !meta.is_file()) {
        // A pipe or a device cannot be replaced: it gets the archive as it comes.
        let failed = |e| CliError::io("write", file, e);
        let output = File::options().write(true).open(file).map_err(failed)?;
        let writer = Writer::new(BufWriter::new(output));
        let (_, failures) = write_all(args, (&image, &path), writer, file, None)?;
        return failures.result();
    }
    // Under another name until it is whole.
    let (unfinished, output) = begin(file)?;
    let failed = |e| CliError::io("write", file, e);
    let itself = output.metadata().map_err(failed).map(|meta| (meta.dev(), meta.ino()))?;
    let writer = Writer::of_file(BufWriter::with_capacity(WRITE_BYTES, output));
    let (output, failures) = write_all(args, (&image, &path), writer, file, Some(itself))?;
    let output = output.into_inner().map_err(|e| failed(e.into_error()))?;
    output.sync_all().map_err(failed)?;
    let mut target = file.to_path_buf();
    if file.exists() && (!failures.is_empty() || volume::is_incomplete()) {
        // The older archive may be the last whole one.
        target = with_suffix(file, ".incomplete");
        warn(format_args!(
            "{} stays as it was; what could be read is in {}",
            file.display(),
            target.display()
        ));
    }
    std::fs::rename(&unfinished.0, &target).map_err(|e| CliError::io("rename to", &target, e))?;
    failures.result()
}

/// An archive under another name than its own, locked while it is written. What killed commands left of the same archive, which
/// nobody has locked, goes.
fn begin(file: &Path) -> Result<(Removed, File), CliError> {
    let unfinished = with_suffix(file, UNFINISHED);
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_file = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(is_file);
    let mark = unfinished.file_name().unwrap_or_default().as_encoded_bytes();
    for name in files.map(|file| file.file_name()) {
        let process = name.as_encoded_bytes().strip_prefix(mark);
        let left = dir.join(&name);
        if process.is_some_and(|process| process.iter().all(u8::is_ascii_digit))
            && File::options()
                .write(true)
                .open(&left)
                .is_ok_and(|left| try_lock(&left).is_ok_and(|locked| locked))
        {
            // Another command may have come first.
            let _ = std::fs::remove_file(&left);
        }
    }
    let unfinished = with_suffix(&unfinished, &std::process::id().to_string());
    let output = File::create_new(&unfinished).map_err(|e| CliError::io("write", file, e))?;
    // On a file system without locks nobody removes the file. Whoever has this lock is about to.
    if matches!(try_lock(&output), Ok(false)) || !unfinished.exists() {
        return Err(CliError::of(
            file,
            "another command that writes this archive began at the same time",
            "write it to another file, or try again",
        ));
    }
    Ok((Removed(unfinished), output))
}

fn write_all<W: Write>(
    args: &ExportArgs,
    (image, path): (&Path, &[u8]),
    writer: Writer<W>,
    name: &Path,
    archive: Option<(u64, u64)>,
) -> Result<(W, Failures), CliError> {
    let access = Access::look(image)?;
    let written = write_tree(args, (&access.tree(), path), writer, name, archive);
    let alive = access.check_alive();
    access.close()?;
    alive.and(written)
}

fn write_tree<W: Write>(
    args: &ExportArgs,
    (tree, path): (&dyn Tree, &[u8]),
    writer: Writer<W>,
    name: &Path,
    archive: Option<(u64, u64)>,
) -> Result<(W, Failures), CliError> {
    let meta = named_file(tree, path).map_err(|e| CliError::file("export", tree, path, e))?;
    let bar = progress::bytes("export", weigh(tree, path, true).bytes, args.quiet);
    let mut export = Export {
        tree,
        writer,
        links: HashMap::new(),
        buffer: vec![0; READ_BYTES],
        bar,
        failures: Failures::default(),
        broken: None,
        archive,
        damaged_on_volume: meta.is_dir().then(|| join(path, LOST_AND_FOUND)),
    };
    // A directory is the archive's root; a file is called as it is.
    let called = if meta.is_dir() { b"./".to_vec() } else { base_name(path).unwrap_or(b"file").to_vec() };
    export.member(path, &called, 0);
    export.bar.finish_and_clear();
    let failed = |e| CliError::io("write", name, e);
    if let Some(error) = export.broken {
        return Err(failed(error));
    }
    let output = export.writer.finish().map_err(failed)?;
    Ok((output, export.failures))
}

/// What a named symlink leads to, or the symlink when that is nowhere: it is still something to keep.
fn named_file(tree: &dyn Tree, path: &[u8]) -> io::Result<Meta> {
    tree.stat(path, true).or_else(|error| tree.stat(path, false).map_err(|_| error))
}

/// Takes what is read of a file.
type Take<'a, W> = dyn FnMut(&mut Writer<W>, &[u8]) -> io::Result<()> + 'a;

struct Export<'a, W> {
    tree: &'a dyn Tree,
    writer: Writer<W>,
    /// What a file with several names is called, by its identity; `None` when it is damaged.
    links: HashMap<(u64, u64), Option<Vec<u8>>>,
    buffer: Vec<u8>,
    bar: ProgressBar,
    failures: Failures,
    /// Why nothing can be written any more.
    broken: Option<io::Error>,
    /// The archive, when it is a file: where it lies on the volume itself, it is left out.
    archive: Option<(u64, u64)>,
    /// The place for damaged files, on the volume; made in the archive when there is one and the volume has no such place.
    damaged_on_volume: Option<Vec<u8>>,
}

impl<W: Write> Export<'_, W> {
    fn member(&mut self, path: &[u8], called: &[u8], depth: usize) {
        let done = if signal::was_interrupted() {
            // What is written would look like a whole archive.
            self.broken.get_or_insert_with(interrupted);
            return;
        } else if depth > DEPTH_MAX {
            Err(crate::tree::too_deep())
        } else {
            let meta = if depth == 0 { named_file(self.tree, path) } else { self.tree.stat(path, false) };
            meta.and_then(|meta| self.write(path, called, &meta, depth))
        };
        if let Err(error) = done {
            let shown = self.tree.show(path);
            self.bar.suspend(|| self.failures.tell("export", &shown, &error));
        }
    }

    fn write(&mut self, path: &[u8], called: &[u8], meta: &Meta, depth: usize) -> io::Result<()> {
        if self.archive == Some(meta.id) {
            let shown = self.tree.show(path);
            self.bar
                .suspend(|| warn(format_args!("{shown}: the archive that is being written; it is left out")));
            return Ok(());
        }
        let mut member = Member {
            path: called.to_vec(),
            content: Content::Directory,
            perm: meta.perm,
            uid: meta.uid,
            gid: meta.gid,
            atime_ns: meta.atime_ns,
            mtime_ns: meta.mtime_ns,
            xattrs: self.tree.xattrs(path)?,
        };
        if meta.links > 1 && !meta.is_dir() {
            if let Some(first) = self.links.get(&meta.id) {
                if let Some(first) = first.clone() {
                    (member.content, member.xattrs) = (Content::Link(first), Vec::new());
                    self.head(&member);
                }
                return Ok(());
            }
            self.links.insert(meta.id, Some(called.to_vec()));
        }
        match meta.kind {
            FileKind::File => {
                let begun = self.writer.position();
                let done = self.file(path, member, meta);
                if self.writer.position() == begun {
                    // The archive does not have it: its other names are no links to it.
                    self.links.remove(&meta.id);
                }
                return done;
            }
            FileKind::Directory => {
                let names = self.tree.list(path)?;
                if !member.path.ends_with(b"/") {
                    member.path.push(b'/');
                }
                self.head(&member);
                for name in names {
                    if self.broken.is_some() {
                        break;
                    }
                    self.member(&join(path, &name), &join(called, &name), depth + 1);
                }
                return Ok(());
            }
            FileKind::Symlink => {
                let target = self.tree.readlink(path).inspect_err(|_| drop(self.links.remove(&meta.id)))?;
                member.content = Content::Symlink(target);
            }
            FileKind::Socket => {
                let shown = self.tree.show(path);
                self.bar.suspend(|| warn(format_args!("{shown}: a socket; archives hold none")));
                return Ok(());
            }
            special => member.content = Content::Special(special, meta.rdev),
        }
        self.head(&member);
        Ok(())
    }

    fn file(&mut self, path: &[u8], mut member: Member, meta: &Meta) -> io::Result<()> {
        let mut source = ZeroingReader::new(self.tree.open(path)?, meta.size);
        let parts = few(data_parts(&mut source, meta.size, meta.blocks)?);
        let bytes: u64 = parts.iter().map(|part| part.1).sum();
        member.content = Content::File { size: meta.size, parts: parts.clone() };
        // A damaged file has another name, and the name stands before the content. What fits into memory is read before its
        // name is written; else the archive is cut back to the file's begin when the end of the file shows damage. An
        // archive that goes through a pipe cannot be cut, and its large files are read twice.
        let mut kept = None;
        let begun = self.writer.position();
        if bytes <= KEPT_BYTES || !self.writer.can_go_back() {
            let mut bytes_read = Vec::new();
            let failure = self.read(&mut source, &parts, &mut |_, piece| {
                if bytes <= KEPT_BYTES {
                    bytes_read.extend_from_slice(piece);
                }
                Ok(())
            });
            kept = (bytes <= KEPT_BYTES).then_some((bytes_read, failure));
        }
        let mut now = None;
        if !source.lost().is_nothing() {
            now = Some(self.put_away(&mut member, meta));
        }
        if kept.is_none() {
            source.begin_again();
        }
        self.head(&member);
        let mut failure = self.content(&mut source, &parts, kept);
        if now.is_none() && !source.lost().is_nothing() && self.writer.can_go_back() && self.broken.is_none()
        {
            let cut = self.writer.go_back(begun);
            self.note(cut);
            now = Some(self.put_away(&mut member, meta));
            self.head(&member);
            source.begin_again();
            failure = self.content(&mut source, &parts, None);
        }
        self.bar.inc(meta.size - bytes);
        let ended = self.writer.end_member();
        self.note(ended);
        let lost = source.lost();
        match (failure, now) {
            (Some(why), _) => Err(why),
            (None, Some(now)) => Err(io::Error::other(format!(
                "{lost}; the archive has the rest as {}",
                String::from_utf8_lossy(&now)
            ))),
            (None, None) if lost.is_nothing() => Ok(()),
            (None, None) => Err(io::Error::other(format!("{lost}; zeros stand there in the archive"))),
        }
    }

    /// Writes a file's parts: those that were kept, or what is read now. Why they are not what the file holds.
    fn content(
        &mut self,
        source: &mut ZeroingReader<'_>,
        parts: &[(u64, u64)],
        kept: Option<(Vec<u8>, Option<io::Error>)>,
    ) -> Option<io::Error> {
        if let Some((bytes, failure)) = kept {
            let written = self.writer.data(&bytes);
            self.note(written);
            self.bar.inc(bytes.len() as u64);
            return failure;
        }
        let bar = self.bar.clone();
        self.read(source, parts, &mut |writer, piece| {
            bar.inc(piece.len() as u64);
            writer.data(piece)
        })
    }

    /// Reads a file's parts and hands them on; zeros in place of what cannot be read. Why they are not what the file holds.
    fn read(
        &mut self,
        source: &mut ZeroingReader<'_>,
        parts: &[(u64, u64)],
        take: &mut Take<'_, W>,
    ) -> Option<io::Error> {
        let mut failure = None;
        for &(mut offset, len) in parts {
            let end = offset + len;
            while offset < end && self.broken.is_none() {
                let wanted = usize::try_from(end - offset).unwrap_or(READ_BYTES).min(READ_BYTES);
                let n = match source.read_at(&mut self.buffer[..wanted], offset) {
                    Ok(n @ 1..) => n,
                    // The archive goes on with zeros, so that what follows stays readable.
                    other => {
                        let why = other.err().unwrap_or_else(|| io::Error::other("it was cut meanwhile"));
                        failure = failure.or(Some(why));
                        self.buffer[..wanted].fill(0);
                        wanted
                    }
                };
                let taken = take(&mut self.writer, &self.buffer[..n]);
                self.note(taken);
                if signal::was_interrupted() {
                    self.broken.get_or_insert_with(interrupted);
                }
                offset += n as u64;
            }
        }
        failure
    }

    /// Gives a damaged file its name in the archive, as `weft salvage` does, so that nobody takes it for whole.
    fn put_away(&mut self, member: &mut Member, meta: &Meta) -> Vec<u8> {
        let home = join(b"./", LOST_AND_FOUND);
        if !member.path.starts_with(&join(&home, b"")) {
            let mut name = format!("#{}", meta.id.1).into_bytes();
            if let Some(there) = &self.damaged_on_volume {
                while self.tree.stat(&join(there, &name), false).is_ok() {
                    name.push(b'.');
                }
            }
            if self.damaged_on_volume.as_ref().is_none_or(|there| self.tree.stat(there, false).is_err()) {
                let (path, content) = (join(&home, b""), Content::Directory);
                self.head(&Member { path, content, perm: 0o700, xattrs: Vec::new(), ..member.clone() });
            }
            member.path = join(&home, &name);
        }
        if meta.links > 1 {
            self.links.insert(meta.id, None);
        }
        member.path.clone()
    }

    fn head(&mut self, member: &Member) {
        let begun = self.writer.begin_member(member);
        self.note(begun);
    }

    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.broken.get_or_insert(error);
        }
    }
}

/// No more parts than an archive takes: neighbours become one, with the hole between them as zeros.
fn few(mut parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    while parts.len() > PARTS_MAX {
        let both = |two: &[(u64, u64)]| match two {
            [(begin, _), (last, len)] => (*begin, last + len - begin),
            one => one[0],
        };
        parts = parts.chunks(2).map(both).collect();
    }
    parts
}
