//! A client of a tag store's sessions that sends what it likes: requests of a user with little permission, beside those of
//! the store's owner. What the user may not read is never in an answer, and the store stays sound.

use super::Target;
use crate::script::Script;
use std::sync::Arc;
use weft_tags::{
    Credentials, Info, InfoForm, MemoryStore, NodeType, Options, Permission, Principal, Session,
    SessionLimits, SnodeId, SnodeTags, Store,
};

const USER: u32 = 1000;
const SECRET: &[u8] = b"nobody but the owner reads this";
const KINDS: [u32; 4] = [1, 0, 0x8000_0001, u32::MAX];

fn expect<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// See the module.
pub struct HostileSession {
    /// A store with an s-node that the user may read and write, and one that it may not.
    image: Vec<u8>,
}

fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, store_bytes_max: 4 << 20, ..Options::default() }
}

impl HostileSession {
    /// Makes the store.
    pub fn new() -> HostileSession {
        let medium = Arc::new(MemoryStore::new());
        let store = expect("create", Store::create(Box::new(medium.clone()), &options()));
        let etype = expect("type", store.edge_type("e", InfoForm::Number));
        let root = expect("root", store.root(SnodeId::FIRST));
        let mut tx = store.begin();
        let hidden = expect("s-node", tx.create_snode(&SnodeTags { mode: 0o600, ..SnodeTags::default() }));
        let hidden_root = expect("root", tx.root(hidden));
        for n in 0..4u64 {
            let secret = expect("node", tx.create_node(hidden, NodeType(1), SECRET));
            expect("edge", tx.create_edge(hidden_root, etype, Info::Number(n), secret));
            expect("edge", tx.create_edge(root, etype, Info::Number(n), secret));
            let open = expect("node", tx.create_node(SnodeId::FIRST, NodeType(1), b"anybody reads this"));
            expect("edge", tx.create_edge(root, etype, Info::Number(10 + n), open));
        }
        for permission in [Permission::Read, Permission::Write] {
            expect("grant", tx.grant(SnodeId::FIRST, Principal::User(USER), permission));
        }
        expect("commit", tx.commit());
        expect("close", store.close());
        HostileSession { image: medium.to_bytes() }
    }
}

/// A request, most often one that can be decoded.
fn request(script: &mut Script<'_>, ids: &[u64]) -> Vec<u8> {
    if script.byte() == 255 {
        return script.bytes(64);
    }
    let op = script.below(27) as u8;
    let mut raw = vec![op];
    let id = |script: &mut Script<'_>| match script.below(8) {
        0 => script.number(),
        _ if ids.is_empty() => 0,
        _ => script.of(ids),
    };
    let info = |script: &mut Script<'_>, raw: &mut Vec<u8>| {
        raw.extend_from_slice(&(script.below(3) as u32).to_le_bytes());
        match script.below(8) {
            0 => {
                raw.push(1);
                let key = script.bytes(20);
                raw.extend_from_slice(&(key.len() as u32).to_le_bytes());
                raw.extend_from_slice(&key);
            }
            _ => {
                raw.push(0);
                raw.extend_from_slice(&(script.below(20) as u64).to_le_bytes());
            }
        }
    };
    let tags = |script: &mut Script<'_>, raw: &mut Vec<u8>| {
        raw.extend_from_slice(&(script.of(&[USER, 0])).to_le_bytes());
        raw.extend_from_slice(&[0; 4]);
        raw.extend_from_slice(&(script.of(&[0o666u16, 0o600, 0, 0o777])).to_le_bytes());
        raw.extend_from_slice(&[script.byte() % 4, script.byte() % 4]);
    };
    match op {
        6 => raw.extend_from_slice(&(script.below(5) as u32).to_le_bytes()),
        7..=10 => {
            raw.extend_from_slice(&id(script).to_le_bytes());
            raw.extend_from_slice(&script.of(&KINDS).to_le_bytes());
            if op == 7 || op == 9 {
                let len = script.of(&[0u32, 5, 300, 3000, 20_000]);
                raw.extend_from_slice(&len.to_le_bytes());
                raw.resize(raw.len() + len as usize, script.byte());
            }
        }
        11..=14 => {
            raw.extend_from_slice(&id(script).to_le_bytes());
            info(script, &mut raw);
            raw.extend_from_slice(&id(script).to_le_bytes());
        }
        15 | 18 | 19 | 23 => raw.extend_from_slice(&id(script).to_le_bytes()),
        16 => {
            raw.push(script.byte() % 3);
            let name = script.bytes(6);
            raw.extend_from_slice(&(name.len() as u32).to_le_bytes());
            raw.extend_from_slice(&name);
        }
        17 => tags(script, &mut raw),
        20 => {
            raw.extend_from_slice(&id(script).to_le_bytes());
            tags(script, &mut raw);
        }
        21 | 22 => {
            raw.extend_from_slice(&id(script).to_le_bytes());
            raw.push(1 + script.byte() % 3);
            raw.extend_from_slice(&(script.of(&[USER, 0])).to_le_bytes());
            raw.push(script.byte() % 4);
        }
        _ => {}
    }
    raw
}

/// Notes the ids of an answer.
fn learn(op: u8, answer: &[u8], ids: &mut Vec<u64>) {
    let word = |at: usize| {
        let raw = answer.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(raw))
    };
    if answer.first() != Some(&0) || ids.len() > 200 {
        return;
    }
    match op {
        1 | 7 | 13 | 17 => ids.extend(word(1)),
        12 | 14 => ids.extend(word(2)),
        15 => ids.extend((0..).map_while(|n| word(5 + n * 21 + 13))),
        _ => {}
    }
}

fn contains(answer: &[u8], what: &[u8]) -> bool {
    answer.windows(what.len()).any(|window| window == what)
}

impl Target for HostileSession {
    fn name(&self) -> &'static str {
        "session"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let walk = vec![0, 1, 0, 15, 1, 0, 0, 8, 1, 3, 0];
        let write = vec![0, 1, 0, 2, 0, 7, 1, 0, 0, 1, 9, 0, 11, 1, 0, 1, 5, 1, 1, 0, 3, 0, 15, 1, 0];
        vec![walk, write, vec![0, 2, 0, 17, 0, 0, 0, 0, 0, 3]]
    }

    fn run(&mut self, input: &[u8]) {
        let mut script = Script(input);
        let medium = Arc::new(MemoryStore::from_bytes(self.image.clone()));
        let store = expect("open", Store::open(Box::new(medium.clone()), &options()));
        let root = expect("root", store.root(SnodeId::FIRST));
        let open = |credentials| -> Session<'_> {
            expect("session", store.open_session(root, credentials, SessionLimits::default()))
        };
        let mut session = open(Credentials::user(USER, &[]));
        let mut ids = Vec::new();
        for _ in 0..200 {
            if script.is_over() {
                break;
            }
            let raw = request(&mut script, &ids);
            let answer = session.answer(&raw);
            assert!(!contains(&answer, SECRET), "a secret was told for {raw:?}");
            learn(raw.first().copied().unwrap_or(0), &answer, &mut ids);
        }
        drop(session);
        let mut stranger = open(Credentials::user(USER, &[]));
        for id in &ids {
            let raw = [&[15][..], &id.to_le_bytes()].concat();
            assert_ne!(stranger.answer(&raw)[0], 0, "an id of another session was taken");
        }
        drop(stranger);
        let report = expect("check", store.check());
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        expect("close", store.close());
        let again = expect("open again", Store::open(Box::new(medium), &options()));
        let report = expect("check", again.check());
        assert!(report.problems.is_empty(), "after reopening: {:?}", report.problems);
    }
}
