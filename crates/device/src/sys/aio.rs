//! One asynchronous write at a time, waited for.
//!
//! zonefs turns a plain direct write into a zone append, whose result some kernels misread (Debian's 6.1.192 makes the
//! zone read-only after the first one). A write that was submitted asynchronously goes to the drive as a write.

use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const OPCODE_WRITE: u16 = 1;
/// Contexts kept for the next write.
const KEPT_MAX: usize = 16;

/// `struct iocb` of `linux/aio_abi.h` on a little-endian machine.
#[repr(C)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// A context of the kernel for one request at a time.
#[derive(Debug)]
struct Context(libc::c_ulong);

impl Context {
    fn new() -> io::Result<Context> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the call writes the new context's number to the address.
        match unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut id) } {
            0 => Ok(Context(id)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn write(&self, file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
        let mut request = Request {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: OPCODE_WRITE,
            priority: 0,
            fd: file.as_raw_fd() as u32,
            buffer: data.as_ptr().expose_provenance() as u64,
            bytes: data.len() as u64,
            offset: offset as i64,
            reserved: 0,
            flags: 0,
            event_fd: 0,
        };
        let mut list = [&raw mut request];
        // SAFETY: the list holds one valid request, whose buffer is borrowed until this function returns, and it does
        // not return before the request is complete.
        if unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()) } != 1 {
            return Err(io::Error::last_os_error());
        }
        let mut event = Event::default();
        loop {
            let no_limit = std::ptr::null::<libc::timespec>();
            // SAFETY: room for one event, as announced.
            match unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut event, no_limit) } {
                1 => break,
                // A signal: the request is still under way.
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    let error = io::Error::last_os_error();
                    self.destroy();
                    return Err(error);
                }
            }
        }
        match usize::try_from(event.result) {
            Ok(written) => Ok(written),
            Err(_) => Err(io::Error::from_raw_os_error(i32::try_from(-event.result).unwrap_or(libc::EIO))),
        }
    }

    /// Waits for what is under way and gives the context back; a second time it does nothing.
    fn destroy(&self) {
        // SAFETY: a system call on a number. The kernel refuses one that is no context of this process.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// Writes, each through a context of its own.
#[derive(Debug, Default)]
pub struct Writes {
    idle: Mutex<Vec<Context>>,
}

impl Writes {
    /// Writes at an offset; returns how much was written. The data is aligned for direct I/O, or the file buffered.
    pub fn write_at(&self, file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
        let idle = self.idle.lock().pop();
        let context = match idle {
            Some(context) => context,
            None => Context::new()?,
        };
        let result = context.write(file, data, offset);
        let mut idle = self.idle.lock();
        if result.is_ok() && idle.len() < KEPT_MAX {
            idle.push(context);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_write_arrives_and_an_error_is_told() {
        let file = tempfile::tempfile().unwrap();
        let writes = Writes::default();
        let data = vec![7; 10_000];
        for round in 0..3 {
            assert_eq!(writes.write_at(&file, &data, round * 10_000).unwrap(), data.len());
        }
        let mut found = vec![0; 10_000];
        file.read_exact_at(&mut found, 20_000).unwrap();
        assert_eq!(found, data);
        let read_only = File::open("/dev/null").unwrap();
        let error = writes.write_at(&read_only, &data, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
