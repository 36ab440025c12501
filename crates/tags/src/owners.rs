//! Whose the blocks of the medium and the pages in them are: for a layer below that asks before it destroys, and for one above that has to
//! know what is left of an s-node.
//!
//! One pass over the descriptors says which page each block has; what a page holds follows from its descriptor, and, for what has moved
//! or shares a home, from edges of the store's own. So to ask for all blocks costs about as much as to read all edges once.

use crate::committed::Committed;
use crate::error::{Error, Result};
use crate::ids::{EdgeType, HomeId, NodeId, SnodeId};
use crate::inspect::held_in;
use crate::pages::desc::PageKind;
use crate::pages::table::Descriptors;
use crate::space::BlockUse;
use crate::store::Store;
use rustc_hash::FxHashMap;

/// What a page holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageUse {
    /// Nothing.
    Free,
    /// Edges of an s-node; where it shares its home, of all that do, and this is the home.
    Edges(SnodeId),
    /// Data of nodes, with the s-node of each. The root of a shared home is of none.
    Nodes(Vec<(NodeId, Option<SnodeId>)>),
}

/// Which blocks are whose, as it was when this was made.
pub struct Owners<'s> {
    store: &'s Store,
    uses: Vec<BlockUse>,
    /// Of the homes that were asked for, the nodes of bodies.
    bodies: FxHashMap<HomeId, FxHashMap<NodeId, NodeId>>,
}

impl Store {
    /// Which blocks are whose. Waits for commits that are being applied; takes 16 bytes of memory a block.
    pub fn owners(&self) -> Owners<'_> {
        let _alone = self.gate.write();
        let mut uses = self.space.lock().uses();
        let kept = self.pool.versions.kept();
        kept.into_iter()
            .for_each(|(block, home)| uses[block as usize] = BlockUse::GivenUp(Some(HomeId(home).into())));
        let table = &self.pool.table;
        for page in table.known(u32::MAX) {
            let block = table.look_up(page, |desc| if desc.kind == PageKind::Free { 0 } else { desc.block });
            if let Some(of) = block.filter(|block| *block > 0).and_then(|block| uses.get_mut(block as usize))
            {
                *of = BlockUse::Page(page);
            }
        }
        Owners { store: self, uses, bodies: FxHashMap::default() }
    }
}

impl Owners<'_> {
    /// What a block is for; `None` beyond the end of the medium.
    pub fn block(&self, block: u64) -> Option<BlockUse> {
        self.uses.get(usize::try_from(block).ok()?).copied()
    }

    /// What all blocks are for, in their order.
    pub fn blocks(&self) -> &[BlockUse] {
        &self.uses
    }

    /// What a page holds: the last committed state. The first page of a home whose nodes have bodies has all edges of that home read.
    ///
    /// # Errors
    /// What reading the medium gives.
    pub fn page(&mut self, page: u32) -> Result<PageUse> {
        let table = &self.store.pool.table;
        let desc = table.describe(page);
        let home = HomeId(desc.snode);
        let (nodes, are_bodies) = match desc.kind {
            PageKind::Free => return Ok(PageUse::Free),
            PageKind::Table => return Ok(PageUse::Edges(home.into())),
            PageKind::RunTail => {
                let head = page.saturating_sub(desc.body[0] as u32);
                held_in(head, &table.describe(head))
            }
            PageKind::Slab | PageKind::RunHead => held_in(page, &desc),
        };
        let mut owned = Vec::with_capacity(nodes.len());
        for node in nodes {
            let node = if are_bodies { self.bodies_of(home)?.get(&node).copied() } else { Some(node) };
            if let Some(node) = node {
                owned.push((node, self.snode_of(node)?));
            }
        }
        Ok(PageUse::Nodes(owned))
    }

    /// The pages that hold something of an s-node, and the blocks that they were last written to, 0 where that was never; in the order of
    /// the pages. Edge tables of a shared home are listed for each s-node that shares it.
    ///
    /// # Errors
    /// [`Error::NoSuchSnode`], and what reading the medium gives.
    pub fn pages_of(&mut self, snode: SnodeId) -> Result<Vec<(u32, u64)>> {
        let home = snode.home().ok_or(Error::NoSuchSnode(snode))?;
        self.store.root_of(snode)?;
        let store = self.store;
        let mut found = Vec::new();
        for page in store.pool.table.known(u32::MAX) {
            let of = store.pool.table.look_up(page, |desc| (desc.snode, desc.block));
            let Some((_, block)) = of.filter(|(owner, _)| *owner == home.0) else { continue };
            let is_of = match self.page(page)? {
                PageUse::Free => false,
                PageUse::Edges(_) => true,
                PageUse::Nodes(nodes) => nodes.iter().any(|(_, owner)| *owner == Some(snode)),
            };
            found.extend(is_of.then_some((page, block)));
        }
        Ok(found)
    }

    fn snode_of(&self, node: NodeId) -> Result<Option<SnodeId>> {
        match self.store.owner_of(node) {
            Ok(snode) => Ok(Some(snode)),
            // The root of a shared home; or it has gone meanwhile.
            Err(Error::NoSuchNode(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The nodes of the bodies in a home.
    fn bodies_of(&mut self, home: HomeId) -> Result<&FxHashMap<NodeId, NodeId>> {
        if !self.bodies.contains_key(&home) {
            let (mut bodies, mut next) = (FxHashMap::default(), Some(0));
            while let Some(from) = next {
                let (edges, behind) = self
                    .store
                    .read(home, |pages, contents| contents.edges.edges_near(pages, EdgeType::BODY, from))?;
                bodies.extend(edges.into_iter().map(|(node, body)| (body, node)));
                next = behind;
            }
            self.bodies.insert(home, bodies);
        }
        Ok(&self.bodies[&home])
    }
}
