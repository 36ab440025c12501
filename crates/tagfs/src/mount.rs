//! Making and mounting volumes.

use crate::error::{TagFsError, damaged, failed};
use crate::fs::TagFs;
use crate::graph::Graph;
use crate::layout::{
    APART, DirectoryForm, FEATURES, Form, LABEL_MAX, SUPER, Super, VERSION, VERSION_OF_FEATURES,
};
use crate::namespace::new_record;
use crate::options::{FormatOptions, Layout, MountOptions};
use crate::record;
use crate::state::State;
use weft_core::{BLOCK_BYTES, Ino, refuse};
use weft_tags::{ErasePass, Info, Options, PageStore, SnodeId, Store};
use weft_vfs::{CreateArgs, NewNode};

/// The least and the most that the journal takes, and its part of the medium.
const JOURNAL_BYTES: (u64, u64) = (1 << 20, 128 << 20);
const JOURNAL_PART: u64 = 32;

fn store_options(medium: &dyn PageStore, cache_bytes: u64) -> Options {
    let bytes = medium.blocks() * BLOCK_BYTES as u64;
    Options {
        cache_bytes,
        journal_bytes: (bytes / JOURNAL_PART).clamp(JOURNAL_BYTES.0, JOURNAL_BYTES.1),
        store_bytes_max: bytes,
        huge_pages: false,
        ..Options::default()
    }
}

impl TagFs {
    /// Makes an empty volume on a medium. What the medium held is gone.
    ///
    /// # Errors
    /// [`TagFsError::Label`], and those of the store: the medium is too small, or fails.
    pub fn format(medium: Box<dyn PageStore>, options: &FormatOptions) -> Result<(), TagFsError> {
        let bytes = options.label.len();
        refuse(bytes > LABEL_MAX, TagFsError::Label { bytes, max: LABEL_MAX })?;
        let blocks = options.capacity_bytes / BLOCK_BYTES as u64;
        // All of it now, so that the volume does not run out of it later.
        medium
            .reserve(0, blocks)
            .and_then(|()| medium.grow(blocks))
            .map_err(|source| weft_tags::Error::Io { what: "make room for the volume", block: 0, source })?;
        let store_options = store_options(&*medium, MountOptions::CACHE_BYTES_MIN);
        let capacity = store_options.store_bytes_max;
        let store = Store::create(medium, &store_options)?;
        let features = if options.layout == Layout::Fine { APART } else { 0 };
        let mut graph = Graph::new(store)?;
        graph.lay_out(features)?;
        let uuid = if options.uuid == [0; 16] { rand::random() } else { options.uuid };
        let label = options.label.clone().into_bytes();
        let superblock = Super { uuid, capacity, label, features, ..Super::default() };
        let (uid, gid) = options.owner;
        let args = CreateArgs { uid, gid, ..CreateArgs::new(NewNode::Directory, 0o755) };
        let (tags, mut record) = new_record(Ino::ROOT, &args, 0)?;
        record.links = 2;
        let mut tx = graph.store.begin();
        tx.set_snode_tags(SnodeId::FIRST, &tags)?;
        record::store(&mut tx, graph.records, SnodeId::FIRST, graph.first, &record.encode(), None)?;
        let node = tx.create_node(SnodeId::FIRST, SUPER, &superblock.encode())?;
        tx.create_edge(graph.first, graph.types.superblock, Info::Number(0), node)?;
        tx.commit()?;
        graph.store.close()?;
        Ok(())
    }

    /// Mounts the volume on a medium. Files that lost their last name while they were open, and were open when the volume was
    /// mounted last, go.
    ///
    /// # Errors
    /// [`TagFsError::NoFileSystem`], [`TagFsError::Version`], [`TagFsError::Damaged`], and those of the store.
    pub fn mount(medium: Box<dyn PageStore>, options: MountOptions) -> Result<TagFs, TagFsError> {
        let erase_passes = vec![ErasePass::Random; options.erase_passes as usize];
        let mut store_options = Options { erase_passes, ..store_options(&*medium, options.cache_bytes) };
        store_options.eviction = options.eviction.clone().unwrap_or(store_options.eviction);
        let open = if options.read_only { Store::open_read_only } else { Store::open };
        let store = open(medium, &store_options)?;
        if !options.read_only {
            store.check_recovered()?;
        }
        if !store.edge_types().iter().any(|etype| etype.name == "tagfs.super") {
            return Err(TagFsError::NoFileSystem);
        }
        let mut graph = Graph::new(store)?;
        let node = graph.store.edge(graph.first, graph.types.superblock, Info::Number(0))?;
        let node = node.ok_or(TagFsError::NoFileSystem)?;
        let raw = graph.store.read_node(node, SUPER)?;
        let damage = || TagFsError::Damaged("the node of the volume".into());
        let (found, superblock) = Super::decode(&raw).ok_or_else(damage)?;
        let known = VERSION_OF_FEATURES;
        refuse(![VERSION, known].contains(&found), TagFsError::Version { found, known })?;
        let unknown = superblock.features & !FEATURES;
        refuse(unknown != 0, TagFsError::Features { unknown })?;
        graph.lay_out(superblock.features)?;
        // A copy of the store is as long as what it holds, and the volume is as large as ever.
        graph.store.set_bytes_max(superblock.capacity);
        let root = graph.load(Ino::ROOT)?;
        if !matches!(root.record.form, Form::Directory(DirectoryForm { parent: Ino::ROOT, .. })) {
            return Err(TagFsError::Fs(damaged("the root directory")));
        }
        let count = graph.store.report().snodes;
        let mut state = State::new(superblock, node, count);
        state.ended =
            graph.numbered(graph.first, graph.types.orphan)?.into_iter().map(|(ino, _)| Ino(ino)).collect();
        let read_only = options.read_only;
        let fs = TagFs::new(graph, state, options);
        if !read_only {
            let mut state = fs.state.write();
            fs.reap(&mut state);
        }
        Ok(fs)
    }

    /// The volume's identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.state.read().superblock.uuid
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.graph.store
    }

    /// Closes the volume, and with it the medium.
    ///
    /// # Errors
    /// Those of a commit and of a checkpoint.
    pub fn unmount(self) -> Result<(), TagFsError> {
        let closed = weft_vfs::Core::close(&self);
        self.graph.store.close().map_err(failed)?;
        Ok(closed?)
    }
}
