//! The search.

use crate::coverage::Reached;
use crate::guard;
use crate::mutate::child;
use crate::script::Dice;
use crate::targets::Target;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Inputs that are kept at most, beyond the seeds.
const CORPUS_MAX: usize = 4096;

/// How a search went.
#[derive(Debug)]
pub struct Outcome {
    /// Inputs tried.
    pub tried: u64,
    /// Inputs that are kept because they reached something new.
    pub kept: usize,
    /// Regions of code that were reached; 0 when the program does not tell.
    pub regions: usize,
    /// The first finding, which ended the search.
    pub finding: Option<PathBuf>,
}

/// Searches for as long as `time`, from a seed that makes equal searches equal (of targets without threads).
pub fn drive(target: &mut dyn Target, time: Duration, seed: u64) -> Outcome {
    guard::watch();
    let mut dice = Dice(seed);
    let mut corpus = target.seeds();
    if corpus.is_empty() {
        corpus.push(Vec::new());
    }
    let seeds = corpus.len();
    let mut reached = Reached::default();
    let mut outcome = Outcome { tried: 0, kept: 0, regions: 0, finding: None };
    let begun = Instant::now();
    while begun.elapsed() < time {
        let input = match corpus.get(outcome.tried as usize) {
            // The seeds as they are.
            Some(seed) if (outcome.tried as usize) < seeds => seed.clone(),
            _ if !Reached::is_told() && dice.one_in(4) && target.is_script() => {
                (0..dice.below(400)).map(|_| dice.roll() as u8).collect()
            }
            _ => {
                // The youngest are the most promising.
                let young = corpus.len().saturating_sub(1 + dice.below(16));
                let parent = if dice.one_in(2) { young } else { dice.below(corpus.len()) };
                let other = dice.below(corpus.len());
                child(&mut dice, &corpus[parent], &corpus[other], target.words())
            }
        };
        outcome.tried += 1;
        Reached::begin();
        let name = target.name();
        if !guard::guarded(name, &input, || target.run(&input)) {
            outcome.finding = Some(guard::keep(name, &input));
            break;
        }
        if reached.add() && corpus.len() < seeds + CORPUS_MAX {
            corpus.push(input);
        }
    }
    outcome.kept = corpus.len() - seeds;
    outcome.regions = reached.regions;
    outcome
}

/// Does one input again; whether it is no finding.
pub fn replay(target: &mut dyn Target, input: &[u8]) -> bool {
    guard::watch();
    guard::guarded(target.name(), input, || target.run(input))
}
