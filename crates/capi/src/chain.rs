//! Chains: programs of file operations that a server runs as one, and what is not an operation of theirs.
//!
//! A function that adds an operation returns its value, and none when something is wrong: such a chain does not run, and the first
//! thing that is wrong with it is what its check tells. So a program in C need not look at each value.

use crate::answer::WeftAnswer;
use crate::error::{Failure, bad, call, exports, null};
use crate::files::{WeftFile, WeftFiles, connection, fresh_id};
use crate::handle::{give, handle, list, take};
use crate::values::{Arguments, WeftBytes, WeftNumber, WeftValue};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use weft_client::Prepared;
use weft_vfs::compound::{Answer, Chain, CheckError, Checked, Compare, Guard, Kind, OPS_MAX, Operand};

/// All changes of a chain are made in one step at its end, or, when an operation fails, none.
pub const WEFT_CHAIN_ALL: u32 = 0;
/// As WEFT_CHAIN_ALL, but a failure leaves the changes before the operation that failed.
pub const WEFT_CHAIN_PREFIX: u32 = 1;
/// Each change is made for itself. A failure leaves those before the operation that failed.
pub const WEFT_CHAIN_EACH: u32 = 2;

/// Equal.
pub const WEFT_IS_EQUAL: u32 = 0;
/// Not equal.
pub const WEFT_IS_NOT_EQUAL: u32 = 1;
/// Less. Bytes compare as memcmp does, a shorter value before a longer one that begins with it.
pub const WEFT_IS_LESS: u32 = 2;
/// Less or equal.
pub const WEFT_IS_LESS_OR_EQUAL: u32 = 3;
/// Greater.
pub const WEFT_IS_GREATER: u32 = 4;
/// Greater or equal.
pub const WEFT_IS_GREATER_OR_EQUAL: u32 = 5;

/// A chain: a program of at most 64 file operations.
pub struct WeftChain {
    id: u64,
    state: Mutex<State>,
    /// The checked chain, for runs that the server keeps it for.
    prepared: OnceLock<Arc<Prepared>>,
}

struct State {
    chain: Chain,
    is_durable: bool,
    operations: usize,
    /// The next operation has a guard.
    is_guarded: bool,
    /// What is wrong with it.
    fault: Option<String>,
    checked: Option<Arc<Checked>>,
}

impl State {
    /// Remembers what is wrong. Nothing was before: [`State::check_open`] lets nobody go on then.
    fn fail(&mut self, what: String) -> Failure {
        debug_assert!(self.fault.is_none());
        bad(self.fault.insert(what).clone())
    }

    /// What is wrong with the next operation.
    fn of_next(&self, error: Failure) -> Failure {
        bad(format!("operation {}: {error}", self.operations + 1))
    }

    /// Whether it can be added to.
    fn check_open(&self) -> Result<(), Failure> {
        match &self.fault {
            Some(fault) => Err(bad(fault.clone())),
            None if self.checked.is_some() => {
                Err(bad("the chain has been checked and does not change any more; make another one".into()))
            }
            None => Ok(()),
        }
    }

    fn check(&mut self) -> Result<Arc<Checked>, Failure> {
        if let Some(checked) = &self.checked {
            return Ok(checked.clone());
        }
        self.check_open()?;
        if self.is_guarded {
            return Err(
                self.fail("the last comparison of weft_chain_when_... has no operation behind it".into())
            );
        }
        let chain = if self.is_durable { self.chain.clone().durable() } else { self.chain.clone() };
        match checked(chain) {
            Ok(checked) => Ok(self.checked.insert(Arc::new(checked)).clone()),
            Err(error) => Err(self.fail(error.to_string())),
        }
    }
}

/// What is wrong with a program, whose operations count from 1.
fn told(error: &CheckError) -> String {
    error.told(|at| format!("operation {}", at + 1))
}

/// Checks a program.
pub(crate) fn checked(chain: Chain) -> Result<Checked, Failure> {
    chain.check().map_err(|error| bad(told(&error)))
}

impl WeftChain {
    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The chain for runs of which there are many; it is checked first.
    pub(crate) fn prepared(&self) -> Result<Arc<Prepared>, Failure> {
        let checked = self.state().check()?;
        Ok(self.prepared.get_or_init(|| Arc::new(Prepared::new(Checked::clone(&checked)))).clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is not checked yet; remembers what is wrong.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut State, &Arguments) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut state = self.state();
        state.check_open()?;
        let arguments = Arguments { chain: self.id, operations: state.operations };
        change(&mut state, &arguments).map_err(|error| state.fail(error.to_string()))
    }

    fn add(&self, kind: impl FnOnce(&Arguments) -> Result<Kind, Failure>) -> Result<WeftValue, Failure> {
        self.change(|state, arguments| {
            if state.operations == OPS_MAX {
                return Err(bad(told(&CheckError::TooLong(OPS_MAX + 1))));
            }
            state.chain.push(kind(arguments).map_err(|error| state.of_next(error))?);
            state.operations += 1;
            state.is_guarded = false;
            Ok(WeftValue { chain: self.id, operation: state.operations as u32 })
        })
    }

    /// The next operation is done only when this holds.
    fn when(
        &self,
        compare: u32,
        sides: impl FnOnce(&Arguments) -> Result<[Operand; 2], Failure>,
    ) -> Result<(), Failure> {
        self.change(|state, arguments| {
            if state.is_guarded {
                return Err(state.of_next(bad("there is a comparison for it already".into())));
            }
            let guard = sides(arguments).and_then(|sides| guard(compare, sides));
            let Guard { left, compare, right } = guard.map_err(|error| state.of_next(error))?;
            state.chain.when(left, compare, right);
            state.is_guarded = true;
            Ok(())
        })
    }
}

/// Adds an operation to a chain. The value is none when that fails.
///
/// # Safety
/// The handle is null or open.
pub(crate) unsafe fn add(
    chain: *const WeftChain,
    kind: impl FnOnce(&Arguments) -> Result<Kind, Failure>,
) -> WeftValue {
    let mut value = WeftValue::default();
    // The code is that of the value's absence, and the text is remembered.
    call(|| {
        // SAFETY: the caller's promise.
        value = unsafe { handle(chain, "chain") }?.add(kind)?;
        Ok(())
    });
    value
}

fn guard(compare: u32, [left, right]: [Operand; 2]) -> Result<Guard, Failure> {
    let (compare, is_turned) = match compare {
        WEFT_IS_EQUAL => (Compare::Equal, false),
        WEFT_IS_NOT_EQUAL => (Compare::NotEqual, false),
        WEFT_IS_LESS => (Compare::Less, false),
        WEFT_IS_LESS_OR_EQUAL => (Compare::LessOrEqual, false),
        WEFT_IS_GREATER => (Compare::Less, true),
        WEFT_IS_GREATER_OR_EQUAL => (Compare::LessOrEqual, true),
        other => return Err(bad(format!("comparison {other}; pass one of WEFT_IS_..."))),
    };
    let (left, right) = if is_turned { (right, left) } else { (left, right) };
    Ok(Guard { left, compare, right })
}

/// The operation that failed, if one did.
pub(crate) fn failure(program: &Checked, answer: &Answer) -> Result<(), Failure> {
    match answer.failed() {
        None => Ok(()),
        Some((at, errno)) => {
            let name = program.ops.get(at).map_or("unknown", |op| op.kind.name());
            Err(Failure::Operation { number: at + 1, name, errno })
        }
    }
}

exports! {
    /// Makes an empty chain: WEFT_CHAIN_ALL, WEFT_CHAIN_PREFIX or WEFT_CHAIN_EACH says what a failure leaves of it. The functions
    /// weft_chain_... add operations to it, which are done in this order. They return the value of the operation, or none (all zero)
    /// when an argument is wrong. Such a chain does not run: weft_chain_check and weft_chain_run return the code of the first error.
    ///
    /// # Safety
    /// `out` can be written.
    fn weft_chain_new(policy: u32, out: *mut *mut WeftChain) {
        let chain = match policy {
            WEFT_CHAIN_ALL => Chain::all(),
            WEFT_CHAIN_PREFIX => Chain::prefix(),
            WEFT_CHAIN_EACH => Chain::each(),
            other => return Err(bad(format!("policy {other}; pass WEFT_CHAIN_ALL, _PREFIX or _EACH"))),
        };
        let state = State {
            chain,
            is_durable: false,
            operations: 0,
            is_guarded: false,
            fault: None,
            checked: None,
        };
        give(WeftChain { id: fresh_id(), state: Mutex::new(state), prepared: OnceLock::new() }, out)
    }

    /// Frees a chain. Answers of it may live on.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_chain_free(chain: *mut WeftChain) -> () {
        drop(take(chain))
    }

    /// The changes of the chain survive a power cut when it has run.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_durable(chain: *mut WeftChain) {
        handle(chain, "chain")?.change(|state, _| {
            state.is_durable = true;
            Ok(())
        })
    }

    /// The next operation is done only when this comparison (WEFT_IS_...) of numbers holds. Otherwise it is skipped, and so is every
    /// operation that uses its value.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_when_numbers(
        chain: *mut WeftChain,
        left: WeftNumber,
        compare: u32,
        right: WeftNumber,
    ) {
        handle(chain, "chain")?.when(compare, |arguments| arguments.nums(left, right))
    }

    /// As weft_chain_when_numbers, with bytes.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_when_bytes(
        chain: *mut WeftChain,
        left: WeftBytes,
        compare: u32,
        right: WeftBytes,
    ) {
        handle(chain, "chain")?.when(compare, |arguments| arguments.both(left, right))
    }

    /// The chain fails with ECANCELED unless this comparison (WEFT_IS_...) of numbers holds.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_expect_numbers(
        chain: *mut WeftChain,
        left: WeftNumber,
        compare: u32,
        right: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Expect { guard: guard(compare, arguments.nums(left, right)?)? }))
    }

    /// The chain fails with ECANCELED unless this comparison (WEFT_IS_...) of bytes holds.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_expect_bytes(
        chain: *mut WeftChain,
        left: WeftBytes,
        compare: u32,
        right: WeftBytes,
    ) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Expect { guard: guard(compare, arguments.both(left, right)?)? }))
    }

    /// The answer has this value. Without it, the answer has only what became of the operation. Files cannot be exported.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_export(chain: *mut WeftChain, value: WeftValue) {
        handle(chain, "chain")?.change(|state, arguments| {
            state.chain.export(arguments.value(value)?);
            Ok(())
        })
    }

    /// Checks a chain: that each value is of the type that the operation needs, that no file is used after it is closed, and that the
    /// chain keeps to the limits. A checked chain does not change any more, and runs as often as it is wanted, by several threads at once
    /// too.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_check(chain: *mut WeftChain) {
        handle(chain, "chain")?.state().check().map(drop)
    }

    /// Has the server run a chain, and checks it before if that was not done. The chain uses the open files `given` by
    /// weft_chain_given. `out`, unless null, gets the answer, which ends with weft_answer_free, or null when the server did not run the
    /// chain. `WEFT_EFAILED`: an operation failed; weft_answer_failed says which one. `WEFT_EIO` with the errno EIO: the server ended
    /// meanwhile, and the chain was run or was not. The limit on the size of
    /// files (ulimit -f) does not apply to chains.
    ///
    /// # Safety
    /// The handles are open; `given` has `given_count` files; `out` is null or can be written.
    fn weft_chain_run(
        files: *const WeftFiles,
        chain: *mut WeftChain,
        given: *const WeftFile,
        given_count: usize,
        out: *mut *mut WeftAnswer,
    ) {
        if !out.is_null() {
            out.write(std::ptr::null_mut());
        }
        let (files, chain) = (connection(files)?, handle(chain, "chain")?);
        if given.is_null() && given_count > 0 {
            return Err(null("given"));
        }
        let program = chain.state().check()?;
        let answer = files.run(list(given, given_count)?, &program)?;
        hand_over(chain, &program, answer, out)
    }

    /// The same through a mount ('weft mount'), without a connection: `descriptor` is an open file or directory there. Paths begin in the
    /// directory, those with a slash in front too, and lead nowhere else. The file 0 of weft_chain_given is the open file itself. The
    /// umask of the process is taken from permission bits. `WEFT_EIO` with an errno: ENOTTY, it is on no mount of a volume; EOPNOTSUPP, the
    /// mount has the option writeback; EROFS, it is read-only and the chain changes something; EAGAIN, too many chains wait; EINTR, a
    /// signal came before the chain had begun.
    ///
    /// # Safety
    /// The handle is open; `out` is null or can be written.
    fn weft_chain_run_at(descriptor: i32, chain: *mut WeftChain, out: *mut *mut WeftAnswer) {
        if !out.is_null() {
            out.write(std::ptr::null_mut());
        }
        let chain = handle(chain, "chain")?;
        let program = chain.state().check()?;
        if descriptor < 0 {
            return Err(bad(format!("descriptor is {descriptor}; pass that of an open file or directory")));
        }
        let file = BorrowedFd::borrow_raw(descriptor);
        let answer = weft_client::run_program_at(file, &program);
        let answer = answer
            .map_err(|errno| Failure::Files { what: "run a chain through a mount".into(), errno })?;
        hand_over(chain, &program, answer, out)
    }
}

/// Gives the answer to a program to whoever wants it.
///
/// # Safety
/// `out` is null or can be written.
unsafe fn hand_over(
    chain: &WeftChain,
    program: &Checked,
    answer: Answer,
    out: *mut *mut WeftAnswer,
) -> Result<(), Failure> {
    let failed = failure(program, &answer);
    if !out.is_null() {
        // SAFETY: it can be written, as the caller promises.
        unsafe { give(WeftAnswer { chain: chain.id, answer }, out)? };
    }
    failed
}
