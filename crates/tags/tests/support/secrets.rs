//! Writes markers to an s-node with secure deletion in all ways, gives them up, and looks for them on a medium.

#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "not every test looks at everything")]

use weft_tags::{
    Durability, EdgeType, Error, Info, InfoForm, Kv, KvChange, NodeId, NodeType, Options, PageStore, SnodeId,
    SnodeTags, Store, TagFlags,
};

pub const PLAIN: NodeType = NodeType(5);
pub const KEYED: NodeType = NodeType(NodeType::KEYED | 5);

pub fn options() -> Options {
    Options { cache_bytes: 2 << 20, journal_bytes: 512 << 10, ..Options::default() }
}

/// What must not be found: 32 random bytes.
pub type Marker = [u8; 32];

/// How often a marker, or most of it, is on a medium.
pub fn found(medium: &[u8], marker: &Marker) -> usize {
    // A page's end may cut it in two, so each half counts.
    let half = |half: &[u8]| medium.windows(16).filter(|window| *window == half).count();
    half(&marker[..16]) + half(&marker[16..])
}

pub fn secret() -> SnodeTags {
    SnodeTags { flags: TagFlags::SECURE_DELETE, ..SnodeTags::default() }
}

pub struct World {
    pub snode: SnodeId,
    pub root: NodeId,
    pub number: EdgeType,
    pub key: EdgeType,
}

pub fn begin(store: &Store, tags: &SnodeTags) -> World {
    let number = store.edge_type("number", InfoForm::Number).unwrap();
    let key = store.edge_type("key", InfoForm::Key).unwrap();
    let mut tx = store.begin();
    let snode = tx.create_snode(tags).unwrap();
    let root = tx.root(snode).unwrap();
    tx.commit().unwrap();
    World { snode, root, number, key }
}

/// Data with the marker in it, again and again.
pub fn marked(marker: &Marker, len: usize) -> Vec<u8> {
    marker.iter().copied().cycle().take(len).collect()
}

pub fn keyed(key: &[u8], rest: &[u8]) -> Vec<u8> {
    [&(key.len() as u16).to_le_bytes(), key, rest].concat()
}

const LENGTHS: [usize; 9] = [32, 60, 100, 333, 1_000, 2_000, 4_000, 9_000, 300_000];

/// Writes the marker in all ways, beside what stays. Some of it is given up on the way.
pub fn write(store: &Store, world: &World, marker: &Marker) -> Result<(), Error> {
    let World { snode, root, number, key } = *world;
    let kv = Kv::open(store, snode, "pairs")?;
    let mut next = 0;
    for (turn, lens) in LENGTHS.iter().cycle().take(36).collect::<Vec<_>>().chunks(4).enumerate() {
        let mut tx = store.begin();
        tx.durability(if turn % 2 == 0 { Durability::None } else { Durability::Sync });
        for len in lens {
            let node = tx.create_node(snode, PLAIN, &marked(marker, **len))?;
            tx.create_edge(root, number, Info::Number(next), node)?;
            // Neighbours in the same pages, which stay.
            let stays = tx.create_node(snode, PLAIN, &vec![7; **len])?;
            tx.create_edge(root, number, Info::Number(1_000 + next), stays)?;
            let name = [&marker[..], &next.to_le_bytes()].concat();
            let node = tx.create_node(snode, KEYED, &keyed(&name, &marked(marker, **len / 2)))?;
            tx.create_edge(root, key, Info::Key(&name), node)?;
            let pair = [&next.to_le_bytes(), &marker[..]].concat();
            kv.change_in(&mut tx, &[KvChange::Put(&pair, &marked(marker, **len))])?;
            kv.change_in(&mut tx, &[KvChange::Put(&next.to_le_bytes(), &marked(marker, **len))])?;
            next += 1;
        }
        // Garbage, and what is undone.
        tx.create_node(snode, PLAIN, &marked(marker, 500))?;
        let savepoint = tx.savepoint();
        let undone = tx.create_node(snode, PLAIN, &marked(marker, 700))?;
        tx.create_edge(root, number, Info::Number(5_000), undone)?;
        tx.undo_to(savepoint)?;
        tx.commit()?;
        let mut aborted = store.begin();
        for len in [100, 2_000, 20_000] {
            let node = aborted.create_node(snode, PLAIN, &marked(marker, len))?;
            aborted.create_edge(root, number, Info::Number(6_000 + len as u64), node)?;
        }
        aborted.abort();
        if turn == 4 {
            store.checkpoint()?;
        }
    }
    // Grown, shrunk, and grown in the place of another.
    for (at, len) in (0..next).zip([5_000, 40, 0, 100_000, 3, 33, 8_000, 20_000].into_iter().cycle()) {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        let node = tx.edge(root, number, Info::Number(at))?.unwrap();
        tx.update_node(node, PLAIN, &marked(marker, len))?;
        let name = [&marker[..], &at.to_le_bytes()].concat();
        let node = tx.edge(root, key, Info::Key(&name))?.unwrap();
        tx.update_node(node, KEYED, &keyed(&name, &marked(marker, len)))?;
        tx.commit()?;
    }
    Ok(())
}

/// Gives all of it up: nodes are deleted, or have other data.
pub fn give_up(store: &Store, world: &World, marker: &Marker) -> Result<(), Error> {
    let World { snode, root, number, key } = *world;
    let kv = Kv::open(store, snode, "pairs")?;
    for next in 0..36u64 {
        let mut tx = store.begin();
        tx.durability(Durability::None);
        if let Some(node) = tx.edge(root, number, Info::Number(next))? {
            if next % 3 == 0 {
                tx.update_node(node, PLAIN, &vec![1; next as usize * 7])?;
            } else {
                tx.delete_edge(root, number, Info::Number(next))?;
            }
        }
        let name = [&marker[..], &next.to_le_bytes()].concat();
        if tx.edge(root, key, Info::Key(&name))?.is_some() {
            tx.delete_edge(root, key, Info::Key(&name))?;
        }
        let pair = [&next.to_le_bytes(), &marker[..]].concat();
        kv.change_in(&mut tx, &[KvChange::Delete(&pair)])?;
        kv.change_in(&mut tx, &[KvChange::Put(&next.to_le_bytes(), b"harmless")])?;
        tx.commit()?;
    }
    Ok(())
}

pub fn is_whole(store: &Store, world: &World) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    for (next, len) in (0..36).zip(LENGTHS.into_iter().cycle()) {
        let stays = store.edge(world.root, world.number, Info::Number(1_000 + next)).unwrap().unwrap();
        assert!(store.read_node(stays, PLAIN).unwrap() == vec![7; len], "{next}");
    }
    let kv = Kv::open(store, world.snode, "pairs").unwrap();
    assert_eq!(kv.count().unwrap(), 36);
    assert_eq!(kv.get(&5u64.to_le_bytes()).unwrap().unwrap(), b"harmless");
}

/// A run of transactions on a medium whose power fails.
pub fn run(medium: Box<dyn PageStore>, world: &World, marker: &Marker) -> Result<(), Error> {
    let store = Store::open(medium, &options())?;
    let World { snode, root, number, .. } = *world;
    for turn in 0..4u64 {
        for (at, len) in (0..).zip([40, 40, 700, 3_000, 15_000]) {
            let mut tx = store.begin();
            tx.durability(if at % 2 == 0 { Durability::None } else { Durability::Sync });
            let node = tx.create_node(snode, PLAIN, &marked(marker, len))?;
            tx.set_edge(root, number, Info::Number(turn * 10 + at), node)?;
            tx.commit()?;
        }
        store.checkpoint()?;
        let mut tx = store.begin();
        for at in 0..5 {
            tx.delete_edge(root, number, Info::Number(turn * 10 + at))?;
        }
        tx.commit()?;
        if turn % 2 == 1 {
            store.checkpoint()?;
        }
    }
    store.close()
}
