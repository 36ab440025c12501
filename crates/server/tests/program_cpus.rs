//! Programs that take turns on the processors of a modelled device.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Rig, connect, is_superuser};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weft_client::{AttrChange, Client, FileRef};
use weft_server::CpuLoad;
use weft_vfs::compound::schedule::{FairSettings, Policy, Processors};
use weft_vfs::compound::{Access, Answer, Arith, Chain, Checked, Codec, Native, Near};
use weft_volume::MountChoice;

const SOCKET: &str = "WEFT_TEST_SOCKET";
const ROUNDS: &str = "WEFT_TEST_ROUNDS";
/// All that a call may have.
const FUEL: u64 = 1_000_000_000;
const LIGHT: u32 = 1001;
const HEAVY: u32 = 1002;

/// A function that counts so many rounds, some nanoseconds each.
fn counting(rounds: u64) -> Vec<u8> {
    let mut number = rounds;
    let mut signed = Vec::new();
    // LEB128, signed.
    while number >= 64 {
        signed.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    signed.push(number as u8);
    let mut code = vec![1, 1, 0x7e, 0x42];
    code.extend(signed);
    // local.set 2; loop; local.get 2; i64.const 1; i64.sub; local.tee 2; i64.eqz; i32.eqz; br_if 0; end; i64.const 0; end
    code.extend([
        0x21, 2, 0x03, 0x40, 0x20, 2, 0x42, 1, 0x7d, 0x22, 2, 0x50, 0x45, 0x0d, 0, 0x0b, 0x42, 0, 0x0b,
    ]);
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    // Types: i32 -> i32 and (i32, i32) -> i64; two functions; one page of memory; the exports.
    module.extend([1, 12, 2, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 2, 0x7f, 0x7f, 1, 0x7e]);
    module.extend([3, 3, 2, 0, 1, 5, 3, 1, 0, 1]);
    module.extend([7, 24, 3, 6]);
    module.extend(b"memory\x02\0\x05alloc\0\0\x03run\0\x01");
    let bodies = [vec![0, 0x41, 0, 0x0b], code];
    let bodies: Vec<u8> =
        bodies.into_iter().flat_map(|body| [vec![body.len() as u8], body].concat()).collect();
    module.extend([10, bodies.len() as u8 + 1, 2]);
    module.extend(bodies);
    module
}

/// A program that computes, and changes nothing.
fn computing(rounds: u64) -> Checked {
    let mut chain = Chain::all();
    chain.call(counting(rounds), "", FUEL);
    chain.check().unwrap()
}

fn writing(path: &str) -> Checked {
    let mut chain = Chain::all();
    let file = chain.open(path, Access::Write);
    chain.write(file, 0, vec![7; 4096]);
    chain.check().unwrap()
}

fn run(client: &Client, program: &Checked) -> Answer {
    client.run_program(FileRef::ROOT, 0, &[], program).unwrap()
}

fn done(client: &Client, program: &Checked) {
    let answer = run(client, program);
    assert_eq!(answer.failed(), None);
}

fn rig(processors: Option<Processors>) -> Rig {
    let rig = Rig::with(64 << 20, MountChoice { program_cpus: processors, ..MountChoice::default() });
    let root = rig.client();
    root.set_attr(FileRef::ROOT, b"/", 0, &AttrChange { mode: Some(0o777), ..Default::default() }).unwrap();
    rig
}

fn one(policy: Policy) -> Option<Processors> {
    Some(Processors { policy, ..Processors::new(1) })
}

fn load(rig: &Rig) -> CpuLoad {
    rig.server.as_ref().unwrap().volume().program_cpus().unwrap().load()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

fn until_idle(rig: &Rig) {
    until("a processor is lost", || load(rig) == CpuLoad { processors: 1, busy: 0, waiting: 0 });
}

/// Rounds for which a call of [`counting`] takes so long on this machine, about.
fn rounds_for(client: &Client, time: Duration) -> u64 {
    let rounds = 100_000;
    let begun = Instant::now();
    done(client, &computing(rounds));
    (u128::from(rounds) * time.as_nanos() / begun.elapsed().as_nanos()) as u64
}

/// Programs of a light user that are done, one after the other, while one of a heavy user has the processor or waits for it.
fn light_ones_beside(policy: Policy) -> u64 {
    let rig = rig(one(policy));
    let heavy = rig.as_user(HEAVY, || connect(&rig.path));
    let light = rig.as_user(LIGHT, || connect(&rig.path));
    light.open(FileRef::ROOT, b"/light", libc::O_CREAT | libc::O_RDWR, 0o600).unwrap();
    let (short, long) = (writing("/light"), computing(rounds_for(&heavy, Duration::from_millis(50))));
    let count = std::thread::scope(|scope| {
        // On a machine that is busy enough it is stopped after 100 ms, which is as good here.
        scope.spawn(|| run(&heavy, &long));
        until("the heavy one runs", || load(&rig).busy == 1);
        let mut count = 0;
        loop {
            done(&light, &short);
            if load(&rig).busy == 0 {
                return count;
            }
            count += 1;
        }
    });
    until_idle(&rig);
    count
}

#[test]
fn a_function_of_50_ms_does_not_hold_a_writer_of_another_user() {
    if !is_superuser() {
        return;
    }
    let [fifo, round_robin, fair] = [Policy::Fifo, Policy::RoundRobin, Policy::Fair].map(light_ones_beside);
    assert_eq!(fifo, 0, "the first one waits until the function has ended");
    assert!(round_robin > 2 && fair > 2, "{round_robin} and {fair} writes beside a function");
}

#[test]
fn a_preempted_program_keeps_its_files_and_those_who_want_them_wait_without_a_processor() {
    for policy in Policy::ALL {
        let rig = rig(one(policy));
        let setup = rig.client();
        let file = setup.open(FileRef::ROOT, b"/count", libc::O_CREAT | libc::O_RDWR, 0o600).unwrap().file;
        setup.pwrite(file, &0u64.to_le_bytes(), 0).unwrap();
        let rounds = rounds_for(&setup, Duration::from_micros(300));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let client = rig.client();
                    let mut chain = Chain::all();
                    let file = chain.open("/count", Access::ReadWrite);
                    let bytes = chain.read(file, 0, 8);
                    let number = chain.unpack(bytes, 0, 8);
                    chain.call(counting(rounds), "", FUEL);
                    let next = chain.arith(number, Arith::Add, 1);
                    let next = chain.pack(next, 8);
                    chain.write(file, 0, next);
                    let program = chain.check().unwrap();
                    for _ in 0..20 {
                        done(&client, &program);
                    }
                });
            }
        });
        let mut bytes = [0; 8];
        setup.pread(file, &mut bytes, 0).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), 80, "{policy}");
        until_idle(&rig);
    }
}

/// Runs functions of 60 ms until it is killed. The other tests run it as a process of its own.
#[test]
#[ignore = "run by the other tests"]
fn compute_for_ever() {
    let client = connect(std::env::var(SOCKET).unwrap().as_bytes());
    let long = computing(std::env::var(ROUNDS).unwrap().parse().unwrap());
    loop {
        run(&client, &long);
    }
}

#[test]
fn processes_that_are_killed_while_their_programs_run_and_wait_lose_no_processor() {
    for policy in Policy::ALL {
        let rig = rig(one(policy));
        let client = rig.client();
        let rounds = rounds_for(&client, Duration::from_millis(60));
        for _ in 0..2 {
            let begin = || {
                let mut child = Command::new(std::env::current_exe().unwrap());
                child.args(["--ignored", "--exact", "--nocapture", "compute_for_ever"]);
                child.env(SOCKET, std::str::from_utf8(&rig.path).unwrap()).env(ROUNDS, rounds.to_string());
                child.stdout(Stdio::null()).spawn().unwrap()
            };
            let mut children = [(); 3].map(|()| begin());
            until("all have a program under way", || load(&rig).busy + load(&rig).waiting as u32 == 3);
            for child in &mut children {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            until_idle(&rig);
            done(&client, &computing(1000));
        }
    }
}

#[test]
fn a_program_that_exceeds_its_users_memory_is_refused_and_does_nothing() {
    let fair = FairSettings { memory_max_bytes: 1 << 20, ..FairSettings::default() };
    let rig = rig(Some(Processors { fair, ..Processors::new(1) }));
    let client = rig.client();
    let file = client.open(FileRef::ROOT, b"/f", libc::O_CREAT | libc::O_RDWR, 0o600).unwrap().file;
    for (chain, refused_at, size) in [(Chain::all(), 0, 0), (Chain::each(), 2, 7)] {
        let mut chain = chain;
        let opened = chain.open("/f", Access::ReadWrite);
        chain.append(opened, "content");
        chain.read(opened, 0, 2 << 20);
        let refused = run(&client, &chain.check().unwrap());
        assert_eq!(refused.failed(), Some((refused_at, libc::ENOMEM)), "{refused:?}");
        assert_eq!(client.fstat(file).unwrap().size, size);
    }
    done(&client, &writing("/f"));
    until_idle(&rig);
}

#[test]
fn a_user_with_too_many_programs_that_wait_is_refused_and_others_go_on() {
    if !is_superuser() {
        return;
    }
    let fair = FairSettings { waiting_max: 1, ..FairSettings::default() };
    // So slow that two programs are there until the third one comes.
    let rig = rig(Some(Processors { fair, slowdown_percent: 10_000, ..Processors::new(1) }));
    let clients = rig.as_user(HEAVY, || [(); 3].map(|()| connect(&rig.path)));
    let light = rig.as_user(LIGHT, || connect(&rig.path));
    light.open(FileRef::ROOT, b"/light", libc::O_CREAT | libc::O_RDWR, 0o600).unwrap();
    let long = computing(100 * rounds_for(&clients[0], Duration::from_millis(10)));
    std::thread::scope(|scope| {
        scope.spawn(|| done(&clients[0], &long));
        until("the first one runs", || load(&rig).busy == 1);
        scope.spawn(|| done(&clients[1], &long));
        until("the second one waits", || load(&rig).waiting == 1);
        assert_eq!(run(&clients[2], &long).failed(), Some((0, libc::EAGAIN)));
        done(&light, &writing("/light"));
    });
    done(&clients[2], &computing(1000));
    until_idle(&rig);
}

#[test]
fn without_processors_programs_run_as_before() {
    let rig = rig(None);
    assert!(rig.server.as_ref().unwrap().volume().program_cpus().is_none());
    let client = rig.client();
    let content: Vec<u8> = (0..300_000u32).map(|at| (at / 9) as u8).collect();
    let mut chain = Chain::all();
    let packed = chain.compress(content.as_slice(), Codec::Zstd, 0);
    chain.export(packed);
    let answer = run(&client, &chain.check().unwrap());
    let expected = Native.compress(&content, Codec::Zstd, 0, usize::MAX, None).unwrap();
    assert_eq!(answer.bytes(0), Some(&expected[..]));
}
