//! The encoding of programs and answers.

use super::super::codec::encode;
use super::random::Random;
use super::*;
use crate::Attr;
use rand::Rng;

/// An answer with all kinds of values.
fn answer(random: &mut Random, attr: Attr) -> Answer {
    let outcome = |random: &mut Random| match random.below(5) {
        0 => Outcome::Done(None),
        1 => Outcome::Done(Some(Value::Bytes(random.bytes(100)))),
        2 => Outcome::Done(Some(Value::Num(random.0.random()))),
        3 => Outcome::Done(Some(Value::Attr(Box::new(Attr { size: random.0.random(), ..attr })))),
        _ if random.below(2) == 0 => Outcome::Skipped,
        _ => Outcome::Failed(random.0.random()),
    };
    let len = random.below(65);
    Answer { outcomes: (0..len).map(|_| outcome(random)).collect() }
}

#[test]
fn programs_and_answers_are_the_same_behind_the_wire_and_no_bytes_break_the_decoder() {
    let attr = MemFs::new().getattr(Ino::ROOT).unwrap();
    let (mut good, mut bad) = (0u32, 0u32);
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let program = random.any_program();
        let (answer, mut bytes) = (answer(&mut random, attr), encode(&program));
        assert_eq!(Program::decode(&bytes).unwrap(), program);
        let answered = answer.encode();
        assert_eq!(Answer::decode(&answered).unwrap(), answer);
        for end in [0, random.below(bytes.len()), bytes.len() - 1] {
            assert!(Program::decode(&bytes[..end]).is_err());
        }
        bytes.push(0);
        assert_eq!(Program::decode(&bytes), Err(DecodeError::Long(1)));
        bytes.pop();
        // Mutated: an error, or a program that is encoded as these bytes.
        for _ in 0..20 {
            for (original, is_program) in [(&bytes, true), (&answered, false)] {
                let mut mutated = original.clone();
                for _ in 0..1 + random.below(4) {
                    let at = random.below(mutated.len());
                    mutated[at] = match random.below(3) {
                        0 => random.0.random(),
                        1 => mutated[at] ^ 1 << random.below(8),
                        _ => 255,
                    };
                }
                let again = match is_program {
                    true => Program::decode(&mutated).map(|program| {
                        let encoded = encode(&program);
                        let _ = check(program);
                        encoded
                    }),
                    false => Answer::decode(&mutated).map(|answer| answer.encode()),
                };
                match again {
                    Ok(encoded) => {
                        assert_eq!(encoded, mutated);
                        good += 1;
                    }
                    Err(_) => bad += 1,
                }
            }
        }
        // Random, with a good beginning now and then.
        for _ in 0..20 {
            let mut bytes = random.bytes(200);
            if random.below(2) == 0 && bytes.len() > 4 {
                bytes[..4].copy_from_slice(&[1, 0, 0, 0]);
            }
            let _ = (Program::decode(&bytes), Answer::decode(&bytes));
        }
    }
    println!("mutated: {good} decoded, {bad} refused");
}

#[test]
fn a_length_that_is_not_there_takes_no_memory() {
    // Version 1, All, not durable, one operation, no flags, Len of a literal of 4 GiB.
    let bytes = [1, 0, 0, 0, 1, 0, 21, 0, 255, 255, 255, 255, 7];
    assert_eq!(Program::decode(&bytes), Err(DecodeError::Short));
    assert_eq!(Program::decode(&[2, 0, 0, 0, 0]), Err(DecodeError::Version(2)));
    assert!(matches!(Program::decode(&[1, 0, 3, 0, 0]), Err(DecodeError::Unknown(3, "Policy"))));
}

#[test]
fn the_encoding_is_the_one_that_is_described() {
    let mut chain = Chain::prefix();
    let a = chain.open("a", Access::Read);
    let read = chain.when(1, Compare::Less, 2).read(a, 3, 4);
    chain.export(read);
    let bytes = chain.durable().check().unwrap().encode();
    let open = [0, 0, 0, 0, 1, 0, 0, 0, b'a', 1, 1];
    let num = |num: u8| [0, num, 0, 0, 0, 0, 0, 0, 0];
    let guard = [&[0][..], &num(1), &[2, 0], &num(2)].concat();
    let read = [&[3][..], &guard, &[5, 0], &num(3), &num(4)].concat();
    assert_eq!(bytes, [&[1, 0, 1, 1, 2][..], &open, &read].concat());
}

/// The example of docs/formats/compound-programs.md is that program.
#[test]
fn the_page_of_the_format_shows_a_program() {
    let page = include_str!("../../../../../docs/formats/compound-programs.md");
    let example = page.split("```").nth(3).unwrap();
    let bytes: Vec<u8> =
        example.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let mut chain = Chain::all();
    let file = chain.open("/a", Access::Read);
    let read = chain.read(file, 0, 4);
    chain.export(read);
    let program = chain.check().unwrap();
    assert_eq!(program.encode(), bytes);
    assert_eq!(check(Program::decode(&bytes).unwrap()).unwrap(), program);
    // Each kind stands there under its number.
    for number in 0..=30 {
        let row = format!("\n| {number} | ");
        let name = page.split(&row).nth(1).unwrap().split(' ').next().unwrap();
        assert!(!name.is_empty(), "kind {number}");
    }
}
