//! `weft cp`: copies between host and volumes.
//!
//! What is copied is walked once to know how many bytes there are, and then copied in the same order. Names of one file
//! stay names of one file, holes stay holes, extended attributes go along, symlinks below what was named are copied as
//! symlinks. A file of which something cannot be read is copied with zeros there, into `lost+found` where the copy goes.

use crate::access::Access;
use crate::command::files::{Failures, interrupted};
use crate::error::CliError;
use crate::file_arg::{FileArg, ON_VOLUME};
use crate::progress;
use crate::sys::signal;
use crate::tree::damage::{LostRanges, ZeroingReader};
use crate::tree::local::LocalTree;
use crate::tree::{DEPTH_MAX, Meta, Source, Tree, base_name, join};
use clap::Args;
use indicatif::ProgressBar;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weft_lfs::salvage::LOST_AND_FOUND;
use weft_vfs::FileKind;
use weft_volume::spec::Place;

/// Bytes of a read and a write.
const COPY_BYTES: usize = 256 << 10;

/// `weft cp`
#[derive(Args, Debug)]
#[command(
    override_usage = "weft cp [OPTIONS] <SOURCE>... <TARGET>",
    after_help = "EXAMPLES\n  weft cp -r /var/lib/data vol.img:/\n  weft cp vol.img:/db/LOG .\n  \
    weft cp -r vol.img:/db other.img:/db\n\n\
    'weft cp' keeps modes, times, holes, extended attributes, and hard links between the copied files. When the superuser \
    runs the command, it also keeps owners, and extended attributes that only the superuser can set. On the host, \
    'weft cp' replaces no file that holds a weft volume, a flash device or a tag store: remove such a file first."
)]
pub struct CpArgs {
    /// Copy directories and everything below them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Files on the host, or on a volume as IMAGE:/path; the last one is the target.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<OsString>,
}

/// The volumes that take part, each open once.
struct Volumes(BTreeMap<PathBuf, Access>);

impl Volumes {
    fn open(places: &[FileArg]) -> Result<Volumes, CliError> {
        let mut volumes = Volumes(BTreeMap::new());
        for place in places {
            let FileArg::Volume { image, .. } = place else { continue };
            if volumes.0.contains_key(&*plain(image)) {
                continue;
            }
            // Only the target is changed.
            let changed = places.last().is_some_and(|last| same_tree(last, place));
            match if changed { Access::open(image) } else { Access::look(image) } {
                Ok(access) => drop(volumes.0.insert(plain(image).into_owned(), access)),
                Err(error) => {
                    let _ = volumes.close();
                    return Err(error);
                }
            }
        }
        Ok(volumes)
    }

    fn close(self) -> Result<(), CliError> {
        // All of them, whatever becomes of the first.
        let closed: Vec<_> = self.0.into_values().map(Access::close).collect();
        closed.into_iter().collect()
    }
}

fn is_missing(place: &FileArg) -> bool {
    matches!(place, FileArg::Local(path) if !Path::new(OsStr::from_bytes(path)).exists())
}

/// An image by the one name that all its names lead to.
fn plain(image: &Path) -> Cow<'_, Path> {
    Place::of(image).plain_name().map_or(Cow::Borrowed(image), Cow::Owned)
}

/// Copies files.
pub fn run(args: &CpArgs) -> Result<(), CliError> {
    let places = args.paths.iter().map(|text| FileArg::parse(text)).collect::<Result<Vec<_>, _>>()?;
    signal::notice_interrupts();
    let volumes = Volumes::open(&places)?;
    let volumes_named = volumes.0.len();
    let copied = copy_all(args, &places, &volumes);
    volumes.close()?;
    match copied {
        // Perhaps one of the names was meant to be on a volume.
        Err(CliError::Said { what, remedy, status })
            if remedy.is_empty() && volumes_named == 0 && places.iter().any(is_missing) =>
        {
            Err(CliError::ended(status, what, ON_VOLUME))
        }
        copied => copied,
    }
}

fn side<'a>(place: &'a FileArg, volumes: &'a Volumes) -> Result<(Box<dyn Tree + 'a>, &'a [u8]), CliError> {
    match place {
        FileArg::Local(path) => {
            let volumes = volumes.0.keys().map(PathBuf::as_path).collect();
            Ok((Box::new(LocalTree { volumes }), path))
        }
        FileArg::Volume { image, path } => match volumes.0.get(&*plain(image)) {
            Some(access) => Ok((Box::new(access.tree()), path)),
            None => Err(CliError::of(image, "not open", "")),
        },
    }
}

/// A named source: what it is called, and where it goes.
struct Job<'a> {
    tree: Box<dyn Tree + 'a>,
    path: &'a [u8],
    target: Vec<u8>,
    /// The directory into which it is copied.
    home: Vec<u8>,
}

fn copy_all(args: &CpArgs, places: &[FileArg], volumes: &Volumes) -> Result<(), CliError> {
    let Some((last, sources)) = places.split_last() else {
        return Err(CliError::said("nothing to copy", ""));
    };
    let (to, target) = side(last, volumes)?;
    let into = to.stat(target, true).is_ok_and(|meta| meta.is_dir());
    if sources.len() > 1 && !into {
        return Err(CliError::said(
            format!("{}: not a directory", to.show(target)),
            "several files can only be copied into a directory",
        ));
    }
    if let ([source], false) = (sources, into) {
        let (tree, path) = side(source, volumes)?;
        let is_tree = args.recursive && tree.stat(path, false).is_ok_and(|meta| meta.is_dir());
        let home = if target.ends_with(b"/") && !is_tree { target } else { parent(target) };
        let there = if home.is_empty() { Ok(()) } else { to.stat(home, true).map(drop) };
        there.map_err(|e| CliError::file("copy to", to.as_ref(), home, e))?;
    }
    let mut failures = Failures::default();
    let mut jobs = Vec::new();
    for place in sources {
        let (tree, path) = side(place, volumes)?;
        let target = match base_name(path) {
            Some(name) if into => join(target, name),
            _ => target.to_vec(),
        };
        if same_tree(place, last) && inside(path, &target) {
            let error = io::Error::other("it cannot be copied into itself");
            failures.tell("copy", &tree.show(path), &error);
            continue;
        }
        let is_tree = args.recursive && tree.stat(path, false).is_ok_and(|meta| meta.is_dir());
        let home = if is_tree && !into { target.clone() } else { parent(&target).to_vec() };
        jobs.push(Job { tree, path, target, home });
    }
    let bar = progress::bytes("copy", 0, args.quiet);
    let mut weights = Vec::new();
    for job in &jobs {
        let weight = weigh(job.tree.as_ref(), job.path, args.recursive);
        bar.inc_length(weight.bytes);
        weights.push(weight);
    }
    let mut buffer = vec![0; COPY_BYTES];
    for (job, weight) in jobs.iter().zip(&weights) {
        let mut copier = Copier {
            to: to.as_ref(),
            job,
            weight,
            recursive: args.recursive,
            links: HashMap::new(),
            buffer: &mut buffer,
            bar: &bar,
            failures: &mut failures,
        };
        copier.copy(job.path, &job.target, 0);
    }
    bar.finish_and_clear();
    if let FileArg::Volume { image, .. } = last
        && let Some(access) = volumes.0.get(&*plain(image))
    {
        access.sync()?;
    }
    failures.result()
}

fn same_tree(a: &FileArg, b: &FileArg) -> bool {
    match (a, b) {
        (FileArg::Local(_), FileArg::Local(_)) => true,
        (FileArg::Volume { image: a, .. }, FileArg::Volume { image: b, .. }) => plain(a) == plain(b),
        _ => false,
    }
}

/// The directory of a path's last component.
fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    &path[..path[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1)]
}

/// Whether `target` lies below `path`.
fn inside(path: &[u8], target: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    target.strip_prefix(path).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// What lies below a path.
#[derive(Default)]
pub struct Weight {
    /// Bytes of the files.
    pub bytes: u64,
    /// The directories, by device and inode.
    pub directories: HashSet<(u64, u64)>,
}

/// Looks at everything below a path; errors are reported when the file is copied.
pub fn weigh(tree: &dyn Tree, path: &[u8], recursive: bool) -> Weight {
    let mut weight = Weight::default();
    add_weight(&mut weight, tree, path, recursive, 0);
    weight
}

fn add_weight(weight: &mut Weight, tree: &dyn Tree, path: &[u8], recursive: bool, depth: usize) {
    let Ok(meta) = tree.stat(path, depth == 0) else { return };
    match meta.kind {
        FileKind::File => weight.bytes += meta.size,
        FileKind::Directory if recursive && depth < DEPTH_MAX && !signal::was_interrupted() => {
            weight.directories.insert(meta.id);
            for name in tree.list(path).unwrap_or_default() {
                add_weight(weight, tree, &join(path, &name), true, depth + 1);
            }
        }
        _ => {}
    }
}

struct Copier<'a> {
    to: &'a dyn Tree,
    job: &'a Job<'a>,
    weight: &'a Weight,
    recursive: bool,
    /// Where a file with several names went, by its identity; `None` when it is damaged.
    links: HashMap<(u64, u64), Option<Vec<u8>>>,
    buffer: &'a mut [u8],
    bar: &'a ProgressBar,
    failures: &'a mut Failures,
}

impl Copier<'_> {
    fn copy(&mut self, path: &[u8], target: &[u8], depth: usize) {
        let from = self.job.tree.as_ref();
        let done = if signal::was_interrupted() {
            Err(interrupted())
        } else if depth > DEPTH_MAX {
            Err(crate::tree::too_deep())
        } else {
            from.stat(path, depth == 0 && !self.recursive).and_then(|meta| {
                if self.to.stat(target, true).is_ok_and(|there| there.is_same(&meta)) {
                    return Err(io::Error::other("source and target are the same file"));
                }
                self.node(path, target, &meta, depth)
            })
        };
        if let Err(error) = done {
            self.bar.suspend(|| self.failures.tell("copy", &from.show(path), &error));
        }
    }

    fn node(&mut self, path: &[u8], target: &[u8], meta: &Meta, depth: usize) -> io::Result<()> {
        let from = self.job.tree.as_ref();
        if meta.links > 1 && !meta.is_dir() {
            if let Some(first) = self.links.get(&meta.id) {
                return first.as_ref().map_or(Ok(()), |first| self.name_again(first, target));
            }
            self.links.insert(meta.id, Some(target.to_vec()));
        }
        if !meta.is_dir() {
            self.to.may_replace(target, meta.kind)?;
        }
        let mut lost = LostRanges::default();
        match meta.kind {
            FileKind::File => lost = self.content(path, target, meta)?,
            FileKind::Directory => self.directory(path, target, meta, depth)?,
            FileKind::Symlink => {
                self.to.unlink_if_there(target)?;
                self.to.symlink(&from.readlink(path)?, target)?;
            }
            special => {
                self.to.unlink_if_there(target)?;
                self.to.mknod(target, special, meta.perm, meta.rdev)?;
            }
        }
        // A device or a pipe that was there took the content; it is not the command's to change.
        let is_own = meta.kind != FileKind::File || self.to.stat(target, true)?.kind == FileKind::File;
        if is_own {
            self.to.set_owner(target, meta)?;
            copy_xattrs(from, path, self.to, target)?;
            self.to.set_meta(target, meta)?;
        }
        if lost.is_nothing() { Ok(()) } else { Err(self.put_away(target, meta, &lost)?) }
    }

    /// Gives a file that has been copied one more name, which may be there from an earlier copy.
    fn name_again(&self, first: &[u8], target: &[u8]) -> io::Result<()> {
        match self.to.link(first, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => return linked,
        }
        let (there, copied) = (self.to.stat(target, false)?, self.to.stat(first, false)?);
        if there.id == copied.id {
            return Ok(());
        }
        self.to.may_replace(target, copied.kind)?;
        self.to.unlink(target)?;
        self.to.link(first, target)
    }

    /// Moves the copy of a damaged file, as `weft salvage` does, so that nobody takes it for whole; what to tell of it.
    fn put_away(&mut self, target: &[u8], meta: &Meta, lost: &LostRanges) -> io::Result<io::Error> {
        let home = join(&self.job.home, LOST_AND_FOUND);
        let mut now = target.to_vec();
        // What was written to is not always a file of its own: it may be a pipe, or behind a symlink.
        if self.to.stat(target, false)?.kind == FileKind::File && !inside(&home, target) {
            match self.to.mkdir(&home, 0o700) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
            now = join(&home, format!("#{}", meta.id.1).as_bytes());
            while self.to.stat(&now, false).is_ok() {
                now.push(b'.');
            }
            self.to.rename(target, &now)?;
        }
        if meta.links > 1 {
            self.links.insert(meta.id, None);
        }
        Ok(io::Error::other(format!("{lost}; the rest is in {}, with zeros there", self.to.show(&now))))
    }

    fn directory(&mut self, path: &[u8], target: &[u8], meta: &Meta, depth: usize) -> io::Result<()> {
        if !self.recursive {
            return Err(io::Error::other("a directory; give -r to copy it"));
        }
        // The target may lie below the source by another path, a mount of the same volume: such a copy would not end.
        if !self.weight.directories.contains(&meta.id) {
            return Err(io::Error::other("the directory was made during the copy; it is not copied"));
        }
        // Writable until everything is in it; the mode comes last.
        match self.to.mkdir(target, 0o700) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !self.to.stat(target, true)?.is_dir() {
                    return Err(io::Error::other("a directory cannot replace a file"));
                }
            }
            other => other?,
        }
        for name in self.job.tree.list(path)? {
            self.copy(&join(path, &name), &join(target, &name), depth + 1);
            if signal::was_interrupted() {
                return Err(interrupted());
            }
        }
        Ok(())
    }

    fn content(&mut self, path: &[u8], target: &[u8], meta: &Meta) -> io::Result<LostRanges> {
        let mut source = ZeroingReader::new(self.job.tree.open(path)?, meta.size);
        let created = self.to.create(target, meta.perm & 0o777 | 0o600);
        let mut sink = created.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot create {}: {error}", self.to.show(target)))
        })?;
        let sparse = meta.blocks.saturating_mul(512) < meta.size;
        let (mut offset, mut written) = (0, 0);
        loop {
            let mut wanted = self.buffer.len();
            if sparse {
                let (begin, end) = source.data_at(offset)?.unwrap_or((meta.size, u64::MAX));
                let begin = begin.clamp(offset, meta.size.max(offset));
                self.bar.inc(begin - offset);
                offset = begin;
                wanted = usize::try_from(end.saturating_sub(begin)).unwrap_or(wanted).clamp(1, wanted);
            }
            let n = source.read_at(&mut self.buffer[..wanted], offset)?;
            if n == 0 {
                break;
            }
            let piece = &self.buffer[..n];
            // What lies between is zero already: a hole is one here, too, if the target can.
            if !sparse || piece.iter().any(|&b| b != 0) {
                sink.write_at(piece, offset)?;
                written = offset + n as u64;
            }
            offset += n as u64;
            self.bar.inc(n as u64);
            if signal::was_interrupted() {
                return Err(interrupted());
            }
        }
        if written < offset {
            sink.set_len(offset)?;
        }
        Ok(source.into_lost())
    }
}

/// Copies the extended attributes that the user may read. `user.` ones have to go along; what else the target does not
/// take (`system.` ones belong to a file system, others to the superuser) stays behind.
fn copy_xattrs(from: &dyn Tree, path: &[u8], to: &dyn Tree, target: &[u8]) -> io::Result<()> {
    for (name, value) in from.xattrs(path)? {
        match to.set_xattr(target, &name, &value) {
            Err(error) if name.starts_with(b"user.") => {
                let name = String::from_utf8_lossy(&name);
                return Err(io::Error::new(
                    error.kind(),
                    format!("attribute {name} cannot be copied: {error}"),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_path_ends_before_its_last_name() {
        for (path, dir) in [("/a/b", "/a/"), ("/a/", "/"), ("/", ""), ("a", ""), ("a/b//", "a/")] {
            assert_eq!(parent(path.as_bytes()), dir.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_directory_is_inside_itself_only_by_whole_names() {
        assert!(inside(b"/a", b"/a/b"));
        assert!(inside(b"/a/", b"/a/b"));
        assert!(!inside(b"/a", b"/ab"));
        assert!(!inside(b"/a", b"/a"));
        assert!(inside(b"/", b"/a"));
    }
}
