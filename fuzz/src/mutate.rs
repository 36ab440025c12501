//! Changing inputs.

use crate::script::{Dice, EDGES};

/// Longest input.
pub const INPUT_MAX: usize = 16 * 1024;

/// A child of `parent`: some changes, of bytes or of words from `words`, or a part of `other`.
pub fn child(dice: &mut Dice, parent: &[u8], other: &[u8], words: &[&[u8]]) -> Vec<u8> {
    let mut input = parent.to_vec();
    for _ in 0..1 << dice.below(5) {
        change(dice, &mut input, other, words);
    }
    input.truncate(INPUT_MAX);
    input
}

fn change(dice: &mut Dice, input: &mut Vec<u8>, other: &[u8], words: &[&[u8]]) {
    let at = dice.below(input.len() + 1);
    let until = at + dice.below((input.len() - at).min(64) + 1);
    match dice.below(if words.is_empty() { 9 } else { 12 }) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = dice.roll() as u8,
        2 if at < input.len() => input[at] = input[at].wrapping_add(dice.below(9) as u8).wrapping_sub(4),
        3 => drop(input.drain(at..until)),
        4 => {
            let fresh: Vec<u8> = (0..dice.below(24)).map(|_| dice.roll() as u8).collect();
            input.splice(at..at, fresh);
        }
        5 => {
            // Once more, perhaps elsewhere.
            let piece = input[at..until].to_vec();
            let to = dice.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        6 => {
            let edge = EDGES[dice.below(EDGES.len())].to_le_bytes();
            let len = [1, 2, 4, 8][dice.below(4)];
            let end = (at + len).min(input.len());
            input.splice(at..end, edge[..len].iter().copied());
        }
        7 => {
            let from = dice.below(other.len() + 1);
            let to = from + dice.below((other.len() - from).min(256) + 1);
            input.splice(at..until, other[from..to].iter().copied());
        }
        8 => input.truncate(at.max(input.len() / 2)),
        9 => {
            let word = words[dice.below(words.len())];
            input.splice(at..at, word.iter().copied());
        }
        10 => {
            let word = words[dice.below(words.len())];
            input.splice(at..until, word.iter().copied());
        }
        11 => lines(dice, input),
        _ => input.insert(at, dice.roll() as u8),
    }
}

/// Drops, doubles or moves a line.
fn lines(dice: &mut Dice, input: &mut Vec<u8>) {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|&byte| byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let (at, last) = (dice.below(lines.len()), lines.len() - 1);
    let line = lines[dice.below(lines.len())];
    match dice.below(3) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, line),
        _ => lines.swap(at, last),
    }
    *input = lines.concat();
}
