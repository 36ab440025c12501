//! Opening for reading, and closing, without a call: with an open file that the server has [granted](Grants), of an inode that it
//! has open already or has not given up since it was.

use crate::client::{Client, Leases, OpenFile};
use crate::lookup::{Found, check};
use crate::proto::{CLOSE_SETTLE, FileRef, Op};
use crate::shared::channel::{GRANT_PATH_MAX, GrantWord, Grants};
use crate::sys::Errno;
use std::sync::atomic::{Ordering::*, fence};
use weft_vfs::access;

/// Flags of an `open` that changes nothing and asks for nothing but to read.
const READING: i32 = libc::O_RDONLY
    | libc::O_CLOEXEC
    | libc::O_NOCTTY
    | libc::O_NOFOLLOW
    | libc::O_NONBLOCK
    | libc::O_LARGEFILE
    | libc::O_DIRECTORY;
/// Of these, those that stay with the open file.
const KEPT: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_LARGEFILE | libc::O_DIRECTORY;

impl Client {
    /// Opens a file that need not be made, or says why that cannot be, if the process can tell by itself.
    pub(crate) fn open_here(&self, at: FileRef, path: &[u8], flags: i32) -> Option<Result<OpenFile, Errno>> {
        let leases = self.leases()?;
        if flags & (libc::O_CREAT | libc::O_PATH) != 0
            || path.is_empty()
            || !leases.control().volume.is_alive()
        {
            return None;
        }
        let found = self.judge(|caller| {
            let found = leases.walk(caller, at, path, flags & libc::O_NOFOLLOW == 0)?;
            let Ok(Found { attr, word, .. }) = &found else { return Some(found) };
            let may = flags & !READING == 0 && check(caller, (attr, *word), access::READ)?.is_ok();
            may.then_some(found)
        });
        match found? {
            Ok(found) => self.open_granted(&leases, at, path, flags, &found).map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    fn open_granted(
        &self,
        leases: &Leases,
        at: FileRef,
        path: &[u8],
        flags: i32,
        found: &Found<'_>,
    ) -> Option<OpenFile> {
        let (Some(slot), Some((dir, seen))) = (found.word.slot(), &found.name) else { return None };
        let is_granted = match found.attr.mode & libc::S_IFMT {
            libc::S_IFREG => flags & libc::O_DIRECTORY == 0,
            // The name that the directory has is what the path ends with.
            libc::S_IFDIR => last_name(path) != b"..",
            _ => false,
        };
        if !is_granted || path.len() > GRANT_PATH_MAX {
            return None;
        }
        let inode = leases.control().inodes.get(slot as usize)?;
        self.await_children();
        let grants = &self.channel().grants;
        let taking = |(place, word): (usize, GrantWord)| {
            let taken = GrantWord::new(word.file(), GrantWord::TAKEN);
            grants.replace(place, word, taken).then_some((place, taken))
        };
        let (place, taken) = grants.in_state(GrantWord::FREE).find_map(taking)?;
        let file = taken.file();
        let used = GrantWord::new(file, GrantWord::USED);
        if let Some(open) = leases.control().open_files.get(file.slot() as usize) {
            open.inode.store(slot, Relaxed);
            open.flags.store((flags & KEPT) as u32, Relaxed);
            open.offset.store(0, Relaxed);
            grants.opened[place].set(at, *dir, slot, path);
            #[cfg(test)]
            crate::lease::tests::meanwhile();
            grants.words[place].store(used.0, SeqCst);
            // Either the server sees the word before it gives the inode up or takes its name away, or this thread sees that it does.
            fence(SeqCst);
            let is_there = inode.by_call.load(SeqCst) == 0 && inode.ino.load(Relaxed) == found.attr.ino;
            if is_there && seen.is_still() {
                return Some(OpenFile { file, mode: found.attr.mode });
            }
        }
        if grants.replace(place, used, taken) {
            leases.free(grants, place, file);
        } else {
            // It has become an open file like others meanwhile.
            let _ = self.give_back(file);
        }
        None
    }

    /// Closes a file that the process has opened by itself, if the server has not heard of it since.
    pub(crate) fn close_here(&self, file: FileRef) -> bool {
        let Some(leases) = self.leases() else { return false };
        self.await_children();
        let grants = &self.channel().grants;
        let used = GrantWord::new(file, GrantWord::USED);
        let Some((place, _)) = grants.in_state(GrantWord::USED).find(|(_, word)| *word == used) else {
            return false;
        };
        let Ok((_, inode, slot)) = leases.open_file(file) else { return false };
        if inode.attended.load(SeqCst) != 0 || !leases.control().volume.is_alive() {
            return false;
        }
        // What was opened from a directory has its path from it, which the server notes before the directory is closed.
        let mut from_it = grants.in_state(GrantWord::USED);
        if inode.kind.load(Relaxed) == libc::S_IFDIR
            && from_it.any(|(place, _)| grants.opened[place].at.load(Relaxed) == file.0)
        {
            return false;
        }
        if !grants.replace(place, used, GrantWord::new(file, GrantWord::TAKEN)) {
            return false;
        }
        leases.free(grants, place, file);
        fence(SeqCst);
        if inode.attended.load(SeqCst) != 0
            && let Ok(call) = self.call(Op::Close, &[file.0, CLOSE_SETTLE, u64::from(slot)])
        {
            // The server may have looked just before, and would wait for this close.
            let _ = call.run();
        }
        true
    }
}

/// What a path ends with, without slashes.
fn last_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    path[..end].rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

impl Leases {
    /// Makes a granted file, which the caller has taken, a free one under another generation: the old one is closed.
    fn free(&self, grants: &Grants, place: usize, file: FileRef) {
        let Some(open) = self.control().open_files.get(file.slot() as usize) else { return };
        let next = FileRef::new(file.slot(), file.generation().wrapping_add(1));
        open.generation.store(next.generation(), Release);
        grants.words[place].store(GrantWord::new(next, GrantWord::FREE).0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::{Rig, set_meanwhile};
    use crate::proto::WireAttr;
    use crate::shared::names::SlotWord;
    use crate::shared::volume::{GOING, MAPPED};
    use bytemuck::Zeroable;
    use weft_core::Ino;
    use weft_vfs::{InodeFlags, Marks};

    const FILE: u64 = 5;

    /// A volume with one file, `/f`, which is open, and one granted open file of generation 7.
    fn rig() -> Rig {
        let rig = Rig::new();
        let names = rig.leases.names();
        names.head.sets.store(1, Relaxed);
        let attr = |ino, mode| {
            let attr = WireAttr { ino, mode, links: 1, ..WireAttr::zeroed() };
            bytemuck::cast::<_, [u64; crate::shared::names::ATTR_WORDS]>(attr)
        };
        names.attr_sets[0].cells[0]
            .set(&attr(Ino::ROOT.0, libc::S_IFDIR | 0o755), SlotWord::new(None, false, Marks::default()));
        names.attr_sets[0].cells[1]
            .set(&attr(FILE, libc::S_IFREG | 0o644), SlotWord::new(Some(0), false, Marks::default()));
        let (key, _) = names.key(Ino::ROOT.0, b"f");
        names.name_sets[0].cells[0].set(key, FILE);
        rig.inode().ino.store(FILE, Relaxed);
        rig.client.channel().identity.known.store(1, Relaxed);
        let open = &rig.leases.control().open_files[3];
        open.generation.store(7, Relaxed);
        let word = GrantWord::new(FileRef::new(3, 7), GrantWord::FREE);
        rig.client.channel().grants.words[2].store(word.0, Relaxed);
        rig
    }

    fn word(rig: &Rig) -> GrantWord {
        rig.client.channel().grants.word(2)
    }

    fn open(rig: &Rig, flags: i32) -> Option<FileRef> {
        let opened = rig.client.open_here(FileRef::ROOT, b"/f", flags)?;
        Some(opened.unwrap().file)
    }

    #[test]
    fn a_granted_file_is_used_and_given_back() {
        let rig = rig();
        let file = open(&rig, libc::O_CLOEXEC).unwrap();
        assert_eq!((file, word(&rig)), (FileRef::new(3, 7), GrantWord::new(file, GrantWord::USED)));
        assert_eq!(open(&rig, 0), None, "there is only one");
        assert!(rig.client.close_here(file));
        assert!(!rig.client.close_here(file));
        assert_eq!(word(&rig), GrantWord::new(FileRef::new(3, 8), GrantWord::FREE));
        assert_eq!(open(&rig, 0), Some(FileRef::new(3, 8)));
    }

    #[test]
    fn only_reading_is_opened() {
        let rig = rig();
        for flags in
            [libc::O_WRONLY, libc::O_RDWR, libc::O_TRUNC, libc::O_DIRECTORY, libc::O_NOATIME, libc::O_CREAT]
        {
            assert_eq!(open(&rig, flags), None, "{flags:#o}");
        }
        assert_eq!(rig.client.open_here(FileRef::ROOT, b"/f/", 0).unwrap().err(), Some(libc::ENOTDIR));
        rig.inode().by_call.store(MAPPED, Relaxed);
        assert_eq!(open(&rig, 0), None);
        assert_eq!(word(&rig).state(), GrantWord::FREE);
    }

    #[test]
    fn who_may_use_an_inode_with_a_list_is_asked_of_the_server() {
        let rig = rig();
        let names = rig.leases.names();
        names.head.writable.store(1, Relaxed);
        let list = Marks { has_acl: true, ..Marks::default() };
        let immutable = Marks { flags: InodeFlags::IMMUTABLE, ..Marks::default() };
        let set = |cell: usize, slot, marks| {
            let word = SlotWord::new(slot, false, marks);
            names.attr_sets[0].cells[cell].slot.store(word.0, Relaxed);
        };
        let access = |mode| rig.client.access_here(FileRef::ROOT, b"/f", mode, 0);
        assert_eq!((access(libc::R_OK), access(libc::W_OK)), (Some(Ok(())), Some(Ok(()))));
        for (cell, slot) in [(0, None), (1, Some(0))] {
            set(cell, slot, list);
            assert!(open(&rig, 0).is_none() && access(libc::R_OK).is_none(), "{cell}");
            set(cell, slot, Marks::default());
        }
        // Its attributes are told all the same.
        set(1, Some(0), list);
        assert!(rig.client.stat_here(FileRef::ROOT, b"/f", 0).is_some());
        set(1, Some(0), immutable);
        assert_eq!((access(libc::R_OK), access(libc::W_OK)), (Some(Ok(())), None));
        let (_, flags) = rig.client.stat_here(FileRef::ROOT, b"/f", 0).unwrap().unwrap();
        assert_eq!(flags, InodeFlags::IMMUTABLE);
        assert!(open(&rig, 0).is_some());
    }

    #[test]
    fn an_inode_that_goes_and_a_name_that_changes_meanwhile_are_asked_of_the_server() {
        let going = |rig: &Rig| {
            let inode = rig.inode();
            set_meanwhile(move || inode.by_call.store(GOING, SeqCst));
        };
        let another = |rig: &Rig| {
            let inode = rig.inode();
            set_meanwhile(move || inode.ino.store(FILE + 1, SeqCst));
        };
        let renamed = |rig: &Rig| {
            let set = &rig.leases.names().name_sets[0].head;
            set_meanwhile(move || set.seq.store(1, SeqCst));
        };
        for meanwhile in [going, another, renamed] as [fn(&Rig); 3] {
            let rig = rig();
            meanwhile(&rig);
            assert_eq!(open(&rig, 0), None);
            assert_eq!(word(&rig), GrantWord::new(FileRef::new(3, 8), GrantWord::FREE));
        }
    }
}
