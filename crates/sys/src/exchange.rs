//! Messages that a driver exchanges with this process through memory, by commands of io_uring (`IORING_OP_URING_CMD`).
//!
//! ```text
//!  command ---> driver      the driver reads what lies in the memory (an answer), and writes there (the next message)
//!     ^            |
//!     +--- end ----+        now the memory is the caller's, until its next command
//! ```
//!
//! Each exchange has a ring of its own, in which at most one command is under way. [`Exchange::command`] returns at its end, so
//! whoever can reach the memory knows that the driver does not.

use crate::Map;
use io_uring::squeue::{self, Entry128};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, types};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{Ordering::*, fence};

/// Bytes that a command carries itself.
pub const ARGUMENT_BYTES: usize = 80;
/// What is under way at a time.
const ENTRIES: u32 = 1;
/// Where an entry of a ring has the number of parts (`len` of `struct io_uring_sqe`).
const LEN_OFFSET: usize = 24;
/// The driver's place in the ring's table of files.
const DRIVER: types::Fixed = types::Fixed(0);

/// Memory that is exchanged with a driver in turn: a head and a body.
pub struct Exchange {
    ring: IoUring<Entry128, cqueue::Entry>,
    memory: ManuallyDrop<Memory>,
    /// A command has begun of which no end was seen.
    is_under_way: bool,
}

struct Memory {
    head: Map,
    body: Map,
    /// Both, as the driver gets them.
    parts: Box<[libc::iovec; 2]>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl Exchange {
    /// With an open driver, for commands of the calling thread alone. The body takes memory as it is used.
    ///
    /// # Errors
    /// The kernel refuses rings (`EPERM`: by `kernel.io_uring_disabled`), or is older than Linux 6.1.
    ///
    /// # Safety
    /// The driver touches memory of this process only while one of its commands is under way, and only what it was given here.
    pub unsafe fn new(driver: &impl AsFd, head_bytes: usize, body_bytes: usize) -> io::Result<Exchange> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().dontfork();
        let ring: IoUring<Entry128, cqueue::Entry> = builder.build(ENTRIES)?;
        ring.submitter().register_files(&[driver.as_fd().as_raw_fd()])?;
        let (head, body) = (Map::anonymous(head_bytes)?, Map::anonymous(body_bytes)?);
        let part = |map: &Map| libc::iovec { iov_base: map.as_ptr(), iov_len: map.len() };
        let parts = Box::new([part(&head), part(&body)]);
        let memory = ManuallyDrop::new(Memory { head, body, parts });
        Ok(Exchange { ring, memory, is_under_way: false })
    }

    /// The head and the body.
    pub fn parts(&mut self) -> (&mut [u8], &mut [u8]) {
        // After a command whose end was not seen, the memory is the driver's.
        let own = if self.is_under_way { 0 } else { usize::MAX };
        let bytes = |map: &Map| (map.as_ptr::<u8>(), map.len().min(own));
        let ((head, head_len), (body, body_len)) = (bytes(&self.memory.head), bytes(&self.memory.body));
        // SAFETY: two mappings, readable and writable, that live as long as `self`, which is borrowed. Nothing is under way, so the
        // driver does not touch them.
        unsafe {
            (std::slice::from_raw_parts_mut(head, head_len), std::slice::from_raw_parts_mut(body, body_len))
        }
    }

    /// Sends a command, and returns its result when it has ended: below 0 the number of an error.
    ///
    /// # Errors
    /// The ring fails. The exchange is over then: it has no parts any more.
    pub fn command(&mut self, number: u32, argument: &[u8; ARGUMENT_BYTES]) -> io::Result<i32> {
        self.push(number, argument)?;
        self.end()
    }

    /// Sends a command: the driver has it when this returns.
    ///
    /// # Errors
    /// As [`Exchange::command`].
    pub fn begin(&mut self, number: u32, argument: &[u8; ARGUMENT_BYTES]) -> io::Result<()> {
        self.push(number, argument)?;
        self.enter(0)
    }

    /// Waits for the end of a command that has begun; its result.
    ///
    /// # Errors
    /// As [`Exchange::command`].
    pub fn end(&mut self) -> io::Result<i32> {
        while self.is_under_way {
            self.enter(1)?;
            if let Some(end) = self.ring.completion().next() {
                self.is_under_way = false;
                return Ok(end.result());
            }
        }
        Err(io::Error::other("no command has begun"))
    }

    fn push(&mut self, number: u32, argument: &[u8; ARGUMENT_BYTES]) -> io::Result<()> {
        if self.is_under_way {
            return Err(io::Error::other("a command is under way"));
        }
        let parts = std::ptr::from_ref(&*self.memory.parts);
        let mut entry =
            opcode::UringCmd80::new(DRIVER, number).cmd(*argument).addr(Some(parts as u64)).build();
        // SAFETY: an entry is a `struct io_uring_sqe` of 128 bytes, in which `len` is a `u32` at this offset.
        unsafe { (&raw mut entry).byte_add(LEN_OFFSET).cast::<u32>().write(2) };
        // What was written to the memory is there before the command.
        fence(Release);
        self.is_under_way = true;
        // SAFETY: the parts and what they name live until the end of the command: without having seen it, dropping this leaves them.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("the ring is full"))
    }

    /// Gives the kernel what it has not got yet, and waits for so many ends.
    fn enter(&mut self, ends: u32) -> io::Result<()> {
        let mut how = EnterFlags::GETEVENTS;
        // A driver may have nothing to say for long: that is no wait for a device.
        if self.ring.params().is_feature_no_iowait() {
            how |= EnterFlags::NO_IOWAIT;
        }
        let new = self.ring.submission().len() as u32;
        // SAFETY: as many entries as there are, and no argument.
        match unsafe { self.ring.submitter().enter::<()>(new, ends, how.bits(), None) } {
            Ok(_) => Ok(()),
            // Signals, and a lack of memory that passes. What was submitted stays so.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.is_under_way {
            // SAFETY: it is dropped once, here, and the driver has nothing under way that touches it.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

const _: () = assert!(size_of::<squeue::Entry128>() == 128 && size_of::<squeue::Entry>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_takes_no_commands_says_so_and_the_memory_stays_the_callers() {
        let file = tempfile::tempfile().unwrap();
        // SAFETY: a plain file takes no commands, and touches nothing.
        let exchange = unsafe { Exchange::new(&file, 288, 1 << 20) };
        // Where the kernel refuses rings there is nothing to be tested.
        let Ok(mut exchange) = exchange else { return };
        for round in 0..3 {
            exchange.parts().0[0] = round;
            exchange.parts().1[(1 << 20) - 1] = round;
            assert_eq!(exchange.command(1, &[0; ARGUMENT_BYTES]).unwrap(), -libc::EOPNOTSUPP);
            assert_eq!((exchange.parts().0[0], exchange.parts().1[(1 << 20) - 1]), (round, round));
            exchange.begin(2, &[0; ARGUMENT_BYTES]).unwrap();
            assert!(exchange.parts().0.is_empty() && exchange.command(1, &[0; ARGUMENT_BYTES]).is_err());
            assert_eq!(exchange.end().unwrap(), -libc::EOPNOTSUPP);
            assert!(exchange.end().is_err());
        }
    }
}
