//! Reading directories.

use super::{Ask, Failure, Outcome};
use weft_client::WireDirent;
use weft_client::shared::channel::Response;

/// Entries are padded to this, so that each begins aligned.
const ALIGN: usize = 8;
/// Cookies of `.` and `..`; the core's own come after them.
const AFTER_DOT: u64 = 1;
const AFTER_DOT_DOT: u64 = 2;

struct Packer<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl Packer<'_> {
    fn push(&mut self, ino: u64, cookie: u64, kind: u8, name: &[u8]) -> bool {
        let head = WireDirent { ino, cookie, kind: u32::from(kind), name_len: name.len() as u32 };
        let len = (size_of::<WireDirent>() + name.len()).next_multiple_of(ALIGN);
        let Some(room) = self.out.get_mut(self.used..self.used + len) else { return false };
        let (head_room, name_room) = room.split_at_mut(size_of::<WireDirent>());
        head_room.copy_from_slice(bytemuck::bytes_of(&head));
        name_room[..name.len()].copy_from_slice(name);
        name_room[name.len()..].fill(0);
        self.used += len;
        true
    }
}

pub fn read_dir(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_file(0)?;
    let ino = open.inode.ino;
    let fs = &ask.volume.fs;
    let parent = fs.parent(ino).map_err(|_| Failure(libc::ENOTDIR))?;
    if fs.getattr(ino)?.links == 0 {
        // Removed: as in Linux, not even `.` and `..` are there.
        return Err(Failure(libc::ENOENT));
    }
    let cookie = ask.arg(1);
    let mut packer = Packer { out: ask.out(ask.arg(2) as usize), used: 0 };
    let mut room = true;
    if cookie < AFTER_DOT {
        room = packer.push(ino.0, AFTER_DOT, libc::DT_DIR, b".");
    }
    if room && cookie < AFTER_DOT_DOT {
        room = packer.push(parent.0, AFTER_DOT_DOT, libc::DT_DIR, b"..");
    }
    if room {
        let core_cookie = cookie.saturating_sub(AFTER_DOT_DOT);
        fs.readdir(ino, core_cookie, &mut |entry| {
            room =
                packer.push(entry.ino.0, entry.cookie + AFTER_DOT_DOT, entry.kind.dirent_type(), entry.name);
            room
        })?;
    }
    if packer.used == 0 && !room {
        // Not even one entry fits.
        return Err(Failure(libc::EINVAL));
    }
    Ok(Response { ret: packer.used as i64, len: packer.used as u64, ..Response::default() })
}
