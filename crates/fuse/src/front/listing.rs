//! Listings of directories.

use super::{Front, Place, inode};
use crate::abi::{self, Dirent, EntryOut, ReadIn, op};
use crate::attr::entry_out;
use crate::channel::{Answer, Errno, Request};
use weft_core::Ino;
impl Front {
    pub(super) fn read_dir(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let (read, _) = request.argument::<ReadIn>()?;
        let with_attributes = request.head.opcode == op::READDIRPLUS;
        let each = size_of::<Dirent>() + if with_attributes { size_of::<EntryOut>() } else { 0 };
        let (mut names, mut found, mut room) = (Vec::new(), Vec::new(), read.size as usize);
        let file = self.handles.file(read.handle)?;
        self.ask(request, |session| {
            session.read_dir_of_start(file, read.offset, &mut |entry| {
                let bytes = each + entry.name.len().next_multiple_of(abi::DIRENT_ALIGN);
                let has_room = bytes <= room;
                if has_room {
                    room -= bytes;
                    names.extend_from_slice(entry.name);
                    let (name_len, kind) = (entry.name.len() as u32, entry.kind.mode_bits() >> 12);
                    found.push(Dirent { ino: entry.ino.0, cookie: entry.cookie, name_len, kind });
                }
                has_room
            })
        })?;
        let mut rest = &names[..];
        for entry in found {
            let (name, behind) = rest.split_at(entry.name_len as usize);
            rest = behind;
            if with_attributes {
                let place = Place { dir: Ino(request.head.node), name };
                answer.put(&self.attributes(request, place, Ino(entry.ino)));
            }
            answer.put(&entry);
            answer.put_bytes(name);
            let padding = name.len().next_multiple_of(abi::DIRENT_ALIGN) - name.len();
            answer.put_bytes(&[0; abi::DIRENT_ALIGN][..padding]);
        }
        Ok(())
    }

    /// What the kernel may keep of a name that it lists; nothing when it may keep none.
    fn attributes(&self, request: &Request<'_>, place: Place<'_>, ino: Ino) -> EntryOut {
        if matches!(place.name, b"." | b"..") || request.alone.get() == 0 {
            return EntryOut::default();
        }
        self.nodes.meet(ino, place.dir, place.name);
        // After it has met the inode: it is told of changes from now on.
        let attr = self.ask(request, |session| session.stat(inode(ino), libc::AT_EMPTY_PATH));
        let kept = self.kept_name(request, place);
        match attr {
            Ok(attr) if !kept.is_zero() => entry_out(&attr, kept),
            _ => {
                self.forget(ino, 1);
                EntryOut::default()
            }
        }
    }
}
