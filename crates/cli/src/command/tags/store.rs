//! A store as a command opens it.

use crate::cache_args::CacheArgs;
use crate::error::CliError;
use crate::sys::file::with_suffix;
use crate::sys::memory;
use clap::Args;
use std::fs::{self, File, OpenOptions};
use std::io::{self};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weft_core::units::{format_size, parse_size};
use weft_flash_pages::{CreateRequest, FlashPagesError, FlashSpec};
use weft_tags::{ErasePass, Error, FileStore, Options, PageStore, ReadPath, Store};

/// Over-provisioning of a store on flash, in thousandths, unless the user gives one.
pub const OP_PERMILLE: u32 = 70;
/// Bytes of the journal of a store that is made for one structure.
const JOURNAL_BYTES: u64 = 64 << 20;
/// Cache for a look at whether a file is a store.
const PART_CACHE_BYTES: u64 = 4 << 20;
/// Heading of the options that every command on a store has.
const CACHE_AND_ERASE: &str = "Cache and secure deletion";

/// Which store, with how much memory.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Memory for the store's cache of pages.
    #[arg(long, value_name = "BYTES", value_parser = parse_cache, default_value = "256M")]
    #[arg(help_heading = CACHE_AND_ERASE)]
    pub cache: u64,
    #[command(flatten, next_help_heading = CACHE_AND_ERASE)]
    pub classes: CacheArgs,
    /// Add an overwrite pass to secure deletion ('weft tags snode --secure-delete'). PASS is what the pass writes:
    /// random (random bytes), or a byte value in hex, such as 0xff. Repeat the option for several passes. After these
    /// passes, the store always writes zeros.
    #[arg(long = "erase-pass", value_name = "PASS", value_parser = parse_pass)]
    #[arg(help_heading = CACHE_AND_ERASE)]
    pub erase_passes: Vec<ErasePass>,
    /// The store's file or block device; or policy:IMAGE#GRANT or function:IMAGE#GRANT for a store on modelled flash, at
    /// this level of the grant (without #GRANT, the grant 'tags').
    #[arg(value_name = "STORE")]
    pub path: PathBuf,
}

impl StoreArgs {
    /// Names the store in an error of it.
    pub fn fail(&self, source: Error) -> CliError {
        failed(&self.path, source)
    }

    /// Makes a store for one structure of pairs.
    pub fn create(&self) -> Result<Store, CliError> {
        create(&self.path, &Options { journal_bytes: JOURNAL_BYTES, ..self.options() }, false)
    }

    /// Whether there is a store of this name, or something else in its place. On flash, that an image has the grant.
    pub fn exists(&self) -> bool {
        match on_flash(&self.path) {
            Some(spec) => spec.exists(),
            None => self.path.exists(),
        }
    }

    /// How the store is opened.
    pub fn options(&self) -> Options {
        let erase_passes = self.erase_passes.clone();
        // A command touches most pages once.
        let mut options =
            Options { cache_bytes: self.cache, huge_pages: false, erase_passes, ..Options::default() };
        options.eviction = self.classes.eviction().unwrap_or(options.eviction);
        options
    }
}

/// A size of a cache, which the machine's memory has room for.
fn parse_cache(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    match memory::total_bytes() {
        Some(total) if bytes > total => {
            Err(format!("the machine has {} of memory; give a smaller size", format_size(total)))
        }
        _ => Ok(bytes),
    }
}

fn parse_pass(text: &str) -> Result<ErasePass, String> {
    let byte = || u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let pass = if text == "random" { Some(ErasePass::Random) } else { byte().map(ErasePass::Byte) };
    pass.ok_or_else(|| "expected random, or a byte such as 0xff".to_string())
}

/// The name of a store on flash, if a path is one.
pub fn on_flash(path: &Path) -> Option<FlashSpec> {
    path.to_str().and_then(FlashSpec::parse)
}

fn of_flash(path: &Path) -> impl Fn(FlashPagesError) -> CliError {
    move |source| match source {
        // It names the image.
        FlashPagesError::Image(error) => CliError::Flash(error),
        source => CliError::FlashPages { store: path.display().to_string(), source },
    }
}

/// Refuses a store on flash where a command needs a file.
pub fn need_file(path: &Path, what: &str) -> Result<(), CliError> {
    match on_flash(path) {
        Some(_) => Err(CliError::of(path, format!("{what} is on flash, not in a file"), "name a file")),
        None => Ok(()),
    }
}

/// An error of the store in `path`.
pub fn failed(path: &Path, source: weft_tags::Error) -> CliError {
    CliError::Tags { store: path.display().to_string(), source }
}

/// Opens a store; to be read only where its file cannot be written.
pub fn open(args: &StoreArgs) -> Result<Store, CliError> {
    open_with(args, args.options())
}

/// As [`open`], with these options.
pub fn open_with(args: &StoreArgs, options: Options) -> Result<Store, CliError> {
    let path = &args.path;
    if let Some(spec) = on_flash(path) {
        let medium = spec.open().map_err(of_flash(path))?;
        return Store::open(medium, &options).map_err(|e| failed(path, e));
    }
    check_kind(path).map_err(|e| failed(path, e))?;
    let store = match FileStore::open(path, ReadPath::Kernel) {
        Err(Error::Open { source, .. }) if is_of_writing(&source) => read_only(path, &options),
        medium => medium.and_then(|medium| Store::open(Box::new(medium), &options)),
    };
    store.map_err(|e| failed(path, e))
}

fn read_only(path: &Path, options: &Options) -> weft_tags::Result<Store> {
    open_to_read(path).and_then(|medium| Store::open_read_only(Box::new(medium), options))
}

/// Opens a store to copy it: without room for the end of a recovery, that happens in memory.
pub fn open_to_copy(args: &StoreArgs) -> Result<Store, CliError> {
    let store = open(args)?;
    match store.check_recovered() {
        Ok(()) => Ok(store),
        // On flash it is read as it is.
        Err(_) if on_flash(&args.path).is_some() => Ok(store),
        Err(_) => {
            drop(store);
            read_only(&args.path, &args.options()).map_err(|e| args.fail(e))
        }
    }
}

/// Opens a store's file or block device that is only read.
fn open_to_read(path: &Path) -> weft_tags::Result<FileStore> {
    check_kind(path)?;
    FileStore::open_read_only(path)
}

/// Opens the medium of a store that is only read, for a salvage; `on_error` says what an error of a file is.
pub fn open_medium(
    path: &Path,
    on_error: impl FnOnce(Error) -> CliError,
) -> Result<Box<dyn PageStore>, CliError> {
    match on_flash(path) {
        Some(spec) => spec.open().map_err(of_flash(path)),
        None => open_to_read(path).map(|medium| Box::new(medium) as _).map_err(on_error),
    }
}

/// Refuses what is neither a file nor a block device. A FIFO, say, would wait for a writer.
fn check_kind(path: &Path) -> weft_tags::Result<()> {
    let failed = |source| Error::Open { path: path.to_owned(), source };
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if kind.is_dir() {
        return Err(failed(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(failed(io::Error::other("neither a file nor a block device")));
    }
    Ok(())
}

/// Makes a file for a store. Only its owner has access: whoever reads the file reads all s-nodes, and can lock the store.
pub fn make_file(path: &Path) -> Result<FileStore, CliError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|source| CliError::unmakeable(path, source))?;
    open_file(path)
}

/// Opens the file or block device of a store that is to be written.
pub fn open_file(path: &Path) -> Result<FileStore, CliError> {
    FileStore::open(path, ReadPath::Kernel).map_err(|e| failed(path, e))
}

/// Makes a file under another name, and gives it the name of `target` when it is whole and durable.
pub fn make_whole<T>(target: &Path, make: impl FnOnce(&Path) -> Result<T, CliError>) -> Result<T, CliError> {
    let part = with_suffix(target, ".weft-part");
    if part.exists() {
        // One that was killed has left it; of one that is under way, the lock is held. A whole store may be somebody's.
        let medium = open_to_read(&part).map_err(|e| failed(&part, e))?;
        let options = Options { cache_bytes: PART_CACHE_BYTES, huge_pages: false, ..Options::default() };
        if Store::open_read_only(Box::new(medium), &options).is_ok() {
            let what = "this store is in the way: the command writes the new store under this name first";
            return Err(CliError::of(&part, what, "move it to another name, or remove it"));
        }
        fs::remove_file(&part).map_err(|e| CliError::io("remove", &part, e))?;
    }
    let made = make(&part).and_then(|made| {
        fs::rename(&part, target).map_err(|e| CliError::io("replace", target, e))?;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| CliError::io("sync", folder, e))?;
        Ok(made)
    });
    made.inspect_err(|_| drop(fs::remove_file(&part)))
}

/// Whether a file that cannot be opened to be written may be one that can be read.
fn is_of_writing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Makes an empty store on flash.
pub fn create_on_flash(
    spec: &FlashSpec,
    path: &Path,
    options: &Options,
    request: &CreateRequest,
) -> Result<Store, CliError> {
    let medium = spec.create(request).map_err(of_flash(path))?;
    Store::create(medium, options).map_err(|e| failed(path, e))
}

/// Makes an empty store; with `over` in what is there already.
pub fn create(path: &Path, options: &Options, over: bool) -> Result<Store, CliError> {
    if let Some(spec) = on_flash(path) {
        let request = CreateRequest { bytes: 0, over_provisioning_permille: OP_PERMILLE, force: over };
        return create_on_flash(&spec, path, options, &request);
    }
    let exists = over && path.exists();
    let medium = if exists { open_file(path)? } else { make_file(path)? };
    Store::create(Box::new(medium), options).map_err(|e| {
        if !exists {
            // What was made for nothing would be refused by the next try.
            let _ = std::fs::remove_file(path);
        }
        failed(path, e)
    })
}
