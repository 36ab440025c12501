//! Images of tag stores, closed in order or with a journal, in which anything is changed and checksums are made right
//! again. Opening gives a store or an error, and a store that opened takes reads and transactions.

use super::Target;
use crate::script::Script;
use std::sync::Arc;
use weft_core::checksum::crc32c;
use weft_tags::{
    EdgeType, Info, InfoForm, Kv, MemoryStore, NodeId, NodeType, Options, PAGE_BYTES, SnodeId, Store,
};

const PLAIN: NodeType = NodeType(5);
/// Where the superblock has its list of leaves and its catalog: blocks of both copies, bytes, CRC.
const LEAVES_AT: usize = 64;
const CATALOG_AT: usize = 96;
const JOURNAL_AT: usize = 40;
const LEAF_ENTRY_BYTES: usize = 24;
const DESC_BYTES: usize = 64;
const RECORD_HEAD_BYTES: usize = 40;

fn options() -> Options {
    Options { cache_bytes: 1 << 20, journal_bytes: 256 << 10, store_bytes_max: 2 << 20, ..Options::default() }
}

fn expect<T>(what: &str, result: weft_tags::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// See the module.
pub struct TagStores {
    moments: Vec<Moment>,
}

struct Moment {
    image: Vec<u8>,
    etype: EdgeType,
    nodes: Vec<NodeId>,
}

impl TagStores {
    /// Makes the images.
    pub fn new() -> TagStores {
        TagStores { moments: [true, false].map(moment).into() }
    }
}

fn moment(closed: bool) -> Moment {
    let medium = Arc::new(MemoryStore::new());
    let store = expect("create", Store::create(Box::new(medium.clone()), &options()));
    let etype = expect("type", store.edge_type("n", InfoForm::Number));
    let root = expect("root", store.root(SnodeId::FIRST));
    let mut nodes = Vec::new();
    for round in 0..4u64 {
        let mut tx = store.begin();
        for n in round * 20..round * 20 + 20 {
            let data = vec![n as u8; if n % 16 == 0 { 9_000 } else { n as usize * 11 }];
            let node = expect("node", tx.create_node(SnodeId::FIRST, PLAIN, &data));
            expect("edge", tx.create_edge(root, etype, Info::Number(n), node));
            nodes.push(node);
        }
        expect("commit", tx.commit());
    }
    let kv = expect("kv", Kv::open(&store, SnodeId::FIRST, "pairs"));
    for n in 0..300u32 {
        expect("put", kv.put(&n.to_le_bytes(), &vec![n as u8; n as usize % 90]));
    }
    for n in (0..300u32).step_by(7) {
        expect("delete", kv.delete(&n.to_le_bytes()));
    }
    let image = match closed {
        true => {
            expect("close", store.close());
            medium.to_bytes()
        }
        false => medium.to_bytes(),
    };
    Moment { image, etype, nodes }
}

/// An image whose checksums can be made right.
struct Image(Vec<u8>);

impl Image {
    fn word(&self, at: usize) -> Option<usize> {
        let raw = self.0.get(at..at.checked_add(8)?)?;
        raw.try_into().ok().map(|raw| u64::from_le_bytes(raw) as usize)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = at.checked_add(bytes.len()).and_then(|end| self.0.get_mut(at..end)) {
            place.copy_from_slice(bytes);
        }
    }

    fn crc(&self, at: usize, len: usize) -> Option<[u8; 4]> {
        Some(crc32c(self.0.get(at..at.checked_add(len)?)?).to_le_bytes())
    }

    /// Where the first copy of what a pointer of the superblock refers to begins, and its bytes.
    fn blob(&self, at: usize) -> Option<(usize, usize)> {
        let (block, len) = (self.word(at)?, self.word(at + 16)?);
        let begin = block.checked_mul(PAGE_BYTES)?;
        (begin.checked_add(len)? <= self.0.len()).then_some((begin, len))
    }

    /// Where the leaves of descriptors begin, each with its entry in the list.
    fn leaves(&self) -> Vec<(usize, usize)> {
        let Some((begin, len)) = self.blob(LEAVES_AT) else { return Vec::new() };
        let entries = (begin..begin + len / LEAF_ENTRY_BYTES * LEAF_ENTRY_BYTES).step_by(LEAF_ENTRY_BYTES);
        let leaf = |entry| Some((entry, self.page(self.word(entry + 8)?)?));
        entries.filter_map(leaf).collect()
    }

    fn page(&self, block: usize) -> Option<usize> {
        block
            .checked_mul(PAGE_BYTES)
            .filter(|at| at.checked_add(PAGE_BYTES).is_some_and(|end| end <= self.0.len()))
    }

    /// Where the descriptors in use are.
    fn descriptors(&self) -> Vec<usize> {
        let in_leaf = |(_, leaf): (usize, usize)| (leaf..leaf + PAGE_BYTES).step_by(DESC_BYTES);
        self.leaves().into_iter().flat_map(in_leaf).filter(|at| self.0[*at] != 0).collect()
    }

    /// Where the records of the journal begin, and the bytes of their entries.
    fn records(&self) -> Vec<(usize, usize)> {
        let (Some(block), Some(blocks)) = (self.word(JOURNAL_AT), self.word(JOURNAL_AT + 8)) else {
            return Vec::new();
        };
        let begin = block.saturating_mul(PAGE_BYTES).min(self.0.len());
        let end = begin.saturating_add(blocks.saturating_mul(PAGE_BYTES)).min(self.0.len());
        let (mut at, mut found) = (begin, Vec::new());
        while at + RECORD_HEAD_BYTES <= end {
            let len = u32::from_le_bytes([self.0[at + 8], self.0[at + 9], self.0[at + 10], self.0[at + 11]])
                as usize;
            if self.0[at..].starts_with(b"WTJ1") && at + RECORD_HEAD_BYTES + len <= end {
                found.push((at, len));
                at = (at + RECORD_HEAD_BYTES + len).next_multiple_of(8);
            } else {
                at = (at + 1).next_multiple_of(PAGE_BYTES);
            }
        }
        found
    }

    /// Makes every checksum right, from the pages up to the superblock, and the journal's.
    fn seal(&mut self) {
        for (at, len) in self.records() {
            if let Some(crc) = self.crc(at + 8, RECORD_HEAD_BYTES - 8 + len) {
                self.put(at + 4, &crc);
            }
        }
        for at in self.descriptors() {
            let page = self.word(at + 8).and_then(|block| self.page(block));
            if let Some(crc) = page.and_then(|page| self.crc(page, PAGE_BYTES)) {
                self.put(at + 4, &crc);
            }
        }
        for (entry, leaf) in self.leaves() {
            if let Some(crc) = self.crc(leaf, PAGE_BYTES) {
                self.put(entry + 4, &crc);
            }
        }
        for pointer in [LEAVES_AT, CATALOG_AT] {
            if let Some(crc) = self.blob(pointer).and_then(|(begin, len)| self.crc(begin, len)) {
                self.put(pointer + 24, &crc);
            }
        }
        if let Some(crc) = self.crc(0, PAGE_BYTES - 4) {
            self.put(PAGE_BYTES - 4, &crc);
        }
        let copy = self.0.get(..PAGE_BYTES).map(<[u8]>::to_vec).unwrap_or_default();
        self.put(PAGE_BYTES, &copy);
    }

    fn damage(&mut self, script: &mut Script<'_>) {
        let value = script.number().to_le_bytes();
        let len = script.of(&[1, 2, 4, 8]);
        match script.below(12) {
            0 => {
                // A field of the superblock.
                let at = 8 + script.below(128);
                self.put(at, &value[..len]);
            }
            1 => {
                let at = script.below(self.0.len());
                self.put(at, &value[..len]);
            }
            2 | 3 => {
                // The list of leaves, the catalog.
                let pointer = script.of(&[LEAVES_AT, CATALOG_AT]);
                if let Some((begin, bytes)) = self.blob(pointer) {
                    let at = begin + script.below(bytes);
                    self.put(at, &value[..len]);
                }
            }
            4..=6 => {
                let all = self.descriptors();
                if !all.is_empty() {
                    let at = script.of(&all) + script.below(DESC_BYTES);
                    self.put(at, &value[..len]);
                }
            }
            7..=9 => {
                // A page, most often near its beginning.
                let all = self.descriptors();
                if !all.is_empty() {
                    let at = script.of(&all);
                    let within =
                        if script.byte() & 1 == 0 { script.below(128) } else { script.below(PAGE_BYTES) };
                    if let Some(page) = self.word(at + 8).and_then(|block| self.page(block)) {
                        self.put((page + within).min(page + PAGE_BYTES - len), &value[..len]);
                    }
                }
            }
            10 => {
                let all = self.records();
                if !all.is_empty() {
                    let (at, bytes) = script.of(&all);
                    let at = at + 8 + script.below(RECORD_HEAD_BYTES - 8 + bytes);
                    self.put(at, &value[..len]);
                }
            }
            _ => {
                // One page in the place of another.
                let (from, to) =
                    (script.below(self.0.len() / PAGE_BYTES), script.below(self.0.len() / PAGE_BYTES));
                self.0.copy_within(from * PAGE_BYTES..(from + 1) * PAGE_BYTES, to * PAGE_BYTES);
            }
        }
    }
}

impl Target for TagStores {
    fn name(&self) -> &'static str {
        "tags"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let kinds = 0..12u8;
        kinds.flat_map(|kind| [vec![0, 1, 65, 2, kind, 9, 9], vec![1, 1, 5, 1, kind, 40, 1]]).collect()
    }

    fn run(&mut self, input: &[u8]) {
        let mut script = Script(input);
        let moment = &self.moments[script.below(self.moments.len())];
        let sealed = script.byte() != 0;
        let mut image = Image(moment.image.clone());
        for _ in 0..8 {
            image.damage(&mut script);
            if script.is_over() {
                break;
            }
        }
        if sealed {
            image.seal();
        }
        let medium = Arc::new(MemoryStore::from_bytes(image.0));
        for _ in 0..2 {
            match Store::open(Box::new(medium.clone()), &options()) {
                Ok(store) => {
                    use_it(&store, moment);
                    if let Err(error) = store.close() {
                        assert!(!error.to_string().is_empty());
                    }
                }
                Err(error) => return assert!(!error.to_string().is_empty()),
            }
        }
    }
}

/// Reads and changes. Whatever is refused is refused; a panic is a finding.
fn use_it(store: &Store, moment: &Moment) {
    let _ = store.check();
    let _ = store.report();
    for node in &moment.nodes {
        let _ = store.read_node(*node, PLAIN);
        let _ = store.in_edges(*node);
    }
    let Ok(root) = store.root(SnodeId::FIRST) else { return };
    let _ = store.edges(root);
    if let Ok(kv) = Kv::open(store, SnodeId::FIRST, "pairs") {
        for n in 0..310u32 {
            let _ = kv.get(&n.to_le_bytes());
        }
        for n in 280..310u32 {
            let _ = kv.put(&n.to_le_bytes(), &[7; 60]);
        }
        let _ = kv.delete(&3u32.to_le_bytes());
        let _ = kv.count();
    }
    let mut tx = store.begin();
    for (n, node) in (0..).zip(&moment.nodes) {
        let _ = match n % 3 {
            0 => tx.update_node(*node, PLAIN, &[1; 5]),
            1 => tx.delete_edge(root, moment.etype, Info::Number(n)).map(drop),
            _ => tx.create_edge(*node, moment.etype, Info::Number(n), root),
        };
    }
    let _ = tx.commit();
}
