//! `weft cat`, `weft rm`, `weft mkdir` and `weft mv`.

use crate::access::Access;
use crate::command::list::{PathsArgs, on_each};
use crate::error::CliError;
use crate::file_arg::FileArg;
use crate::say::{self, Out, unwritten, warn};
use crate::sys::{file, signal};
use crate::tree::damage::ZeroingReader;
use crate::tree::{Source, Tree, base_name, join};
use clap::Args;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

/// Bytes of a read.
const READ_BYTES: usize = 256 << 10;

/// `weft rm`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft rm vol.img:/db/LOG.old\n  weft rm -r vol.img:/db")]
pub struct RmArgs {
    /// Remove directories and everything below them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Ignore files that do not exist.
    #[arg(short, long)]
    pub force: bool,
    /// Files on volumes, as IMAGE:/path.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft mkdir`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft mkdir -p vol.img:/a/b/c")]
pub struct MkdirArgs {
    /// Make missing parents as well, and accept directories that exist.
    #[arg(short, long)]
    pub parents: bool,
    /// Directories to make, as IMAGE:/path.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft mv`
#[derive(Args, Debug)]
#[command(
    override_usage = "weft mv <SOURCE>... <TARGET>",
    after_help = "EXAMPLES\n  weft mv vol.img:/a vol.img:/b\n  weft mv vol.img:/a vol.img:/b vol.img:/dir"
)]
pub struct MvArgs {
    /// Files as IMAGE:/path, all on one volume; the last one is the target.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<OsString>,
}

/// Failures, reported one by one: a failure of one file does not stop the others.
#[derive(Default)]
pub struct Failures(usize);

impl Failures {
    /// Tells of one.
    pub fn tell(&mut self, what: &str, name: &str, error: &io::Error) {
        // The directories around what was interrupted are interrupted too; the innermost comes first.
        if error.kind() != io::ErrorKind::Interrupted || self.0 == 0 {
            warn(format_args!("{what} {name}: {error}"));
        }
        self.0 += 1;
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The result of the whole.
    pub fn result(self) -> Result<(), CliError> {
        match self.0 {
            0 => Ok(()),
            _ if signal::was_interrupted() => Err(CliError::said(
                "interrupted",
                "what was done stays; give the command again to do the rest",
            )),
            n => Err(CliError::said(format!("the command is not complete: {n} failed"), "")),
        }
    }
}

/// What stops a long command between two steps.
pub fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted")
}

/// Writes files to standard output.
pub fn cat(args: &PathsArgs) -> Result<(), CliError> {
    let mut failures = Failures::default();
    on_each(&args.paths, Access::look, |access, paths| {
        let tree = access.tree();
        let mut out = say::out();
        for path in paths {
            if let Err(error) = cat_one(&tree, path, &mut out)? {
                failures.tell("cat", &tree.show(path), &error);
            }
            if signal::was_interrupted() {
                return Ok(());
            }
        }
        out.flush().map_err(unwritten)
    })?;
    if signal::was_interrupted() {
        return Err(CliError::said("interrupted", ""));
    }
    failures.result()
}

/// Writes a file as far as it can be read; the inner error is that of the file.
fn cat_one(tree: &dyn Tree, path: &[u8], out: &mut Out) -> Result<io::Result<()>, CliError> {
    let opened = tree.stat(path, true).and_then(|meta| Ok(ZeroingReader::new(tree.open(path)?, meta.size)));
    let mut source = match opened {
        Ok(source) => source,
        Err(error) => return Ok(Err(error)),
    };
    let (mut offset, mut buffer) = (0, vec![0; READ_BYTES]);
    while !signal::was_interrupted() {
        let n = match source.read_at(&mut buffer, offset) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) => return Ok(Err(error)),
        };
        let bad = source.lost().begin();
        let sound = bad.map_or(n, |bad| bad.saturating_sub(offset) as usize);
        out.write_all(&buffer[..sound]).map_err(unwritten)?;
        if bad.is_some() {
            // Whoever reads on would take what follows for the next bytes.
            return Ok(Err(io::Error::other(format!(
                "Input/output error: {}; the output ends there; 'weft cp' copies the rest",
                source.lost()
            ))));
        }
        offset += n as u64;
    }
    Ok(Ok(()))
}

/// Does something to each path on its volume, and tells of those that fail.
fn change_each(
    paths: &[OsString],
    what: &str,
    mut change: impl FnMut(&dyn Tree, &[u8], &mut Failures) -> io::Result<()>,
) -> Result<(), CliError> {
    let mut failures = Failures::default();
    on_each(paths, Access::open, |access, paths| {
        let tree = access.tree();
        for path in paths {
            if let Err(error) = change(&tree, path, &mut failures) {
                failures.tell(what, &tree.show(path), &error);
            }
        }
        access.sync()
    })?;
    failures.result()
}

/// Removes files.
pub fn rm(args: &RmArgs) -> Result<(), CliError> {
    change_each(&args.paths, "remove", |tree, path, failures| {
        if path.iter().all(|&b| b == b'/') {
            return Err(io::Error::other("the root stays; name the files in it to remove them"));
        }
        match tree.stat(path, false) {
            Err(error) if args.force && error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(meta) if meta.is_dir() && !args.recursive => {
                Err(io::Error::other("a directory; give -r to remove it"))
            }
            meta => remove(tree, path, meta?.is_dir(), failures),
        }
    })
}

fn remove(tree: &dyn Tree, path: &[u8], is_dir: bool, failures: &mut Failures) -> io::Result<()> {
    if signal::was_interrupted() {
        return Err(interrupted());
    }
    if !is_dir {
        return tree.unlink(path);
    }
    let names = tree.list(path).unwrap_or_else(|error| {
        failures.tell("list", &tree.show(path), &error);
        Vec::new()
    });
    for name in names {
        let inner = join(path, &name);
        let meta = tree.stat(&inner, false);
        if let Err(error) = meta.and_then(|meta| remove(tree, &inner, meta.is_dir(), failures)) {
            failures.tell("remove", &tree.show(&inner), &error);
        }
        if signal::was_interrupted() {
            return Ok(());
        }
    }
    tree.rmdir(path)
}

/// Makes directories.
pub fn mkdir(args: &MkdirArgs) -> Result<(), CliError> {
    let perm = 0o777 & !file::umask();
    change_each(&args.paths, "make", |tree, path, _| make(tree, path, perm, args.parents))
}

fn make(tree: &dyn Tree, path: &[u8], perm: u32, parents: bool) -> io::Result<()> {
    if !parents {
        return tree.mkdir(path, perm);
    }
    let mut made = Vec::new();
    for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
        made.push(b'/');
        made.extend_from_slice(name);
        match tree.mkdir(&made, perm) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !tree.stat(&made, true)?.is_dir() {
                    return Err(error);
                }
            }
            other => other?,
        }
    }
    Ok(())
}

/// Moves or renames files.
pub fn mv(args: &MvArgs) -> Result<(), CliError> {
    let places = args.paths.iter().map(|text| FileArg::on_volume(text)).collect::<Result<Vec<_>, _>>()?;
    let Some(((image, target), sources)) = places.split_last() else {
        return Err(CliError::said("nothing to move", ""));
    };
    if let Some((other, _)) = sources.iter().find(|(other, _)| other != image) {
        return Err(CliError::said(
            format!("{} and {} are two volumes", other.display(), image.display()),
            "copy the files with 'weft cp -r', then remove the originals with 'weft rm -r'",
        ));
    }
    let access = Access::open(image)?;
    let moved = move_all(&access, sources, target);
    access.close()?;
    moved
}

fn move_all(access: &Access, sources: &[(PathBuf, Vec<u8>)], target: &[u8]) -> Result<(), CliError> {
    let tree = access.tree();
    let into = tree.stat(target, true).is_ok_and(|meta| meta.is_dir());
    if sources.len() > 1 && !into {
        return Err(CliError::said(
            format!("{}: not a directory", tree.show(target)),
            "several files can only be moved into a directory",
        ));
    }
    let mut failures = Failures::default();
    for (_, source) in sources {
        let new = match base_name(source) {
            Some(name) if into => join(target, name),
            Some(_) => target.to_vec(),
            None => {
                failures.tell("move", &tree.show(source), &io::Error::other("it has no name of its own"));
                continue;
            }
        };
        if let Err(error) = tree.rename(source, &new) {
            failures.tell("move", &format!("{} to {}", tree.show(source), tree.show(&new)), &error);
        }
    }
    access.sync()?;
    failures.result()
}
