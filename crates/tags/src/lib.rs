//! The tag store of weft: nodes, edges, transactions and s-nodes in a single-level store.
//!
//! - [`Store`]: what is created and opened, on a [`PageStore`]: a file, a device, or memory.
//! - [`Transaction`]: nodes and edges made, changed and deleted, with savepoints; serialisable.
//!
//! - [`Session`]: a part of a store for callers that are not trusted with it, in other processes too.
//! - [`Kv`]: a key-value store on nodes and edges.
//! - [`BTree`]: an ordered map on them.
//!
//! How it works: `docs/tags.md`; what lies on the medium: `docs/formats/tags.md`. The model is that of "ADAPT: An
//! auxiliary storage data path toolkit" (Journal of Systems Architecture 2020) and "Tags: a unifying primitive for the storage data path".

#[cfg(target_endian = "big")]
compile_error!("pages are used in memory as they are on the medium, which is little-endian");

mod backup;
mod begins;
mod btree;
mod check;
mod checkpoint;
mod committed;
mod edges;
mod erase;
mod error;
mod front;
mod hash;
mod ids;
mod inspect;
mod journal;
mod keep;
mod kv;
mod layout;
mod named;
mod options;
mod owners;
mod page_store;
mod pages;
mod partition;
mod problems;
mod reads;
mod recover;
mod replay;
mod reserve;
mod salvage;
mod session;
mod shrink;
mod slab;
mod snapshot;
mod snodes;
mod space;
mod store;
mod sync;
mod tx;
mod typed;
mod views;
mod watchers;

pub use backup::BackupReport;
pub use btree::{BTree, BTreeForm, BTreePlace, BTreeReport, BTreeSnapshot, Pair, Range};
pub use check::CheckReport;
pub use edges::Edge;
pub use edges::order::{Direction, EdgePlace, PlacedEdge};
pub use error::{Error, Result};
pub use ids::{ADDRESS_BITS, EdgeType, Info, InfoForm, NodeId, NodeType, PAGE_BYTES, Permission, SnodeId};
pub use inspect::{EdgeTypeView, NodeView};
pub use kv::{Kv, KvScan, KvSnapshot};
pub use layout::node::NODE_BYTES_MAX;
pub use named::{NamedSnapshot, at_snapshot};
pub use options::{Durability, EdgeRule, ErasePass, Options};
pub use owners::{Owners, PageUse};
pub use page_store::{
    FileStore, JOURNAL_TAG, Mapping, MemoryStore, PageAddress, PageStore, PendingWrite, ReadPath,
};
pub use pages::classes::{ClassReport, PageClass, PagePart, PerClass};
pub use pages::eviction::{
    CacheFrames, ClassPriorities, ClassShare, Clock, EvictionOrder, EvictionPolicy, Evictor, SecondChance,
    Sieve, SieveOrder,
};
pub use salvage::{SalvageReport, salvage};
pub use session::{
    Refusal, RemoteSession, SESSION_IDS_MAX, Session, SessionEdge, SessionError, SessionLimits, SessionNode,
    SessionServer, SessionSetup,
};
pub use shrink::ShrinkReport;
pub use snapshot::Snapshot;
pub use snodes::access::Principal;
pub use snodes::tags::SnodeTags;
pub use space::BlockUse;
pub use store::{Store, StoreReport};
pub use tx::bulk::KvChange;
pub use tx::{Savepoint, Transaction};
pub use weft_core::Credentials;
pub use weft_core::{DataClass, TagFlags};

#[cfg(all(test, not(weft_shuttle)))]
mod limits {
    use crate::ids::{DATA_PAGES_MAX, EdgeType, HomeId};
    use crate::{Options, session};

    /// A number as the documentation writes it.
    fn written(number: u64) -> String {
        let digits = number.to_string().into_bytes();
        let groups = digits.rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
        groups.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn the_table_of_limits_says_what_the_code_does() {
        let page = include_str!("../../../docs/tags/guarantees.md");
        let options = Options::default();
        assert_eq!((options.store_bytes_max, options.cache_bytes), (8 << 40, 256 << 20));
        assert_eq!((options.journal_bytes, options.lock_wait.as_secs()), (256 << 20, 10));
        assert_eq!(crate::layout::superblock::JOURNAL_BYTES_MAX, 4 << 30);
        assert_eq!(crate::layout::superblock::JOURNAL_BYTES_MIN, 256 << 10);
        for (row, limits) in [
            ("key of a pair", &[u16::MAX.into()][..]),
            ("key of a B+tree", &[crate::btree::KEY_BYTES_MAX as u64]),
            ("data of a node", &[crate::NODE_BYTES_MAX as u64]),
            ("pages of nodes", &[DATA_PAGES_MAX.into()]),
            ("s-nodes with a home", &[u64::from(HomeId::FIRST_SHARED.0) - 1]),
            ("shared homes", &[crate::snodes::registry::SHARED_HOMES, u32::MAX.into()]),
            ("edge types of a store", &[EdgeType::REGISTERED_MAX as u64, 255]),
            ("edge types of one node", &[crate::edges::TYPES_PER_NODE_MAX as u64]),
            (
                "message of a session",
                &[session::server::FRAME_BYTES_MAX as u64, session::PIECE_BYTES_MAX as u64],
            ),
            ("edges of a node", &[session::EDGES_MAX as u64]),
            ("savepoints", &[session::SAVEPOINTS_MAX as u64, session::TYPES_PER_SESSION_MAX.into()]),
            ("ids in a session", &[session::SESSION_IDS_MAX as u64]),
        ] {
            let line = page.lines().find(|line| line.starts_with(&format!("| {row}")));
            let numbers: Vec<&str> = line.unwrap_or_default().split([' ', '|']).collect();
            for limit in limits {
                assert!(
                    numbers.iter().any(|word| word.trim_end_matches(',') == written(*limit)),
                    "{row}: {limit}"
                );
            }
        }
    }
}
