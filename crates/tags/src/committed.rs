//! Committed states that can be read: the last one, or that of a snapshot. What reads is written once for both.

use crate::error::{Error, Result, Step};
use crate::ids::{NodeId, NodeType, SnodeId};
use crate::pages::access::{PageReader, Pages};
use crate::pages::table::Descriptors;
use crate::partition::{Contents, Which, visit_data};
use crate::store::Store;

/// The pages of an s-node in a committed state, and what is known of them.
pub(crate) trait StatePages: Pages + Descriptors {
    /// A number that is another as soon as anything of them has changed.
    fn turns(&self) -> u64;
}

/// A committed state of a store.
pub(crate) trait Committed {
    type View<'g>: StatePages;

    /// Runs `step` with shared access to an s-node, again whenever a page had to be read first.
    fn step<T>(&self, snode: SnodeId, step: impl FnMut(&Self::View<'_>, &Contents) -> Step<T>) -> Result<T>;

    /// The data of a node.
    fn data_of(&self, node: NodeId, kind: NodeType, which: Which) -> Result<Vec<u8>> {
        let data = self.step(node.snode(), |pages, contents| {
            let (found, len, place) = contents.open_node(pages, pages, node, which)?;
            if found != kind.0 {
                return Err(Error::wrong_type(node, found, kind).into());
            }
            let mut data = Vec::with_capacity(len);
            visit_data(pages, place, len, |piece| data.extend_from_slice(piece))?;
            Ok(data)
        });
        data.map_err(
            |error| if matches!(error, Error::NoSuchSnode(_)) { Error::NoSuchNode(node) } else { error },
        )
    }
}

/// The last committed state.
impl Committed for Store {
    type View<'g> = PageReader<'g>;

    #[inline]
    fn step<T>(&self, snode: SnodeId, step: impl FnMut(&PageReader<'_>, &Contents) -> Step<T>) -> Result<T> {
        self.read(snode, step)
    }
}
