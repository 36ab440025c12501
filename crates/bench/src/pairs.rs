//! Runs that take turns, and what they say together.

use crate::error::BenchError;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};

impl Unit {
    /// Heading, digits of the figures and of the last column, and on which side of 1 the ratio of a faster weft is;
    /// where there is none, the last column has differences.
    fn layout(self) -> (&'static str, usize, usize, Option<&'static str>) {
        match self {
            Unit::OpsPerSecond => ("operations per second", 1, 3, Some("above")),
            Unit::NanosPerCall => ("nanoseconds per call", 1, 1, None),
            Unit::MicrosPerOperation => ("microseconds per operation", 2, 2, Some("below")),
            Unit::Seconds => ("seconds", 3, 2, Some("below")),
        }
    }
}

/// What a figure counts, and so which way is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// More is better.
    OpsPerSecond,
    /// Less is better.
    NanosPerCall,
    /// Less is better.
    MicrosPerOperation,
    /// Less is better.
    Seconds,
}

/// One workload on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub name: String,
    /// What the figures count.
    pub unit: Unit,
    /// What weft is compared with.
    pub peer: String,
    /// The peer's figures, pair by pair.
    pub peer_runs: Vec<f64>,
    /// weft's figures, pair by pair.
    pub weft_runs: Vec<f64>,
}

/// The middle value; the mean of both when there are two in the middle; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

impl Comparison {
    /// A comparison without runs.
    pub fn new(name: String, unit: Unit, peer: &str) -> Comparison {
        Comparison { name, unit, peer: peer.into(), peer_runs: Vec::new(), weft_runs: Vec::new() }
    }

    /// Runs both sides in turns. A side gets the number of the pair and returns its figure.
    pub fn run(
        name: impl Into<String>,
        unit: Unit,
        peer_name: &str,
        pairs: u32,
        mut peer: impl FnMut(u32) -> Result<f64, BenchError>,
        mut weft: impl FnMut(u32) -> Result<f64, BenchError>,
    ) -> Result<Comparison, BenchError> {
        let mut compared = Comparison::new(name.into(), unit, peer_name);
        for pair in 0..pairs {
            let (mut of_peer, mut of_weft) = (0.0, 0.0);
            for is_weft in [pair % 2 == 1, pair % 2 == 0] {
                if is_weft { of_weft = weft(pair)? } else { of_peer = peer(pair)? }
            }
            compared.peer_runs.push(of_peer);
            compared.weft_runs.push(of_weft);
            let _ = writeln!(
                io::stderr(),
                "{} pair {}/{pairs}: {peer_name} {of_peer:.1}, weft {of_weft:.1}",
                compared.name,
                pair + 1
            );
        }
        Ok(compared)
    }

    /// weft's figure over the peer's, pair by pair.
    pub fn ratios(&self) -> Vec<f64> {
        let pairs = self.weft_runs.iter().zip(&self.peer_runs);
        pairs.map(|(weft, peer)| if *peer == 0.0 { 0.0 } else { weft / peer }).collect()
    }

    /// weft's figure less the peer's, pair by pair.
    pub fn differences(&self) -> Vec<f64> {
        self.weft_runs.iter().zip(&self.peer_runs).map(|(weft, peer)| weft - peer).collect()
    }
}

/// The comparisons as a table.
pub fn table(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    for unit in [Unit::OpsPerSecond, Unit::NanosPerCall, Unit::MicrosPerOperation, Unit::Seconds] {
        let (heading, figure_digits, digits, faster) = unit.layout();
        let rows: Vec<&Comparison> = comparisons.iter().filter(|c| c.unit == unit).collect();
        if rows.is_empty() {
            continue;
        }
        let width = rows.iter().map(|c| c.name.len()).max().unwrap_or(0).max(8);
        let last = if faster.is_some() { "ratio" } else { "added" };
        let _ = writeln!(
            text,
            "\n{heading}, medians of {} pairs\n{:<width$}  {:>12}  {:>12}  {last:>9}  lowest to highest",
            rows.iter().map(|c| c.peer_runs.len()).min().unwrap_or(0),
            "",
            "peer",
            "weft"
        );
        for row in rows {
            let of = if faster.is_some() { row.ratios() } else { row.differences() };
            let lowest = of.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let _ = writeln!(
                text,
                "{:<width$}  {:>12.figure_digits$}  {:>12.figure_digits$}  {:>9.digits$}  {lowest:.digits$} to {highest:.digits$}",
                row.name,
                median(&row.peer_runs),
                median(&row.weft_runs),
                median(&of)
            );
        }
        let _ = match faster {
            Some(side) => writeln!(text, "ratio: weft over the peer within pairs; {side} 1 weft is faster"),
            None => writeln!(text, "added: what a call costs more under the preloaded library"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn pairs_take_turns_and_every_other_one_is_the_other_way_round() {
        let order = RefCell::new(String::new());
        let side = |sign: char| {
            order.borrow_mut().push(sign);
            Ok(1.0)
        };
        let done = Comparison::run("x", Unit::OpsPerSecond, "peer", 3, |_| side('p'), |_| side('w')).unwrap();
        assert_eq!(*order.borrow(), "pwwppw");
        assert_eq!((done.peer_runs.len(), done.weft_runs.len()), (3, 3));
    }

    #[test]
    fn ratios_and_differences_are_taken_within_pairs() {
        let compared = Comparison {
            name: "x".into(),
            unit: Unit::OpsPerSecond,
            peer: "ext4".into(),
            peer_runs: vec![100.0, 200.0, 400.0],
            weft_runs: vec![150.0, 200.0, 200.0],
        };
        assert_eq!(compared.ratios(), [1.5, 1.0, 0.5]);
        assert_eq!(compared.differences(), [50.0, 0.0, -200.0]);
        assert!(table(&[compared]).contains("1.000  0.500 to 1.500"));
    }

    #[test]
    fn the_median_of_two_is_their_mean() {
        assert_eq!(median(&[3.0, 1.0]), 2.0);
        assert_eq!(median(&[3.0, 1.0, 9.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
    }
}
