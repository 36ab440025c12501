//! `weft-fuzz TARGET SECONDS [SEED]`, `weft-fuzz TARGET --replay FILE`, `weft-fuzz --list`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--list"] => {
            weft_fuzz::names().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
        [name, "--replay", file] => match (weft_fuzz::by_name(name), std::fs::read(file)) {
            (Some(mut target), Ok(input)) => {
                if weft_fuzz::replay(&mut *target, &input) {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                }
            }
            (None, _) => fail(&format!("there is no target {name}; --list tells them")),
            (_, Err(error)) => fail(&format!("{file}: {error}")),
        },
        [name, seconds] | [name, seconds, _] => {
            let seed = words.get(2).and_then(|seed| seed.parse().ok()).unwrap_or(1);
            match (weft_fuzz::by_name(name), seconds.parse()) {
                (Some(mut target), Ok(seconds)) => {
                    let begun = Instant::now();
                    let outcome = weft_fuzz::drive(&mut *target, Duration::from_secs(seconds), seed);
                    println!(
                        "{name}: {} inputs in {} s, {} kept, {} regions reached, {}",
                        outcome.tried,
                        begun.elapsed().as_secs(),
                        outcome.kept,
                        outcome.regions,
                        match &outcome.finding {
                            None => "no finding".into(),
                            Some(path) => format!("FINDING {}", path.display()),
                        }
                    );
                    if outcome.finding.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
                }
                (None, _) => fail(&format!("there is no target {name}; --list tells them")),
                (_, Err(_)) => fail(&format!("{seconds}: give a number of seconds")),
            }
        }
        _ => fail("usage: weft-fuzz TARGET SECONDS [SEED] | TARGET --replay FILE | --list"),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("weft-fuzz: {why}");
    ExitCode::from(2)
}
