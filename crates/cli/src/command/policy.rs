//! `weft policy`: shows, checks and explains placement policies.

use crate::args::PolicyCommand;
use crate::error::CliError;
use crate::say::Out;
use crate::table::{Align, Table};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weft_core::units::parse_size;
use weft_placement::{Explanation, FileContext, Policy, WriteHint};
use weft_volume::{VolumeError, read_policy};

/// Shows, checks and explains policies.
pub fn run(command: &PolicyCommand) -> Result<(), CliError> {
    let text = match command {
        PolicyCommand::List => {
            let mut table =
                Table::new(&[("policy", Align::Left), ("streams", Align::Right), ("about", Align::Left)]);
            for policy in Policy::shipped().map_err(VolumeError::from)? {
                let streams = policy.streams().len().to_string();
                table.row([policy.name().to_string(), streams, policy.about().to_string()]);
            }
            table.to_string()
        }
        PolicyCommand::Show { name } => {
            let shipped = Policy::shipped_texts().iter().find(|(known, _)| known == name);
            let Some((_, text)) = shipped else {
                let known: Vec<&str> = Policy::shipped_texts().iter().map(|(name, _)| *name).collect();
                return Err(CliError::said(
                    format!("no policy named '{name}' comes with weft"),
                    format!("the policies are {}", known.join(", ")),
                ));
            };
            (*text).to_string()
        }
        PolicyCommand::Check { file } => format!("{}\n", read_policy(file)?),
        PolicyCommand::Explain { process, thread, size, hint, placement, path } => {
            let hint = match hint.as_deref() {
                None => WriteHint::NotSet,
                Some(name) => {
                    WriteHint::ALL.into_iter().find(|h| h.to_string() == name).ok_or_else(|| {
                        CliError::said(
                            format!("'{name}' is not a lifetime hint"),
                            "use not-set, none, short, medium, long or extreme",
                        )
                    })?
                }
            };
            let context = FileContext {
                process,
                thread: thread.as_deref().unwrap_or(process),
                size: size.as_deref().map_or(Ok(0), parse_size)?,
                hint,
                ..FileContext::new(path.as_bytes())
            };
            in_words(&placement.choice().engine()?.explain(&context))
        }
    };
    let mut out = Out::new();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| CliError::io("write", Path::new("standard output"), e))
}

/// Where a file goes and why, and what came of every rule that was tried.
fn in_words(explained: &Explanation) -> String {
    let mut text = format!("{explained}\n");
    if explained.considered.is_empty() {
        return text;
    }
    let mut table = Table::new(&[
        ("policy", Align::Left),
        ("line", Align::Right),
        ("stream", Align::Left),
        ("here", Align::Left),
        ("asks for", Align::Left),
    ]);
    for rule in &explained.considered {
        let asks = if rule.conditions.is_empty() { "every file" } else { &rule.conditions };
        table.row([
            rule.policy.clone(),
            rule.line.to_string(),
            rule.stream.clone(),
            rule.verdict.to_string(),
            asks.to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&table.to_string());
    text
}
