//! The check of a program before it runs: references, types, limits.

use super::program::Uses;
use super::{FILES_MAX, INPUT_BYTES_MAX, Kind, Num, OPS_MAX, Program, Ref, Type};
use crate::RenameFlags;
use std::ops::Deref;
use weft_compute::FUEL_MAX;

/// Permission bits that may be asked for.
const PERM_BITS: u32 = 0o7777;

/// A program that has been checked. Only [`check`] makes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked(Program);

impl Deref for Checked {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

/// Why a program is not run. As text it names operations by their place, counted from 0; [`CheckError::told`] names them otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckError {
    /// More than [`OPS_MAX`] operations.
    TooLong(usize),
    /// More than [`FILES_MAX`] operations that open or make a file.
    TooManyFiles(usize),
    /// More than [`INPUT_BYTES_MAX`] of literals.
    TooManyBytes(usize),
    /// A use of an operation that does not come before.
    Forward {
        /// The operation.
        at: usize,
        /// What it uses.
        of: usize,
    },
    /// A use of a value as what it is not.
    Type {
        /// The operation.
        at: usize,
        /// What it uses.
        of: usize,
        /// As what.
        wanted: Type,
    },
    /// A use of a file behind its close.
    Closed {
        /// The operation.
        at: usize,
        /// What it uses.
        of: usize,
    },
    /// A comparison of a number with bytes.
    Compare(usize),
    /// An export of what has no value to show.
    Export(usize),
    /// A width that is not 1 to 8.
    Width(usize),
    /// More than 255 parts.
    Parts(usize),
    /// An extended attribute outside of `user.`.
    XattrName(usize),
    /// Flags of a rename that exclude each other, or `WHITEOUT`.
    RenameFlags(usize),
    /// Permission bits beyond 07777.
    Perm(usize),
    /// A level that the codec does not have.
    Level(usize),
    /// A call with more than [`FUEL_MAX`].
    Fuel(usize),
}

impl CheckError {
    /// The operation that is wrong; `None` when it is the program as a whole.
    pub fn at(&self) -> Option<usize> {
        use CheckError::*;
        match *self {
            TooLong(_) | TooManyFiles(_) | TooManyBytes(_) => None,
            Forward { at, .. } | Type { at, .. } | Closed { at, .. } => Some(at),
            Compare(at) | Export(at) | Width(at) | Parts(at) | XattrName(at) | RenameFlags(at) | Perm(at)
            | Level(at) | Fuel(at) => Some(at),
        }
    }

    /// What is wrong, in a sentence with these names of operations.
    pub fn told(&self, name: impl Fn(usize) -> String) -> String {
        match *self {
            CheckError::TooLong(ops) => format!("the program has {ops} operations; {OPS_MAX} are allowed"),
            CheckError::TooManyFiles(files) => {
                format!("the program opens {files} files; {FILES_MAX} are allowed")
            }
            CheckError::TooManyBytes(bytes) => {
                format!("the program holds {bytes} bytes of literals; {INPUT_BYTES_MAX} are allowed")
            }
            CheckError::Forward { at, of } => {
                format!("{} uses the value of {}, which does not come before it", name(at), name(of))
            }
            CheckError::Type { at, of, wanted } => {
                format!("{} uses the value of {} as {wanted}, which it is not", name(at), name(of))
            }
            CheckError::Closed { at, of } => {
                format!("{} uses the file of {}, which was closed", name(at), name(of))
            }
            CheckError::Compare(at) => format!("{} compares a number with bytes", name(at)),
            CheckError::Export(at) => format!("{} has no value that can be exported", name(at)),
            CheckError::Width(at) => format!("{} packs a number into other than 1 to 8 bytes", name(at)),
            CheckError::Parts(at) => format!("{} concatenates more than 255 parts", name(at)),
            CheckError::XattrName(at) => {
                format!("{} names an extended attribute outside of the namespace user.", name(at))
            }
            CheckError::RenameFlags(at) => {
                format!("{} renames with flags that a program cannot use", name(at))
            }
            CheckError::Perm(at) => format!("{} asks for permission bits beyond 07777", name(at)),
            CheckError::Level(at) => {
                format!("{} compresses with a level that its codec does not have", name(at))
            }
            CheckError::Fuel(at) => format!("{} calls with more than {FUEL_MAX} units of fuel", name(at)),
        }
    }
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told(|at| format!("operation {at}")))
    }
}

impl std::error::Error for CheckError {}

/// Checks a program.
///
/// # Errors
/// The first fault in the order of its operations; faults of the whole program come before.
pub fn check(program: Program) -> Result<Checked, CheckError> {
    let ops = &program.ops;
    let refuse = |is_wrong, error| if is_wrong { Err(error) } else { Ok(()) };
    refuse(ops.len() > OPS_MAX, CheckError::TooLong(ops.len()))?;
    let files = ops.iter().filter(|op| op.kind.result() == Some(Type::File)).count();
    refuse(files > FILES_MAX, CheckError::TooManyFiles(files))?;
    let bytes = ops.iter().map(Uses::literal_bytes).sum();
    refuse(bytes > INPUT_BYTES_MAX, CheckError::TooManyBytes(bytes))?;
    let mut closed = [false; OPS_MAX];
    for (at, op) in ops.iter().enumerate() {
        let mut fault = None;
        op.uses(&mut |Ref(of), wanted| {
            let of = usize::from(of);
            if fault.is_some() {
            } else if of >= at {
                fault = Some(CheckError::Forward { at, of });
            } else if ops[of].kind.result() != Some(wanted) {
                fault = Some(CheckError::Type { at, of, wanted });
            } else if closed[of] {
                fault = Some(CheckError::Closed { at, of });
            }
        });
        fault.map_or(Ok(()), Err)?;
        let guards =
            [op.when.as_ref(), if let Kind::Expect { guard } = &op.kind { Some(guard) } else { None }];
        let compares_unlike = guards.into_iter().flatten().any(|guard| !guard.compares_like());
        refuse(compares_unlike, CheckError::Compare(at))?;
        refuse(op.export && matches!(op.kind.result(), None | Some(Type::File)), CheckError::Export(at))?;
        check_literals(at, &op.kind)?;
        if let Kind::Close { file } = op.kind {
            closed[usize::from(file.0.0)] = true;
        }
    }
    Ok(Checked(program))
}

/// The limits of what an operation holds itself.
fn check_literals(at: usize, kind: &Kind) -> Result<(), CheckError> {
    let (is_wrong, error) = match kind {
        Kind::Pack { width, .. } | Kind::Unpack { width, .. } => {
            (!(1..=8).contains(width), CheckError::Width(at))
        }
        Kind::Concat { parts } => (parts.len() > 255, CheckError::Parts(at)),
        Kind::GetXattr { name, .. } | Kind::SetXattr { name, .. } | Kind::RemoveXattr { name, .. } => {
            let named = name.strip_prefix(b"user.").is_some_and(|rest| !rest.is_empty());
            (!named || name.contains(&0), CheckError::XattrName(at))
        }
        Kind::Rename { flags, .. } => {
            let is_good =
                [RenameFlags::empty(), RenameFlags::NO_REPLACE, RenameFlags::EXCHANGE].contains(flags);
            (!is_good, CheckError::RenameFlags(at))
        }
        Kind::Create { perm, .. } | Kind::Mkdir { perm, .. } => {
            (perm & !PERM_BITS != 0, CheckError::Perm(at))
        }
        Kind::Compress { codec, level, .. } => (!codec.has_level(*level), CheckError::Level(at)),
        Kind::Call { fuel: Num::Lit(fuel), .. } => (*fuel > FUEL_MAX, CheckError::Fuel(at)),
        _ => return Ok(()),
    };
    if is_wrong { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Access, Bytes, Codec, Compare, Dir, File, Guard, Kind, Num, Op, Operand, Policy, Program, Ref,
    };
    use super::*;

    fn op(kind: Kind) -> Op {
        Op { kind, when: None, export: false }
    }

    fn open(path: &[u8]) -> Op {
        op(Kind::Open {
            dir: Dir::Start,
            path: Bytes::Lit(path.to_vec()),
            access: Access::Read,
            follow: true,
        })
    }

    fn checked(ops: Vec<Op>) -> Result<(), CheckError> {
        check(Program { policy: Policy::All, durable: false, ops }).map(drop)
    }

    fn file(at: u8) -> File {
        File(Ref(at))
    }

    #[test]
    fn values_are_used_behind_the_operation_that_has_them_and_as_what_they_are() {
        let stat = |at| op(Kind::Stat { file: file(at) });
        assert_eq!(checked(vec![open(b"a"), stat(0)]), Ok(()));
        assert_eq!(checked(vec![stat(0)]), Err(CheckError::Forward { at: 0, of: 0 }));
        assert_eq!(checked(vec![stat(1), open(b"a")]), Err(CheckError::Forward { at: 0, of: 1 }));
        assert_eq!(checked(vec![stat(255)]), Err(CheckError::Forward { at: 0, of: 255 }));
        let wrong = CheckError::Type { at: 2, of: 1, wanted: Type::File };
        assert_eq!(checked(vec![open(b"a"), stat(0), stat(1)]), Err(wrong));
        let crc = op(Kind::Crc32c { bytes: Bytes::Of(Ref(0)) });
        let wrong = CheckError::Type { at: 1, of: 0, wanted: Type::Bytes };
        assert_eq!(checked(vec![open(b"a"), crc]), Err(wrong));
    }

    #[test]
    fn a_closed_file_is_not_used() {
        let close = || op(Kind::Close { file: file(0) });
        assert_eq!(checked(vec![open(b"a"), close()]), Ok(()));
        assert_eq!(checked(vec![open(b"a"), close(), close()]), Err(CheckError::Closed { at: 2, of: 0 }));
    }

    #[test]
    fn comparisons_are_of_one_type_and_guards_are_checked_like_operations() {
        let guard = |left, right| Guard {
            left: Operand::Num(left),
            compare: Compare::Equal,
            right: Operand::Num(right),
        };
        let when = |guard| Op { when: Some(guard), ..open(b"a") };
        assert_eq!(checked(vec![when(guard(Num::Lit(1), Num::Lit(1)))]), Ok(()));
        let forward = CheckError::Forward { at: 0, of: 0 };
        assert_eq!(checked(vec![when(guard(Num::Lit(1), Num::Of(Ref(0))))]), Err(forward));
        let unlike = Guard { right: Operand::Bytes(Bytes::Lit(vec![])), ..guard(Num::Lit(1), Num::Lit(1)) };
        assert_eq!(checked(vec![when(unlike.clone())]), Err(CheckError::Compare(0)));
        assert_eq!(checked(vec![op(Kind::Expect { guard: unlike })]), Err(CheckError::Compare(0)));
    }

    #[test]
    fn an_error_names_the_operation_that_is_wrong_in_the_words_of_whoever_tells() {
        let stat = op(Kind::Stat { file: file(0) });
        let wrong = op(Kind::Stat { file: file(1) });
        let error = checked(vec![open(b"a"), stat, wrong]).unwrap_err();
        assert_eq!(error.at(), Some(2));
        assert_eq!(error.to_string(), "operation 2 uses the value of operation 1 as a file, which it is not");
        let told = error.told(|at| ["one", "two", "three"][at].to_string());
        assert_eq!(told, "three uses the value of two as a file, which it is not");
        assert_eq!(CheckError::TooLong(65).at(), None);
    }

    #[test]
    fn limits_hold() {
        let len = |bytes| op(Kind::Len { bytes: Bytes::Lit(vec![0; bytes]) });
        assert_eq!(checked(vec![len(0); 64]), Ok(()));
        assert_eq!(checked(vec![len(0); 65]), Err(CheckError::TooLong(65)));
        assert_eq!(checked(vec![open(b"a"); 16]), Ok(()));
        assert_eq!(checked(vec![open(b"a"); 17]), Err(CheckError::TooManyFiles(17)));
        assert_eq!(checked(vec![len(4 << 20)]), Ok(()));
        assert_eq!(
            checked(vec![len(2 << 20), len((2 << 20) + 1)]),
            Err(CheckError::TooManyBytes((4 << 20) + 1))
        );
        for (width, good) in [(0, false), (1, true), (8, true), (9, false)] {
            assert_eq!(checked(vec![op(Kind::Pack { num: Num::Lit(0), width })]).is_ok(), good);
        }
        assert_eq!(
            checked(vec![op(Kind::Concat { parts: vec![Bytes::Lit(vec![]); 256] })]),
            Err(CheckError::Parts(0))
        );
    }

    #[test]
    fn only_values_are_exported_and_only_attributes_of_users_are_named() {
        assert_eq!(checked(vec![Op { export: true, ..open(b"a") }]), Err(CheckError::Export(0)));
        let named = |name: &[u8]| op(Kind::GetXattr { file: file(0), name: name.to_vec() });
        assert_eq!(checked(vec![open(b"a"), named(b"user.a")]), Ok(()));
        for name in [&b"user."[..], b"trusted.a", b"weft.flags", b"user.a\0"] {
            assert_eq!(checked(vec![open(b"a"), named(name)]), Err(CheckError::XattrName(1)));
        }
    }
    #[test]
    fn levels_are_those_of_the_codec_and_fuel_has_a_limit() {
        let bytes = || Bytes::Lit(b"bytes".to_vec());
        for (codec, level, good) in [
            (Codec::Lz4, 0, true),
            (Codec::Lz4, 1, false),
            (Codec::Zstd, 9, true),
            (Codec::Zstd, 10, false),
            (Codec::Zstd, -1, false),
        ] {
            let found = checked(vec![op(Kind::Compress { bytes: bytes(), codec, level })]);
            assert_eq!(found, if good { Ok(()) } else { Err(CheckError::Level(0)) });
        }
        let call = |fuel| op(Kind::Call { module: bytes(), input: bytes(), fuel: Num::Lit(fuel) });
        assert_eq!(checked(vec![call(FUEL_MAX)]), Ok(()));
        assert_eq!(checked(vec![call(FUEL_MAX + 1)]), Err(CheckError::Fuel(0)));
    }
}
