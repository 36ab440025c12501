//! The errors of the store; each text names the object and the next step.

use crate::ids::{EdgeType, NodeId, NodeType, Permission, SnodeId};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The result of a store's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the tag store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened or made.
    #[error("{path}: {source}", path = path.display())]
    Open {
        /// The store's file.
        path: PathBuf,
        /// Reason of the system.
        source: io::Error,
    },
    /// Another process has the store open.
    #[error("{path}: in use by {}", holder_name(*.holder), path = path.display())]
    InUse {
        /// The store's file.
        path: PathBuf,
        /// The number of the process that has it open, where the system tells.
        holder: Option<u32>,
    },
    /// A read or write of the medium failed.
    #[error("{what} at block {block}: {source}")]
    Io {
        /// What was done.
        what: &'static str,
        /// The first block concerned.
        block: u64,
        /// Reason of the system.
        source: io::Error,
    },
    /// A write of the medium that a backup goes to failed.
    #[error(transparent)]
    Target(Box<Error>),
    /// A write failed earlier; what is in memory may not be on the medium.
    #[error(
        "the store stopped after a failed write ({reason}); close it and open it again to return to what is durable"
    )]
    Stopped {
        /// The error of that write.
        reason: Arc<str>,
    },
    /// A forked child cannot use what its parent has open: both would write, and neither knows of the other.
    #[error("the store was opened before this process was forked; open a store in the process that uses it")]
    Forked,
    /// The medium holds no store.
    #[error("no tag store here ({what}); create one first")]
    NotAStore {
        /// What was found instead.
        what: String,
    },
    /// The store was written in another version of the format.
    #[error(
        "the store has format version {found}, this program reads {known}; use a program of that version, or take its pairs over: 'weft kv scan' \
         with that one, 'weft kv load' with this"
    )]
    Version {
        /// The version found.
        found: u32,
        /// The version known here.
        known: u32,
    },
    /// The store was opened where nothing can be written.
    #[error("the store is open to be read only; open it where its file can be written")]
    ReadOnly,
    /// A crash left work to a recovery that had no room for it.
    #[error(
        "the store is open to be read only: there was no room to end the recovery after a crash ({reason}); make room where \
         its file is, and open it again"
    )]
    NotRecovered {
        /// What had no room.
        reason: Arc<str>,
    },
    /// A checksum or structure does not hold.
    #[error("damaged: {what}; restore the store from a backup")]
    Damaged {
        /// Which structure, where.
        what: String,
    },
    /// There is no such node, or it is not visible yet.
    #[error("there is no node {0}")]
    NoSuchNode(NodeId),
    /// The node's type is another one.
    #[error("node {node} has type {found:#x}, not {wanted:#x}")]
    WrongType {
        /// Node that the call names.
        node: NodeId,
        /// Its type.
        found: u32,
        /// The type asked for.
        wanted: u32,
    },
    /// The node's data has not the size of the type it is read as.
    #[error("node {node} has {found} bytes, not the {wanted} of the type it is read as")]
    WrongLength {
        /// Node that the call names.
        node: NodeId,
        /// Bytes of its data.
        found: u64,
        /// Bytes of the type.
        wanted: u64,
    },
    /// So much has changed since a snapshot began that it could not be kept.
    #[error(
        "the snapshot is lost: what changed since it began takes more than {bytes} bytes; hold it for less time, or give the store more cache"
    )]
    SnapshotLost {
        /// The bound of all snapshots.
        bytes: u64,
    },
    /// There is a snapshot of this name.
    #[error("there is a snapshot '{0}' already; take another name, or delete that one")]
    SnapshotExists(String),
    /// There is no snapshot of this name.
    #[error("there is no snapshot '{0}'; 'weft snapshot list' shows those that there are")]
    NoSuchSnapshot(String),
    /// What cannot be done while there are snapshots.
    #[error("the snapshot '{0}' keeps blocks where they are; delete all snapshots first")]
    HasSnapshots(String),
    /// A node that still has edges cannot be deleted.
    #[error("node {0} still has edges; delete them first")]
    HasEdges(NodeId),
    /// There is such an edge already.
    #[error("node {0} has such an edge already; delete it first or replace it")]
    EdgeExists(NodeId),
    /// There is no such edge.
    #[error("node {0} has no such edge")]
    NoSuchEdge(NodeId),
    /// The edge type is not registered.
    #[error("edge type {} is not registered in this store", .0.0)]
    NoSuchEdgeType(EdgeType),
    /// The edge type's infos have another form.
    #[error("edges of type {etype} carry {wanted}; give that as info", etype = .etype.0)]
    WrongInfo {
        /// Edge type that the call names.
        etype: EdgeType,
        /// What it takes.
        wanted: &'static str,
    },
    /// The destination's data does not begin with the key, or its type is not one with keys.
    #[error(
        "node {0} is not of a type with keys, or its data does not begin with the edge's key and its length"
    )]
    KeyNotInNode(NodeId),
    /// An edge by key leads to another s-node.
    #[error("node {0} is in another s-node than the source; edges by key stay in one s-node")]
    OtherSnode(NodeId),
    /// The type was registered with another form of info.
    #[error("edge type {0} is registered with another form of info")]
    TypeTaken(String),
    /// A new edge type was to have a name of those that the store keeps for itself.
    #[error(
        "edge type '{0}': the empty name, and names that begin with 'weft.', are the store's own; choose another"
    )]
    ReservedName(String),
    /// An edge type that is to be deleted still has edges.
    #[error("edge type {name} still has edges, node {source_node} one of them; delete them first")]
    EdgeTypeInUse {
        /// Its name.
        name: String,
        /// A node that such an edge goes out from.
        source_node: NodeId,
    },
    /// The edge leads to a node that is neither in the source's s-node nor the root of another one.
    #[error("node {0} is in another s-node; lead the edge to the root of that s-node, and go on from there")]
    NotARoot(NodeId),
    /// Too many edge types out of one node.
    #[error("node {node} has edges of {max} types already, which is the most; use infos to tell edges apart")]
    TooManyTypes {
        /// Node that the call names.
        node: NodeId,
        /// The most that is allowed.
        max: usize,
    },
    /// There is no such s-node.
    #[error("there is no s-node {0}")]
    NoSuchSnode(SnodeId),
    /// The caller has another permission on the s-node, but not this one. Of s-nodes on which a caller has none, it is not
    /// even told that they are there.
    #[error("no permission to {} in s-node {snode}; its owner can grant it", needed.name())]
    Forbidden {
        /// S-node that refuses the caller.
        snode: SnodeId,
        /// What it takes.
        needed: Permission,
    },
    /// An s-node that is to be deleted still has nodes, or edges from or to other s-nodes.
    #[error("s-node {0} has nodes beside its root, or its root has edges; delete them first")]
    SnodeNotEmpty(SnodeId),
    /// The first s-node cannot be deleted.
    #[error("s-node {0} is as old as the store and stays with it", SnodeId::FIRST)]
    FirstSnode,
    /// The type of roots was given for another node, or a root was to be changed as a node.
    #[error(
        "type 0 is that of the roots of s-nodes: choose another for nodes, and change the tags of s-nodes"
    )]
    RootType,
    /// A value is larger than the store takes.
    #[error("{what} of {bytes} bytes; the most is {max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// A key or value of another size than all others.
    #[error("{what} has {bytes} bytes; in this B+tree it has {wanted}")]
    WrongSize {
        /// Which of the two.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// Size that the tree has for it.
        wanted: u64,
    },
    /// A tree has another form than was asked for.
    #[error("the B+tree {0} has another form of keys and values; open it with that")]
    OtherForm(String),
    /// Pairs to load are not in order.
    #[error(
        "the pairs are not in ascending order of their keys, or not greater than those in the tree; sort them, or insert them one by one"
    )]
    Unordered,
    /// No room is left.
    #[error("the store is full ({what}); delete something, or give it more room")]
    Full {
        /// What ran out.
        what: &'static str,
    },
    /// Transactions of several threads wait for each other in a circle that this wait would close.
    #[error("deadlock over s-node {0}: abort this transaction and run it again")]
    Deadlock(SnodeId),
    /// Another transaction of the calling thread holds the s-node: the wait would never end.
    #[error("this thread has another transaction open that holds s-node {0}; commit or abort that one first")]
    WaitsForItself(SnodeId),
    /// Another transaction has held the s-node for longer than [`Options::lock_wait`](crate::Options::lock_wait).
    #[error(
        "waited {} ms for s-node {snode}, which another transaction holds; abort this one and run it again, or wait for longer",
        waited.as_millis()
    )]
    LockTimeout {
        /// What was waited for.
        snode: SnodeId,
        /// For how long.
        waited: Duration,
    },
    /// A commit changes more pages than the cache has room for, an eighth of which is kept for reads. Nothing has changed.
    #[error(
        "the transaction changes more than the cache of {pages} pages has room for; commit in smaller steps or open the store with more cache"
    )]
    CacheFull {
        /// Pages of the cache.
        pages: usize,
    },
    /// A write of a part of a node failed half-way, and the transaction was to be committed all the same. Nothing has changed.
    #[error("a write of this transaction failed half-way: abort it, or undo it to a savepoint before that")]
    Torn,
    /// An option is out of range.
    #[error("{what} is {value}; it must be {range}")]
    BadOption {
        /// Name of the option.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        range: &'static str,
    },
    /// A savepoint that is not of this transaction, or was undone.
    #[error("the savepoint is gone: it was undone, or is of another transaction")]
    NoSuchSavepoint,
}

/// The process that has a store open, for a message, and what to do.
fn holder_name(holder: Option<u32>) -> String {
    match holder {
        Some(id) if id == std::process::id() => "this process; close the store there first".to_string(),
        Some(id) => format!("another process; close the store there first (process {id})"),
        None => "another process; close the store there first".to_string(),
    }
}

impl Error {
    /// The error of a failed call on the medium.
    pub(crate) fn io(what: &'static str, block: u64) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { what, block, source }
    }

    /// As an error of the medium that a backup goes to.
    pub(crate) fn of_target(self) -> Error {
        Error::Target(Box::new(self))
    }

    /// An error of a value that is larger than the store takes.
    pub(crate) fn too_large(what: &'static str, bytes: usize, max: usize) -> Error {
        Error::TooLarge { what, bytes: bytes as u64, max: max as u64 }
    }

    /// An error of a structure that does not hold.
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged { what: what.into() }
    }

    /// Why a store stops that fails with this; where it has stopped before, why it did then.
    pub(crate) fn reason(&self) -> Arc<str> {
        match self {
            Error::Stopped { reason } => reason.clone(),
            error => error.to_string().into(),
        }
    }

    /// A failed type check.
    pub(crate) fn wrong_type(node: NodeId, found: u32, wanted: NodeType) -> Error {
        Error::WrongType { node, found, wanted: wanted.0 }
    }
}

/// Why a step on pages stopped: a page must be read before the step runs again, or the step failed.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The page has to be read first.
    Miss(u32),
    /// These pages have to be read first, best together.
    MissMany(Vec<u32>),
    /// So many free frames are needed first.
    NoFrames(usize),
    /// The step failed.
    Failed(Error),
}

impl StepError {
    /// Halts for pages that have to be read first, if there are any.
    pub(crate) fn unless_empty(missing: Vec<u32>) -> Step<()> {
        if missing.is_empty() { Ok(()) } else { Err(StepError::MissMany(missing)) }
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> StepError {
        StepError::Failed(error)
    }
}

/// The result of a step that can be run again.
pub(crate) type Step<T> = std::result::Result<T, StepError>;
