//! The modules that are shipped as examples, against the same in Rust.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weft_compute::{Error, Limits, Module};

fn module(text: &str) -> Module {
    Module::compile(&wat::parse_str(text).unwrap()).unwrap()
}

fn call(module: &Module, input: &[u8]) -> Result<Vec<u8>, Error> {
    let limits = Limits { fuel: 10_000_000, output_bytes: 1 << 20 };
    module.call(input, limits, &mut |_| true).map(|returned| returned.bytes)
}

fn header(nums: &[u32]) -> Vec<u8> {
    nums.iter().flat_map(|num| num.to_le_bytes()).collect()
}

/// Rows of this width, and the numbers in their column.
fn rows(random: &mut StdRng, width: usize, at: usize, below: u64) -> (Vec<u8>, Vec<u64>) {
    let (mut rows, mut column) = (Vec::new(), Vec::new());
    for _ in 0..random.random_range(0..300) {
        let mut row: Vec<u8> = (0..width).map(|_| random.random()).collect();
        let num = random.random_range(0..below);
        row[at..at + 8].copy_from_slice(&num.to_le_bytes());
        rows.extend(row);
        column.push(num);
    }
    (rows, column)
}

#[test]
fn a_column_is_summed() {
    let (sum, mut random) = (module(include_str!("../modules/sum_column.wat")), StdRng::seed_from_u64(1));
    for _ in 0..200 {
        let width = random.random_range(8..400);
        let at = random.random_range(0..=width - 8);
        let (rows, column) = rows(&mut random, width, at, 1 << 40);
        let input = [header(&[width as u32, at as u32]), rows].concat();
        assert_eq!(call(&sum, &input).unwrap(), column.iter().sum::<u64>().to_le_bytes());
    }
    let too_much = [header(&[8, 0]), vec![255; 16]].concat();
    for wrong in [&[][..], &[8, 0, 0], &header(&[8, 1]), &header(&[0, 0]), &header(&[8, u32::MAX]), &too_much]
    {
        assert_eq!(call(&sum, wrong).unwrap_err().errno(), libc::EFAULT);
    }
}

#[test]
fn rows_are_filtered() {
    let (filter, mut random) = (module(include_str!("../modules/filter_rows.wat")), StdRng::seed_from_u64(2));
    let compare: [fn(&u64, &u64) -> bool; 4] = [u64::eq, u64::ne, u64::lt, u64::le];
    for turn in 0..400 {
        let width = random.random_range(8..400);
        let at = random.random_range(0..=width - 8);
        let (rows, column) = rows(&mut random, width, at, 5);
        let (how, value) = (turn % 4, random.random_range(0..6u64));
        let input =
            [header(&[width as u32, at as u32, how as u32]), value.to_le_bytes().to_vec(), rows.clone()]
                .concat();
        let kept = rows.chunks(width).zip(&column).filter(|(_, num)| compare[how](num, &value));
        assert_eq!(
            call(&filter, &input).unwrap(),
            kept.flat_map(|(row, _)| row).copied().collect::<Vec<u8>>()
        );
    }
    let unknown = [header(&[8, 0, 4]), vec![0; 16]].concat();
    for wrong in [&[][..], &[8; 19], &[255; 100], &unknown] {
        assert_eq!(call(&filter, wrong).unwrap_err().errno(), libc::EFAULT);
    }
}

#[test]
fn the_block_of_a_key_is_found() {
    let (find, mut random) = (module(include_str!("../modules/find_block.wat")), StdRng::seed_from_u64(3));
    for _ in 0..500 {
        let mut firsts: Vec<u64> =
            (0..random.random_range(0..40)).map(|_| random.random_range(0..100)).collect();
        firsts.sort_unstable();
        let key = random.random_range(0..101u64);
        let entries = firsts.iter().enumerate().map(|(at, first)| [*first, at as u64 * 1_000, at as u64 + 1]);
        let index: Vec<u8> = [key].into_iter().chain(entries.flatten()).flat_map(u64::to_le_bytes).collect();
        let found =
            firsts.iter().rposition(|first| *first <= key).map(|at| [at as u64 * 1_000, at as u64 + 1]);
        let expected: Vec<u8> = found.into_iter().flatten().flat_map(u64::to_le_bytes).collect();
        assert_eq!(call(&find, &index).unwrap(), expected);
    }
    assert_eq!(call(&find, b"short").unwrap_err().errno(), libc::EFAULT);
}
