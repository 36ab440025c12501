//! The files as a program sees them, with what clients have written, and the locks that keep them so.
//!
//! Permissions are not kept as they are while a program runs, which may compute for long. What its checks rest on is noted instead, and looked
//! at again when the step is made and nobody can change it.
//!
//! An inode whose content or attributes a program looks at is locked when it is met, if nobody writes to it just then. Otherwise the turn
//! ends stale: it begins anew with the locks of all that it met, taken before any other lock.

use super::super::Session;
use super::Keeper;
use crate::state::inodes::{OpenInode, WriteGuard};
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use weft_client::shared::volume::MAPPED;
use weft_core::Ino;
use weft_vfs::compound::Access;
use weft_vfs::{Attr, Change, FileKind, FileSystem, FsError, FsResult, Marks, Node, TimeSpec};

/// How often a lock is waited for before the program is told that the file is busy.
const WAITS_MAX: u32 = 10_000;

/// A file that a program has open.
struct Held<'a> {
    open: Arc<OpenInode>,
    /// What killed programs left of it has been merged.
    is_settled: bool,
    /// The program has only named it so far.
    is_named_only: bool,
    /// It had set-id bits or capabilities when it was locked.
    gives_rights: bool,
    /// Keeps its writers out in this turn.
    guard: Option<WriteGuard<'a>>,
}

#[derive(Default)]
struct State<'a> {
    files: BTreeMap<Ino, Held<'a>>,
    /// Files that this turn locks before it begins anew.
    wanted: BTreeSet<Ino>,
    /// The turn has ended stale because a lock could not be had.
    is_contended: bool,
    /// What permission checks of this try may rest on.
    rights: BTreeMap<Ino, Rights>,
    /// Names that it has looked up.
    names: BTreeMap<(Ino, Vec<u8>), Option<Ino>>,
    /// Two looks have found different rights.
    has_changed: bool,
}

/// What of an inode says who may do what with it.
#[derive(PartialEq, Eq)]
struct Rights {
    perm: u32,
    owner: (u32, u32),
    marks: Marks,
    /// Of an inode with an access list, which changes with it.
    ctime: Option<TimeSpec>,
    is_gone: bool,
}

impl Rights {
    fn of(attr: &Attr) -> Rights {
        Rights {
            perm: attr.perm,
            owner: (attr.uid, attr.gid),
            marks: attr.marks,
            ctime: attr.marks.has_acl.then_some(attr.ctime),
            is_gone: attr.links == 0,
        }
    }
}

/// What a program has open, and sees.
pub struct View<'a> {
    session: Session<'a>,
    /// Passes on what was stored to a file before the file counts as settled.
    keeper: Option<&'a dyn Keeper>,
    state: Mutex<State<'a>>,
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // All locks first: the last user of an inode takes its lock.
        self.unlock();
        for held in self.state.get_mut().files.values() {
            self.session.volume.inodes.release(&held.open, None);
        }
    }
}

impl State<'_> {
    fn forget_looks(&mut self) {
        self.rights.clear();
        self.names.clear();
        self.has_changed = false;
    }
}

impl<'a> View<'a> {
    /// Nothing is open.
    pub fn new(session: Session<'a>, keeper: Option<&'a dyn Keeper>) -> View<'a> {
        View { session, keeper, state: Mutex::default() }
    }

    /// Another turn begins.
    pub fn begin_turn(&self) {
        let mut state = self.state.lock();
        state.wanted.clear();
        state.is_contended = false;
    }

    /// Locks what the turn has met so far. `rewrites`: what is there will be overwritten.
    ///
    /// # Errors
    /// What clients have written cannot be stored.
    pub fn lock_wanted(&self, rewrites: bool) -> super::super::Result<()> {
        let inodes = &self.session.volume.inodes;
        let wanted: Vec<(Ino, Arc<OpenInode>, bool)> = {
            let mut state = self.state.lock();
            state.is_contended = false;
            state.forget_looks();
            let State { files, wanted, .. } = &*state;
            let held = wanted.iter().filter_map(|ino| Some((*ino, files.get(ino)?)));
            held.map(|(ino, held)| (ino, held.open.clone(), held.is_settled)).collect()
        };
        for (_, open, is_settled) in &wanted {
            if !is_settled {
                self.settle(open)?;
            }
            if rewrites {
                inodes.before_rewrite(open)?;
            }
        }
        let guards = self.lock_all(wanted.iter().map(|(_, open, _)| open))?;
        for ((ino, open, _), guard) in wanted.iter().zip(guards) {
            if rewrites {
                inodes.before_rewrite(open)?;
            }
            if let Some(held) = self.state.lock().files.get_mut(ino) {
                held.gives_rights = inodes.may_have_set_id(&held.open);
                (held.guard, held.is_settled) = (Some(guard), true);
            }
        }
        Ok(())
    }

    /// Locks inodes, and has no lock while it waits for one: a client may take seconds to give it back. The one that it has waited for it
    /// keeps while it tries the others.
    fn lock_all<'o>(
        &self,
        opens: impl Iterator<Item = &'o Arc<OpenInode>> + Clone,
    ) -> super::super::Result<Vec<WriteGuard<'a>>> {
        let mut waited_for: Option<(usize, WriteGuard<'a>)> = None;
        for _ in 0..WAITS_MAX {
            let mut guards = Vec::new();
            let mut taken = None;
            let first = waited_for.as_ref().map(|(at, _)| *at);
            for (at, open) in opens.clone().enumerate().filter(|(at, _)| Some(*at) != first) {
                match self.session.volume.inodes.try_exclude_and_drain(open)? {
                    Some(guard) => guards.push(guard),
                    None => {
                        taken = Some((at, open));
                        break;
                    }
                }
            }
            let had = waited_for.take();
            match taken {
                None => {
                    if let Some((at, guard)) = had {
                        guards.insert(at, guard);
                    }
                    return Ok(guards);
                }
                Some((at, open)) => {
                    drop((guards, had));
                    waited_for = Some((at, self.session.alone_with(open)?));
                }
            }
        }
        Err(super::super::Error::Errno(libc::EBUSY))
    }

    /// Gives all locks back.
    pub fn unlock(&self) {
        let guards: Vec<_> =
            self.state.lock().files.values_mut().filter_map(|held| held.guard.take()).collect();
        drop(guards);
    }

    /// Whether the turn has ended stale because it could not have a lock.
    pub fn is_contended(&self) -> bool {
        self.state.lock().is_contended
    }

    /// The turn cannot go on as it began: with the locks of all that it has met it can.
    pub fn begin_anew(&self) {
        let State { files, wanted, is_contended, .. } = &mut *self.state.lock();
        wanted.extend(files.iter().filter(|(_, held)| held.guard.is_some()).map(|(ino, _)| *ino));
        *is_contended = true;
    }

    /// What was looked at so far is not what later changes of the turn rest on.
    pub fn forget_looks(&self) {
        self.state.lock().forget_looks();
    }

    /// Whether those who may do what, and who has the names that are changed, are still the same as this try has found them. To be asked
    /// when nobody changes that.
    pub fn is_still(&self, changes: &[Change<'_>]) -> bool {
        let fs = &self.session.volume.fs;
        let State { files, rights, names, has_changed, .. } = &*self.state.lock();
        let inodes = &self.session.volume.inodes;
        let has_new_rights = |held: &Held<'_>| {
            held.guard.is_some() && !held.gives_rights && inodes.may_have_set_id(&held.open)
        };
        if *has_changed || files.values().any(has_new_rights) {
            return false;
        }
        let is_same =
            |(ino, rights): (&Ino, &Rights)| fs.getattr(*ino).is_ok_and(|now| Rights::of(&now) == *rights);
        let is_named = |dir: Node, name: &[u8]| {
            let Some(dir) = dir.existing() else { return true };
            let known = names.get(&(dir, name.to_vec()));
            known.is_none_or(|known| fs.lookup(dir, name).ok().map(|now| now.ino) == *known)
        };
        rights.iter().all(is_same)
            && changes.iter().all(|change| match *change {
                Change::Remove { dir, name, .. } => is_named(dir, name),
                Change::Rename { from, name, to, new_name, .. } => {
                    is_named(from, name) && is_named(to, new_name)
                }
                _ => true,
            })
    }

    /// Notes attributes that were looked at.
    fn looked(&self, attr: Attr) -> Attr {
        let (mut state, now) = (self.state.lock(), Rights::of(&attr));
        if *state.rights.entry(attr.ino).or_insert(Rights::of(&attr)) != now {
            state.has_changed = true;
        }
        attr
    }

    /// A file that the program has open.
    pub fn open_file(&self, ino: Ino) -> Option<Arc<OpenInode>> {
        Some(self.state.lock().files.get(&ino)?.open.clone())
    }

    /// A file is opened for this. It is locked when its content or its attributes are looked at; who only names it keeps nobody from it.
    pub fn open_for(&self, ino: Ino, purpose: Access) -> FsResult<()> {
        self.open(ino)?;
        if purpose != Access::Path
            && let Some(held) = self.state.lock().files.get_mut(&ino)
        {
            held.is_named_only = false;
        }
        Ok(())
    }

    /// A file is given with the program: what killed programs left of it was merged when it was opened.
    pub fn given(&self, ino: Ino) -> FsResult<()> {
        self.hold(ino, !self.may_be_with_keeper(ino))
    }

    fn may_be_with_keeper(&self, ino: Ino) -> bool {
        self.keeper.is_some_and(|keeper| keeper.may_have_stores(ino))
    }

    fn hold(&self, ino: Ino, is_settled: bool) -> FsResult<()> {
        if let Entry::Vacant(place) = self.state.lock().files.entry(ino) {
            let open = self.session.volume.inodes.open(ino)?;
            place.insert(Held { open, is_settled, is_named_only: true, gives_rights: false, guard: None });
        }
        Ok(())
    }

    /// Takes a file over that the core has opened for the program.
    pub fn adopt(&self, attr: &Attr) -> FsResult<()> {
        let open = self.session.volume.inodes.acquire(attr)?;
        self.state.lock().files.insert(
            attr.ino,
            Held { open, is_settled: true, is_named_only: false, gives_rights: false, guard: None },
        );
        Ok(())
    }

    /// Merges what killed programs have stored to maps of a file, and what a front keeps.
    fn settle(&self, open: &OpenInode) -> FsResult<()> {
        let volume = self.session.volume;
        if let Some(keeper) = self.keeper.filter(|keeper| keeper.may_have_stores(open.ino)) {
            keeper.pass_on(open.ino);
        }
        if volume.orphans.settle(volume, &volume.fs.getattr(open.ino)?) {
            volume.inodes.shared(open.slot).by_call.fetch_or(MAPPED, SeqCst);
        }
        Ok(())
    }

    /// Locks an open file, if it is none of this turn's yet.
    fn lock(&self, ino: Ino) -> FsResult<()> {
        let volume = self.session.volume;
        let State { files, wanted, is_contended, .. } = &mut *self.state.lock();
        let is_due = |held: &&mut Held<'a>| held.guard.is_none() && !held.is_named_only;
        let Some(held) = files.get_mut(&ino).filter(is_due) else { return Ok(()) };
        let may_lack = || {
            let has_any = volume.orphans.has_any(volume, &volume.fs.getattr(ino)?);
            Ok::<_, FsError>(has_any || self.may_be_with_keeper(ino))
        };
        if held.is_settled || !may_lack()? {
            held.is_settled = true;
            held.guard = volume.inodes.try_exclude_and_drain(&held.open)?;
            held.gives_rights = volume.inodes.may_have_set_id(&held.open);
        }
        if held.guard.is_none() {
            wanted.insert(ino);
            wanted.extend(files.iter().filter(|(_, held)| held.guard.is_some()).map(|(ino, _)| *ino));
            *is_contended = true;
            return Err(FsError::Stale);
        }
        Ok(())
    }
}

impl FileSystem for View<'_> {
    fn open(&self, ino: Ino) -> FsResult<()> {
        let volume = self.session.volume;
        if volume.fs.getattr(ino)?.kind != FileKind::File {
            return volume.fs.open(ino);
        }
        self.hold(ino, false)
    }

    fn release(&self, ino: Ino) {
        // Files go with the view.
        if !self.state.lock().files.contains_key(&ino) {
            self.session.volume.fs.release(ino);
        }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.lock(ino)?;
        self.session.volume.fs.getattr(ino).map(|attr| self.looked(attr))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let found = self.session.volume.fs.lookup(dir, name);
        let ino = match &found {
            Ok(attr) => Some(attr.ino),
            Err(FsError::NotFound) => None,
            Err(_) => return found,
        };
        self.state.lock().names.entry((dir, name.to_vec())).or_insert(ino);
        found.map(|attr| self.looked(attr))
    }

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.lock(ino)?;
        self.session.volume.fs.read(ino, offset, out)
    }

    fn note_read(&self, ino: Ino, _when: TimeSpec) {
        if self.keeper.is_none_or(|keeper| keeper.notes_reads())
            && let Some(open) = self.open_file(ino)
        {
            self.session.volume.inodes.note_read(&open);
        }
    }

    weft_vfs::forward! {
        readlink => session.volume.fs.readlink(ino: Ino) -> FsResult<Vec<u8>>;
        parent => session.volume.fs.parent(dir: Ino) -> FsResult<Ino>;
        getxattr => session.volume.fs.getxattr(ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;
        is_read_only => session.volume.fs.is_read_only() -> bool;
    }

    weft_vfs::only_looks!("a program changes files by its steps");
}
