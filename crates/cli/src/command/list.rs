//! `weft ls`, `weft stat` and `weft df`.

use crate::access::Access;
use crate::command::files::Failures;
use crate::error::CliError;
use crate::file_arg::FileArg;
use crate::say::{self, Out, printable, unwritten};
use crate::sys::time;
use crate::table::Table;
use crate::tree::{Meta, Tree, join};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use weft_core::units::format_size;
use weft_vfs::FileKind;

/// `weft ls`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft ls vol.img:\n  weft ls -lR vol.img:/db")]
pub struct LsArgs {
    /// Show mode, links, owner, group, size and time.
    #[arg(short)]
    pub long: bool,
    /// List directories and everything below them.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Files on volumes, as IMAGE:/path.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft stat`, `weft cat`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft stat vol.img:/db/CURRENT\n  weft cat vol.img:/db/LOG | grep stall")]
pub struct PathsArgs {
    /// Files on volumes, as IMAGE:/path.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// `weft df`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft df vol.img\n  weft df --json vol.img:/")]
pub struct DfArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Image files, or existing files as IMAGE:/path. For a file, the command shows the space on the file's volume.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<OsString>,
}

/// Standard output's own error: nobody reads it any more.
/// An image and paths on it.
type PathsOf = (PathBuf, Vec<Vec<u8>>);

/// The paths of each image, in the order in which they were given.
fn by_image(paths: &[OsString]) -> Result<Vec<PathsOf>, CliError> {
    let mut images: Vec<PathsOf> = Vec::new();
    for text in paths {
        let (image, path) = FileArg::on_volume(text)?;
        match images.iter_mut().find(|(known, _)| *known == image) {
            Some((_, paths)) => paths.push(path),
            None => images.push((image, vec![path])),
        }
    }
    Ok(images)
}

/// Does something with the paths of each image on its volume, opened as told.
pub fn on_each(
    paths: &[OsString],
    open: impl Fn(&Path) -> Result<Access, CliError>,
    mut act: impl FnMut(&Access, &[Vec<u8>]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    for (image, paths) in by_image(paths)? {
        let access = open(&image)?;
        let done = act(&access, &paths);
        access.close()?;
        done?;
    }
    Ok(())
}

// ---- ls -------------------------------------------------------------------------------------------------------------

/// Lists files.
pub fn ls(args: &LsArgs) -> Result<(), CliError> {
    let names = Names::load();
    let mut failures = Failures::default();
    on_each(&args.paths, Access::look, |access, paths| {
        let tree = access.tree();
        let lister =
            Lister { tree: &tree, names: &names, long: args.long, shows: io::stdout().is_terminal() };
        let mut out = say::out();
        let heading = paths.len() > 1 || args.recursive || args.paths.len() > 1;
        for (index, path) in paths.iter().enumerate() {
            if index > 0 {
                writeln!(out).map_err(unwritten)?;
            }
            match tree.stat(path, true) {
                Ok(_) => lister.list(&mut out, path, heading, args.recursive)?,
                Err(error) => failures.tell("list", &tree.show(path), &error),
            }
        }
        out.flush().map_err(unwritten)
    })?;
    failures.result()
}

struct Lister<'a> {
    tree: &'a dyn Tree,
    names: &'a Names,
    long: bool,
    /// Whether a person reads it, who must not get control characters.
    shows: bool,
}

impl Lister<'_> {
    fn list(&self, out: &mut Out, path: &[u8], heading: bool, recursive: bool) -> Result<(), CliError> {
        let meta = self.tree.stat(path, true).map_err(|e| CliError::file("list", self.tree, path, e))?;
        if !meta.is_dir() {
            return self.lines(out, vec![(path.to_vec(), self.meta(path)?)], b"");
        }
        if heading {
            writeln!(out, "{}:", printable(self.tree.show(path).as_bytes())).map_err(unwritten)?;
        }
        let names = self.tree.list(path).map_err(|e| CliError::file("list", self.tree, path, e))?;
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let meta = if self.long || recursive { self.meta(&join(path, &name))? } else { meta.clone() };
            entries.push((name, meta));
        }
        let below: Vec<Vec<u8>> = match recursive {
            true => entries.iter().filter(|(_, m)| m.is_dir()).map(|(name, _)| join(path, name)).collect(),
            false => Vec::new(),
        };
        self.lines(out, entries, path)?;
        for dir in below {
            writeln!(out).map_err(unwritten)?;
            self.list(out, &dir, true, true)?;
        }
        Ok(())
    }

    fn meta(&self, path: &[u8]) -> Result<Meta, CliError> {
        self.tree.stat(path, false).map_err(|e| CliError::file("list", self.tree, path, e))
    }

    fn lines(&self, out: &mut Out, entries: Vec<(Vec<u8>, Meta)>, dir: &[u8]) -> Result<(), CliError> {
        let mut rows: Vec<[String; 5]> = Vec::new();
        if self.long {
            for (_, m) in &entries {
                let size = match m.kind {
                    FileKind::CharDevice | FileKind::BlockDevice => {
                        format!("{}, {}", libc::major(m.rdev), libc::minor(m.rdev))
                    }
                    _ => m.size.to_string(),
                };
                let (user, group) =
                    (Names::of(&self.names.users, m.uid), Names::of(&self.names.groups, m.gid));
                rows.push([m.links.to_string(), user, group, size, mode_text(m)]);
            }
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3)];
        for (index, (name, meta)) in entries.iter().enumerate() {
            if let Some([links, user, group, size, mode]) = rows.get(index) {
                let [l, u, g, s] = widths;
                let when = time::local(meta.mtime_ns);
                write!(out, "{mode} {links:>l$} {user:<u$} {group:<g$} {size:>s$} {when} ")
                    .map_err(unwritten)?;
            }
            self.name(out, name)?;
            if self.long && meta.kind == FileKind::Symlink {
                let target = self
                    .tree
                    .readlink(&join(dir, name))
                    .map_err(|e| CliError::file("read", self.tree, name, e))?;
                write!(out, " -> ").map_err(unwritten)?;
                self.name(out, &target)?;
            }
            writeln!(out).map_err(unwritten)?;
        }
        Ok(())
    }

    fn name(&self, out: &mut Out, name: &[u8]) -> Result<(), CliError> {
        if self.shows { write!(out, "{}", printable(name)) } else { out.write_all(name) }.map_err(unwritten)
    }
}

/// The letter and the name of a kind.
pub fn kind_text(kind: FileKind) -> (char, &'static str) {
    match kind {
        FileKind::File => ('-', "regular file"),
        FileKind::Directory => ('d', "directory"),
        FileKind::Symlink => ('l', "symbolic link"),
        FileKind::Fifo => ('p', "fifo"),
        FileKind::Socket => ('s', "socket"),
        FileKind::CharDevice => ('c', "character device"),
        FileKind::BlockDevice => ('b', "block device"),
    }
}

/// `drwxr-xr-x`
fn mode_text(meta: &Meta) -> String {
    let mut text = String::from(kind_text(meta.kind).0);
    for (shift, special, sign) in [(6, libc::S_ISUID, 's'), (3, libc::S_ISGID, 's'), (0, libc::S_ISVTX, 't')]
    {
        let bits = meta.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, meta.perm & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => sign,
            (false, true) => sign.to_ascii_uppercase(),
        });
    }
    text
}

/// Names of users and groups of this host.
struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    fn load() -> Names {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let entry = |line: &str| {
                let mut fields = line.split(':');
                let name = fields.next()?.to_string();
                Some((fields.nth(1)?.parse().ok()?, name))
            };
            text.lines().filter_map(entry).collect()
        };
        Names { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    fn of(names: &BTreeMap<u32, String>, id: u32) -> String {
        names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

// ---- stat -----------------------------------------------------------------------------------------------------------

/// Shows the attributes of files.
pub fn stat(args: &PathsArgs) -> Result<(), CliError> {
    let names = Names::load();
    let mut failures = Failures::default();
    on_each(&args.paths, Access::look, |access, paths| {
        let tree = access.tree();
        let mut out = say::out();
        for path in paths {
            let m = match tree.stat(path, false) {
                Ok(meta) => meta,
                Err(error) => {
                    failures.tell("stat", &tree.show(path), &error);
                    continue;
                }
            };
            let (user, group) = (Names::of(&names.users, m.uid), Names::of(&names.groups, m.gid));
            let lines = [
                ("file", printable(tree.show(path).as_bytes())),
                ("kind", kind_text(m.kind).1.to_string()),
                ("size", format!("{} bytes ({})", m.size, format_size(m.size))),
                ("stored", format!("{} bytes in blocks", m.blocks * 512)),
                ("inode", format!("{}, {} link(s)", m.id.1, m.links)),
                ("mode", format!("{:04o} {}", m.perm, mode_text(&m))),
                ("owner", format!("{} ({}), group {} ({})", user, m.uid, group, m.gid)),
                ("accessed", time::local(m.atime_ns)),
                ("modified", time::local(m.mtime_ns)),
                ("changed", time::local(m.ctime_ns)),
            ];
            for (name, value) in lines {
                writeln!(out, "{name:<9} {value}").map_err(unwritten)?;
            }
        }
        out.flush().map_err(unwritten)
    })?;
    failures.result()
}

// ---- df -------------------------------------------------------------------------------------------------------------

/// Shows space.
pub fn df(args: &DfArgs) -> Result<(), CliError> {
    let mut table = Table::new("volume< size> used> free> use> files>");
    let mut all = Vec::new();
    for text in &args.volumes {
        let (image, path) = match FileArg::parse(text)? {
            FileArg::Volume { image, path } => (image, Some(path)),
            FileArg::Local(image) => (PathBuf::from(OsString::from_vec(image)), None),
        };
        let access = Access::look(&image)?;
        let exists = path.map_or(Ok(()), |path| {
            let tree = access.tree();
            tree.stat(&path, true).map(drop).map_err(|e| CliError::file("look at", &tree, &path, e))
        });
        let space = exists.and_then(|()| access.statfs());
        access.close()?;
        let space = space?;
        let used = space.total_bytes - space.free_bytes.min(space.total_bytes);
        all.push(json!({
            "volume": image.display().to_string(),
            "total_bytes": space.total_bytes,
            "used_bytes": used,
            "free_bytes": space.free_bytes,
            "inodes": space.inodes,
            "free_inodes": space.free_inodes,
        }));
        let percent = (used as f64 * 100.0 / space.total_bytes.max(1) as f64).ceil();
        let [size, used, free] = [space.total_bytes, used, space.free_bytes].map(format_size);
        table.cells(&[&image.display(), &size, &used, &free, &format!("{percent} %"), &space.inodes]);
    }
    let mut out = say::out();
    let written = if args.json { writeln!(out, "{}", json!(all)) } else { write!(out, "{table}") };
    written.and_then(|()| out.flush()).map_err(unwritten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_writes_them() {
        let meta = |kind, perm| Meta {
            kind,
            perm,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            id: (0, 0),
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        };
        let cases = [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::File, 0o4755, "-rwsr-xr-x"),
            (FileKind::File, 0o2644, "-rw-r-Sr--"),
            (FileKind::Symlink, 0o777, "lrwxrwxrwx"),
        ];
        for (kind, perm, text) in cases {
            assert_eq!(mode_text(&meta(kind, perm)), text);
        }
    }
}
