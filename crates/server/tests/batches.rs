//! Batches of prepared programs: by one request, waited for or not, whatever the server keeps of them.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use weft_client::proto::{Op, PROGRAM_UNKNOWN};
use weft_client::shared::channel::{Request, SLOTS};
use weft_client::{Batch, Client, FileRef, Prepared};
use weft_vfs::compound::{Access, Arith, BATCH_RUNS_MAX, Chain, File, Input, Num, Run};

fn prepared(chain: Chain) -> Prepared {
    Prepared::new(chain.check().unwrap())
}

fn open(client: &Client, path: &[u8], flags: i32) -> FileRef {
    client.open(FileRef::ROOT, path, flags | libc::O_CREAT, 0o644).unwrap().file
}

/// Adds the second input to the number at the place that the first says, and answers the sum.
fn adding() -> Prepared {
    let mut chain = Chain::all();
    let file = chain.given(0);
    adding_to(chain, file)
}

/// The same of a file that the program opens: it is the server's to run.
fn adding_by_path() -> Prepared {
    let mut chain = Chain::all();
    let file = chain.open("/numbers", Access::ReadWrite);
    adding_to(chain, file)
}

fn adding_to(mut chain: Chain, file: File) -> Prepared {
    let (at, by) = (chain.input_num(0), chain.input_num(1));
    let found = chain.read(file, at, 8);
    let number = chain.unpack(found, 0, 8);
    let sum = chain.arith(number, Arith::Add, by);
    chain.export(sum);
    let bytes = chain.pack(sum, 8);
    chain.write(file, at, bytes);
    prepared(chain)
}

fn batch<'c, 'p>(client: &'c Client) -> Batch<'c, &'p Prepared> {
    Batch::new(client, FileRef::ROOT, 0o22)
}

fn number_at(client: &Client, file: FileRef, at: u64) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(client.pread(file, &mut bytes, at).unwrap(), 8);
    u64::from_le_bytes(bytes)
}

#[test]
fn the_runs_of_a_batch_go_on_in_their_order_each_with_its_inputs() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 64], 0).unwrap();
    let (add, mut replace) = (adding(), Chain::all());
    let (path, content) = (replace.input_bytes(0), replace.input_bytes(1));
    let made = replace.create(path, 0o666, false);
    replace.write(made, 0, content);
    let replace = prepared(replace);
    let mut runs = batch(&client);
    for i in 0..30u64 {
        runs.add(&add, &[file], &[Input::Num(i % 8 * 8), Input::Num(i)]).unwrap();
        let path = format!("/file {}", i % 3);
        runs.add(&replace, &[], &[Input::Bytes(path.as_bytes()), Input::Bytes(&[i as u8; 9])]).unwrap();
    }
    assert_eq!(runs.len(), 60);
    let answers = runs.run().unwrap();
    let mut expected = [0; 8];
    for (i, both) in (0..30).zip(answers.chunks(2)) {
        expected[i as usize % 8] += i;
        assert_eq!(both[0].num(5), Some(expected[i as usize % 8]), "{i}: {both:?}");
        assert_eq!(both[1].failed(), None);
    }
    let file = open(&other, b"/numbers", libc::O_RDONLY);
    (0..8).for_each(|i| assert_eq!(number_at(&other, file, i * 8), expected[i as usize]));
    let mut bytes = [0; 10];
    let file = open(&other, b"/file 2", libc::O_RDONLY);
    assert_eq!((other.pread(file, &mut bytes, 0).unwrap(), bytes[8]), (9, 29));
}

#[test]
fn a_run_that_fails_leaves_the_others_and_inputs_are_of_their_type() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8], 0).unwrap();
    let add = adding();
    let mut runs = batch(&client);
    let one = [Input::Num(0), Input::Num(1)];
    runs.add(&add, &[file], &one).unwrap();
    runs.add(&add, &[file], &one[..1]).unwrap();
    runs.add(&add, &[file], &[Input::Num(0), Input::Bytes(b"1")]).unwrap();
    runs.add(&add, &[], &one).unwrap();
    runs.add(&add, &[FileRef(12345)], &one).unwrap();
    runs.add(&add, &[file], &[Input::Num(1), Input::Num(1)]).unwrap();
    runs.add(&add, &[file], &one).unwrap();
    let answers = runs.run().unwrap();
    let failed: Vec<_> = answers.iter().map(|answer| answer.failed()).collect();
    let none = Some((0, libc::EBADF));
    let of_input = Some((2, libc::EINVAL));
    assert_eq!(failed, [None, of_input, of_input, none, none, Some((4, libc::ERANGE)), None]);
    assert_eq!(number_at(&client, file, 0), 2);
    assert!(batch(&client).run().unwrap().is_empty());
}

#[test]
fn more_programs_than_the_server_keeps_are_sent_once_more() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8], 0).unwrap();
    let all: Vec<Prepared> = (0..400).map(|_| adding_by_path()).collect();
    for turn in 0..2 {
        for some in all.chunks(40) {
            let mut runs = batch(&client);
            some.iter().for_each(|one| runs.add(one, &[file], &[Input::Num(0), Input::Num(1)]).unwrap());
            assert!(runs.run().unwrap().iter().all(|answer| answer.failed().is_none()), "turn {turn}");
        }
    }
    assert_eq!(number_at(&client, file, 0), 800);
    // Each is nearly all that the server keeps: two of them are never there at once.
    let long = |byte: u8| {
        let mut chain = Chain::all();
        let bytes = vec![byte; 3 << 20];
        let len = chain.len(bytes);
        chain.export(len);
        chain.unlink("/nothing");
        prepared(chain)
    };
    let two = [long(1), long(2)];
    let mut runs = batch(&client);
    two.iter().for_each(|one| runs.add(one, &[], &[]).unwrap());
    assert!(runs.run().is_err(), "they are not there at once");
    let alone = client.run_prepared(FileRef::ROOT, 0, &two[0], &[], &[]).unwrap();
    assert_eq!((alone.num(0), alone.failed()), (Some(3 << 20), Some((1, libc::ENOENT))));
}

#[test]
fn answers_that_are_long_come_in_pieces_and_in_several_requests() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/long", libc::O_RDWR);
    let content: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 1000) as u8).collect();
    assert_eq!(client.pwrite(file, &content, 0).unwrap(), content.len());
    let mut chain = Chain::all();
    let (file_of, from) = (chain.given(0), chain.input_num(0));
    // It changes something in two places, so that the server runs it.
    chain.write(file_of, 0, vec![0]);
    chain.write(file_of, 0, vec![0]);
    let read = chain.read(file_of, from, 3 << 20);
    chain.export(read);
    let read = prepared(chain);
    let mut runs = batch(&client);
    (0..20).for_each(|i| runs.add(&read, &[file], &[Input::Num(i)]).unwrap());
    let answers = runs.run().unwrap();
    assert_eq!(answers.len(), 20);
    for (i, answer) in answers.iter().enumerate() {
        let bytes = answer.bytes(4).unwrap();
        assert!(bytes.len() == content.len() - i && bytes[1..] == content[i + 1..], "{i}");
    }
}

#[test]
fn a_batch_has_limits_and_is_as_it_was_when_it_is_full() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let add = adding();
    let mut runs = batch(&client);
    for _ in 0..BATCH_RUNS_MAX {
        runs.add(&add, &[], &[]).unwrap();
    }
    assert_eq!(runs.add(&add, &[], &[]), Err(libc::E2BIG));
    assert_eq!(runs.run().unwrap().len(), BATCH_RUNS_MAX);
    let mut runs = batch(&client);
    assert_eq!(runs.add(&add, &[FileRef::ROOT; 17], &[]), Err(libc::E2BIG));
    assert_eq!(runs.add(&add, &[], &[Input::Num(0); 65]), Err(libc::E2BIG));
    let bytes = vec![1; 100 << 10];
    let long = [Input::Bytes(&bytes)];
    (0..2).for_each(|_| runs.add(&add, &[], &long).unwrap());
    assert_eq!(runs.add(&add, &[], &long), Err(libc::E2BIG));
    runs.add(&add, &[], &[]).unwrap();
    assert_eq!(runs.run().unwrap().len(), 3);
}

#[test]
fn posted_batches_go_on_at_once_and_those_that_nobody_waits_for_too() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8], 0).unwrap();
    let add = adding_by_path();
    let post = || {
        let mut runs = batch(&client);
        (0..10).for_each(|_| runs.add(&add, &[file], &[Input::Num(0), Input::Num(1)]).unwrap());
        runs.post().unwrap()
    };
    // The server has not heard of the program yet.
    drop(post());
    let is_made = || number_at(&client, file, 0) == 10;
    let begun = std::time::Instant::now();
    while !is_made() && begun.elapsed().as_secs() < 60 {
        std::thread::yield_now();
    }
    assert!(is_made());
    client.pwrite(file, &[0; 8], 0).unwrap();
    let posted: Vec<_> = (0..20).map(|_| post()).collect();
    for batch in posted {
        let answers = batch.wait().unwrap();
        assert!(answers.len() == 10 && answers.iter().all(|answer| answer.failed().is_none()));
    }
    assert_eq!(number_at(&client, file, 0), 200);
    // More than there are slots.
    (0..3 * SLOTS).for_each(|_| drop(post()));
    let last = post();
    while !last.is_done() {
        std::thread::yield_now();
    }
    assert_eq!(last.wait().unwrap().len(), 10);
    let expected = 200 + 30 * SLOTS as u64 + 10;
    let begun = std::time::Instant::now();
    while number_at(&client, file, 0) < expected && begun.elapsed().as_secs() < 60 {
        std::thread::yield_now();
    }
    assert_eq!(number_at(&client, file, 0), expected);
}

#[test]
fn threads_share_a_prepared_program() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8], 0).unwrap();
    let add = adding();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let inputs = [Input::Num(0), Input::Num(2)];
                    let answer = client.run_prepared(FileRef::ROOT, 0, &add, &[file], &inputs).unwrap();
                    assert_eq!(answer.failed(), None);
                }
            });
        }
    });
    assert_eq!(number_at(&client, file, 0), 800);
}

#[test]
fn a_prepared_program_that_only_reads_needs_no_server() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/read", libc::O_RDWR);
    client.pwrite(file, b"abcdefgh", 0).unwrap();
    let mut chain = Chain::all();
    let path = chain.input_bytes(0);
    let opened = chain.open(path, Access::Read);
    let at = chain.input_num(1);
    let read = chain.read(opened, at, Num::Lit(3));
    chain.export(read);
    let read = prepared(chain);
    let run = |at| {
        let inputs = [Input::Bytes(b"/read"), Input::Num(at)];
        client.run_prepared(FileRef::ROOT, 0, &read, &[], &inputs).unwrap().bytes(3).unwrap().to_vec()
    };
    assert_eq!(run(1), b"bcd");
    let calls = || client.measured().calls.load(std::sync::atomic::Ordering::Relaxed);
    let before = calls();
    (0..5).for_each(|at| assert_eq!(run(at), b"abcdefgh"[at as usize..at as usize + 3]));
    assert_eq!(calls(), before);
}

#[test]
fn what_is_no_batch_is_refused_and_unknown_programs_run_nothing() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8], 0).unwrap();
    let ask = |bytes: &[u8]| {
        let request =
            Request { op: Op::DoKept as u32, cpu: u32::MAX, len1: bytes.len() as u32, ..Request::default() };
        client.raw_request(request, &[bytes]).map(|response| response.ret)
    };
    assert_eq!(ask(b"abc"), Err(libc::EINVAL));
    let mut bytes = Vec::new();
    Run { program: u64::MAX, files: vec![], inputs: vec![] }.put(&mut bytes);
    assert_eq!(ask(&bytes), Err(PROGRAM_UNKNOWN));
    assert_eq!(number_at(&client, file, 0), 0);
}
