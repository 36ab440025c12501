//! `weft ls`, `weft stat` and `weft df`.

use crate::access::Access;
use crate::error::CliError;
use crate::file_arg::FileArg;
use crate::say::{Out, printable};
use crate::sys::time;
use crate::table::{Align, Table};
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
    /// Image files, or IMAGE:/path of an existing file; the command shows the space of its volume.
    #[arg(required = true, value_name = "VOLUME")]
    pub volumes: Vec<OsString>,
}

/// Standard output's own error: nobody reads it any more.
fn stdout(source: io::Error) -> CliError {
    CliError::io("write", std::path::Path::new("standard output"), source)
}

fn file(tree: &dyn Tree, what: &'static str, path: &[u8], source: io::Error) -> CliError {
    CliError::File { what, path: tree.show(path), source }
}

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
    on_each(&args.paths, Access::look, |access, paths| {
        let tree = access.tree();
        let lister =
            Lister { tree: &tree, names: &names, long: args.long, shows: io::stdout().is_terminal() };
        let mut out = Out::new();
        let heading = paths.len() > 1 || args.recursive || args.paths.len() > 1;
        for (index, path) in paths.iter().enumerate() {
            if index > 0 {
                writeln!(out).map_err(stdout)?;
            }
            lister.list(&mut out, path, heading, args.recursive)?;
        }
        out.flush().map_err(stdout)
    })
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
        let meta = self.tree.stat(path, true).map_err(|e| file(self.tree, "list", path, e))?;
        if !meta.is_dir() {
            return self.lines(out, vec![(path.to_vec(), self.meta(path)?)], b"");
        }
        if heading {
            writeln!(out, "{}:", printable(self.tree.show(path).as_bytes())).map_err(stdout)?;
        }
        let names = self.tree.list(path).map_err(|e| file(self.tree, "list", path, e))?;
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
            writeln!(out).map_err(stdout)?;
            self.list(out, &dir, true, true)?;
        }
        Ok(())
    }

    fn meta(&self, path: &[u8]) -> Result<Meta, CliError> {
        self.tree.stat(path, false).map_err(|e| file(self.tree, "list", path, e))
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
                let (user, group) = (self.names.user(m.uid), self.names.group(m.gid));
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
                    .map_err(stdout)?;
            }
            self.name(out, name)?;
            if self.long && meta.kind == FileKind::Symlink {
                let target =
                    self.tree.readlink(&join(dir, name)).map_err(|e| file(self.tree, "read", name, e))?;
                write!(out, " -> ").map_err(stdout)?;
                self.name(out, &target)?;
            }
            writeln!(out).map_err(stdout)?;
        }
        Ok(())
    }

    fn name(&self, out: &mut Out, name: &[u8]) -> Result<(), CliError> {
        if self.shows { write!(out, "{}", printable(name)) } else { out.write_all(name) }.map_err(stdout)
    }
}

/// `drwxr-xr-x`
fn mode_text(meta: &Meta) -> String {
    let kind = match meta.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
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

    fn user(&self, id: u32) -> String {
        self.users.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    fn group(&self, id: u32) -> String {
        self.groups.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

// ---- stat -----------------------------------------------------------------------------------------------------------

/// Shows the attributes of files.
pub fn stat(args: &PathsArgs) -> Result<(), CliError> {
    let names = Names::load();
    on_each(&args.paths, Access::look, |access, paths| {
        let tree = access.tree();
        let mut out = Out::new();
        for path in paths {
            let m = tree.stat(path, false).map_err(|e| file(&tree, "stat", path, e))?;
            let kind = match m.kind {
                FileKind::File => "regular file",
                FileKind::Directory => "directory",
                FileKind::Symlink => "symbolic link",
                FileKind::Fifo => "fifo",
                FileKind::Socket => "socket",
                FileKind::CharDevice => "character device",
                FileKind::BlockDevice => "block device",
            };
            let lines = [
                ("file", printable(tree.show(path).as_bytes())),
                ("kind", kind.to_string()),
                ("size", format!("{} bytes ({})", m.size, format_size(m.size))),
                ("stored", format!("{} bytes in blocks", m.blocks * 512)),
                ("inode", format!("{}, {} link(s)", m.id.1, m.links)),
                ("mode", format!("{:04o} {}", m.perm, mode_text(&m))),
                (
                    "owner",
                    format!("{} ({}), group {} ({})", names.user(m.uid), m.uid, names.group(m.gid), m.gid),
                ),
                ("accessed", time::local(m.atime_ns)),
                ("modified", time::local(m.mtime_ns)),
                ("changed", time::local(m.ctime_ns)),
            ];
            for (name, value) in lines {
                writeln!(out, "{name:<9} {value}").map_err(stdout)?;
            }
        }
        out.flush().map_err(stdout)
    })
}

// ---- df -------------------------------------------------------------------------------------------------------------

/// Shows space.
pub fn df(args: &DfArgs) -> Result<(), CliError> {
    let columns = [
        ("volume", Align::Left),
        ("size", Align::Right),
        ("used", Align::Right),
        ("free", Align::Right),
        ("use", Align::Right),
        ("files", Align::Right),
    ];
    let mut table = Table::new(&columns);
    let mut all = Vec::new();
    for text in &args.volumes {
        let (image, path) = match FileArg::parse(text)? {
            FileArg::Volume { image, path } => (image, Some(path)),
            FileArg::Local(image) => (PathBuf::from(OsString::from_vec(image)), None),
        };
        let access = Access::look(&image)?;
        let exists = path.map_or(Ok(()), |path| {
            let tree = access.tree();
            tree.stat(&path, true).map(drop).map_err(|e| file(&tree, "look at", &path, e))
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
        table.row([
            image.display().to_string(),
            format_size(space.total_bytes),
            format_size(used),
            format_size(space.free_bytes),
            format!("{percent} %"),
            space.inodes.to_string(),
        ]);
    }
    let mut out = Out::new();
    let written = if args.json { writeln!(out, "{}", json!(all)) } else { write!(out, "{table}") };
    written.and_then(|()| out.flush()).map_err(stdout)
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
