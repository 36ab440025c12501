//! Names: looked up, made, and moved.

use super::{Front, NOFOLLOW, Place, RENAME_EXCHANGE, inode};
use crate::abi::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn, op};
use crate::attr::{device_number, entry_out};
use crate::channel::{Answer, Errno, Request, name};
use std::time::Duration;
use weft_client::proto::{ITSELF, with_umask};
use weft_core::Ino;
use weft_server::ops::{At, Base};
impl Front {
    /// Looks a name up, perhaps after it has been made.
    pub(super) fn make(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let dir = Ino(request.head.node);
        let made = self.made(request, dir, answer);
        if made.is_ok() && request.head.opcode != op::LOOKUP {
            self.handles.note_changed(dir);
        }
        made
    }

    fn made(&self, request: &Request<'_>, dir: Ino, answer: &mut Answer) -> Result<(), Errno> {
        match request.head.opcode {
            op::MKNOD => {
                let (node, rest) = request.argument::<MknodIn>()?;
                let place = Place { dir, name: name(rest)?.0 };
                let (rdev, mode) = (device_number(node.rdev), with_umask(node.mode, node.umask));
                self.entry(request, place, answer, |session, at| session.mknod(at, mode, rdev))
            }
            op::MKDIR => {
                let (made, rest) = request.argument::<MkdirIn>()?;
                let place = Place { dir, name: name(rest)?.0 };
                let mode = with_umask(made.mode, made.umask);
                self.entry(request, place, answer, |session, at| session.mkdir(at, mode))
            }
            op::SYMLINK => {
                let (link, rest) = name(request.body())?;
                let (target, _) = name(rest)?;
                let place = Place { dir, name: link };
                self.entry(request, place, answer, |session, at| session.symlink(target, at))
            }
            op::LINK => {
                let (link, rest) = request.argument::<LinkIn>()?;
                let place = Place { dir, name: name(rest)?.0 };
                let from = At { dir: Base::Inode(Ino(link.node), b""), path: ITSELF };
                self.entry(request, place, answer, |session, to| {
                    session.link(from, to, 0)?;
                    session.stat(to, NOFOLLOW)
                })?;
                self.handles.note_changed(Ino(link.node));
                Ok(())
            }
            _ => match name(request.body())?.0 {
                b"." => self.numbered(request, inode(dir), answer),
                b".." => self.numbered(request, At { dir: Base::Inode(dir, b""), path: b".." }, answer),
                name => {
                    self.entry(request, Place { dir, name }, answer, |session, at| session.stat(at, NOFOLLOW))
                }
            },
        }
    }

    /// Answers with an inode that the kernel knows by its number alone, from a handle (`open_by_handle_at`) or a server of NFS. Numbers
    /// are never given to other inodes.
    fn numbered(&self, request: &Request<'_>, at: At<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let attr = self.ask(request, |session| session.stat(at, libc::AT_EMPTY_PATH))?;
        if attr.links == 0 {
            return Err(Errno(libc::ENOENT));
        }
        self.nodes.meet_unnamed(attr.ino);
        answer.put(&entry_out(&attr, Duration::ZERO));
        Ok(())
    }

    pub(super) fn rename(&self, request: &Request<'_>) -> Result<(), Errno> {
        let (new_dir, flags, rest) = if request.head.opcode == op::RENAME2 {
            let (rename, rest) = request.argument::<Rename2In>()?;
            (rename.new_dir, rename.flags, rest)
        } else {
            let (rename, rest) = request.argument::<RenameIn>()?;
            (rename.new_dir, 0, rest)
        };
        let (old_name, rest) = name(rest)?;
        let (new_name, _) = name(rest)?;
        let (from_dir, to_dir) = (Ino(request.head.node), Ino(new_dir));
        let to_path = self.nodes.path(to_dir);
        let to = At { dir: Base::Inode(to_dir, &to_path), path: new_name };
        self.at_name_that_goes(request, Place { dir: from_dir, name: old_name }, |session, from| {
            // The kernel moves what it has kept of the names.
            let exchanges = flags & RENAME_EXCHANGE != 0;
            self.entries.moves((from_dir, old_name), (to_dir, new_name));
            if exchanges {
                self.entries.moves((to_dir, new_name), (from_dir, old_name));
            }
            session.rename(from, to, flags)?;
            if !exchanges {
                self.entries.remove(from_dir, old_name);
            }
            // Perhaps the one that had the new name.
            self.room.note_removed();
            self.handles.note_changed(from_dir);
            self.handles.note_changed(to_dir);
            // For the paths that are told; somebody may have renamed them again.
            if let Ok(moved) = session.stat(to, NOFOLLOW) {
                self.handles.note_changed(moved.ino);
                self.nodes.rename(moved.ino, to_dir, new_name);
            }
            if flags & RENAME_EXCHANGE != 0
                && let Ok(moved) = session.stat(from, NOFOLLOW)
            {
                self.nodes.rename(moved.ino, from_dir, old_name);
            }
            Ok(())
        })
    }
}
