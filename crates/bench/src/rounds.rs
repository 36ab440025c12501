//! Many figures of one run: a child prints a line `NAME FIGURE` for each, and runs on both sides take turns.

use crate::db_bench::output_of;
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit};
use std::io::{self, Write};
use std::process::Command;

/// The lines of a child's output, in their order.
pub fn figures(output: &str) -> Result<Vec<(String, f64)>, BenchError> {
    let figure = |line: &str| {
        let (name, figure) = line.rsplit_once(' ')?;
        Some((name.to_string(), figure.parse().ok()?))
    };
    output
        .lines()
        .map(|line| {
            figure(line).ok_or_else(|| BenchError::NoFigure { command: "child".into(), output: line.into() })
        })
        .collect()
}

/// Runs both sides `rounds` times in turns, every other round the other way round.
pub fn compare(
    title: &str,
    unit: Unit,
    rounds: u32,
    mut peer: impl FnMut() -> Result<Command, BenchError>,
    mut weft: impl FnMut() -> Result<Command, BenchError>,
) -> Result<Vec<Comparison>, BenchError> {
    let mut compared: Vec<Comparison> = Vec::new();
    for round in 0..rounds {
        for side in [round % 2, 1 - round % 2] {
            let mut command = if side == 0 { peer()? } else { weft()? };
            for (name, figure) in figures(&output_of(&mut command)?)? {
                let name = if title.is_empty() { name } else { format!("{name}, {title}") };
                let at = compared.iter().position(|c| c.name == name).unwrap_or_else(|| {
                    compared.push(Comparison::new(name, unit, "disk"));
                    compared.len() - 1
                });
                let runs = if side == 0 { &mut compared[at].peer_runs } else { &mut compared[at].weft_runs };
                runs.push(figure);
            }
        }
        // Progress for whoever waits; nothing depends on it.
        let _ = writeln!(io::stderr(), "{title} round {}/{rounds}", round + 1);
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_and_a_figure() {
        let read = figures("create, unlink 1.5\nstat 2\n").unwrap();
        assert_eq!(read, [("create, unlink".to_string(), 1.5), ("stat".to_string(), 2.0)]);
        assert!(figures("stat none\n").is_err());
    }

    #[test]
    fn sides_take_turns_and_figures_are_gathered_by_name() {
        let side = |figure: u32| {
            move || {
                let mut command = Command::new("printf");
                command.arg(format!("stat {figure}\\nopen {figure}\\n"));
                Ok(command)
            }
        };
        let done = compare("idle", Unit::MicrosPerOperation, 3, side(1), side(2)).unwrap();
        assert_eq!(done.len(), 2);
        assert_eq!((done[0].name.as_str(), done[1].name.as_str()), ("stat, idle", "open, idle"));
        assert_eq!(
            (done[0].peer_runs.as_slice(), done[0].weft_runs.as_slice()),
            (&[1.0; 3][..], &[2.0; 3][..])
        );
    }
}
