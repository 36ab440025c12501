//! Programs that change one file in one place: the client runs them, and others see all of the change or nothing.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use std::sync::atomic::Ordering::Relaxed;
use weft_client::{AttrChange, Batch, Client, FileRef, Prepared};
use weft_core::checksum::crc32c;
use weft_vfs::InodeFlags;
use weft_vfs::compound::{Answer, Arith, Chain, Codec, Compare, Input, Native};
use weft_volume::MountChoice;

fn open(client: &Client, path: &[u8], flags: i32) -> FileRef {
    client.open(FileRef::ROOT, path, flags | libc::O_CREAT, 0o644).unwrap().file
}

fn run(client: &Client, prepared: &Prepared, files: &[FileRef], inputs: &[Input<'_>]) -> Answer {
    client.run_prepared(FileRef::ROOT, 0o22, prepared, files, inputs).unwrap()
}

fn calls(client: &Client) -> u64 {
    client.measured().calls.load(Relaxed)
}

fn prepared(chain: Chain) -> Prepared {
    Prepared::new(chain.check().unwrap())
}

/// Appends the first input and its CRC32C; the answer has the place.
fn appending() -> Prepared {
    let mut chain = Chain::all();
    let (log, block) = (chain.given(0), chain.input_bytes(0));
    let crc = chain.crc32c(block);
    let crc = chain.pack(crc, 4);
    let both = chain.concat([block.into(), crc.into()]);
    let at = chain.append(log, both);
    chain.export(at);
    prepared(chain)
}

/// Adds the second input to the number at the place that the first says, if that is below a million; the answer has the sum.
fn adding() -> Prepared {
    let mut chain = Chain::all();
    let file = chain.given(0);
    let (at, by) = (chain.input_num(0), chain.input_num(1));
    let found = chain.read(file, at, 8);
    let number = chain.unpack(found, 0, 8);
    chain.expect(number, Compare::Less, 1_000_000);
    let sum = chain.arith(number, Arith::Add, by);
    chain.export(sum);
    let bytes = chain.pack(sum, 8);
    chain.write(file, at, bytes);
    prepared(chain)
}

fn content(client: &Client, file: FileRef) -> Vec<u8> {
    let mut bytes = vec![0; client.fstat(file).unwrap().size as usize + 1];
    let mut len = 0;
    while len < bytes.len() - 1 {
        len += client.pread(file, &mut bytes[len..], len as u64).unwrap();
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn with_prefix_the_server_makes_what_comes_before_a_read_that_only_it_can_make() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    for appends in [true, false] {
        let path = format!("/file {appends}");
        let file = open(&client, path.as_bytes(), libc::O_RDWR);
        let before = vec![7; 300_000];
        let others = open(&other, path.as_bytes(), libc::O_RDWR);
        assert_eq!(other.pwrite(others, &before, 0).unwrap(), before.len());
        other.fsync(others).unwrap();
        let mut chain = Chain::prefix();
        let given = chain.given(0);
        if appends {
            chain.append(given, b"hello".as_slice());
        } else {
            chain.write(given, 10, b"hello".as_slice());
        }
        let read = chain.read(given, 0, 400_000);
        chain.export(read);
        let program = prepared(chain);
        let mut expected = before;
        for round in 0..20 {
            let answer = run(&client, &program, &[file], &[]);
            if appends {
                expected.extend_from_slice(b"hello");
            } else {
                expected[10..15].copy_from_slice(b"hello");
            }
            assert_eq!(answer.failed(), None, "round {round}");
            assert!(answer.bytes(read.place()) == Some(&expected[..]), "round {round}");
        }
        assert!(content(&client, file) == expected);
    }
}

#[test]
fn an_append_needs_no_call_and_another_process_reads_it() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    for flags in [libc::O_WRONLY, libc::O_RDWR | libc::O_APPEND] {
        let path = format!("/log {flags}");
        let (log, append) = (open(&client, path.as_bytes(), flags), appending());
        let mut expected: Vec<u8> = Vec::new();
        let mut before = 0;
        for i in 0..50u8 {
            if i == 1 {
                before = calls(&client);
            }
            let block = vec![i; 5000];
            let answer = run(&client, &append, &[log], &[Input::Bytes(&block)]);
            assert_eq!((answer.failed(), answer.num(5)), (None, Some(expected.len() as u64)));
            expected.extend_from_slice(&block);
            expected.extend_from_slice(&crc32c(&block).to_le_bytes());
        }
        assert!(calls(&client) <= before + 5, "{path}: {} calls", calls(&client) - before);
        let seen = open(&other, path.as_bytes(), libc::O_RDONLY);
        assert!(content(&other, seen) == expected);
    }
}

#[test]
fn appends_that_fill_the_ring_again_and_again_arrive_whole_and_in_order() {
    let rig = Rig::new(128 << 20);
    let (client, other) = (rig.client(), rig.client());
    let (log, append) = (open(&client, b"/log", libc::O_WRONLY), appending());
    let mut expected: Vec<u8> = Vec::new();
    for i in 0..40u32 {
        // Plain appends come in between, and the lengths put the records across the ring's end.
        if i.is_multiple_of(3) {
            let plain = vec![i as u8; 777];
            client.pwrite(log, &plain, expected.len() as u64).unwrap();
            expected.extend_from_slice(&plain);
        }
        let block: Vec<u8> = (0..100_001 + i * 1000).map(|at| (at ^ i) as u8).collect();
        let answer = run(&client, &append, &[log], &[Input::Bytes(&block)]);
        assert_eq!((answer.failed(), answer.num(5)), (None, Some(expected.len() as u64)));
        expected.extend_from_slice(&block);
        expected.extend_from_slice(&crc32c(&block).to_le_bytes());
    }
    let seen = open(&other, b"/log", libc::O_RDONLY);
    assert!(content(&other, seen) == expected);
}

#[test]
fn a_number_is_changed_without_a_call_once_its_file_is_overwritten_often() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8192], 0).unwrap();
    client.fsync(file).unwrap();
    let (add, mut before) = (adding(), 0);
    for i in 0..200u64 {
        if i == 20 {
            before = calls(&client);
        }
        let answer = run(&client, &add, &[file], &[Input::Num(i % 10 * 800), Input::Num(1)]);
        assert_eq!((answer.failed(), answer.num(6)), (None, Some(i / 10 + 1)));
    }
    // While the server stores what was overwritten, it is asked.
    assert!(calls(&client) <= before + 5, "{} calls", calls(&client) - before);
    let seen = open(&other, b"/numbers", libc::O_RDONLY);
    let found = content(&other, seen);
    (0..10).for_each(|at| assert_eq!(found[at * 800..at * 800 + 8], 20u64.to_le_bytes()));
    // What the program expects is not so: nothing has changed.
    let answer = run(&client, &add, &[file], &[Input::Num(0), Input::Num(1_000_000)]);
    assert_eq!(answer.failed(), None);
    let answer = run(&client, &add, &[file], &[Input::Num(0), Input::Num(1)]);
    assert_eq!(answer.failed(), Some((5, libc::ECANCELED)));
}

#[test]
fn programs_plain_writers_and_the_server_do_not_lose_each_others_changes() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8192], 0).unwrap();
    // The server's: it changes two places.
    let both = || {
        let mut chain = Chain::all();
        let file = chain.given(0);
        for at in [0, 4096] {
            let found = chain.read(file, at, 8);
            let number = chain.unpack(found, 0, 8);
            let sum = chain.arith(number, Arith::Add, 1);
            let bytes = chain.pack(sum, 8);
            chain.write(file, at, bytes);
        }
        prepared(chain)
    };
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let rig = &rig;
            scope.spawn(move || {
                let client = rig.client();
                let file = open(&client, b"/numbers", libc::O_RDWR);
                let (add, both) = (adding(), both());
                for i in 0..500 {
                    let inputs = [Input::Num(i % 2 * 4096), Input::Num(1)];
                    assert_eq!(run(&client, &add, &[file], &inputs).failed(), None);
                    client.pwrite(file, &i.to_le_bytes(), 64 + writer * 8).unwrap();
                    if i.is_multiple_of(10) {
                        assert_eq!(run(&client, &both, &[file], &[]).failed(), None);
                    }
                    if i.is_multiple_of(50) {
                        client.fsync(file).unwrap();
                    }
                }
            });
        }
    });
    let found = content(&client, file);
    let number = |at: usize| u64::from_le_bytes(*found[at..].first_chunk().unwrap());
    assert_eq!([number(0), number(4096)], [4 * (250 + 50); 2]);
    (0..4).for_each(|writer| assert_eq!(number(64 + writer * 8), 499));
}

#[test]
fn appends_of_several_writers_do_not_meet() {
    let rig = Rig::new(64 << 20);
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let rig = &rig;
            scope.spawn(move || {
                let client = rig.client();
                let (log, append) = (open(&client, b"/log", libc::O_WRONLY), appending());
                for i in 0..200u64 {
                    let block = [&[writer][..], &i.to_le_bytes(), &[writer; 4991]].concat();
                    let answer = run(&client, &append, &[log], &[Input::Bytes(&block)]);
                    assert!(answer.num(5).unwrap().is_multiple_of(5004));
                }
            });
        }
    });
    let client = rig.client();
    let whole = content(&client, open(&client, b"/log", libc::O_RDONLY));
    let mut next = [0u64; 4];
    for entry in whole.chunks(5004) {
        let (block, crc) = entry.split_at(5000);
        assert_eq!(crc, crc32c(block).to_le_bytes());
        let writer = usize::from(block[0]);
        assert_eq!(block[1..9], next[writer].to_le_bytes());
        next[writer] += 1;
    }
    assert_eq!(next, [200; 4]);
}

#[test]
fn what_has_more_to_it_is_the_servers() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8192], 0).unwrap();
    let add = adding();
    let adds = |at| run(&client, &add, &[file], &[Input::Num(at), Input::Num(1)]);
    (0..20).for_each(|_| assert_eq!(adds(0).failed(), None));
    let asks = |what: &str, act: &dyn Fn()| {
        let before = calls(&client);
        act();
        assert_eq!(calls(&client), before + 1, "{what}: once");
    };
    asks("two blocks", &|| assert_eq!(adds(4092).num(6), Some(1)));
    assert_eq!(adds(8190).failed(), Some((4, libc::ERANGE)), "behind the end there are no eight bytes");
    let reader = open(&client, b"/numbers", libc::O_RDONLY);
    let failed = run(&client, &add, &[reader], &[Input::Num(0), Input::Num(1)]).failed();
    assert_eq!(failed, Some((8, libc::EBADF)), "what is open for reading is not written");
    let failed = run(&client, &add, &[FileRef(u64::MAX)], &[Input::Num(0), Input::Num(1)]).failed();
    assert_eq!(failed, Some((0, libc::EBADF)), "there is no such file");
    let fixed = InodeFlags::APPEND | InodeFlags::IMMUTABLE | InodeFlags::SYNC;
    let flags = |set: InodeFlags| client.set_inode_flags(file, set.bits(), fixed.bits());
    if rig::is_superuser() {
        flags(InodeFlags::APPEND).unwrap();
        assert_eq!(adds(0).failed(), Some((8, libc::EPERM)), "a file that only grows");
        flags(InodeFlags::IMMUTABLE).unwrap();
        assert_eq!(adds(0).failed(), Some((8, libc::EPERM)), "a file that nobody changes");
        flags(InodeFlags::empty()).unwrap();
    }
    flags(InodeFlags::SYNC).unwrap();
    asks("a file that is synced at once", &|| assert_eq!(adds(0).num(6), Some(21)));
    flags(InodeFlags::empty()).unwrap();
    // What ran as its owner must not run what others wrote.
    let set_id = AttrChange { mode: Some(0o4755), ..AttrChange::default() };
    client.set_attr(FileRef::ROOT, b"/numbers", 0, &set_id).unwrap();
    asks("a file with a set-id bit", &|| assert_eq!(adds(0).num(6), Some(22)));
}

#[test]
fn a_device_with_processors_for_programs_has_all_of_them() {
    let program_cpus = Some(weft_vfs::compound::schedule::Processors::new(1));
    let rig = Rig::with(64 << 20, MountChoice { program_cpus, ..MountChoice::default() });
    let client = rig.client();
    let (log, append) = (open(&client, b"/log", libc::O_WRONLY), appending());
    for _ in 0..10 {
        let before = calls(&client);
        assert_eq!(run(&client, &append, &[log], &[Input::Bytes(b"record")]).failed(), None);
        assert!(calls(&client) > before);
    }
}

#[test]
fn codecs_that_are_lent_are_used_here_and_others_by_the_server() {
    let rig = Rig::new(64 << 20);
    let mut client = rig.client();
    let log = open(&client, b"/log", libc::O_RDWR);
    let compressing = |codec| {
        let mut chain = Chain::all();
        let (given, bytes) = (chain.given(0), chain.input_bytes(0));
        let packed = chain.compress(bytes, codec, 0);
        let at = chain.append(given, packed);
        chain.export(at);
        prepared(chain)
    };
    let compress = compressing(Codec::Zstd);
    let text = b"a line of text\n".repeat(1000);
    let appends = |client: &Client| run(client, &compress, &[log], &[Input::Bytes(&text)]).num(3).unwrap();
    assert_eq!(appends(&client), 0);
    let before = calls(&client);
    let len = appends(&client);
    assert!(calls(&client) > before && len < text.len() as u64);
    client.lend(&Native);
    appends(&client);
    let before = calls(&client);
    assert_eq!(appends(&client), 3 * len);
    assert_eq!(calls(&client), before);
    // Posted, it is the server's all the same, unless the way there takes as long: the caller has something else to do.
    let post = |program: &Prepared| {
        let mut batch = Batch::new(&client, FileRef::ROOT, 0);
        batch.add(program, &[log], &[Input::Bytes(&text)]).unwrap();
        batch.post().unwrap().wait().unwrap().remove(0).num(3)
    };
    assert_eq!(post(&compress), Some(4 * len));
    let after = calls(&client);
    assert!(after > before);
    assert_eq!(post(&compressing(Codec::Lz4)), Some(5 * len));
    assert_eq!(calls(&client), after);
    let mut whole = content(&client, log);
    let last = whole.split_off(5 * len as usize);
    assert!(weft_vfs::compound::Near::decompress(&Native, &last, Codec::Lz4, 1 << 20).unwrap() == text);
    for packed in whole.chunks(len as usize) {
        assert!(weft_vfs::compound::Near::decompress(&Native, packed, Codec::Zstd, 1 << 20).unwrap() == text);
    }
}

#[test]
fn a_full_volume_takes_an_append_whole_or_not() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let log = open(&client, b"/log", libc::O_RDWR);
    let append = appending();
    let block = vec![3; 100_000 - 4];
    let mut appended = 0;
    let failed = loop {
        let answer = run(&client, &append, &[log], &[Input::Bytes(&block)]);
        match answer.failed() {
            Some((_, errno)) => break errno,
            None => appended += 1,
        }
        assert!(appended < 1000, "the volume is not that large");
    };
    assert!(appended > 100 && failed == libc::ENOSPC, "{appended} {failed}");
    assert_eq!(client.fstat(log).unwrap().size, appended * 100_000);
    client.fsync(log).unwrap();
    assert_eq!(client.fstat(log).unwrap().size, appended * 100_000, "what was accepted is stored");
}

#[test]
fn a_record_is_never_copied_from_what_somebody_has_changed_since() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let log = open(&client, b"/log", libc::O_RDWR);
    // Appends what the record at a place says, once more.
    let mut chain = Chain::all();
    let (given, at) = (chain.given(0), chain.input_num(0));
    let found = chain.read(given, at, 8);
    chain.append(given, found);
    let copy = prepared(chain);
    let writer = rig.client();
    let own = open(&writer, b"/log", libc::O_RDWR);
    client.pwrite(log, &0u64.to_le_bytes(), 0).unwrap();
    let last = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..=3000u64 {
                // Each is answered before the next: what a program appends later is not older.
                writer.pwrite(own, &i.to_le_bytes(), 0).unwrap();
                last.store(i, Relaxed);
            }
        });
        while last.load(Relaxed) < 3000 {
            let before = last.load(Relaxed);
            assert_eq!(run(&client, &copy, &[log], &[Input::Num(0)]).failed(), None);
            let whole = content(&client, log);
            let copied = u64::from_le_bytes(*whole.last_chunk().unwrap());
            assert!(copied >= before, "{copied} after {before}");
        }
    });
}
