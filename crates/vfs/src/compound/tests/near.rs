//! Computation near the data: codecs and users' functions in programs over files.

use super::operations::{errno_of, under_each_policy};
use super::*;
use crate::change::{Change, Made, Refused};
use crate::compound::{CALLS_NS_MAX, COMPRESS_BYTES_MAX, OUTPUT_BYTES_MAX, WORK_BYTES_MAX};
use crate::compound::{Op, Stale};
use crate::{FsResult, Protections, TimeSpec};
use std::cell::RefCell;
use weft_compute::FUEL_MAX;
use weft_core::{Credentials, Tag};

const FUEL: u64 = 10_000_000;

fn module(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A module with this body of `run`.
fn module_of(run: &str) -> Vec<u8> {
    module(&format!(
        "(module (memory (export \"memory\") 1) (func (export \"alloc\") (param i32) (result i32) (i32.const 0))
           (func (export \"run\") (param i32 i32) (result i64) {run}))"
    ))
}

fn bytes(nums: &[u64]) -> Vec<u8> {
    nums.iter().flat_map(|num| num.to_le_bytes()).collect()
}

fn header(nums: &[u32]) -> Vec<u8> {
    nums.iter().flat_map(|num| num.to_le_bytes()).collect()
}

#[test]
fn a_file_is_compressed_and_decompressed_where_it_is() {
    under_each_policy(|fs, new| {
        let text = "one line of many\n".repeat(500);
        file(fs, "/plain", &text);
        for codec in [Codec::Lz4, Codec::Lz4Block, Codec::Zstd] {
            let mut chain = new();
            let plain = chain.open("/plain", Access::Read);
            let packed = chain.create("/packed", 0o644, false);
            chain.truncate(packed, 0);
            let content = chain.read(plain, 0, 1 << 20);
            let smaller = chain.compress(content, codec, 0);
            chain.append(packed, smaller);
            done(fs, chain);
            let stored = fs.lookup(Ino::ROOT, b"packed").unwrap().size;
            assert!(stored < text.len() as u64 / 20, "{codec:?}: {stored} bytes");

            let mut chain = new();
            let packed = chain.open("/packed", Access::Read);
            let content = chain.read(packed, 0, 1 << 20);
            let unpacked = chain.decompress(content, codec, text.len() as u64);
            chain.export(unpacked);
            assert_eq!(done(fs, chain).bytes(unpacked.place()), Some(text.as_bytes()));
        }
    });
}

#[test]
fn what_is_not_compressed_or_too_long_is_refused() {
    let bomb = weft_compute::compress(&vec![0; WORK_BYTES_MAX + 1], Codec::Zstd, 0, usize::MAX).unwrap();
    let fits = weft_compute::compress(&vec![0; WORK_BYTES_MAX], Codec::Zstd, 0, usize::MAX).unwrap();
    under_each_policy(|fs, new| {
        let ends = |packed: &[u8], max: u64| {
            errno_of(fs, new, |chain| {
                let unpacked = chain.decompress(packed, Codec::Zstd, max);
                chain.len(unpacked);
            })
        };
        assert_eq!(ends(b"no frame", 100), libc::EBADMSG);
        assert_eq!(ends(&fits, WORK_BYTES_MAX as u64), 0);
        assert_eq!(ends(&fits, WORK_BYTES_MAX as u64 - 1), libc::E2BIG);
        // What the caller allows, values have no room for.
        assert_eq!(ends(&bomb, u64::MAX), libc::EMSGSIZE);
        assert_eq!(ends(&bomb, 1 << 20), libc::E2BIG);
        // All values share the room.
        let together = errno_of(fs, new, |chain| {
            chain.pack(0, 1);
            chain.decompress(&fits[..], Codec::Zstd, u64::MAX);
        });
        assert_eq!(together, libc::EMSGSIZE);
        let compressed = |times: usize| {
            errno_of(fs, new, |chain| {
                let zeros = chain.decompress(
                    weft_compute::compress(&vec![0; COMPRESS_BYTES_MAX / 4], Codec::Zstd, 0, 1 << 20)
                        .unwrap(),
                    Codec::Zstd,
                    u64::MAX,
                );
                for _ in 0..times {
                    chain.compress(zeros, Codec::Lz4, 0);
                }
            })
        };
        assert_eq!((compressed(3), compressed(4)), (0, libc::EMSGSIZE));
    });
}

#[test]
fn a_function_filters_and_sums_what_a_program_reads() {
    let filter = module(include_str!("../../../../compute/modules/filter_rows.wat"));
    let sum = module(include_str!("../../../../compute/modules/sum_column.wat"));
    under_each_policy(|fs, new| {
        let mut fill = Chain::each();
        let table = fill.create("/rows", 0o644, true);
        // 4,000 rows of a number, and its square.
        fill.append(table, (0..4_000).flat_map(|num| bytes(&[num, num * num])).collect::<Vec<u8>>());
        done(fs, fill);

        let mut chain = new();
        let table = chain.open("/rows", Access::Read);
        let rows = chain.read(table, 0, 1 << 20);
        // Rows with a number < 100, then the sum of their squares: 64,000 bytes are read, and 8 come back.
        let asked = [header(&[16, 0, 2]), bytes(&[100])].concat();
        let input = chain.concat([asked.into(), rows.into()]);
        let some = chain.call(&filter[..], input, FUEL);
        let input = chain.concat([header(&[16, 8]).into(), some.into()]);
        let sum_of_squares = chain.call(&sum[..], input, FUEL);
        let number = chain.unpack(sum_of_squares, 0, 8);
        chain.export(number);
        let answer = done(fs, chain);
        assert_eq!(answer.num(number.place()), Some((0..100).map(|num| num * num).sum()));
    });
}

#[test]
fn a_program_follows_a_table_file_from_its_footer_by_its_index_to_a_block() {
    let find = module(include_str!("../../../../compute/modules/find_block.wat"));
    under_each_policy(|fs, new| {
        // Blocks, compressed; the index: first key, offset and length of each; the footer: offset and length of the index.
        let (mut content, mut index) = (Vec::new(), Vec::new());
        for block in 0..50u64 {
            let plain = bytes(&(block * 100..block * 100 + 100).collect::<Vec<_>>());
            let packed = weft_compute::compress(&plain, Codec::Lz4Block, 0, 1 << 20).unwrap();
            index.extend(bytes(&[block * 100, content.len() as u64, packed.len() as u64]));
            content.extend(packed);
        }
        let footer = bytes(&[content.len() as u64, index.len() as u64]);
        let mut fill = Chain::each();
        let table = fill.create("/table", 0o644, true);
        fill.append(table, [content, index, footer].concat());
        done(fs, fill);

        for (key, first) in [(0, 0), (99, 0), (100, 100), (2_345, 2_300), (99_999, 4_900)] {
            let mut chain = new();
            let table = chain.open("/table", Access::Read);
            let attr = chain.stat(table);
            let size = chain.field(attr, Field::Size);
            let at = chain.arith(size, Arith::Sub, 16);
            let footer = chain.read(table, at, 16);
            let (at, len) = (chain.unpack(footer, 0, 8), chain.unpack(footer, 8, 8));
            let index = chain.read(table, at, len);
            let input = chain.concat([bytes(&[key]).into(), index.into()]);
            let found = chain.call(&find[..], input, FUEL);
            let (at, len) = (chain.unpack(found, 0, 8), chain.unpack(found, 8, 8));
            let packed = chain.read(table, at, len);
            let block = chain.decompress(packed, Codec::Lz4Block, 4096);
            chain.export(block);
            let keys: Vec<u64> = (first..first + 100).collect();
            assert_eq!(done(fs, chain).bytes(block.place()), Some(&bytes(&keys)[..]), "key {key}");
        }
    });
}

#[test]
fn a_call_that_fails_ends_the_program_and_leaves_what_its_policy_leaves() {
    let forever = module_of("(loop $on (br $on)) (i64.const 0)");
    for (calls, fuel, errno) in [
        (&forever[..], FUEL, libc::ETIME),
        (&module_of("(unreachable)"), FUEL, libc::EFAULT),
        (&module_of("(drop (memory.grow (i32.const 60000))) (i64.const 0)"), FUEL, libc::ENOMEM),
        (&vec![0; weft_compute::MODULE_BYTES_MAX + 1], FUEL, libc::E2BIG),
        (b"no module", FUEL, libc::ENOEXEC),
        (&module_of("(i64.const 0)"), 0, libc::ETIME),
    ] {
        under_each_policy(|fs, new| {
            let before = dump(fs);
            let mut chain = new();
            chain.mkdir("/before", 0o755);
            let failed = chain.call(calls, "", fuel);
            chain.mkdir("/behind", 0o755);
            let policy = chain.clone().check().unwrap().policy;
            assert_eq!(run_on(fs, chain).failed(), Some((failed.place(), errno)));
            assert_eq!(dump(fs) == before, policy == Policy::All);
            assert!(fs.lookup(Ino::ROOT, b"behind").is_err());
        });
    }
}

#[test]
fn what_functions_give_keeps_to_the_room_for_values() {
    let pages = |pages: usize| {
        module_of(&format!("(drop (memory.grow (i32.const {pages}))) (i64.const {})", pages << 16))
    };
    under_each_policy(|fs, new| {
        let call = |module: &[u8], times: usize| {
            errno_of(fs, new, |chain| {
                for _ in 0..times {
                    chain.call(module, "", FUEL);
                }
            })
        };
        let all = WORK_BYTES_MAX >> 16;
        assert_eq!(call(&pages(all), 1), 0);
        assert_eq!(call(&pages(all + 1), 1), libc::EMSGSIZE);
        assert_eq!((call(&pages(all / 4), 4), call(&pages(all / 4), 5)), (0, libc::EMSGSIZE));
        let exported = errno_of(fs, new, |chain| {
            let value = chain.call(pages((OUTPUT_BYTES_MAX >> 16) + 1), "", FUEL);
            chain.export(value);
        });
        assert_eq!(exported, libc::EMSGSIZE);
    });
}

/// A host that notes when it is asked, and lets calls go on so often.
struct Patient<'a> {
    local: Local<'a>,
    asked_max: usize,
    asked: RefCell<Vec<u64>>,
}

impl Host for Patient<'_> {
    crate::forward! {
        files => local.files() -> &dyn FileSystem;
        caller => local.caller() -> &Credentials;
        start => local.start() -> Ino;
        umask => local.umask() -> u32;
        near => local.near() -> Option<&dyn Near>;
        mount_point => local.mount_point() -> &[u8];
        protections => local.protections() -> Protections;
        now => local.now() -> TimeSpec;
        tag => local.tag(start: Ino, path: &[u8]) -> Tag;
        turn => local.turn(ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()>;
        commit => local.commit(changes: &[Change<'_>], durable: bool) -> Result<Made, Refused>;
        change => local.change(change: &Change<'_>, durable: bool) -> FsResult<Option<Ino>>;
        sync => local.sync(ino: Ino) -> FsResult<()>;
    }

    fn goes_on(&self, ns: u64) -> bool {
        let mut asked = self.asked.borrow_mut();
        asked.push(ns);
        asked.len() <= self.asked_max
    }
}

#[test]
fn a_host_ends_calls_when_they_have_taken_long_enough_together() {
    let fs = MemFs::new();
    let works = module_of(
        "(local $i i32)
         (loop $on (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $on (i32.lt_u (local.get $i) (i32.const 100000))))
         (i64.const 0)",
    );
    let mut chain = Chain::all();
    for _ in 0..60 {
        chain.call(&works[..], "", FUEL);
    }
    let program = chain.check().unwrap();
    let run_for = |asked_max| {
        let host = Patient { local: Local::new(&fs), asked_max, asked: RefCell::default() };
        (run(&host, &program), host.asked.take())
    };
    let (answer, asked) = run_for(usize::MAX);
    assert!(answer.failed().is_none() && asked.len() >= 60, "asked {} times: {answer:?}", asked.len());
    // Each goes on from the time of those before it.
    assert!(asked.is_sorted() && asked[0] < asked[59], "{asked:?}");
    let (answer, asked) = run_for(30);
    assert!(matches!(answer.failed(), Some((at, libc::ETIME)) if at <= 30), "{answer:?}");
    assert_eq!(asked.len(), 31, "nobody goes on who must not");
    assert_eq!(run_for(0).0.failed(), Some((0, libc::ETIME)));

    let host = Local::new(&fs);
    assert!(host.goes_on(CALLS_NS_MAX - 1) && !host.goes_on(CALLS_NS_MAX));
}

#[test]
fn calls_share_the_fuel_of_a_program() {
    let works = module_of(
        "(local $i i32)
         (loop $on (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $on (i32.lt_u (local.get $i) (i32.const 60000000))))
         (i64.const 0)",
    );
    let fs = MemFs::new();
    let mut chain = Chain::all();
    for _ in 0..10 {
        chain.call(&works[..], "", FUEL_MAX);
    }
    let host = Patient { local: Local::new(&fs), asked_max: usize::MAX, asked: RefCell::default() };
    let (at, errno) = run(&host, &chain.check().unwrap()).failed().unwrap();
    assert!((1..10).contains(&at) && errno == libc::ETIME, "{at} {errno}");
}
