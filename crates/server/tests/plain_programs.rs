//! Programs that make their changes one at a time, of files that are given with them: the client runs them as plain calls.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::Rig;
use std::sync::atomic::Ordering::Relaxed;
use weft_client::{Client, FileRef, Prepared};
use weft_core::checksum::crc32c;
use weft_vfs::InodeFlags;
use weft_vfs::compound::{Answer, Arith, Chain, Input};

fn open(client: &Client, path: &[u8], flags: i32) -> FileRef {
    client.open(FileRef::ROOT, path, flags | libc::O_CREAT, 0o644).unwrap().file
}

fn run(client: &Client, prepared: &Prepared, files: &[FileRef], inputs: &[Input<'_>]) -> Answer {
    client.run_prepared(FileRef::ROOT, 0o22, prepared, files, inputs).unwrap()
}

fn calls(client: &Client) -> u64 {
    client.measured().calls.load(Relaxed)
}

/// Appends the first input and its CRC32C; the answer has the place.
fn appending() -> Prepared {
    let mut chain = Chain::each();
    let (log, block) = (chain.given(0), chain.input_bytes(0));
    let crc = chain.crc32c(block);
    let crc = chain.pack(crc, 4);
    let both = chain.concat([block.into(), crc.into()]);
    let at = chain.append(log, both);
    chain.export(at);
    Prepared::new(chain.check().unwrap())
}

fn content(client: &Client, file: FileRef) -> Vec<u8> {
    let mut bytes = vec![0; client.fstat(file).unwrap().size as usize + 1];
    let len = client.pread(file, &mut bytes, 0).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn appends_need_no_call_and_tell_where_they_are() {
    let rig = Rig::new(64 << 20);
    let (client, other) = (rig.client(), rig.client());
    for flags in [libc::O_WRONLY, libc::O_RDWR | libc::O_APPEND] {
        let path = format!("/log {flags}");
        let log = open(&client, path.as_bytes(), flags);
        let append = appending();
        let mut expected: Vec<u8> = Vec::new();
        let mut before = 0;
        for i in 0..50u8 {
            if i == 1 {
                before = calls(&client);
            }
            let block = vec![i; 1000];
            let answer = run(&client, &append, &[log], &[Input::Bytes(&block)]);
            assert_eq!((answer.failed(), answer.num(5)), (None, Some(expected.len() as u64)));
            expected.extend_from_slice(&block);
            expected.extend_from_slice(&crc32c(&block).to_le_bytes());
        }
        assert_eq!(calls(&client), before, "{path}");
        let seen = open(&other, path.as_bytes(), libc::O_RDONLY);
        assert!(content(&other, seen) == expected);
    }
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
                    let block = [&[writer][..], &i.to_le_bytes(), &[writer; 91]].concat();
                    let answer = run(&client, &append, &[log], &[Input::Bytes(&block)]);
                    assert!(answer.num(5).unwrap().is_multiple_of(104));
                }
            });
        }
    });
    let client = rig.client();
    let whole = content(&client, open(&client, b"/log", libc::O_RDONLY));
    let mut next = [0u64; 4];
    for entry in whole.chunks(104) {
        let (block, crc) = entry.split_at(100);
        assert_eq!(crc, crc32c(block).to_le_bytes());
        let writer = usize::from(block[0]);
        assert_eq!(block[1..9], next[writer].to_le_bytes());
        next[writer] += 1;
    }
    assert_eq!(next, [200; 4]);
}

#[test]
fn what_is_changed_in_place_is_read_and_written_by_calls() {
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/numbers", libc::O_RDWR);
    client.pwrite(file, &[0; 8192], 0).unwrap();
    let mut chain = Chain::each();
    let (given, at) = (chain.given(0), chain.input_num(0));
    let found = chain.read(given, at, 8);
    let number = chain.unpack(found, 0, 8);
    let sum = chain.arith(number, Arith::Add, 1);
    let bytes = chain.pack(sum, 8);
    chain.write(given, at, bytes);
    chain.sync(given);
    let again = chain.read(given, at, 100);
    chain.export(again);
    let add = Prepared::new(chain.check().unwrap());
    for i in 0..100u64 {
        let answer = run(&client, &add, &[file], &[Input::Num(i % 10 * 8)]);
        assert_eq!(answer.failed(), None);
        assert_eq!(answer.bytes(8).unwrap()[..8], (i / 10 + 1).to_le_bytes());
    }
    // Behind the end there are no eight bytes.
    assert_eq!(run(&client, &add, &[file], &[Input::Num(8190)]).failed(), Some((3, libc::ERANGE)));
    let reader = open(&client, b"/numbers", libc::O_RDONLY);
    let failed = run(&client, &add, &[reader], &[Input::Num(0)]).failed();
    assert_eq!(failed, Some((6, libc::EBADF)), "what is open for reading is not written");
    let failed = run(&client, &add, &[FileRef(u64::MAX)], &[Input::Num(0)]).failed();
    assert_eq!(failed, Some((0, libc::EBADF)), "there is no such file");
}

#[test]
fn what_calls_cannot_do_is_the_servers() {
    let rig = Rig::new(64 << 20);
    let (client, long) = (rig.client(), vec![7; 3 << 20]);
    let log = open(&client, b"/log", libc::O_RDWR | libc::O_APPEND);
    client.write(log, b"0123456789").unwrap();
    // A call would append, as it does in Linux.
    let mut chain = Chain::each();
    let given = chain.given(0);
    chain.write(given, 2, b"ab".to_vec());
    let answer = run(&client, &Prepared::new(chain.check().unwrap()), &[log], &[]);
    assert_eq!(answer.failed(), None);
    assert_eq!(content(&client, log), b"01ab456789");
    let answer = run(&client, &appending(), &[log], &[Input::Bytes(b"")]);
    assert_eq!(answer.num(5), Some(10));
    let mut chain = Chain::each();
    let given = chain.given(0);
    let at = chain.append(given, long.as_slice());
    chain.export(at);
    let at = chain.append(given, "end");
    chain.export(at);
    let answer = run(&client, &Prepared::new(chain.check().unwrap()), &[log], &[]);
    assert_eq!((answer.num(1), answer.num(2)), (Some(14), Some(14 + (3 << 20))));
    let whole = content(&client, log);
    assert!(whole.len() == 17 + (3 << 20) && whole[14..14 + (3 << 20)] == long && whole.ends_with(b"end"));
}

#[test]
fn a_file_that_only_grows_is_not_overwritten_by_a_program_to_which_it_was_open_before() {
    if !rig::is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let client = rig.client();
    let file = open(&client, b"/log", libc::O_RDWR);
    client.pwrite(file, b"0123456789", 0).unwrap();
    let mut chain = Chain::each();
    let given = chain.given(0);
    chain.write(given, 0, b"x".to_vec());
    let overwrite = Prepared::new(chain.check().unwrap());
    assert_eq!(run(&client, &overwrite, &[file], &[]).failed(), None);
    let only_grows = InodeFlags::APPEND.bits();
    client.set_inode_flags(file, only_grows, only_grows).unwrap();
    assert_eq!(run(&client, &overwrite, &[file], &[]).failed(), Some((1, libc::EPERM)));
    assert_eq!(run(&client, &appending(), &[file], &[Input::Bytes(b"more")]).num(5), Some(10));
    client.set_inode_flags(file, 0, only_grows).unwrap();
    assert_eq!(run(&client, &overwrite, &[file], &[]).failed(), None);
    assert!(content(&client, file).starts_with(b"x123456789more"));
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
}
