//! `weft policy`: shows, checks and explains placement policies.

use crate::args::ModeArgs;
use crate::error::CliError;
use crate::say::{print, printable};
use crate::table::Table;
use clap::Subcommand;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use weft_core::units::parse_size;
use weft_placement::{Explanation, FileContext, Policy, WriteHint};
use weft_volume::{VolumeError, read_policy};

/// `weft policy`
#[derive(Subcommand, Debug)]
#[command(
    after_help = "EXAMPLES\n  weft policy list\n  weft policy show rocksdb > my.toml\n  weft policy check my.toml\n  \
    weft policy explain --program db_bench --thread rocksdb:low0 /db/000012.sst\n  \
    weft policy explain --policy my.toml --size 3M /data/x.bin"
)]
pub enum PolicyCommand {
    /// List the policies that come with weft.
    List,
    /// Print the file of a policy that comes with weft.
    Show {
        /// The name of the policy.
        name: String,
    },
    /// Check a policy file, and describe the policy in words.
    Check {
        /// The file, or the name of a shipped policy.
        file: PathBuf,
    },
    /// Show where the data of a file would go, and why.
    Explain {
        /// Name of the program that creates the file, as `ps -o comm` shows it.
        #[arg(long, visible_alias = "program", value_name = "NAME")]
        #[arg(default_value = "", hide_default_value = true)]
        process: String,
        /// Name of the thread that creates the file [default: the name of the program]
        #[arg(long)]
        thread: Option<String>,
        /// Size of the file [default: 0]
        #[arg(long, value_name = "BYTES")]
        size: Option<String>,
        /// The program's write-lifetime hint: not-set, none, short, medium, long or extreme [default: not-set]
        #[arg(long, value_name = "HINT")]
        hint: Option<String>,
        #[command(flatten)]
        mode: ModeArgs,
        /// Path on the volume, such as /db/000012.sst.
        path: OsString,
    },
}

/// Shows, checks and explains policies.
pub fn run(command: &PolicyCommand) -> Result<(), CliError> {
    let text = match command {
        PolicyCommand::List => {
            let mut table = Table::new("policy< streams> about<");
            for policy in Policy::shipped().map_err(VolumeError::from)? {
                table.cells(&[&policy.name(), &policy.streams().len(), &policy.about()]);
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
        PolicyCommand::Explain { process, thread, size, hint, mode, path } => {
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
            in_words(&mode.choice().engine()?.explain(&context))
        }
    };
    print(&text)
}

/// Where a file goes and why, and what came of every rule that was tried.
fn in_words(explained: &Explanation) -> String {
    let mut text = String::new();
    explained.to_string().lines().for_each(|line| text += &(printable(line.as_bytes()) + "\n"));
    if explained.considered.is_empty() {
        return text;
    }
    let mut table = Table::new("policy< line> stream< here< asks for<");
    for rule in &explained.considered {
        let asks = if rule.conditions.is_empty() { "every file" } else { &rule.conditions };
        let verdict = printable(rule.verdict.to_string().as_bytes());
        table.cells(&[&rule.policy, &rule.line, &rule.stream, &verdict, &asks]);
    }
    text.push('\n');
    text.push_str(&table.to_string());
    text
}
