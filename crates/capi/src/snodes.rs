//! S-nodes: groups of nodes with an owner, permissions and properties.

use crate::error::{Failure, exports};
use crate::handle::{handle, put};
use crate::store::{WeftTags, WeftTx, tx_of};
use crate::tag::{class_of, flags_of};
use weft_tags::{SnodeId, SnodeTags};

/// A flag of s-nodes: what is given up of them is overwritten by the next checkpoint.
pub const WEFT_SECURE_DELETE: i32 = 1;

/// What an s-node says of all its nodes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeftSnodeTags {
    /// The user that controls it.
    pub owner: u32,
    /// Its group.
    pub group: u32,
    /// Who may read and write, as of a file: 0700 for the owner, 0070 for others of the group, 0007 for others. At most 07777.
    pub mode: u16,
    /// The kind of data: 0 unknown, 1 metadata, 2 log, 3 immutable, 4 overwritten in place, 5 small, 6 temporary.
    pub data_class: u8,
    /// WEFT_SECURE_DELETE or 0.
    pub flags: u8,
}

/// The tags that C gives.
///
/// # Safety
/// `tags` is null or can be read.
unsafe fn tags_from(tags: *const WeftSnodeTags) -> Result<SnodeTags, Failure> {
    // SAFETY: the caller's promise.
    let tags = unsafe { handle(tags, "tags") }?;
    let (class, flags) = (class_of(tags.data_class)?, flags_of(tags.flags)?);
    Ok(SnodeTags { owner: tags.owner, group: tags.group, mode: tags.mode, class, flags })
}

exports! {
    /// Makes an s-node. `out` gets its id; nodes are made in it from now on, in this transaction, and after the commit in others.
    ///
    /// # Safety
    /// The transaction is open; `tags` can be read; `out` can be written.
    fn weft_create_snode(tx: *mut WeftTx, tags: *const WeftSnodeTags, out: *mut u64) {
        let (tx, tags) = (tx_of(tx)?, tags_from(tags)?);
        let snode = tx.create_snode(&tags)?;
        put(snode.0, out)
    }

    /// Deletes an s-node that has no nodes but its root, whose root has no edges.
    ///
    /// # Safety
    /// The transaction is open.
    fn weft_delete_snode(tx: *mut WeftTx, snode: u64) {
        Ok(tx_of(tx)?.delete_snode(SnodeId(snode))?)
    }

    /// The root of an s-node, which the transaction itself may have made.
    ///
    /// # Safety
    /// The transaction is open; `out` can be written.
    fn weft_tx_root(tx: *mut WeftTx, snode: u64, out: *mut u64) {
        put(tx_of(tx)?.root(SnodeId(snode))?.0, out)
    }

    /// The tags of an s-node. Without a transaction, that is null, the last committed state.
    ///
    /// # Safety
    /// The handles are open; `out` can be written.
    fn weft_snode_tags_get(tags: *const WeftTags, tx: *mut WeftTx, snode: u64, out: *mut WeftSnodeTags) {
        let found = if tx.is_null() {
            handle(tags, "tags")?.0.snode_tags(SnodeId(snode))?
        } else {
            tx_of(tx)?.snode_tags(SnodeId(snode))?
        };
        let SnodeTags { owner, group, mode, class, flags } = found;
        let found = WeftSnodeTags { owner, group, mode, data_class: class as u8, flags: flags.bits() };
        put(found, out)
    }

    /// Gives an s-node other tags. What is given up of one with WEFT_SECURE_DELETE is overwritten from the commit on.
    ///
    /// # Safety
    /// The transaction is open; `tags` can be read.
    fn weft_snode_tags_set(tx: *mut WeftTx, snode: u64, tags: *const WeftSnodeTags) {
        let (tx, tags) = (tx_of(tx)?, tags_from(tags)?);
        Ok(tx.set_snode_tags(SnodeId(snode), &tags)?)
    }
}
