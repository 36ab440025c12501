//! Rows, their medians, and the table.

use crate::measure::Phase;
use std::fmt::Write;

/// A process of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Step {
    Load,
    Check,
    Delete,
}

/// What a row gave.
#[derive(serde::Serialize, Clone, Debug, Default)]
pub struct Row {
    pub store: String,
    pub durability: String,
    pub insert: Phase,
    pub get: Phase,
    /// Gets of all pairs by a process that has just opened the store.
    pub get_again: Phase,
    pub delete: Phase,
    pub open_after_kill_seconds: f64,
    pub open_after_close_seconds: f64,
    pub close_seconds: f64,
    pub disk_bytes: u64,
    pub peak_bytes: u64,
}

impl Row {
    pub fn add(&mut self, step: Step, phases: &[(String, Phase)]) {
        for (name, phase) in phases {
            self.peak_bytes = self.peak_bytes.max(phase.peak_bytes);
            match (name.as_str(), step) {
                ("insert", _) => self.insert = *phase,
                ("get", _) => self.get = *phase,
                ("get again", _) => self.get_again = *phase,
                ("delete", _) => self.delete = *phase,
                ("open", Step::Check) => self.open_after_kill_seconds = phase.seconds,
                ("open", Step::Delete) => self.open_after_close_seconds = phase.seconds,
                ("close", Step::Check) => self.close_seconds = phase.seconds,
                _ => {}
            }
        }
    }
}

/// `*` marks a phase that its time limit stopped.
fn rate(phase: &Phase) -> String {
    let mark = if phase.ops < phase.wanted { "*" } else { "" };
    if phase.seconds == 0.0 {
        "-".into()
    } else {
        format!("{:.0}{mark}", phase.ops as f64 / phase.seconds / 1e3)
    }
}

fn cpu(phase: &Phase) -> f64 {
    phase.cpu_seconds * 1e6 / phase.ops.max(1) as f64
}

fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}

/// One run in a line.
pub fn line(row: &Row) -> String {
    format!(
        "{} {}: insert {} ({:.2} us), get {} ({:.2}), delete {} ({:.2}) thousand/s; opened in {:.2} s after a kill, {:.2} s after a close",
        row.store,
        row.durability,
        rate(&row.insert),
        cpu(&row.insert),
        rate(&row.get),
        cpu(&row.get),
        rate(&row.delete),
        cpu(&row.delete),
        row.open_after_kill_seconds,
        row.open_after_close_seconds
    )
}

fn median<'r>(rows: &[&'r Row], of: impl Fn(&Row) -> f64) -> &'r Row {
    let mut sorted = rows.to_vec();
    sorted.sort_by(|a, b| of(a).total_cmp(&of(b)));
    sorted[sorted.len() / 2]
}

/// Medians of each store and durability.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "store     durable   runs  insert  (us)     get  (us)  get after open  delete  (us)  peak insert  peak  disk  wrote insert  wrote delete  reopen killed  closed\n",
    );
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let group = (row.store.as_str(), row.durability.as_str());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for (store, durability) in groups {
        let group: Vec<_> = rows
            .iter()
            .filter(|row| (row.store.as_str(), row.durability.as_str()) == (store, durability))
            .collect();
        let (insert, get) = (median(&group, |row| row.insert.seconds), median(&group, |row| row.get.seconds));
        let again = median(&group, |row| row.get_again.seconds);
        let delete = median(&group, |row| row.delete.seconds);
        let peak = median(&group, |row| row.peak_bytes as f64);
        let killed = median(&group, |row| row.open_after_kill_seconds);
        let closed = median(&group, |row| row.open_after_close_seconds);
        let _ = writeln!(
            out,
            "{store:<9} {durability:<9} {:>4} {:>7} {:>5.2} {:>7} {:>5.2} {:>15} {:>7} {:>5.2} {:>12} {:>5} {:>5} {:>13} {:>13} {:>14.2} {:>7.2}",
            group.len(),
            rate(&insert.insert),
            cpu(&insert.insert),
            rate(&get.get),
            cpu(&get.get),
            rate(&again.get_again),
            rate(&delete.delete),
            cpu(&delete.delete),
            mb(insert.insert.peak_bytes),
            mb(peak.peak_bytes),
            mb(delete.disk_bytes),
            mb(insert.insert.device_bytes),
            mb(delete.delete.device_bytes),
            killed.open_after_kill_seconds,
            closed.open_after_close_seconds
        );
    }
    out.push_str("thousands of operations per second and microseconds of the processor for each; memory, disk and bytes to the device in MB; seconds\n");
    out
}
