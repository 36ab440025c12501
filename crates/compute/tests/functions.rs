//! Functions: what they may have, and that a call beyond it ends in the error that it should, on time.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Instant;
use weft_compute::{
    EXPORTS_MAX, Error, FUEL_MAX, Limits, MEMORY_BYTES_MAX, MODULE_BYTES_MAX, MODULES_BYTES_MAX, MODULES_MAX,
    Module, Modules, Returned, SLICE_NS, TABLE_ELEMENTS_MAX,
};

const LIMITS: Limits = Limits { fuel: 50_000_000, output_bytes: 1 << 20 };

fn binary(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A module with this in front of a plain `alloc` and this body of `run`.
fn module_of(before: &str, run: &str) -> Result<Module, Error> {
    Module::compile(&binary(&format!(
        "(module {before} (memory (export \"memory\") 1)
           (func (export \"alloc\") (param i32) (result i32) (i32.const 1024))
           (func (export \"run\") (param $ptr i32) (param $len i32) (result i64) {run}))"
    )))
}

fn call(module: &Module, input: &[u8], limits: Limits) -> Result<Returned, Error> {
    module.call(input, limits, &mut |_| true)
}

#[track_caller]
fn errno(run: &str) -> i32 {
    call(&module_of("", run).unwrap(), b"", LIMITS).unwrap_err().errno()
}

/// Gives back its input.
const ECHO: &str = "(i64.or (i64.shl (i64.extend_i32_u (local.get $ptr)) (i64.const 32))
                            (i64.extend_i32_u (local.get $len)))";
const FOREVER: &str = "(loop $on (br $on)) (i64.const 0)";

#[test]
fn a_function_gets_its_input_and_gives_its_result() {
    let echo = module_of("", ECHO).unwrap();
    for input in [&b""[..], b"x", &[7; 60_000]] {
        assert_eq!(call(&echo, input, LIMITS).unwrap().bytes, input);
    }
    let all_of_memory = call(&module_of("", "(i64.const 65536)").unwrap(), b"in", LIMITS).unwrap().bytes;
    assert_eq!((all_of_memory.len(), &all_of_memory[1024..1026]), (65_536, &b"in"[..]));
}

#[test]
fn a_call_sees_nothing_of_the_one_before() {
    let counts = module_of(
        "(global $calls (mut i32) (i32.const 0))",
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
         (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (global.get $calls))) (i64.const 4)",
    )
    .unwrap();
    for _ in 0..3 {
        assert_eq!(call(&counts, b"", LIMITS).unwrap().bytes, [1, 0, 0, 0]);
    }
}

#[test]
fn a_result_is_as_long_as_allowed_and_within_the_memory() {
    let echo = module_of("", ECHO).unwrap();
    let limits = Limits { output_bytes: 100, ..LIMITS };
    assert_eq!(call(&echo, &[1; 100], limits).unwrap().bytes.len(), 100);
    let longer = call(&echo, &[1; 101], limits).unwrap_err();
    assert_eq!((longer.errno(), longer), (libc::E2BIG, Error::TooLong { max: 100 }));
    let everywhere = Limits { output_bytes: usize::MAX, ..LIMITS };
    for result in ["0xFFFFFFFF_FFFFFFFF", "0xFFFFFFFF_00000001", "65537", "0x00010000_00000001"] {
        let outside = module_of("", &format!("(i64.const {result})")).unwrap();
        assert_eq!(call(&outside, b"", everywhere).unwrap_err().errno(), libc::EFAULT, "{result}");
    }
    assert_eq!(
        call(&module_of("", "(i64.const 0x00010000_00000000)").unwrap(), b"", everywhere).unwrap().bytes,
        b""
    );
    // Where alloc says that the input goes.
    assert_eq!(call(&echo, &[1; 64_512], LIMITS).unwrap().bytes.len(), 64_512);
    assert_eq!(call(&echo, &[1; 64_513], LIMITS).unwrap_err().errno(), libc::EFAULT);
}

#[test]
fn traps_end_a_call_and_nothing_else() {
    for (run, is) in [
        ("(unreachable)", libc::EFAULT),
        ("(i64.load (i32.const 65529))", libc::EFAULT),
        ("(i64.load offset=0xFFFFFFFF (i32.const -1))", libc::EFAULT),
        ("(i64.div_u (i64.const 1) (i64.const 0))", libc::EFAULT),
        ("(i64.trunc_f64_u (f64.const nan))", libc::EFAULT),
        ("(memory.fill (i32.const 65535) (i32.const 0) (i32.const 2)) (i64.const 0)", libc::EFAULT),
    ] {
        assert_eq!(errno(run), is, "{run}");
    }
}

#[test]
fn fuel_ends_what_does_not_end_and_is_the_same_each_time() {
    assert_eq!(errno(FOREVER), libc::ETIME);
    let forever_in_alloc = "(module (memory (export \"memory\") 1)
        (func (export \"alloc\") (param i32) (result i32) (loop $on (br $on)) (i32.const 0))
        (func (export \"run\") (param i32 i32) (result i64) (i64.const 0)))";
    let forever_in_alloc = Module::compile(&binary(forever_in_alloc)).unwrap();
    assert_eq!(call(&forever_in_alloc, b"", LIMITS), Err(Error::Fuel { fuel: LIMITS.fuel }));

    // A loop, a large copy and a growth, which are not divided.
    let works = module_of(
        "",
        "(local $i i32)
         (loop $on
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (memory.fill (i32.const 0) (local.get $i) (i32.const 60000))
           (br_if $on (i32.lt_u (local.get $i) (i32.const 3000))))
         (drop (memory.grow (i32.const 100)))
         (memory.fill (i32.const 0) (i32.const 1) (i32.const 6000000))
         (i64.const 8)",
    )
    .unwrap();
    let mut slices = 0;
    let done = works
        .call(b"", LIMITS, &mut |_| {
            slices += 1;
            true
        })
        .unwrap();
    assert!(slices > 2, "{slices} slices");
    for _ in 0..3 {
        assert_eq!(call(&works, b"", LIMITS).unwrap(), done);
    }
    let exactly = Limits { fuel: done.fuel, ..LIMITS };
    assert_eq!(call(&works, b"", exactly).unwrap(), done);
    for fuel in [0, 1, 1_000, done.fuel / 2, done.fuel - 1] {
        assert_eq!(call(&works, b"", Limits { fuel, ..LIMITS }), Err(Error::Fuel { fuel }));
    }
}

#[test]
fn fuel_has_an_upper_limit() {
    let begun = Instant::now();
    let most = Limits { fuel: u64::MAX, ..LIMITS };
    assert_eq!(call(&module_of("", FOREVER).unwrap(), b"", most), Err(Error::Fuel { fuel: FUEL_MAX }));
    println!("{FUEL_MAX} units of fuel took {:?}", begun.elapsed());
}

#[test]
fn whoever_is_asked_after_a_slice_stops_the_call_on_time() {
    let forever = module_of("", FOREVER).unwrap();
    let most = Limits { fuel: FUEL_MAX, ..LIMITS };
    let (mut asked, mut last) = (0u64, 0);
    let stopped = forever.call(b"", most, &mut |ns| {
        assert!(ns >= last);
        (asked, last) = (asked + 1, ns);
        ns < 20 * SLICE_NS
    });
    let Err(Error::Stopped { ns }) = stopped else { panic!("{stopped:?}") };
    assert_eq!(stopped.unwrap_err().errno(), libc::ETIME);
    println!("asked {asked} times in {ns} ns");
    assert!(asked > 4, "{asked} slices in {ns} ns");
    let mut asked = 0;
    assert!(matches!(
        forever.call(b"", most, &mut |_| {
            asked += 1;
            false
        }),
        Err(Error::Stopped { .. })
    ));
    assert_eq!(asked, 1);
}

#[test]
fn slices_stay_short_when_each_unit_of_fuel_takes_long() {
    // Calls that clear thousands of locals take little fuel.
    let locals = "(local i64)".repeat(8_000);
    let slow = module_of(
        &format!("(func $clears (param i64) {locals})"),
        "(loop $on (call $clears (i64.const 1)) (br $on)) (i64.const 0)",
    )
    .unwrap();
    let (mut last, mut longest, mut asked) = (0, 0, 0);
    let _ = slow.call(b"", Limits { fuel: FUEL_MAX, ..LIMITS }, &mut |ns| {
        // The first ones find the pace.
        if asked > 8 {
            longest = longest.max(ns - last);
        }
        (last, asked) = (ns, asked + 1);
        asked < 200
    });
    println!("the longest of {asked} slices took {longest} ns; all of them {last} ns");
    assert!(last / asked < 50 * SLICE_NS, "{} ns a slice", last / asked);
}

#[test]
fn memory_and_stack_end_where_they_should() {
    let pages = MEMORY_BYTES_MAX >> 16;
    let grow = |pages: usize| format!("(drop (memory.grow (i32.const {pages}))) (i64.const 0)");
    assert!(call(&module_of("", &grow(pages - 1)).unwrap(), b"", LIMITS).is_ok());
    assert_eq!(errno(&grow(pages)), libc::ENOMEM);
    assert_eq!(errno("(loop $on (drop (memory.grow (i32.const 1))) (br $on)) (i64.const 0)"), libc::ENOMEM);
    // A module's own limit is told to it.
    let own = "(module (memory (export \"memory\") 1 2)
        (func (export \"alloc\") (param i32) (result i32) (i32.const 0))
        (func (export \"run\") (param i32 i32) (result i64)
          (i32.store (i32.const 0) (memory.grow (i32.const 5))) (i64.const 4)))";
    assert_eq!(call(&Module::compile(&binary(own)).unwrap(), b"", LIMITS).unwrap().bytes, [255; 4]);
    let begins_with = |pages: usize| {
        let text = format!(
            "(module (memory (export \"memory\") {pages})
            (func (export \"alloc\") (param i32) (result i32) (i32.const 0))
            (func (export \"run\") (param i32 i32) (result i64) (i64.const 1)))"
        );
        Module::compile(&binary(&text))
    };
    assert_eq!(call(&begins_with(pages).unwrap(), b"", LIMITS).unwrap().bytes, [0]);
    assert_eq!(begins_with(pages + 1).unwrap_err().errno(), libc::ENOMEM);
    // Its first memory takes fuel.
    assert_eq!(
        call(&begins_with(pages).unwrap(), b"", Limits { fuel: 100_000, ..LIMITS }).unwrap_err().errno(),
        libc::ETIME
    );
    assert_eq!(
        call(&module_of("", ECHO).unwrap(), &vec![0; MEMORY_BYTES_MAX], LIMITS).unwrap_err().errno(),
        libc::EFAULT
    );

    for deep in [
        "(func $deep (call $deep))",
        "(func $deep (call_indirect (i32.const 0))) (table funcref (elem $deep))",
    ] {
        let deep = module_of(deep, "(call $deep) (i64.const 0)").unwrap();
        assert_eq!(call(&deep, b"", LIMITS).unwrap_err().errno(), libc::ENOMEM);
    }
    let wide = format!("(func $wide {})", "(local i64)".repeat(20_000));
    assert_eq!(
        call(&module_of(&wide, "(call $wide) (i64.const 0)").unwrap(), b"", LIMITS).unwrap_err().errno(),
        libc::ENOMEM
    );
}

#[test]
fn a_table_is_small_and_does_not_grow() {
    let table = |elements: usize| format!("(table $t {elements} funcref)");
    let grow = "(i32.store (i32.const 0) (table.grow $t (ref.null func) (i32.const 1))) (i64.const 4)";
    let most = module_of(&table(TABLE_ELEMENTS_MAX), grow).unwrap();
    assert_eq!(call(&most, b"", LIMITS).unwrap().bytes, [255; 4]);
    assert_eq!(call(&module_of(&table(0), grow).unwrap(), b"", LIMITS).unwrap().bytes, [255; 4]);
    let more = module_of(&table(TABLE_ELEMENTS_MAX + 1), "(i64.const 0)").unwrap();
    assert_eq!(call(&more, b"", LIMITS).unwrap_err().errno(), libc::ENOMEM);
    let many = module_of(&"(table 1 funcref)".repeat(5), "(i64.const 0)").unwrap();
    assert_eq!(call(&many, b"", LIMITS).unwrap_err().errno(), libc::ENOMEM);
}

#[test]
fn what_cannot_be_a_function_is_no_module() {
    let memory = "(memory (export \"memory\") 1)";
    let alloc = "(func (export \"alloc\") (param i32) (result i32) (i32.const 0))";
    let run = "(func (export \"run\") (param i32 i32) (result i64) (i64.const 0))";
    assert!(Module::compile(&binary(&format!("(module {memory}{alloc}{run})"))).is_ok());
    for text in [
        String::new(),
        format!("{alloc}{run}"),
        format!("{memory}{alloc}"),
        format!("{memory}{run}"),
        format!("(import \"env\" \"f\" (func)) {memory}{alloc}{run}"),
        format!("(import \"env\" \"m\" (memory 1)) {memory}"),
        format!("(import \"env\" \"g\" (global i32)) {memory}{alloc}{run}"),
        format!("{memory}{alloc}{run} (func $s) (start $s)"),
        format!("{memory}{alloc}{run} (func $s (loop $on (br $on))) (start $s)"),
        format!("{memory}{alloc} (func (export \"run\") (param i64 i32) (result i64) (i64.const 0))"),
        format!("{memory}{run} (func (export \"alloc\") (param i32))"),
        format!("{run}{alloc} (global (export \"memory\") i32 (i32.const 0))"),
        format!("{memory}{alloc}{run} (memory 1)"),
        format!("(memory (export \"memory\") i64 1) {alloc}{run}"),
        format!("{memory}{alloc}{run} (func (result v128) (v128.const i64x2 0 0))"),
        format!(
            "{memory}{alloc}{run} (func $f {})",
            (0..=EXPORTS_MAX).map(|n| format!("(export \"{n}\")")).collect::<String>()
        ),
    ] {
        let refused = Module::compile(&binary(&format!("(module {text})"))).unwrap_err();
        assert!(matches!(refused, Error::Module(_)) && refused.errno() == libc::ENOEXEC, "{text}: {refused}");
    }
    // Few bytes that take long to compile: more locals than all functions may have, in three functions.
    let wide =
        format!("{memory}{alloc}{run} {}", format!("(func {})", "(local i64)".repeat(22_000)).repeat(3));
    let refused = Module::compile(&binary(&format!("(module {wide})"))).unwrap_err();
    assert!(refused.to_string().contains("locals"), "{refused}");
    // Instructions behind the end of a function: `end`, the last byte of the code, twice in place of `i64.const 0`.
    let mut goes_on = binary(&format!("(module {memory}{alloc}{run})"));
    let end = goes_on.len() - 3;
    assert_eq!(goes_on[end..], [0x42, 0, 0x0B]);
    goes_on[end..].copy_from_slice(&[0x0B, 0x01, 0x0B]);
    assert_eq!(Module::compile(&goes_on).unwrap_err().errno(), libc::ENOEXEC);
    // Text is no module.
    assert_eq!(Module::compile(b"(module)").unwrap_err().errno(), libc::ENOEXEC);
}

#[test]
fn data_is_as_long_as_the_module_and_within_the_memory() {
    let data = |at: usize, len: usize| format!("(data (i32.const {at}) \"{}\")", "x".repeat(len));
    assert_eq!(
        call(&module_of(&data(0, 65_536), "(i64.const 3)").unwrap(), b"", LIMITS).unwrap().bytes,
        b"xxx"
    );
    let outside = module_of(&data(65_535, 2), "(i64.const 0)").unwrap();
    assert_eq!(call(&outside, b"", LIMITS).unwrap_err().errno(), libc::EFAULT);
    let huge = module_of(&data(0, MODULE_BYTES_MAX), "(i64.const 0)").unwrap_err();
    assert!(matches!(huge, Error::ModuleTooLong { .. }) && huge.errno() == libc::E2BIG);
}

#[test]
fn modules_are_compiled_once_and_those_that_were_not_used_for_longest_go() {
    let numbered = |number: usize, len: usize| {
        binary(&format!(
            "(module (memory (export \"memory\") 1) (func (export \"alloc\") (param i32) (result i32) (i32.const 0))
               (func (export \"run\") (param i32 i32) (result i64) (i64.const {number}))
               (data \"{}\"))",
            "x".repeat(len)
        ))
    };
    let modules = Modules::new();
    let first = modules.get(&numbered(0, 0)).unwrap();
    for number in 1..2 * MODULES_MAX {
        modules.get(&numbered(number, 0)).unwrap();
        assert!(Arc::ptr_eq(&modules.get(&numbered(0, 0)).unwrap(), &first));
        assert!(modules.len() <= MODULES_MAX);
    }
    assert_eq!(modules.len(), MODULES_MAX);
    for number in 1..=MODULES_MAX {
        modules.get(&numbered(number, 0)).unwrap();
    }
    assert!(
        !Arc::ptr_eq(&modules.get(&numbered(0, 0)).unwrap(), &first),
        "it was used last and is still there"
    );
    let large = MODULE_BYTES_MAX - 1_000;
    for number in 0..20 {
        modules.get(&numbered(number, large)).unwrap();
    }
    assert_eq!(modules.len(), MODULES_BYTES_MAX / large);
    assert!(modules.get(b"no module").is_err() && !modules.is_empty());
}

#[test]
fn threads_share_a_module() {
    let (modules, echo) = (Modules::new(), binary(include_str!("../modules/sum_column.wat")));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (modules, echo) = (&modules, &echo);
            scope.spawn(move || {
                for n in 0..50u64 {
                    let rows: Vec<u8> = (0..=n).flat_map(|row| (row * thread).to_le_bytes()).collect();
                    let input = [&[8, 0, 0, 0, 0, 0, 0, 0][..], &rows].concat();
                    let sum = modules.get(echo).unwrap().call(&input, LIMITS, &mut |_| true).unwrap().bytes;
                    assert_eq!(sum, (thread * n * (n + 1) / 2).to_le_bytes());
                }
            });
        }
    });
    assert_eq!(modules.len(), 1);
}

#[test]
fn damaged_modules_give_an_error_or_a_result() {
    let mut random = StdRng::seed_from_u64(1);
    let (mut compiled, mut done) = (0u32, 0u32);
    for text in [
        include_str!("../modules/sum_column.wat"),
        include_str!("../modules/filter_rows.wat"),
        include_str!("../modules/find_block.wat"),
    ] {
        let whole = binary(text);
        for _ in 0..3_000 {
            let mut damaged = whole.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(8..damaged.len());
                damaged[at] = random.random();
            }
            let Ok(module) = Module::compile(&damaged) else { continue };
            compiled += 1;
            let limits = Limits { fuel: 200_000, output_bytes: 1_000 };
            done +=
                u32::from(call(&module, &[8; 200], limits).is_ok_and(|result| result.bytes.len() <= 1_000));
        }
    }
    println!("{compiled} modules compiled, {done} calls were done");
    assert!(compiled > 100 && done > 10, "{compiled} compiled, {done} done");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_no_module(garbage in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Module::compile(&garbage).is_err());
        prop_assert!(Module::compile(&[b"\0asm\x01\0\0\0", &garbage[..]].concat()).is_err());
    }
}
