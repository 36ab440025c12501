//! What the operations of a chain take and give: values of earlier operations, numbers, bytes and paths.

use crate::error::{Failure, bad};
use crate::handle::bytes;
use std::ffi::{CStr, c_char};
use weft_vfs::compound::{Bytes, Dir, File, Num, Operand, Ref};

/// The value of an operation of a chain. Later operations of the same chain take it, and the answer is asked by it. All zero: none.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WeftValue {
    /// The chain.
    pub chain: u64,
    /// The place of the operation in the chain, from 1.
    pub operation: u32,
}

/// A number: weft_num makes one, weft_num_of takes it from an operation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeftNumber {
    /// The number, unless it is taken from an operation.
    pub number: u64,
    /// The operation that gives it, or none.
    pub of: WeftValue,
}

/// Bytes: weft_data and weft_text make some, weft_data_of takes them from an operation. A function that adds an operation copies them.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeftBytes {
    /// The bytes, unless they are taken from an operation.
    pub data: *const u8,
    /// How many.
    pub data_bytes: usize,
    /// The operation that gives them, or none.
    pub of: WeftValue,
}

/// A path: weft_at, weft_at_bytes and weft_below make one.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeftPath {
    /// The operation that opened the directory in which the path begins; none: it begins at the root of the volume.
    pub dir: WeftValue,
    /// The path.
    pub path: WeftBytes,
}

/// A value that was to be an operation's, and is none: unlike [`WeftValue::default`], it does not stand for a literal.
const MISSING: WeftValue = WeftValue { chain: u64::MAX, operation: 0 };

impl WeftValue {
    fn is_none(self) -> bool {
        self == WeftValue::default()
    }

    fn required(self) -> WeftValue {
        if self.is_none() { MISSING } else { self }
    }
}

/// A number. Like the other functions that make an argument, it cannot fail: what is wrong with it, the function says that takes it.
#[unsafe(no_mangle)]
pub extern "C" fn weft_num(number: u64) -> WeftNumber {
    WeftNumber { number, of: WeftValue::default() }
}

/// The number that an operation gives.
#[unsafe(no_mangle)]
pub extern "C" fn weft_num_of(value: WeftValue) -> WeftNumber {
    WeftNumber { number: 0, of: value.required() }
}

/// Bytes. They stay where they are until they are passed to a function that adds an operation.
#[unsafe(no_mangle)]
pub extern "C" fn weft_data(data: *const u8, data_bytes: usize) -> WeftBytes {
    WeftBytes { data, data_bytes, of: WeftValue::default() }
}

/// The bytes that an operation gives.
#[unsafe(no_mangle)]
pub extern "C" fn weft_data_of(value: WeftValue) -> WeftBytes {
    WeftBytes { data: std::ptr::null(), data_bytes: 0, of: value.required() }
}

/// The path that these bytes hold, from the root of the volume.
#[unsafe(no_mangle)]
pub extern "C" fn weft_at_bytes(path: WeftBytes) -> WeftPath {
    WeftPath { dir: WeftValue::default(), path }
}

/// The path that these bytes hold, from an open directory, unless it begins with a slash.
#[unsafe(no_mangle)]
pub extern "C" fn weft_below(dir: WeftValue, path: WeftBytes) -> WeftPath {
    WeftPath { dir: dir.required(), path }
}

crate::error::exports! {
    /// The bytes of a string, without the zero byte at its end.
    ///
    /// # Safety
    /// `text` is null or a string.
    fn weft_text(text: *const c_char) -> WeftBytes {
        // With a null pointer, the one byte that is not there is refused later.
        let data_bytes = if text.is_null() { 1 } else { CStr::from_ptr(text).count_bytes() };
        weft_data(text.cast(), data_bytes)
    }

    /// A path from the root of the volume.
    ///
    /// # Safety
    /// `path` is null or a string.
    fn weft_at(path: *const c_char) -> WeftPath {
        weft_at_bytes(weft_text(path))
    }
}

/// Reads arguments as parts of a chain.
pub(crate) struct Arguments {
    /// The chain.
    pub chain: u64,
    /// Its operations so far.
    pub operations: usize,
}

impl Arguments {
    pub fn value(&self, value: WeftValue) -> Result<Ref, Failure> {
        let at = (value.operation as usize).wrapping_sub(1);
        if value.is_none() || value == MISSING {
            return Err(bad("a value is none; pass what an operation of this chain has returned".into()));
        }
        if value.chain != self.chain {
            return Err(bad("a value is of another chain; pass one of this chain".into()));
        }
        match u8::try_from(at) {
            Ok(place) if at < self.operations => Ok(Ref(place)),
            _ => Err(bad(format!(
                "a value is of operation {}, and the chain has {} so far",
                value.operation, self.operations
            ))),
        }
    }

    pub fn file(&self, value: WeftValue) -> Result<File, Failure> {
        Ok(File(self.value(value)?))
    }

    pub fn num(&self, number: WeftNumber) -> Result<Num, Failure> {
        if number.of.is_none() { Ok(Num::Lit(number.number)) } else { Ok(Num::Of(self.value(number.of)?)) }
    }

    /// # Safety
    /// The bytes are an operation's, or there.
    pub unsafe fn bytes(&self, data: WeftBytes) -> Result<Bytes, Failure> {
        if !data.of.is_none() {
            return Ok(Bytes::Of(self.value(data.of)?));
        }
        // SAFETY: the caller's promise.
        Ok(Bytes::Lit(unsafe { bytes(data.data, data.data_bytes) }?.to_vec()))
    }

    /// # Safety
    /// As of [`Arguments::bytes`].
    pub unsafe fn path(&self, path: WeftPath) -> Result<(Dir, Bytes), Failure> {
        let dir = if path.dir.is_none() { Dir::Start } else { Dir::At(self.file(path.dir)?) };
        // SAFETY: the caller's promise.
        Ok((dir, unsafe { self.bytes(path.path) }?))
    }

    /// Two numbers to compare.
    pub fn nums(&self, left: WeftNumber, right: WeftNumber) -> Result<[Operand; 2], Failure> {
        Ok([Operand::Num(self.num(left)?), Operand::Num(self.num(right)?)])
    }

    /// Bytes to compare.
    ///
    /// # Safety
    /// As of [`Arguments::bytes`].
    pub unsafe fn both(&self, left: WeftBytes, right: WeftBytes) -> Result<[Operand; 2], Failure> {
        // SAFETY: the caller's promise.
        unsafe { Ok([Operand::Bytes(self.bytes(left)?), Operand::Bytes(self.bytes(right)?)]) }
    }
}
