//! Descriptors and memory of this library's own, given back when they are dropped.

use crate::sys;
use libc::c_int;
use std::ops::Deref;
use weft_client::Errno;
use weft_client::scratch::{SCRATCH_BYTES, Scratch};

/// A descriptor, closed when it is dropped.
pub struct Fd(pub c_int);

impl Fd {
    /// The descriptor, which is not closed any more.
    pub fn keep(self) -> c_int {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Deref for Fd {
    type Target = c_int;

    fn deref(&self) -> &c_int {
        &self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        let _ = weft_client::sys::close(self.0);
    }
}

/// Zeroed private memory, given back when it is dropped.
pub struct Memory {
    at: *mut u8,
    len: usize,
    /// Where it lies when the process may map nothing more.
    scratch: Option<Scratch<[u8; SCRATCH_BYTES]>>,
}

impl Memory {
    /// As many bytes.
    pub fn new(len: usize) -> Result<Memory, Errno> {
        match sys::anonymous(len) {
            Ok(at) => Ok(Memory { at, len, scratch: None }),
            // A program that has used all of its address space can still execute another one.
            Err(libc::ENOMEM) if len <= SCRATCH_BYTES => {
                let mut scratch = Scratch::<[u8; SCRATCH_BYTES]>::zeroed()?;
                Ok(Memory { at: scratch.as_mut_ptr(), len, scratch: Some(scratch) })
            }
            Err(error) => Err(error),
        }
    }

    /// Its beginning, which is aligned to a page.
    pub fn start<T>(&self) -> *mut T {
        self.at.cast()
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped by `new` or in its scratch, of this length, and known to nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.scratch.is_none() {
            // SAFETY: mapped by `new`; nobody refers to it any more.
            let _ = unsafe { sys::munmap(self.at, self.len) };
        }
    }
}
