//! What a step means for what the server keeps beside the core: sizes in shared memory, rings, names of open files, pages of maps.

use super::super::Session;
use super::Changed;
use super::view::View;
use crate::state::inodes::{CAPABILITIES, OpenInode};
use crate::state::open_files::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use weft_core::Ino;
use weft_vfs::change::Made;
use weft_vfs::{Change, FallocateMode, FsResult, InodeFlags, Node, RenameFlags, SetAttr};

/// A directory of a step, and a name in it.
type Place<'c> = (Node, &'c [u8]);

/// A file that gets another name.
struct Moved<'c> {
    ino: Ino,
    from: Place<'c>,
    to: Place<'c>,
}

/// What is known before a step.
#[derive(Default)]
pub struct Before<'c> {
    /// Files whose content changes, with their sizes.
    pub touched: Vec<(Arc<OpenInode>, u64)>,
    /// What is there of one of them is overwritten or cut off.
    pub rewrites: Vec<Arc<OpenInode>>,
    /// Names go, or somebody may do more or less: nobody else's permissions are checked meanwhile.
    pub takes_names: bool,
    names: BTreeMap<(NodeKey, &'c [u8]), Option<Ino>>,
    moved: Vec<Moved<'c>>,
    effects: Effects,
}

/// [`Node`] in an order.
type NodeKey = (bool, u64);

fn key(node: Node) -> NodeKey {
    match node {
        Node::Ino(ino) => (false, ino.0),
        Node::Made(at) => (true, at as u64),
    }
}

/// A range of a file.
pub type Written = (Arc<OpenInode>, Range<u64>);

/// What is done when a step has been done, and no lock is held.
#[derive(Default)]
pub struct Effects {
    /// Ranges of files, with what killed programs had stored there.
    forgotten: Vec<(Arc<OpenInode>, Range<u64>)>,
    /// Ranges of files that maps are to show.
    shown: Vec<Written>,
    changed: Vec<Ino>,
    rights: Vec<Ino>,
    lost: Vec<Ino>,
    renamed: Vec<(Ino, Name, Name)>,
    robbed: Vec<Arc<OpenInode>>,
    /// Inodes to be made durable.
    pub syncs: BTreeSet<Ino>,
    /// What a front that keeps files is told.
    pub told: Changed,
}

impl<'c> Before<'c> {
    /// Looks at what changes are about. Clients' writes to a file that gets another name are with the core then.
    pub fn look(session: &Session<'_>, view: &View<'_>, changes: &[Change<'c>]) -> FsResult<Before<'c>> {
        let mut before = Before::default();
        let mut touched: BTreeMap<Ino, (Arc<OpenInode>, u64)> = BTreeMap::new();
        for change in changes {
            if let Some(Node::Ino(ino)) = before.data_of(change)
                && let Some(open) = view.open_file(ino)
            {
                let size = session.volume.fs.getattr(ino)?.size;
                before.look_at_data(session, change, &open, size);
                touched.insert(ino, (open, size));
            }
            before.look_at_names(session, change)?;
        }
        before.touched = touched.into_values().collect();
        Ok(before)
    }

    /// The file whose content a change is about.
    fn data_of(&self, change: &Change<'_>) -> Option<Node> {
        match *change {
            Change::Write { node, .. } | Change::Fallocate { node, .. } => Some(node),
            Change::SetAttr { node, set: SetAttr { size: Some(_), .. } } => Some(node),
            _ => None,
        }
    }

    fn look_at_data(&mut self, session: &Session<'_>, change: &Change<'_>, open: &Arc<OpenInode>, size: u64) {
        let effects = &mut self.effects;
        let (range, rewrites) = match *change {
            Change::Write { offset, data, .. } => {
                let range = offset..offset.saturating_add(data.len() as u64);
                effects.shown.push((open.clone(), range.clone()));
                let appends_rewrite = session.volume.inodes.appends_rewrite();
                (Some(range), offset < size || appends_rewrite)
            }
            Change::SetAttr { set: SetAttr { size: Some(new), .. }, .. } => {
                effects.shown.push((open.clone(), new..new));
                (Some(new..u64::MAX), new < size)
            }
            Change::Fallocate { mode, offset, len, .. } => {
                let rewrites = !matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize);
                (rewrites.then(|| offset..offset.saturating_add(len)), rewrites)
            }
            _ => (None, false),
        };
        effects.forgotten.extend(range.map(|range| (open.clone(), range)));
        if rewrites && !self.rewrites.iter().any(|known| Arc::ptr_eq(known, open)) {
            self.rewrites.push(open.clone());
        }
        if open.flags().contains(InodeFlags::SYNC) {
            effects.syncs.insert(open.ino);
        }
    }

    /// What has a name, after the changes before.
    fn named(&self, session: &Session<'_>, (dir, name): Place<'c>) -> Option<Ino> {
        if let Some(known) = self.names.get(&(key(dir), name)) {
            return *known;
        }
        match dir {
            Node::Ino(dir) => session.volume.fs.lookup(dir, name).ok().map(|attr| attr.ino),
            Node::Made(_) => None,
        }
    }

    fn look_at_names(&mut self, session: &Session<'_>, change: &Change<'c>) -> FsResult<()> {
        match *change {
            Change::Create { dir, .. } => self.look_at_dir(session, dir),
            Change::Link { node, dir, .. } => {
                self.effects.changed.extend(node.existing());
                self.look_at_dir(session, dir);
            }
            Change::Remove { dir, name, .. } => {
                self.takes_names = true;
                self.effects.lost.extend(self.named(session, (dir, name)));
                self.names.insert((key(dir), name), None);
                self.look_at_dir(session, dir);
            }
            Change::Rename { from, name, to, new_name, flags } => {
                self.takes_names = true;
                let (from, to) = ((from, name), (to, new_name));
                let [moved, there] = [from, to].map(|place| self.named(session, place));
                if let Some(ino) = moved
                    && let Some(open) = session.volume.inodes.find(ino)
                {
                    session.volume.inodes.drain(&open, true)?;
                    session.volume.inodes.pass_times(&open);
                }
                let is_exchange = flags.contains(RenameFlags::EXCHANGE);
                self.moved.extend(moved.map(|ino| Moved { ino, from, to }));
                if is_exchange {
                    self.moved.extend(there.map(|ino| Moved { ino, from: to, to: from }));
                } else {
                    self.effects.lost.extend(there);
                }
                self.names.insert((key(to.0), to.1), moved);
                self.names.insert((key(from.0), from.1), there.filter(|_| is_exchange));
                self.look_at_dir(session, from.0);
                self.look_at_dir(session, to.0);
            }
            Change::SetAttr { node, ref set } => {
                self.effects.changed.extend(node.existing());
                if set.perm.is_some() {
                    self.takes_names = true;
                    self.effects.rights.extend(node.existing());
                }
            }
            Change::Xattr { node, name, .. } => {
                self.effects.changed.extend(node.existing());
                self.takes_names = true;
                if name == CAPABILITIES {
                    self.effects.rights.extend(node.existing());
                }
            }
            Change::SetTag { node, .. } => self.effects.changed.extend(node.existing()),
            Change::Expect { .. } | Change::Write { .. } | Change::Fallocate { .. } => {}
        }
        Ok(())
    }

    /// Changes of a directory's names may have to be durable at once.
    fn look_at_dir(&mut self, session: &Session<'_>, dir: Node) {
        if let Some(dir) = dir.existing()
            && session.volume.fs.getattr(dir).is_ok_and(|attr| attr.marks.flags.sync_names())
        {
            self.effects.syncs.insert(dir);
        }
    }

    /// The step has been done, and others are still kept out.
    pub fn done(
        mut self,
        session: &Session<'_>,
        changes: &[Change<'_>],
        made: &Made,
        durable: bool,
    ) -> Effects {
        let volume = session.volume;
        let ino_of = |node: Node| node.after(made);
        for Moved { ino, from, to } in &self.moved {
            if let [Some(from_dir), Some(to_dir)] = [from.0, to.0].map(ino_of) {
                let [from, to] =
                    [(from_dir, from.1), (to_dir, to.1)].map(|(dir, name)| Name { dir, name: name.to_vec() });
                self.effects.renamed.push((*ino, from, to));
            }
        }
        self.effects.told = self.told(changes, made);
        for ino in std::mem::take(&mut self.effects.rights) {
            if let Ok(attr) = volume.fs.getattr(ino) {
                self.effects.robbed.extend(volume.inodes.perm_changed(ino, attr.perm));
            }
        }
        if durable {
            let is_gone = |ino: &Ino| volume.fs.getattr(*ino).is_err();
            let data = changes.iter().filter_map(|change| self.data_of(change)).filter_map(ino_of);
            let all: Vec<Ino> = data.filter(|ino| !is_gone(ino)).collect();
            if all.is_empty() {
                // Names are durable with any inode.
                let node = changes.iter().flat_map(|change| change.nodes()).flatten();
                self.effects.syncs.extend(node.filter_map(ino_of).find(|ino| !is_gone(ino)));
            }
            self.effects.syncs.extend(all);
        }
        self.effects
    }

    /// What changes, for a front that keeps files: without `made`, as far as it is known before.
    pub fn told(&self, changes: &[Change<'_>], made: &Made) -> Changed {
        let ino_of = |node: Node| node.after(made);
        let mut told = Changed::default();
        for change in changes {
            told.content.extend(self.data_of(change).and_then(ino_of));
            told.inodes.extend(change.nodes().into_iter().flatten().filter_map(ino_of));
            let names = match *change {
                Change::Create { dir, name, .. } | Change::Link { dir, name, .. } => {
                    [Some((dir, name)), None]
                }
                Change::Remove { dir, name, .. } => [Some((dir, name)), None],
                Change::Rename { from, name, to, new_name, .. } => [Some((from, name)), Some((to, new_name))],
                _ => [None, None],
            };
            let names = names.into_iter().flatten();
            told.names.extend(names.filter_map(|(dir, name)| Some((ino_of(dir)?, name.to_vec()))));
            told.removes |= matches!(change, Change::Remove { .. } | Change::Rename { .. });
        }
        told.inodes.extend(&self.effects.lost);
        for (ino, _, to) in &self.effects.renamed {
            told.inodes.insert(*ino);
            told.moved.push((*ino, to.dir, to.name.clone()));
        }
        told
    }
}

impl Effects {
    /// Does what waits for others, or takes locks of its own; returns the inodes to be made durable, and the ranges that were written.
    pub fn settle(self, session: &Session<'_>) -> (BTreeSet<Ino>, Vec<Written>) {
        let volume = session.volume;
        self.changed.iter().for_each(|ino| volume.inodes.must_ask_for_sync(*ino));
        self.lost.iter().for_each(|ino| volume.name_lost(*ino));
        self.renamed.iter().for_each(|(ino, from, to)| volume.renamed(*ino, from, to));
        self.robbed.iter().for_each(|open| volume.inodes.revoke_rings(open));
        for (open, range) in self.forgotten {
            let len = if range.end == u64::MAX { u64::MAX } else { range.end - range.start };
            volume.orphans.forget(volume, open.ino, range.start, len);
        }
        if !self.shown.is_empty() && volume.orphans.may_have_any(volume) {
            self.shown.iter().for_each(|(open, range)| volume.orphans.show(volume, open, range.clone()));
        }
        (self.syncs, self.shown)
    }
}
