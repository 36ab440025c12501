//! Answers: what became of the operations of a chain.

use crate::error::{Failure, bad, exports};
use crate::handle::{handle, put, put_unless_null, take};
use crate::values::WeftValue;
use weft_vfs::compound::{Answer, Outcome, Value};

/// The operation was done.
pub const WEFT_DONE: u32 = 0;
/// The operation was skipped: its comparison did not hold, it uses the value of one that was skipped, or it comes behind the one that
/// failed.
pub const WEFT_SKIPPED: u32 = 1;
/// The operation failed.
pub const WEFT_FAILED: u32 = 2;

/// What became of a chain that has run.
pub struct WeftAnswer {
    /// The chain.
    pub(crate) chain: u64,
    /// What the server says.
    pub(crate) answer: Answer,
}

/// Attributes of a file. Those of a file that the chain has changed before have its new size, owner, mode and links, but the times and the
/// blocks of before.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WeftAttributes {
    /// The inode's number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that its data occupies.
    pub blocks: u64,
    /// Kind and permission bits, as in st_mode.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access, in nanoseconds since 1970.
    pub atime_ns: i64,
    /// Last change of the data, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of the inode, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

impl WeftAnswer {
    fn outcome(&self, value: WeftValue) -> Result<&Outcome, Failure> {
        if value.chain != self.chain {
            return Err(bad("a value is not of the chain that this answers; pass one of that chain".into()));
        }
        let at = (value.operation as usize).wrapping_sub(1);
        self.answer.outcomes.get(at).ok_or_else(|| {
            bad(format!("a value is of operation {}; there is none with this number", value.operation))
        })
    }

    fn value(&self, value: WeftValue) -> Result<&Value, Failure> {
        let why = match self.outcome(value)? {
            Outcome::Done(Some(value)) => return Ok(value),
            Outcome::Done(None) => "it was not exported",
            Outcome::Skipped => "it was skipped",
            Outcome::Failed(_) => "it failed",
        };
        Err(Failure::NoValue { number: value.operation, why })
    }
}

exports! {
    /// Frees an answer, and the bytes that it has lent.
    ///
    /// # Safety
    /// The handle is null or open.
    fn weft_answer_free(answer: *mut WeftAnswer) -> () {
        drop(take(answer))
    }

    /// What became of an operation: WEFT_DONE, WEFT_SKIPPED or WEFT_FAILED. `error`, unless null, gets its errno, which is 0 unless it
    /// failed.
    ///
    /// # Safety
    /// The handle is open; `outcome` can be written; `error` is null or can be written.
    fn weft_answer_outcome(answer: *const WeftAnswer, operation: WeftValue, outcome: *mut u32, error: *mut i32) {
        let (what, errno) = match handle(answer, "answer")?.outcome(operation)? {
            Outcome::Done(_) => (WEFT_DONE, 0),
            Outcome::Skipped => (WEFT_SKIPPED, 0),
            Outcome::Failed(errno) => (WEFT_FAILED, *errno),
        };
        put(what, outcome)?;
        put_unless_null(errno, error);
        Ok(())
    }

    /// The operation that failed, and its errno; both are 0 when none did. `error` is null when it is not wanted.
    ///
    /// # Safety
    /// The handle is open; `operation` can be written; `error` is null or can be written.
    fn weft_answer_failed(answer: *const WeftAnswer, operation: *mut WeftValue, error: *mut i32) {
        let answer = handle(answer, "answer")?;
        let (failed, errno) = match answer.answer.failed() {
            None => (WeftValue::default(), 0),
            Some((at, errno)) => (WeftValue { chain: answer.chain, operation: at as u32 + 1 }, errno),
        };
        put(failed, operation)?;
        put_unless_null(errno, error);
        Ok(())
    }

    /// The bytes that an operation gave. They belong to the answer, and are there until it is freed. `WEFT_ENOENT`: the operation was not
    /// done, or its value was not exported.
    ///
    /// # Safety
    /// The handle is open; `data` and `data_bytes` can be written.
    fn weft_answer_bytes(
        answer: *const WeftAnswer,
        operation: WeftValue,
        data: *mut *const u8,
        data_bytes: *mut usize,
    ) {
        match handle(answer, "answer")?.value(operation)? {
            Value::Bytes(bytes) => {
                put(bytes.as_ptr(), data)?;
                put(bytes.len(), data_bytes)
            }
            _ => Err(other_type(operation, "bytes")),
        }
    }

    /// The number that an operation gave. `WEFT_ENOENT`: the operation was not done, or its value was not exported.
    ///
    /// # Safety
    /// The handle is open; `number` can be written.
    fn weft_answer_number(answer: *const WeftAnswer, operation: WeftValue, number: *mut u64) {
        match handle(answer, "answer")?.value(operation)? {
            Value::Num(value) => put(*value, number),
            _ => Err(other_type(operation, "a number")),
        }
    }

    /// The attributes that an operation gave. `WEFT_ENOENT`: the operation was not done, or its value was not exported.
    ///
    /// # Safety
    /// The handle is open; `attributes` can be written.
    fn weft_answer_attributes(
        answer: *const WeftAnswer,
        operation: WeftValue,
        attributes: *mut WeftAttributes,
    ) {
        let Value::Attr(attr) = handle(answer, "answer")?.value(operation)? else {
            return Err(other_type(operation, "attributes"));
        };
        let told = WeftAttributes {
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            mode: attr.mode(),
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            atime_ns: attr.atime.0,
            mtime_ns: attr.mtime.0,
            ctime_ns: attr.ctime.0,
        };
        put(told, attributes)
    }
}

fn other_type(value: WeftValue, wanted: &str) -> Failure {
    bad(format!("operation {} gave something else than {wanted}", value.operation))
}
