//! `weft class`: the classes of data that users give files and directories.
//!
//! A class is an extended attribute, which other file systems keep, too, without a meaning. So the command first asks for a class that there
//! cannot be, in a way that changes nothing elsewhere: a volume with classes refuses the value, another file system the way.

use crate::access::Access;
use crate::args::parse_class;
use crate::command::files::{Failures, interrupted};
use crate::error::CliError;
use crate::file_arg::FileArg;
use crate::say::{printable, report};
use crate::sys::signal;
use crate::table::Table;
use crate::tree::local::LocalTree;
use crate::tree::{Meta, Tree, join};
use clap::{Args, Subcommand};
use serde_json::json;
use std::ffi::OsString;
use std::io;
use weft_core::{DataClass, refuse};
use weft_tagfs::CLASS_XATTR;
use weft_vfs::FileKind;

/// `weft class`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft class set small /mnt/vol/thumbnails\n  weft class show -r /mnt/vol/thumbnails\n  \
    weft class set -r temporary vol.img:/cache\n  weft class clear /mnt/vol/thumbnails\n\n\
    Classes are of volumes of the core tagfs. They are unknown, metadata, log, immutable, in-place, small and temporary. What is made in a \
    directory begins with the class of the directory. 'weft mount --cache-class' sets what a class means for the cache; \
    docs/how-to/mount-a-volume.md describes it. The command sets the extended attribute user.weft.class."
)]
pub enum ClassCommand {
    /// Show the classes that were set.
    Show(ShowArgs),
    /// Set the class of files and directories.
    Set(SetArgs),
    /// Take the class away: what is stored from then on has the class that the placement policy gives it.
    Clear(ClearArgs),
}

/// `weft class show`
#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    paths: PathsArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `weft class set`
#[derive(Args, Debug)]
pub struct SetArgs {
    /// unknown, metadata, log, immutable, in-place, small or temporary
    #[arg(value_parser = parse_class)]
    class: DataClass,
    #[command(flatten)]
    paths: PathsArgs,
}

/// `weft class clear`
#[derive(Args, Debug)]
pub struct ClearArgs {
    #[command(flatten)]
    paths: PathsArgs,
}

/// Files.
#[derive(Args, Debug)]
struct PathsArgs {
    /// Include everything below directories.
    #[arg(short, long)]
    recursive: bool,
    /// Files and directories below a mount or under 'weft run', or on a volume as IMAGE:/path.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Does what `weft class` is asked for.
pub fn run(command: &ClassCommand) -> Result<(), CliError> {
    match command {
        ClassCommand::Show(args) => show(args),
        ClassCommand::Set(args) => change(&args.paths, "set the class of", Some(args.class)),
        ClassCommand::Clear(args) => change(&args.paths, "clear the class of", None),
    }
}

fn show(args: &ShowArgs) -> Result<(), CliError> {
    let mut found = Vec::new();
    let mut visit = Visit { what: "show the class of", changes: false, failures: Failures::default() };
    args.paths.visit(&mut visit, |tree, path| {
        found.push((tree.show(path), class_of(tree, path)?));
        Ok(())
    })?;
    let as_json = || {
        let files = found.iter().map(|(path, class)| json!({ "path": path, "class": class }));
        files.collect::<Vec<_>>()
    };
    let in_words = || {
        let mut table = Table::new("class < path <");
        for (path, class) in &found {
            table.cells(&[&class.as_deref().unwrap_or("-"), &printable(path.as_bytes())]);
        }
        table.to_string()
    };
    if !found.is_empty() {
        report(args.json, false, as_json, in_words)?;
    }
    visit.failures.result()
}

fn change(paths: &PathsArgs, what: &'static str, class: Option<DataClass>) -> Result<(), CliError> {
    let mut visit = Visit { what, changes: true, failures: Failures::default() };
    paths.visit(&mut visit, |tree, path| {
        let value = class.map(|class| class.name().as_bytes());
        match tree.change_xattr(path, CLASS_XATTR, value, 0) {
            Err(error) if value.is_none() && error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
            done => done,
        }
    })?;
    visit.failures.result()
}

/// The class that was set, by its name.
fn class_of(tree: &dyn Tree, path: &[u8]) -> io::Result<Option<String>> {
    let found = tree.xattrs(path)?.into_iter().find(|(name, _)| name == CLASS_XATTR);
    Ok(found.map(|(_, value)| String::from_utf8_lossy(&value).into_owned()))
}

/// Whether a file is on a volume with classes. A class without a name is refused there before all else; elsewhere an attribute is not
/// there to be replaced, or there already.
fn knows_classes(tree: &dyn Tree, path: &[u8]) -> io::Result<bool> {
    let before = class_of(tree, path)?;
    let flags = if before.is_some() { libc::XATTR_CREATE } else { libc::XATTR_REPLACE };
    match tree.change_xattr(path, CLASS_XATTR, Some(b""), flags) {
        // It does not look at the flags.
        Ok(()) => {
            tree.change_xattr(path, CLASS_XATTR, before.as_deref().map(str::as_bytes), 0)?;
            Ok(false)
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL) => Ok(true),
            Some(libc::ENODATA | libc::EEXIST | libc::EOPNOTSUPP) => Ok(false),
            _ => Err(error),
        },
    }
}

/// What is done to files, and what of it failed.
struct Visit {
    what: &'static str,
    changes: bool,
    failures: Failures,
}

type Act<'a> = &'a mut dyn FnMut(&dyn Tree, &[u8]) -> io::Result<()>;

impl PathsArgs {
    /// Does something to the files and directories that were named, and to those below.
    fn visit(
        &self,
        visit: &mut Visit,
        mut act: impl FnMut(&dyn Tree, &[u8]) -> io::Result<()>,
    ) -> Result<(), CliError> {
        for text in &self.paths {
            match FileArg::parse(text)? {
                FileArg::Local(path) => {
                    visit.begin(&LocalTree { volumes: Vec::new() }, &path, self.recursive, &mut act)?;
                }
                FileArg::Volume { image, path } => {
                    let access = if visit.changes { Access::open(&image) } else { Access::look(&image) }?;
                    let done = visit.begin(&access.tree(), &path, self.recursive, &mut act);
                    let synced = if visit.changes { access.sync() } else { Ok(()) };
                    access.close()?;
                    done.and(synced)?;
                }
            }
        }
        Ok(())
    }
}

impl Visit {
    fn begin(&mut self, tree: &dyn Tree, path: &[u8], recursive: bool, act: Act<'_>) -> Result<(), CliError> {
        let checked = tree.stat(path, false).and_then(|meta| {
            let has_class = matches!(meta.kind, FileKind::File | FileKind::Directory);
            refuse(!has_class, io::Error::other("only files and directories have a class"))?;
            match knows_classes(tree, path) {
                // Whoever may not write may look.
                Err(_) if !self.changes => Ok((meta, true)),
                knows => Ok((meta, knows?)),
            }
        });
        match checked {
            Ok((meta, true)) => self.walk(tree, path, &meta, recursive, act),
            Ok((_, false)) => {
                return Err(CliError::said(
                    format!("{}: this file system has no classes of data", tree.show(path)),
                    "name a file of a volume that 'weft format --core tagfs' has made: below its mount, under 'weft run', or as IMAGE:/path",
                ));
            }
            Err(error) => self.failures.tell(self.what, &tree.show(path), &error),
        }
        Ok(())
    }

    fn walk(&mut self, tree: &dyn Tree, path: &[u8], meta: &Meta, recursive: bool, act: Act<'_>) {
        if signal::was_interrupted() {
            return self.failures.tell(self.what, &tree.show(path), &interrupted());
        }
        if let Err(error) = act(tree, path) {
            self.failures.tell(self.what, &tree.show(path), &error);
        }
        if !recursive || !meta.is_dir() {
            return;
        }
        let names = tree.list(path).unwrap_or_else(|error| {
            self.failures.tell("list", &tree.show(path), &error);
            Vec::new()
        });
        for name in names {
            let below = join(path, &name);
            match tree.stat(&below, false) {
                // What is mounted there is another volume.
                Ok(found) if found.id.0 != meta.id.0 => {}
                Ok(found) if matches!(found.kind, FileKind::File | FileKind::Directory) => {
                    self.walk(tree, &below, &found, true, act);
                }
                Ok(_) => {}
                Err(error) => self.failures.tell(self.what, &tree.show(&below), &error),
            }
        }
    }
}
