//! Text that is put together without an allocation: paths for system calls, names, lines for the user.

use libc::c_int;
use std::ffi::CStr;
use std::ops::Deref;

/// Bytes so far; what does not fit into `N` bytes with a NUL behind it is cut off.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// Nothing so far.
    pub const EMPTY: Self = Text { bytes: [0; N], len: 0 };

    /// These parts, one after the other.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut text = Self::EMPTY;
        parts.iter().for_each(|part| text.put(part));
        text
    }

    /// Replaces what it is.
    pub fn set(&mut self, bytes: &[u8]) {
        self.len = 0;
        self.put(bytes);
    }

    /// Adds bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        let end = (self.len + bytes.len()).min(N.saturating_sub(1));
        let room = self.bytes.get_mut(self.len..end).unwrap_or(&mut []);
        room.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        self.len = end;
        if let Some(behind) = self.bytes.get_mut(end) {
            *behind = 0;
        }
    }

    /// For system calls.
    pub fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// The path by which the kernel shows a descriptor of this process.
pub fn path_of_descriptor(fd: c_int) -> Text<32> {
    Text::of(&[b"/proc/self/fd/", &decimal(fd.unsigned_abs().into())])
}

/// A number as decimal text.
pub fn decimal(mut number: u64) -> Text<21> {
    let mut digits = [0; 20];
    let mut at = digits.len();
    for place in digits.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
        at -= 1;
        if number == 0 {
            break;
        }
    }
    Text::of(&[digits.get(at..).unwrap_or(&[])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole() {
        assert_eq!(*decimal(0), *b"0");
        assert_eq!(*decimal(907), *b"907");
        assert_eq!(*decimal(u64::MAX), *b"18446744073709551615");
    }

    #[test]
    fn what_does_not_fit_is_cut_off_and_a_nul_follows() {
        let mut text = Text::<5>::of(&[b"ab", b"cdef"]);
        assert_eq!((&*text, text.c_str()), (&b"abcd"[..], c"abcd"));
        text.set(b"x");
        assert_eq!((&*text, text.c_str()), (&b"x"[..], c"x"));
    }
}
