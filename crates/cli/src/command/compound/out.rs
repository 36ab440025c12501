//! `--out NAME=FILE`: exported bytes to files.

use super::DoArgs;
use super::form::Form;
use crate::error::CliError;
use crate::output;
use crate::say::{self, unwritten, warn};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use weft_vfs::compound::{Answer, Type};

/// What `--out` says.
#[derive(Clone, Debug)]
pub struct OutArg {
    name: String,
    file: PathBuf,
}

/// Reads an argument of `--out`.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse(text: &str) -> Result<OutArg, String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok(OutArg { name: name.trim_start_matches('$').to_string(), file: file.into() })
        }
        _ => Err("give the name of an operation and a file: NAME=FILE".to_string()),
    }
}

/// Where exported bytes go.
pub struct Outs<'a> {
    /// Operations, with the arguments that name them.
    files: Vec<(usize, &'a OutArg)>,
}

/// Finds the operations that `--out` names.
///
/// # Errors
/// There is no such operation, it does not export bytes, or its file must not be written.
pub fn resolve<'a>(outs: &'a [OutArg], form: &Form, args: &DoArgs) -> Result<Outs<'a>, CliError> {
    let files =
        outs.iter().map(|out| Ok((exported(out, form)?, out))).collect::<Result<Vec<_>, CliError>>()?;
    let to_stdout = outs.iter().filter(|out| out.is_stdout()).count();
    if to_stdout > 1 {
        return Err(CliError::said("--out: two values go to standard output", "write one of them to a file"));
    }
    if to_stdout == 1 && args.json {
        let remedy = "write the value to a file, or leave out --json";
        return Err(CliError::said("--out: standard output cannot have the value and the JSON", remedy));
    }
    for out in outs.iter().filter(|out| !out.is_stdout()) {
        output::check(&out.file, &[&args.volume])?;
    }
    Ok(Outs { files })
}

/// The operation that an argument names, which exports bytes.
fn exported(out: &OutArg, form: &Form) -> Result<usize, CliError> {
    let name = &out.name;
    let Some(at) = form.names.find(name) else {
        let known: Vec<&str> = form.names.0.iter().flatten().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        return Err(CliError::said(
            format!("--out {name}={}: no operation is called '{name}'", out.file.display()),
            format!("the names of operations in this program: {known}"),
        ));
    };
    let op = &form.program.ops[at];
    let told = form.names.told(at, Some(&op.kind));
    if op.kind.result() != Some(Type::Bytes) {
        let what = format!("--out {name}={}: {told} does not give bytes", out.file.display());
        return Err(CliError::said(
            what,
            "numbers and attributes are in the table, and in the output of --json",
        ));
    }
    if !op.export {
        let what = format!("--out {name}={}: {told} does not export its value", out.file.display());
        return Err(CliError::said(what, "give the operation the key export = true"));
    }
    Ok(at)
}

impl OutArg {
    fn is_stdout(&self) -> bool {
        self.file == Path::new("-")
    }
}

impl Outs<'_> {
    /// Whether standard output belongs to a value.
    pub fn has_stdout(&self) -> bool {
        self.files.iter().any(|(_, out)| out.is_stdout())
    }

    /// Writes the values that there are, and tells which there are not.
    pub fn write(&self, answer: &Answer) -> Result<(), CliError> {
        for (at, out) in &self.files {
            let Some(bytes) = answer.bytes(*at) else {
                let (name, file) = (&out.name, out.file.display());
                warn(format_args!("--out {name}={file}: nothing is written: the operation was not done"));
                continue;
            };
            match out.is_stdout() {
                true => {
                    let mut stdout = say::out();
                    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(unwritten)?;
                }
                false => fs::write(&out.file, bytes).map_err(|e| CliError::io("write", &out.file, e))?,
            }
        }
        Ok(())
    }
}
