//! `weft kv`: the key-value stores in a tag store.

use crate::byte_text::{escape, hex, parse_hex, unescape};
use crate::command::tags::{self, StoreArgs, failed};
use crate::error::CliError;
use crate::progress;
use crate::say::{self, Out, json_line, print, unwritten};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use weft_tags::{Durability, Kv, KvChange, SnodeId, Store};

/// Pairs of a batch of `weft kv load`, unless said.
const BATCH: usize = 1000;
/// Bytes after which a batch is full whatever its pairs.
const BATCH_BYTES: usize = 8 << 20;
/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Size of the pieces in which a value is streamed.
const PIECE_BYTES: usize = 1 << 20;
/// The name of the key-value store unless the user gives one.
const NAME: &str = "default";
/// Bytes of the journal of a store that `--create` makes.
const JOURNAL_BYTES: u64 = 64 << 20;

/// `weft kv`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft kv put --create app.tags apple red\n  weft kv get app.tags apple\n  \
    tar c /etc | weft kv put app.tags backup -\n  weft kv scan app.tags > pairs.txt\n  weft kv load copy.tags pairs.txt\n\n\
    A tag store can hold many key-value stores; --name selects one (default: 'default')."
)]
pub enum KvCommand {
    /// Store a value under a key.
    Put(PutArgs),
    /// Write the value of a key to standard output.
    Get(KeyArgs),
    /// Delete a key and its value.
    Delete(KeyArgs),
    /// List all pairs, in the order of their keys' hashes.
    Scan(ScanArgs),
    /// Count the keys.
    Count(CountArgs),
    /// Load pairs from a file in the form that 'weft kv scan' prints.
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
    kv: KvArgs,
    /// Make the tag store if it does not exist.
    #[arg(long)]
    create: bool,
    /// Key and value are in hex digits.
    #[arg(long)]
    hex: bool,
    /// The key.
    key: String,
    /// The value; - reads it from standard input, unchanged.
    #[arg(allow_hyphen_values = true)]
    value: String,
}

/// `weft kv get` and `weft kv delete`
#[derive(Args, Debug)]
#[command(after_help = "EXIT STATUS\n  0 the key exists, 1 it does not exist or the command failed")]
pub struct KeyArgs {
    #[command(flatten)]
    kv: KvArgs,
    /// The key is in hex digits, and so is the value.
    #[arg(long)]
    hex: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "hex")]
    json: bool,
    /// The key.
    key: String,
}

/// `weft kv scan`
#[derive(Args, Debug)]
#[command(
    after_help = "Each line has the key, a tab and the value. Backslashes, tabs, line ends and bytes that are not text \
    appear as \\\\, \\t, \\n and \\xNN."
)]
pub struct ScanArgs {
    #[command(flatten)]
    kv: KvArgs,
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
    kv: KvArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `weft kv load`
#[derive(Args, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    kv: KvArgs,
    /// Make the tag store if it does not exist.
    #[arg(long)]
    create: bool,
    /// Number of pairs in a commit.
    #[arg(long, value_name = "N", default_value_t = BATCH, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    batch: usize,
    /// Sync the medium after each batch, not only at the end.
    #[arg(long, conflicts_with = "sync_within")]
    sync: bool,
    /// Begin a sync at most MS milliseconds after a batch; one sync covers all batches since the last one.
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
    fn path(&self) -> &Path {
        &self.store.path
    }

    fn fail(&self, error: weft_tags::Error) -> CliError {
        failed(self.path(), error)
    }

    /// Does `work` on the key-value store, which has to be there, and closes.
    fn with<T>(&self, work: impl FnOnce(&Store, &Kv<'_>) -> Result<T, CliError>) -> Result<T, CliError> {
        let store = tags::open(&self.store)?;
        let kv = Kv::find(&store, SnodeId::FIRST, &self.name).map_err(|e| self.fail(e))?;
        let Some(kv) = kv else {
            let there = Kv::names(&store, SnodeId::FIRST).map_err(|e| self.fail(e))?;
            let remedy = if there.is_empty() {
                "'weft kv put STORE KEY VALUE' makes one".to_string()
            } else {
                format!("there are {}; --name says which", there.join(", "))
            };
            let what = format!("{}: no key-value store '{}'", self.path().display(), self.name);
            return Err(CliError::said(what, remedy));
        };
        let done = work(&store, &kv)?;
        store.close().map_err(|e| self.fail(e))?;
        Ok(done)
    }

    /// The same, with a key-value store that is made when there is none.
    fn with_new<T>(
        &self,
        create: bool,
        work: impl FnOnce(&Store, &mut Kv<'_>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let store = if create && !self.path().exists() {
            tags::create_store(self.path(), JOURNAL_BYTES, false)?
        } else {
            tags::open(&self.store)?
        };
        let mut kv = Kv::open(&store, SnodeId::FIRST, &self.name).map_err(|e| self.fail(e))?;
        let done = work(&store, &mut kv);
        // After an error, too: the close keeps the commits that no sync has made durable.
        let closed = store.close().map_err(|e| self.fail(e));
        done.and_then(|done| closed.map(|()| done))
    }

    fn no_such_key(&self, key: &[u8]) -> CliError {
        CliError::said(
            format!("{}: no key '{}' in '{}'", self.path().display(), escape(key), self.name),
            "'weft kv scan --keys STORE' lists the keys",
        )
    }
}

/// Bytes as they were said.
fn said(text: &str, is_hex: bool, what: &str) -> Result<Vec<u8>, CliError> {
    if !is_hex {
        return Ok(text.as_bytes().to_vec());
    }
    parse_hex(text.as_bytes()).map_err(|why| CliError::said(format!("{what}: {why}"), ""))
}

fn put(args: &PutArgs) -> Result<(), CliError> {
    let key = said(&args.key, args.hex, "key")?;
    if args.value == "-" {
        return args.kv.with_new(args.create, |store, kv| put_stream(args, store, kv, &key));
    }
    let value = said(&args.value, args.hex, "value")?;
    args.kv.with_new(args.create, |_, kv| kv.put(&key, &value).map_err(|e| args.kv.fail(e)))
}

/// Gives a key the value that comes from standard input, a piece at a time, as one transaction.
fn put_stream(args: &PutArgs, store: &Store, kv: &Kv<'_>, key: &[u8]) -> Result<(), CliError> {
    let fail = |error| args.kv.fail(error);
    let (mut from, mut piece) = (io::stdin().lock().take(0), Vec::with_capacity(PIECE_BYTES));
    let mut tx = store.begin();
    kv.change_in(&mut tx, &[KvChange::Put(key, &[])]).map_err(fail)?;
    loop {
        piece.clear();
        from.set_limit(PIECE_BYTES as u64);
        let read = from.read_to_end(&mut piece);
        if read.map_err(|e| CliError::io("read", Path::new("standard input"), e))? == 0 {
            break;
        }
        kv.append_in(&mut tx, key, &piece).map_err(fail)?;
    }
    tx.commit().map(drop).map_err(fail)
}

/// A pair for programs: text where it is text, hex digits where not.
pub fn pair_json(key: &[u8], value: Option<&[u8]>) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(name.to_string(), text.into()),
        Err(_) => fields.insert(format!("{name}_hex"), hex(bytes).into()),
    };
    put("key", key);
    if let Some(value) = value {
        put("value", value);
    }
    Value::Object(fields)
}

fn get(args: &KeyArgs) -> Result<(), CliError> {
    let key = said(&args.key, args.hex, "key")?;
    if !args.json && !args.hex {
        return args.kv.with(|store, kv| get_stream(args, store, kv, &key));
    }
    let value = args.kv.with(|_, kv| kv.get(&key).map_err(|e| args.kv.fail(e)))?;
    let Some(value) = value else { return Err(args.kv.no_such_key(&key)) };
    if args.json {
        return print(&json_line(&pair_json(&key, Some(&value)))?);
    }
    print(&format!("{}\n", hex(&value)))
}

/// Writes the value of a key to standard output, a piece at a time.
fn get_stream(args: &KeyArgs, store: &Store, kv: &Kv<'_>, key: &[u8]) -> Result<(), CliError> {
    let broken = unwritten;
    let snapshot = store.snapshot();
    let then = kv.at(&snapshot).map_err(|e| args.kv.fail(e))?;
    let (mut out, mut piece, mut at) = (Out::new(), vec![0; PIECE_BYTES], 0);
    loop {
        let read = then.get_at(key, at, &mut piece).map_err(|e| args.kv.fail(e))?;
        match read.ok_or_else(|| args.kv.no_such_key(key))? {
            0 => break,
            len => {
                out.write_all(&piece[..len]).map_err(broken)?;
                at += len as u64;
            }
        }
    }
    // Programs get the value and nothing else.
    let end: &[u8] = if io::stdout().is_terminal() { b"\n" } else { b"" };
    out.write_all(end).and_then(|()| out.flush()).map_err(broken)
}

fn delete(args: &KeyArgs) -> Result<(), CliError> {
    let key = said(&args.key, args.hex, "key")?;
    let found = args.kv.with(|_, kv| kv.delete(&key).map_err(|e| args.kv.fail(e)))?;
    if args.json {
        print(&json_line(&json!({ "deleted": found }))?)?;
    }
    if found { Ok(()) } else { Err(args.kv.no_such_key(&key)) }
}

fn scan(args: &ScanArgs) -> Result<(), CliError> {
    let broken = unwritten;
    args.kv.with(|store, kv| {
        let mut out = Out::new();
        let snapshot = store.snapshot();
        let then = kv.at(&snapshot).map_err(|e| args.kv.fail(e))?;
        for pair in then.scan().take(args.limit.unwrap_or(usize::MAX)) {
            let (key, value) = pair.map_err(|e| args.kv.fail(e))?;
            let value = (!args.keys).then_some(value.as_slice());
            let line = if args.json {
                pair_json(&key, value).to_string()
            } else {
                let text = if args.hex { hex } else { escape };
                value.map_or_else(|| text(&key), |value| format!("{}\t{}", text(&key), text(value)))
            };
            writeln!(out, "{line}").map_err(broken)?;
        }
        out.flush().map_err(broken)
    })
}

fn count(args: &CountArgs) -> Result<(), CliError> {
    let keys = args.kv.with(|_, kv| kv.count().map_err(|e| args.kv.fail(e)))?;
    print(&if args.json { json_line(&json!({ "keys": keys }))? } else { format!("{keys}\n") })
}

/// Where the pairs come from, its name for messages, and its bytes where they are known.
fn source(file: &Path) -> Result<(Box<dyn BufRead>, String, u64), CliError> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(BufReader::new(io::stdin())), "standard input".to_string(), 0));
    }
    let opened = File::open(file).and_then(|f| Ok((f.metadata()?.len(), f)));
    let (bytes, opened) = opened.map_err(|e| CliError::io("read", file, e))?;
    Ok((Box::new(BufReader::with_capacity(1 << 20, opened)), file.display().to_string(), bytes))
}

/// A pair from a line.
fn parse_line(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let at = line.iter().position(|byte| *byte == b'\t');
    let at = at.ok_or("no tab in the line; expected a key, a tab and a value")?;
    let key = unescape(&line[..at])?;
    if key.len() > KEY_BYTES_MAX {
        return Err(format!("a key of {} bytes; the most is {KEY_BYTES_MAX}", key.len()));
    }
    Ok((key, unescape(&line[at + 1..])?))
}

fn load(args: &LoadArgs) -> Result<(), CliError> {
    let (mut from, name, total) = source(&args.file)?;
    let bar = progress::bytes("load", total, args.quiet);
    let loaded = args.kv.with_new(args.create, |store, kv| {
        kv.durability(match args.sync_within {
            Some(ms) => Durability::Periodic(ms),
            None if args.sync => Durability::Sync,
            None => Durability::None,
        });
        let (mut loaded, mut lines, mut line) = (0, 0u64, Vec::new());
        loop {
            let (mut batch, mut bytes) = (Vec::with_capacity(args.batch), 0);
            while batch.len() < args.batch && bytes < BATCH_BYTES {
                line.clear();
                let read = from.read_until(b'\n', &mut line);
                if read.map_err(|e| CliError::io("read", Path::new(&name), e))? == 0 {
                    break;
                }
                lines += 1;
                bytes += line.len();
                let pair = parse_line(line.strip_suffix(b"\n").unwrap_or(&line));
                let wrong = |why| {
                    CliError::said(
                        format!("{name}: line {lines}: {why}"),
                        "the batches before this line have been loaded; correct the line and load the file again",
                    )
                };
                batch.push(pair.map_err(wrong)?);
            }
            if batch.is_empty() {
                break;
            }
            let changes: Vec<_> = batch.iter().map(|(key, value)| KvChange::Put(key, value)).collect();
            kv.change(&changes).map_err(|e| args.kv.fail(e))?;
            loaded += batch.len() as u64;
            bar.inc(bytes as u64);
        }
        store.sync().map_err(|e| args.kv.fail(e))?;
        Ok(loaded)
    });
    bar.finish_and_clear();
    let loaded = loaded?;
    if !args.quiet {
        say::say(format_args!("{loaded} pairs loaded"));
    }
    Ok(())
}
