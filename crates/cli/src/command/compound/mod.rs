//! `weft do`: runs a compound operation, a program of file operations, on a volume.
//!
//! The text of the program becomes a checked program in [`form`]; [`mod@run`] runs it on the volume; [`report`] and [`out`] show what it
//! answers.

mod errno;
mod form;
mod out;
mod report;
mod run;

use crate::access::Access;
use crate::error::CliError;
use crate::kind::Kind;
use crate::say;
use clap::Args;
use form::Form;
use out::OutArg;
use report::Report;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Exit status when the program itself is wrong.
const BAD_PROGRAM: u8 = 2;
/// Bytes of the text of a program, at most: its literals in the longest form of TOML.
const TEXT_BYTES_MAX: u64 = 32 << 20;

/// `weft do`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  weft do vol.img swap.toml\n  weft do vol.img < swap.toml\n  \
        weft do --check vol.img swap.toml\n  weft do --out block=block.bin vol.img read.toml\n\n\
    A PROGRAM\n  \
        durable = true\n\n  \
        [[op]]\n  do = \"create\"\n  name = \"new\"\n  path = \"/config.new\"\n\n  \
        [[op]]\n  do = \"write\"\n  file = \"$new\"\n  data = \"verbose = true\\n\"\n\n  \
        [[op]]\n  do = \"rename\"\n  path = \"/config.new\"\n  new_path = \"/config\"\n\n\
    This program replaces a file in one step: after a failure or a power cut, /config has its old content or its new content. \
    docs/how-to/compound-operations.md describes all operations and their keys.\n\n\
    EXIT STATUS\n  0 all operations were done, or skipped by their guards, 1 an operation failed, or the volume cannot be used, \
    2 the program or the command line is wrong")]
pub struct DoArgs {
    /// Check the program, and do not open the volume.
    #[arg(long)]
    pub check: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the bytes that the operation NAME exports to FILE; - means standard output, which then has nothing else on it. Can be given
    /// several times.
    #[arg(long, value_name = "NAME=FILE", value_parser = out::parse)]
    pub out: Vec<OutArg>,
    /// The volume: an image file, a zoned block device, zonefs:DIR, or policy:IMAGE#GRANT or function:IMAGE#GRANT.
    pub volume: PathBuf,
    /// The program; - means standard input.
    #[arg(default_value = "-")]
    pub file: PathBuf,
}

/// Reads the program and runs it.
pub fn run(args: &DoArgs) -> Result<(), CliError> {
    let bad = |error: CliError| error.with_status(BAD_PROGRAM);
    let form = read(&args.file).map_err(bad)?;
    let outs = out::resolve(&args.out, &form, args).map_err(bad)?;
    if args.check {
        let report = Report { volume: &args.volume, form: &form, answer: None };
        return say::report(args.json, outs.has_stdout(), || report.as_json(), || report.checked());
    }
    let changes = form.program.ops.iter().any(|op| op.kind.is_change());
    let access = if changes { Access::open(&args.volume)? } else { Access::look(&args.volume)? };
    let answer = run::run_program(&access, &form.program);
    access.close()?;
    let answer = answer?;
    let report = Report { volume: &args.volume, form: &form, answer: Some(&answer) };
    outs.write(&answer)?;
    say::report(args.json, outs.has_stdout(), || report.as_json(), || report.table())?;
    report.failure().map_or(Ok(()), Err)
}

/// Reads a program from a file or from standard input, and checks it.
fn read(file: &Path) -> Result<Form, CliError> {
    let is_stdin = file == Path::new("-");
    let origin = if is_stdin { "standard input".to_string() } else { file.display().to_string() };
    let mut bytes = Vec::new();
    let limit = TEXT_BYTES_MAX + 1;
    let read = match is_stdin {
        true => io::stdin().lock().take(limit).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
    };
    read.map_err(|error| CliError::io("read", Path::new(&origin), error))?;
    if let Some(kind) = bytes.first_chunk().and_then(Kind::of_first) {
        let what = format!("{origin}: this is {kind}, and not a program");
        return Err(CliError::said(what, "give the volume first, and then the program: weft do VOLUME FILE"));
    }
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        let what = format!("{origin}: the text of the program has more than {} MiB", TEXT_BYTES_MAX >> 20);
        return Err(CliError::said(
            what,
            "read data with { file = \"...\" } instead of writing it into the program",
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        CliError::said(
            format!("{origin}: the program is not text (UTF-8)"),
            "'weft do --help' has an example",
        )
    })?;
    form::read(&text, &origin).map_err(|error| CliError::said(error.to_string(), error.problem.right()))
}
