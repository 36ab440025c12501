//! `weft kv`: the key-value stores in a tag store.

mod lines;

pub use lines::{open, pair_json};

use crate::byte_text::{escape, hex, parse_hex, text_parser};
use crate::command::tags::{self, StoreArgs};
use crate::error::CliError;
use crate::progress;
use crate::say::{self, json_line, print, unwritten};
use clap::{Args, Subcommand};
use lines::{Form, Line, Lines, PIECE_BYTES, each_piece, write_pair_json};
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use weft_core::units::parse_size;
use weft_tags::{Durability, Error, Kv, KvChange, KvSnapshot, SnodeId, Store};

/// Pairs of a batch of `weft kv load`, unless said.
const BATCH: usize = 1000;
/// Bytes after which a batch is full whatever its pairs.
const BATCH_BYTES: u64 = 8 << 20;
/// The name of the key-value store unless the user gives one.
pub const NAME: &str = "default";

/// `weft kv`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft kv put --create app.tags apple red\n  weft kv get app.tags apple\n  \
    tar c /etc | weft kv put app.tags backup -\n  weft kv scan app.tags > pairs.txt\n  weft kv load copy.tags pairs.txt\n\n\
    A tag store can hold many key-value stores; --name selects one (default: 'default').\n\n\
    One command at a time uses a store: a command that finds the store in use fails."
)]
pub enum KvCommand {
    /// Store a value under a key.
    Put(PutArgs),
    /// Write the value of a key to standard output.
    Get(KeyArgs<KvArgs>),
    /// Delete a key and its value.
    Delete(KeyArgs<KvArgs>),
    /// List all pairs in the order of the hashes of their keys.
    Scan(ScanArgs),
    /// Count the keys.
    Count(CountArgs),
    /// Load pairs from a file in the format that 'weft kv scan' prints.
    Load(LoadArgs),
}

/// Which key-value store.
#[derive(Args, Debug)]
pub struct KvArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The key-value store's name in the tag store.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,
}

/// `weft kv put`
#[derive(Args, Debug)]
pub struct PutArgs {
    #[command(flatten)]
    of: KvArgs,
    /// Make the tag store if it does not exist.
    #[arg(long)]
    create: bool,
    /// Key and value are in hex digits.
    #[arg(long)]
    hex: bool,
    /// Size of a value that the command reads from a pipe. With the size, the command can refuse a value that is too
    /// large before it writes any part of the value. When standard input is a file, the command finds the size itself.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,
    /// The key.
    #[arg(value_parser = text_parser())]
    key: String,
    /// The value. With -, the command reads the value from standard input, unchanged.
    #[arg(allow_hyphen_values = true, value_parser = text_parser())]
    value: String,
}

/// `weft kv` and `weft btree`, `get` and `delete`
#[derive(Args, Debug)]
#[command(
    after_help = "EXIT STATUS\n  0 the command found the key, 1 the key does not exist or the command failed"
)]
pub struct KeyArgs<T: Args> {
    #[command(flatten)]
    pub of: T,
    /// Keys and values are in hex digits.
    #[arg(long)]
    pub hex: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "hex")]
    pub json: bool,
    /// The key.
    #[arg(value_parser = text_parser())]
    pub key: String,
}

/// `weft kv scan`
#[derive(Args, Debug)]
#[command(
    after_help = "Each line has the key, a tab and the value. Backslashes, tabs, newlines and bytes that are not \
    printable text appear as \\\\, \\t, \\n and \\xNN."
)]
pub struct ScanArgs {
    #[command(flatten)]
    of: KvArgs,
    /// List at most N pairs.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// List keys only.
    #[arg(long)]
    keys: bool,
    /// Print keys and values in hex digits.
    #[arg(long)]
    hex: bool,
    /// Print a line of JSON for each pair.
    #[arg(long, conflicts_with = "hex")]
    json: bool,
}

/// `weft kv count`
#[derive(Args, Debug)]
pub struct CountArgs {
    #[command(flatten)]
    of: KvArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `weft kv load`
#[derive(Args, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    of: KvArgs,
    /// Make the tag store if it does not exist.
    #[arg(long)]
    create: bool,
    /// Keys and values are in hex digits, as 'weft kv scan --hex' prints them.
    #[arg(long)]
    hex: bool,
    /// Number of pairs in a batch. Each batch is one commit.
    #[arg(long, value_name = "N", default_value_t = BATCH, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    batch: usize,
    /// Make each batch durable, not only the last one.
    #[arg(long, conflicts_with = "sync_within")]
    sync: bool,
    /// Begin a sync at most MS milliseconds after a batch. One sync covers all batches since the previous sync.
    #[arg(long, value_name = "MS")]
    sync_within: Option<u32>,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
    /// A file with a key, a tab and a value in each line; - means standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// Does what is said.
pub fn run(command: &KvCommand) -> Result<(), CliError> {
    match command {
        KvCommand::Put(args) => put(args),
        KvCommand::Get(args) => get(args),
        KvCommand::Delete(args) => delete(args),
        KvCommand::Scan(args) => scan(args),
        KvCommand::Count(args) => count(args),
        KvCommand::Load(args) => load(args),
    }
}

impl KvArgs {
    /// Does `work` on the key-value store, which has to be there, and closes.
    fn with<T>(&self, work: impl FnOnce(&Store, &Kv<'_>) -> Result<T, CliError>) -> Result<T, CliError> {
        let store = tags::open(&self.store)?;
        let kv = Kv::find(&store, SnodeId::FIRST, &self.name).map_err(|e| self.store.fail(e))?;
        let Some(kv) = kv else {
            let there = Kv::names(&store, SnodeId::FIRST).map_err(|e| self.store.fail(e))?;
            let remedy = if there.is_empty() {
                "'weft kv put STORE KEY VALUE' makes one".to_string()
            } else {
                format!("there are {}; --name says which", there.join(", "))
            };
            let what = format!("{}: no key-value store '{}'", self.store.path.display(), self.name);
            return Err(CliError::said(what, remedy));
        };
        let done = work(&store, &kv)?;
        store.close().map_err(|e| self.store.fail(e))?;
        Ok(done)
    }

    /// The same, with a key-value store that is made when there is none.
    fn with_new<T>(
        &self,
        create: bool,
        work: impl FnOnce(&Store, &mut Kv<'_>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let store = if create && !self.store.exists() {
            self.store.create()?
        } else {
            tags::open(&self.store).map_err(|error| match error {
                CliError::Tags { source: weft_tags::Error::Open { source, .. }, .. }
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    let what = format!("{}: {source}", self.store.path.display());
                    CliError::said(
                        what,
                        "--create makes the store; 'weft tags create STORE' makes an empty one",
                    )
                }
                error => error,
            })?
        };
        let mut kv = Kv::open(&store, SnodeId::FIRST, &self.name).map_err(|e| self.store.fail(e))?;
        let done = work(&store, &mut kv);
        // After an error, too: the close keeps the commits that no sync has made durable.
        let closed = store.close().map_err(|e| self.store.fail(e));
        done.and_then(|done| closed.map(|()| done))
    }

    fn no_such_key(&self, key: &[u8]) -> CliError {
        CliError::said(
            format!("{}: no key '{}' in '{}'", self.store.path.display(), escape(key), self.name),
            "'weft kv scan --keys STORE' lists the keys",
        )
    }
}

/// Bytes as they were said.
pub fn said(text: &str, is_hex: bool, what: &str) -> Result<Vec<u8>, CliError> {
    if !is_hex {
        return Ok(text.as_bytes().to_vec());
    }
    parse_hex(text.as_bytes()).map_err(|why| CliError::said(format!("{what}: {why}"), ""))
}

fn put(args: &PutArgs) -> Result<(), CliError> {
    let key = said(&args.key, args.hex, "key")?;
    if args.value == "-" {
        return args.of.with_new(args.create, |store, kv| put_stream(args, store, kv, &key));
    }
    let value = said(&args.value, args.hex, "value")?;
    args.of.with_new(args.create, |_, kv| kv.put(&key, &value).map_err(|e| args.of.store.fail(e)))
}

/// Bytes that are left of a file that is standard input.
fn bytes_of_file_on_stdin() -> Option<u64> {
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let of = file.metadata().ok().filter(|of| of.is_file())?;
    Some(of.len().saturating_sub(file.stream_position().ok()?))
}

/// Gives a key the value that comes from standard input, a piece at a time, as one transaction.
fn put_stream(args: &PutArgs, store: &Store, kv: &Kv<'_>, key: &[u8]) -> Result<(), CliError> {
    let fail = |error| args.of.store.fail(error);
    let mut tx = store.begin();
    kv.change_in(&mut tx, &[KvChange::Put(key, &[])]).map_err(fail)?;
    if let Some(bytes) = args.size.or_else(bytes_of_file_on_stdin) {
        kv.reserve_in(&mut tx, key, bytes).map_err(fail)?;
    }
    let (mut from, mut piece) = (io::stdin().lock().take(0), Vec::with_capacity(PIECE_BYTES));
    let mut bytes = 0;
    loop {
        piece.clear();
        from.set_limit(PIECE_BYTES as u64);
        let read = from.read_to_end(&mut piece);
        let read = read.map_err(|e| CliError::io("read", Path::new("standard input"), e))? as u64;
        bytes += read;
        if let Some(size) = args.size
            && (bytes > size || read == 0 && bytes < size)
        {
            let more = if bytes > size { "more than" } else { "only" };
            let what = format!("standard input: {more} {} bytes; --size is {size}", bytes.min(size));
            return Err(CliError::said(what, "nothing has been stored; give the size of the value"));
        }
        if read == 0 {
            break;
        }
        kv.append_in(&mut tx, key, &piece).map_err(fail)?;
    }
    tx.commit().map(drop).map_err(fail)
}

fn get(args: &KeyArgs<KvArgs>) -> Result<(), CliError> {
    let key = said(&args.key, args.hex, "key")?;
    let fail = |error| args.of.store.fail(error);
    args.of.with(|store, kv| {
        let snapshot = store.snapshot();
        let then = kv.at(&snapshot).map_err(fail)?;
        let first = first_piece(args, &then, &key)?;
        let (mut out, value) = (say::out(), (&then, &key[..], &first[..]));
        if args.json {
            write_pair_json(&mut out, value, true, fail)?;
            return out.flush().map_err(unwritten);
        }
        each_piece(value, fail, |piece| {
            let shown = args.hex.then(|| hex(piece));
            out.write_all(shown.as_ref().map_or(piece, |hex| hex.as_bytes())).map_err(unwritten)
        })?;
        // Programs get the value and nothing else.
        let end: &[u8] = if args.hex || io::stdout().is_terminal() { b"\n" } else { b"" };
        out.write_all(end).and_then(|()| out.flush()).map_err(unwritten)
    })
}

/// The first piece of a key's value, or all of it.
fn first_piece(args: &KeyArgs<KvArgs>, then: &KvSnapshot<'_, '_>, key: &[u8]) -> Result<Vec<u8>, CliError> {
    let (mut first, mut end) = (vec![0; PIECE_BYTES], 0);
    // A small cache gives smaller parts.
    while end < PIECE_BYTES {
        let read = then.get_at(key, end as u64, &mut first[end..]).map_err(|e| args.of.store.fail(e))?;
        match read.ok_or_else(|| args.of.no_such_key(key))? {
            0 => break,
            len => end += len,
        }
    }
    first.truncate(end);
    Ok(first)
}

fn delete(args: &KeyArgs<KvArgs>) -> Result<(), CliError> {
    let key = said(&args.key, args.hex, "key")?;
    let found = args.of.with(|_, kv| kv.delete(&key).map_err(|e| args.of.store.fail(e)))?;
    deleted(found, args.json, || args.of.no_such_key(&key))
}

/// Tells whether a key was deleted.
pub fn deleted(found: bool, json: bool, missing: impl FnOnce() -> CliError) -> Result<(), CliError> {
    if json {
        print(&json_line(&json!({ "deleted": found }))?)?;
    }
    if found { Ok(()) } else { Err(missing()) }
}

fn scan(args: &ScanArgs) -> Result<(), CliError> {
    let fail = |error| args.of.store.fail(error);
    args.of.with(|store, kv| {
        let mut out = say::out();
        let snapshot = store.snapshot();
        let then = kv.at(&snapshot).map_err(fail)?;
        let form = Form::of(args.hex);
        let value_bytes = if args.keys { 0 } else { PIECE_BYTES };
        let pairs = then.scan().values_up_to(value_bytes as u64);
        for pair in pairs.take(args.limit.unwrap_or(usize::MAX)) {
            let (key, first) = pair.map_err(fail)?;
            let value = (!args.keys).then_some(first.as_slice());
            if args.json && value.is_some() && first.len() == PIECE_BYTES {
                write_pair_json(&mut out, (&then, &key, &first), false, fail)?;
            } else if args.json {
                writeln!(out, "{}", pair_json(&key, value)).map_err(unwritten)?;
            } else {
                write!(out, "{}", form.write(&key)).map_err(unwritten)?;
                if value.is_some() {
                    out.write_all(b"\t").map_err(unwritten)?;
                    each_piece((&then, &key, &first), fail, |piece| {
                        out.write_all(form.write(piece).as_bytes()).map_err(unwritten)
                    })?;
                }
                out.write_all(b"\n").map_err(unwritten)?;
            }
        }
        out.flush().map_err(unwritten)
    })
}

fn count(args: &CountArgs) -> Result<(), CliError> {
    let keys = args.of.with(|_, kv| kv.count().map_err(|e| args.of.store.fail(e)))?;
    print(&if args.json { json_line(&json!({ "keys": keys }))? } else { format!("{keys}\n") })
}

fn load(args: &LoadArgs) -> Result<(), CliError> {
    let mut lines = Lines::open(&args.file, Form::of(args.hex))?;
    let bar = progress::bytes("load", lines.total, args.quiet);
    let durability = match args.sync_within {
        Some(ms) => Durability::Periodic(ms),
        None if args.sync => Durability::Sync,
        None => Durability::None,
    };
    let loaded = args.of.with_new(args.create, |store, kv| {
        kv.durability(durability);
        let (mut loaded, mut is_end) = (0, false);
        while !is_end {
            let (begun, first) = (lines.read, lines.number + 1);
            let (mut batch, mut long) = (Vec::with_capacity(args.batch), None);
            while batch.len() < args.batch && lines.read - begun < BATCH_BYTES && long.is_none() && !is_end {
                match lines.next()? {
                    Some(Line::Pair(key, value)) => batch.push((key, value)),
                    Some(Line::Long(key)) => long = Some(key),
                    None => is_end = true,
                }
            }
            let changes: Vec<_> = batch.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
            if !changes.is_empty() {
                kv.change(&changes).map_err(|e| stopped(args, e, loaded, first))?;
            }
            loaded += batch.len() as u64;
            if let Some(key) = long {
                drop(batch);
                load_long(args, store, kv, &mut lines, &key, durability)?;
                loaded += 1;
            }
            bar.set_position(lines.read);
        }
        store.sync().map_err(|e| args.of.store.fail(e))?;
        Ok(loaded)
    });
    bar.finish_and_clear();
    let loaded = loaded?;
    if !args.quiet {
        say::say(format_args!("{loaded} pairs loaded"));
    }
    Ok(())
}

/// A batch that the store has no room for; the batches before it are loaded.
fn stopped(args: &LoadArgs, error: Error, loaded: u64, first: u64) -> CliError {
    let how = match error {
        Error::CacheFull { .. } => "give a smaller --batch or a larger --cache",
        Error::TooLarge { .. } => "give a smaller --batch",
        Error::Full { .. } => "make room",
        error => return args.of.store.fail(error),
    };
    CliError::said(
        format!("{}: {error}", args.of.store.path.display()),
        format!(
            "the {loaded} pairs before line {first} have been loaded; {how}, and load the file again from there"
        ),
    )
}

/// Loads a pair of which the value comes by parts, as one transaction.
fn load_long(
    args: &LoadArgs,
    store: &Store,
    kv: &Kv<'_>,
    lines: &mut Lines,
    key: &[u8],
    durability: Durability,
) -> Result<(), CliError> {
    let fail = |error| args.of.store.fail(error);
    let mut tx = store.begin();
    kv.change_in(tx.durability(durability), &[KvChange::Put(key, &[])]).map_err(fail)?;
    loop {
        let (part, is_end) = lines.value_part()?;
        kv.append_in(&mut tx, key, &part).map_err(fail)?;
        if is_end {
            return tx.commit().map(drop).map_err(fail);
        }
    }
}
