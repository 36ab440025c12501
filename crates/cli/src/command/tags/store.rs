//! A store as a command opens it.

use crate::error::CliError;
use crate::say::Out;
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weft_core::units::parse_size;
use weft_tags::{Error, FileStore, Options, ReadPath, Store};

/// Which store, with how much memory.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Bytes of memory for the store's pages.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "256M")]
    pub cache: u64,
    /// The store's file or block device.
    #[arg(value_name = "STORE")]
    pub path: PathBuf,
}

impl StoreArgs {
    /// How the store is opened.
    pub fn options(&self) -> Options {
        // A command touches most pages once.
        Options { cache_bytes: self.cache, huge_pages: false, ..Options::default() }
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
    let store = match FileStore::open(path, ReadPath::Kernel) {
        Err(Error::Open { source, .. }) if is_of_writing(&source) => FileStore::open_read_only(path)
            .and_then(|medium| Store::open_read_only(Box::new(medium), &options)),
        medium => medium.and_then(|medium| Store::open(Box::new(medium), &options)),
    };
    store.map_err(|e| failed(path, e))
}

/// Whether a file that cannot be opened to be written may be one that can be read.
fn is_of_writing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Makes an empty store; with `over` in what is there already.
pub fn create(path: &Path, journal_bytes: u64, over: bool) -> Result<Store, CliError> {
    let exists = over && path.exists();
    let medium = if exists {
        FileStore::open(path, ReadPath::Kernel)
    } else {
        FileStore::create(path, ReadPath::Kernel)
    };
    let medium = medium.map_err(|e| failed(path, e))?;
    let options = Options { journal_bytes, ..Options::default() };
    Store::create(Box::new(medium), &options).map_err(|e| {
        if !exists {
            // What was made for nothing would be refused by the next try.
            let _ = std::fs::remove_file(path);
        }
        failed(path, e)
    })
}

/// Writes to standard output.
pub fn write_out(text: &str) -> Result<(), CliError> {
    let mut out = Out::new();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| CliError::io("write", Path::new("standard output"), e))
}
