//! `weft btree`: the ordered maps in a tag store.

use crate::byte_text::{escape, hex, text_parser, unescape};
use crate::command::kv::{KeyArgs, NAME, deleted, open, pair_json, said};
use crate::command::tags::{self, StoreArgs};
use crate::error::CliError;
use crate::progress;
use crate::say::{self, json_line, print, unwritten};
use crate::table::Table;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use weft_tags::{BTree, BTreeForm, BTreeReport, Direction, Durability, SnodeId, Store};

/// `weft btree`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft btree create app.tags\n  weft btree put app.tags 2026-11-20 cold\n  \
    weft btree scan --from 2026-11 --to 2026-12 --reverse app.tags\n  sort pairs.txt | weft btree load app.tags\n\n\
    A tag store can hold many trees; --name selects one (default: 'default'). In a tree with --form fixed, a key is a \
    number below 2^32 and a value is a number below 2^64."
)]
pub enum BTreeCommand {
    /// Make a tree, and the tag store if it does not exist.
    Create(CreateArgs),
    /// Store a value under a key.
    Put(PutArgs),
    /// Write the value of a key to standard output.
    Get(KeyArgs<TreeArgs>),
    /// Delete a key and its value.
    Delete(KeyArgs<TreeArgs>),
    /// List pairs in the order of their keys.
    Scan(ScanArgs),
    /// Load sorted pairs from a file; all keys must be greater than those in the tree.
    Load(LoadArgs),
    /// Show the size of a tree.
    Stat(LookArgs),
    /// Check the order of the keys, the levels of the nodes, and the edges of a tree.
    Check(LookArgs),
}

/// Which tree.
#[derive(Args, Debug)]
pub struct TreeArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The tree's name in the tag store.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// Keys and values of any size.
    Bytes,
    /// Keys of 4 bytes, values of 8 bytes.
    Fixed,
}

/// `weft btree create`
#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    tree: TreeArgs,
    /// Format of the keys and values.
    #[arg(long, value_enum, default_value_t = Form::Bytes)]
    form: Form,
}

/// `weft btree put`
#[derive(Args, Debug)]
pub struct PutArgs {
    #[command(flatten)]
    tree: TreeArgs,
    /// Key and value are in hex digits.
    #[arg(long)]
    hex: bool,
    /// The key.
    #[arg(value_parser = text_parser())]
    key: String,
    /// The value. With -, the command reads the value from standard input, unchanged.
    #[arg(allow_hyphen_values = true, value_parser = text_parser())]
    value: String,
}

/// `weft btree scan`
#[derive(Args, Debug)]
#[command(after_help = "Each line has the key, a tab and the value, as 'weft kv scan' prints them.")]
pub struct ScanArgs {
    #[command(flatten)]
    tree: TreeArgs,
    /// Start at this key.
    #[arg(long, value_name = "KEY", value_parser = text_parser())]
    from: Option<String>,
    /// Stop before this key.
    #[arg(long, value_name = "KEY", value_parser = text_parser())]
    to: Option<String>,
    /// List from the greatest key to the least.
    #[arg(long)]
    reverse: bool,
    /// List at most N pairs.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// List keys only.
    #[arg(long)]
    keys: bool,
    /// Keys and values are in hex digits.
    #[arg(long)]
    hex: bool,
    /// Print a line of JSON for each pair.
    #[arg(long, conflicts_with = "hex")]
    json: bool,
}

/// `weft btree load`
#[derive(Args, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    tree: TreeArgs,
    /// Percentage of each leaf that the command fills.
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u8).range(10..=100))]
    fill: u8,
    /// Print errors only.
    #[arg(short, long)]
    quiet: bool,
    /// A file with a key, a tab and a value in each line, sorted by key; - means standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// `weft btree stat` and `weft btree check`
#[derive(Args, Debug)]
pub struct LookArgs {
    #[command(flatten)]
    tree: TreeArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Does what is said.
pub fn run(command: &BTreeCommand) -> Result<(), CliError> {
    match command {
        BTreeCommand::Create(args) => create(args),
        BTreeCommand::Put(args) => put(args),
        BTreeCommand::Get(args) => get(args),
        BTreeCommand::Delete(args) => delete(args),
        BTreeCommand::Scan(args) => scan(args),
        BTreeCommand::Load(args) => load(args),
        BTreeCommand::Stat(args) => look(args, false),
        BTreeCommand::Check(args) => look(args, true),
    }
}

impl TreeArgs {
    /// Does `work` on the tree, which has to be there, and closes.
    fn with<T>(
        &self,
        work: impl FnOnce(&Store, &mut BTree<'_>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let store = tags::open(&self.store)?;
        let tree = BTree::find(&store, SnodeId::FIRST, &self.name).map_err(|e| self.store.fail(e))?;
        let Some(mut tree) = tree else {
            let there = BTree::names(&store, SnodeId::FIRST).map_err(|e| self.store.fail(e))?;
            let remedy = if there.is_empty() {
                "'weft btree create STORE' makes a tree".to_string()
            } else {
                format!("the trees in the store are {}; select one with --name", there.join(", "))
            };
            return Err(CliError::of(&self.store.path, format_args!("no B+tree '{}'", self.name), remedy));
        };
        let done = work(&store, &mut tree)?;
        store.close().map_err(|e| self.store.fail(e))?;
        Ok(done)
    }
}

/// The bytes of a key of fixed size.
fn fixed_key(text: &str) -> Result<Vec<u8>, String> {
    let key = text.parse::<u32>().map_err(|_| format!("'{text}' is not a number below 2^32"))?;
    Ok(key.to_be_bytes().to_vec())
}

/// The bytes of a value of fixed size.
fn fixed_value(text: &str) -> Result<Vec<u8>, String> {
    let value = text.parse::<u64>().map_err(|_| format!("'{text}' is not a number below 2^64"))?;
    Ok(value.to_le_bytes().to_vec())
}

/// A key as it is written on the command line.
fn key_said(form: BTreeForm, text: &str, is_hex: bool) -> Result<Vec<u8>, CliError> {
    if form == BTreeForm::Bytes || is_hex {
        return said(text, is_hex, "key");
    }
    let remedy = "the tree has fixed pairs: a key is a number of 4 bytes";
    fixed_key(text).map_err(|why| CliError::said(format!("key {why}"), remedy))
}

/// A value as it is written on the command line.
fn value_said(form: BTreeForm, text: &str, is_hex: bool) -> Result<Vec<u8>, CliError> {
    if form == BTreeForm::Bytes || is_hex {
        return said(text, is_hex, "value");
    }
    let remedy = "the tree has fixed pairs: a value is a number of 8 bytes";
    fixed_value(text).map_err(|why| CliError::said(format!("value {why}"), remedy))
}

fn key_text(form: BTreeForm, key: &[u8]) -> String {
    match (form, key.try_into()) {
        (BTreeForm::Fixed, Ok(key)) => u32::from_be_bytes(key).to_string(),
        _ => escape(key),
    }
}

fn value_text(form: BTreeForm, value: &[u8]) -> String {
    match (form, value.try_into()) {
        (BTreeForm::Fixed, Ok(value)) => u64::from_le_bytes(value).to_string(),
        _ => escape(value),
    }
}

/// A pair for programs.
fn as_json(form: BTreeForm, key: &[u8], value: Option<&[u8]>) -> serde_json::Value {
    match (form, key.try_into(), value.map(TryInto::try_into)) {
        (BTreeForm::Fixed, Ok(key), Some(Ok(value))) => {
            json!({ "key": u32::from_be_bytes(key), "value": u64::from_le_bytes(value) })
        }
        (BTreeForm::Fixed, Ok(key), None) => json!({ "key": u32::from_be_bytes(key) }),
        _ => pair_json(key, value),
    }
}

fn no_such_key(args: &KeyArgs<TreeArgs>) -> CliError {
    CliError::of(
        &args.of.store.path,
        format_args!("no key '{}' in '{}'", args.key, args.of.name),
        "'weft btree scan --keys STORE' lists the keys",
    )
}

fn create(args: &CreateArgs) -> Result<(), CliError> {
    let path = &args.tree.store.path;
    let store = match args.tree.store.exists() {
        true => tags::open(&args.tree.store)?,
        false => args.tree.store.create()?,
    };
    let form = match args.form {
        Form::Bytes => BTreeForm::Bytes,
        Form::Fixed => BTreeForm::Fixed,
    };
    if BTree::find(&store, SnodeId::FIRST, &args.tree.name).map_err(|e| args.tree.store.fail(e))?.is_some() {
        let what = format!("{}: the B+tree '{}' exists already", path.display(), args.tree.name);
        return Err(CliError::said(what, "choose another name with --name"));
    }
    BTree::open(&store, SnodeId::FIRST, &args.tree.name, form).map_err(|e| args.tree.store.fail(e))?;
    store.close().map_err(|e| args.tree.store.fail(e))
}

fn put(args: &PutArgs) -> Result<(), CliError> {
    args.tree.with(|_, tree| {
        let key = key_said(tree.form(), &args.key, args.hex)?;
        let value = if args.value == "-" {
            let mut value = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut value);
            read.map_err(|e| CliError::io("read", Path::new("standard input"), e))?;
            value
        } else {
            value_said(tree.form(), &args.value, args.hex)?
        };
        tree.insert(&key, &value).map(drop).map_err(|e| args.tree.store.fail(e))
    })
}

fn get(args: &KeyArgs<TreeArgs>) -> Result<(), CliError> {
    let (form, key, value) = args.of.with(|_, tree| {
        let key = key_said(tree.form(), &args.key, args.hex)?;
        let value = tree.get(&key).map_err(|e| args.of.store.fail(e))?;
        Ok((tree.form(), key, value))
    })?;
    let Some(value) = value else { return Err(no_such_key(args)) };
    if args.json {
        return print(&json_line(&as_json(form, &key, Some(&value)))?);
    }
    if args.hex {
        return print(&format!("{}\n", hex(&value)));
    }
    if form == BTreeForm::Fixed {
        return print(&format!("{}\n", value_text(form, &value)));
    }
    let mut out = say::out();
    // Programs get the value and nothing else.
    let end: &[u8] = if io::stdout().is_terminal() { b"\n" } else { b"" };
    let written = out.write_all(&value).and_then(|()| out.write_all(end)).and_then(|()| out.flush());
    written.map_err(unwritten)
}

fn delete(args: &KeyArgs<TreeArgs>) -> Result<(), CliError> {
    let found = args.of.with(|_, tree| {
        let key = key_said(tree.form(), &args.key, args.hex)?;
        tree.delete(&key).map_err(|e| args.of.store.fail(e))
    })?;
    deleted(found, args.json, || no_such_key(args))
}

fn scan(args: &ScanArgs) -> Result<(), CliError> {
    args.tree.with(|store, tree| {
        let form = tree.form();
        let bound =
            |text: &Option<String>| text.as_ref().map(|text| key_said(form, text, args.hex)).transpose();
        let from = bound(&args.from)?.map_or(Bound::Unbounded, Bound::Included);
        let to = bound(&args.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        let direction = if args.reverse { Direction::Down } else { Direction::Up };
        let snapshot = store.snapshot();
        let then = tree.at(&snapshot).map_err(|e| args.tree.store.fail(e))?;
        let pairs = then.range((from, to), direction).map_err(|e| args.tree.store.fail(e))?;
        let mut out = say::out();
        for pair in pairs.take(args.limit.unwrap_or(usize::MAX)) {
            let (key, value) = pair.map_err(|e| args.tree.store.fail(e))?;
            let value = (!args.keys).then_some(value.as_slice());
            let line = if args.json {
                as_json(form, &key, value).to_string()
            } else if args.hex {
                value.map_or_else(|| hex(&key), |value| format!("{}\t{}", hex(&key), hex(value)))
            } else {
                let key = key_text(form, &key);
                value.map_or_else(|| key.clone(), |value| format!("{key}\t{}", value_text(form, value)))
            };
            writeln!(out, "{line}").map_err(unwritten)?;
        }
        out.flush().map_err(unwritten)
    })
}

/// A pair from a line.
fn parse_line(form: BTreeForm, line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let at = line.iter().position(|byte| *byte == b'\t');
    let at = at.ok_or("no tab in the line; expected a key, a tab and a value")?;
    let (key, value) = (unescape(&line[..at])?, unescape(&line[at + 1..])?);
    if form == BTreeForm::Bytes {
        return Ok((key, value));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((fixed_key(&text(&key))?, fixed_value(&text(&value))?))
}

fn load(args: &LoadArgs) -> Result<(), CliError> {
    let (mut from, name, total) = open(&args.file)?;
    let bar = progress::bytes("load", total, args.quiet);
    let loaded = args.tree.with(|_, tree| {
        tree.durability(Durability::None);
        let form = tree.form();
        let (mut lines, mut line, mut failed) = (0u64, Vec::new(), None);
        let pairs = std::iter::from_fn(|| {
            line.clear();
            match from.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(read) => bar.inc(read as u64),
                Err(e) => {
                    failed = Some(CliError::io("read", Path::new(&name), e));
                    return None;
                }
            }
            lines += 1;
            match parse_line(form, line.strip_suffix(b"\n").unwrap_or(&line)) {
                Ok(pair) => Some(pair),
                Err(why) => {
                    let remedy = "the lines before it have been loaded; correct this line and load the rest";
                    failed = Some(CliError::said(format!("{name}: line {lines}: {why}"), remedy));
                    None
                }
            }
        });
        let loaded = tree.load(pairs, args.fill);
        let loaded = loaded.map_err(|error| match error {
            weft_tags::Error::Unordered => {
                let what = "the key is not greater than the one before it, or than those in the tree";
                let remedy = "sort the file ('LC_ALL=C sort') and load it into an empty tree, or insert the pairs one by one";
                CliError::said(format!("{name}: line {lines}: {what}"), remedy)
            }
            error => args.tree.store.fail(error),
        });
        // What was loaded is made durable by the close, whatever came after it.
        match failed {
            Some(error) => loaded.map(|_| Err(error)),
            None => loaded.map(Ok),
        }
    });
    bar.finish_and_clear();
    let loaded = loaded??;
    if !args.quiet {
        say::say(format_args!("{loaded} pairs loaded"));
    }
    Ok(())
}

fn look(args: &LookArgs, is_check: bool) -> Result<(), CliError> {
    let name = args.tree.store.path.display().to_string();
    let (form, report) =
        args.tree.with(|_, tree| Ok((tree.form(), tree.check().map_err(|e| args.tree.store.fail(e))?)))?;
    let form = if form == BTreeForm::Fixed { "fixed" } else { "bytes" };
    let text = if args.json {
        json_line(&json!({
            "version": 1,
            "store": name,
            "tree": args.tree.name,
            "form": form,
            "clean": report.problems.is_empty(),
            "levels": report.levels,
            "inner_nodes": report.inner_nodes,
            "leaves": report.leaves,
            "pairs": report.pairs,
            "long": report.long,
            "fill_percent": report.fill_percent,
            "problems": report.problems,
        }))?
    } else {
        in_words(&args.tree.name, form, &report)
    };
    print(&text)?;
    match report.problems.len() {
        n if n > 0 && is_check => Err(CliError::said(
            format!("{name}: {n} problems found in '{}'", args.tree.name),
            "restore the store from a backup; 'weft tags check STORE' shows whether other data is damaged as well",
        )),
        _ => Ok(()),
    }
}

fn in_words(name: &str, form: &str, report: &BTreeReport) -> String {
    let mut table = Table::new("tree< form< pairs> levels> inner> leaves> full> long>");
    let BTreeReport { pairs, levels, inner_nodes, leaves, fill_percent, long, .. } = report;
    table.cells(&[&name, &form, pairs, levels, inner_nodes, leaves, &format!("{fill_percent} %"), long]);
    let mut text = table.to_string();
    for problem in &report.problems {
        text.push_str(&format!("  {problem}\n"));
    }
    text
}
