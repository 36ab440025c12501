//! Asking for a write-lifetime hint: one message and one answer over a Unix socket, a connection each.
//!
//! For programs whose files stay on an ordinary file system; there is no volume and no other traffic. Files are opened
//! for writing rarely, and a connection that nobody keeps cannot be mixed up after a fork.

use crate::sys::{self, Errno};
use bytemuck::{Pod, Zeroable};

/// First word of a request.
pub const MAGIC: u32 = u32::from_le_bytes(*b"WHNT");
/// Longest path, in bytes.
pub const PATH_MAX: usize = 4096;

/// The fixed part of a request for a write hint; the path follows.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
pub struct AdviceRequest {
    /// [`MAGIC`].
    pub magic: u32,
    /// Flags of `open(2)`.
    pub flags: u32,
    /// Size of the file in bytes.
    pub size: u64,
    /// Kernel id of the thread.
    pub thread_id: u32,
    /// User id of the file's owner.
    pub uid: u32,
    /// Bytes of the path.
    pub path_len: u32,
    /// Zero.
    pub zero: u32,
    /// Name of the thread, zeros behind it.
    pub thread: [u8; 16],
}

/// Asks at `socket`; the hint as `F_SET_RW_HINT` takes it, 0 for none.
pub fn ask(socket: &[u8], request: &AdviceRequest, path: &[u8]) -> Result<u64, Errno> {
    let fd = sys::connect_unix(socket)?;
    let mut answer = [0; 8];
    let asked = sys::send_all(fd, bytemuck::bytes_of(request))
        .and_then(|()| sys::send_all(fd, path))
        .and_then(|()| sys::recv_with_fds(fd, &mut answer, &mut []));
    let _ = sys::close(fd);
    asked.map(|_| u64::from_le_bytes(answer))
}
