//! Unix sockets on the volume. As with named pipes ([`crate::ipc::fifo`]), the volume holds the name, its owner and its mode; behind
//! it is a socket of the kernel, which processes of the same user find by the inode ([`crate::ipc::shadow`]). Beside it lies a
//! symlink with the path by which it was bound, so that a query for an address returns that path.

use crate::ipc::shadow;
use crate::routing::Place;
use crate::sys;
use crate::text::Text;
use libc::{c_char, sockaddr, sockaddr_storage, sockaddr_un, socklen_t};
use std::ffi::CStr;
use std::mem::offset_of;
use weft_client::Errno;
use weft_client::shared::pages;

const PATH_AT: usize = offset_of!(sockaddr_un, sun_path);
const PATH_BYTES: usize = size_of::<sockaddr_un>() - PATH_AT;
const SOCKET: &[u8] = pages::SOCKET.as_bytes();
const NAME: &[u8] = pages::SOCKET_NAME.as_bytes();

/// A path from an address.
pub struct SocketPath(Text<{ PATH_BYTES + 1 }>);

impl SocketPath {
    /// The path of an address; `None` for addresses of other kinds and names that are in no file system.
    ///
    /// # Safety
    /// `address` is null or has `len` bytes.
    pub unsafe fn of(address: *const sockaddr, len: socklen_t) -> Option<SocketPath> {
        let len = len as usize;
        // SAFETY: the caller's promise.
        unsafe {
            if address.is_null() || len <= PATH_AT || i32::from((*address).sa_family) != libc::AF_UNIX {
                return None;
            }
            let given = std::slice::from_raw_parts(
                address.cast::<u8>().add(PATH_AT),
                (len - PATH_AT).min(PATH_BYTES),
            );
            (given.first() != Some(&0)).then(|| SocketPath(Text::of(&[given])))
        }
    }

    /// For calls.
    pub fn c_str(&self) -> &CStr {
        self.0.c_str()
    }
}

/// An address that is a path.
pub struct Address {
    un: sockaddr_un,
    len: socklen_t,
}

impl Address {
    /// That of a path. One that is longer than addresses can be is `EINVAL`, as from the kernel.
    pub fn of(path: &CStr) -> Result<Address, Errno> {
        let bytes = path.to_bytes();
        // SAFETY: all-zero is a valid address.
        let mut un: sockaddr_un = unsafe { std::mem::zeroed() };
        un.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let room = un.sun_path.get_mut(..bytes.len()).ok_or(libc::EINVAL)?;
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from as c_char;
        }
        let terminated = (bytes.len() + 1).min(PATH_BYTES);
        Ok(Address { un, len: (PATH_AT + terminated) as socklen_t })
    }

    /// For calls.
    pub fn parts(&self) -> (*const sockaddr, socklen_t) {
        ((&raw const self.un).cast(), self.len)
    }
}

/// Makes a socket's name on the volume and gives it to `bind`, which names the kernel's socket. `given` is the path as the
/// program wrote it.
pub fn bind(
    place: Place,
    mode: u32,
    given: &CStr,
    bind: impl Fn(&Address) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let client = place.client;
    let made = place.mknod(libc::S_IFSOCK | mode, 0);
    made.map_err(|error| if error == libc::EEXIST { libc::EADDRINUSE } else { error })?;
    let bound = place.stat(libc::AT_SYMLINK_NOFOLLOW).and_then(|attr| {
        let name = shadow::path_of(client, attr.ino, attr.btime_ns, SOCKET);
        let address = Address::of(name.c_str())?;
        loop {
            shadow::make_directory(client)?;
            match bind(&address) {
                // The last process that had files there has just taken the directory away.
                Err(libc::ENOENT) => {}
                bound => break bound?,
            }
        }
        // Who may connect is the volume's to say; the directory keeps others out.
        sys::chmod(name.c_str(), 0o600)?;
        let told = shadow::path_of(client, attr.ino, attr.btime_ns, NAME);
        match sys::symlink(given, told.c_str()) {
            Err(libc::EEXIST) => Ok(()),
            other => other,
        }
    });
    bound.inspect_err(|_| {
        let _ = place.unlink(0);
    })
}

/// The address of the kernel's socket behind a name on the volume, when the user may write to it.
pub fn find(place: Place) -> Result<Address, Errno> {
    let attr = place.stat(0)?;
    if attr.mode & libc::S_IFMT != libc::S_IFSOCK {
        return Err(libc::ECONNREFUSED);
    }
    place.access(libc::W_OK, libc::AT_EACCESS)?;
    Address::of(shadow::path_of(place.client, attr.ino, attr.btime_ns, SOCKET).c_str())
}

/// An address that the kernel fills in, on its way to the program.
pub struct ReturnedAddress {
    storage: sockaddr_storage,
    len: socklen_t,
}

impl Default for ReturnedAddress {
    fn default() -> Self {
        ReturnedAddress::new()
    }
}

impl ReturnedAddress {
    /// Nothing so far.
    pub fn new() -> ReturnedAddress {
        // SAFETY: all-zero is a valid address.
        let storage = unsafe { std::mem::zeroed() };
        ReturnedAddress { storage, len: size_of::<sockaddr_storage>() as socklen_t }
    }

    /// Where the kernel puts it.
    pub fn parts(&mut self) -> (*mut sockaddr, *mut socklen_t) {
        ((&raw mut self.storage).cast(), &raw mut self.len)
    }

    /// Hands it on, with the path that the program knows.
    ///
    /// # Safety
    /// `address` and `len` are what a program passes to `getsockname`.
    pub unsafe fn hand_on(&self, address: *mut sockaddr, len: *mut socklen_t) {
        let from = (&raw const self.storage).cast::<sockaddr>();
        // SAFETY: the kernel has filled in `self.len` bytes; the program has room for `*len`.
        unsafe {
            let known = SocketPath::of(from, self.len).and_then(|path| known_by(&path));
            let (from, full) = match &known {
                Some(known) => known.parts(),
                None => (from, self.len),
            };
            let copied = (full as usize).min(*len as usize).min(size_of::<sockaddr_storage>());
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), address.cast::<u8>(), copied);
            *len = full;
        }
    }
}

/// The address by which a socket behind a name of the volume was bound.
fn known_by(path: &SocketPath) -> Option<Address> {
    let path = path.c_str().to_bytes();
    if !path.starts_with(shadow::ROOT) {
        return None;
    }
    let stem = path.strip_suffix(SOCKET)?;
    let name = Text::<{ PATH_BYTES + 1 }>::of(&[stem, NAME]);
    let mut text = [0; PATH_BYTES + 1];
    let room = text.get_mut(..PATH_BYTES)?;
    sys::readlink(name.c_str(), room).ok()?;
    Address::of(CStr::from_bytes_until_nul(&text).ok()?).ok()
}
