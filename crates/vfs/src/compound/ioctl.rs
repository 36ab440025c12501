//! Programs by an `ioctl` on an open file or directory of a mount: the numbers of the commands, and the head of their argument.
//!
//! ```text
//! argument  version u32 | descriptor i32 | answer u64 | offset u32 | length u32 | whole u32 | flags u32 = 0 | data ...
//! ```
//! Integers are in the byte order of the machine, as in every `ioctl`. The number of a command says how long its argument is, in 14 bits:
//! what is longer than [`DATA_BYTES_MAX`] goes in pieces, which the open file keeps together.

/// Letter of the commands.
const LETTER: u32 = b'w' as u32;
/// The kernel copies the argument from the caller, or to it.
const FROM_CALLER: u32 = 1;
const TO_CALLER: u32 = 2;
/// The version of the argument.
pub const VERSION: u32 = 1;
/// Bytes of the head of an argument.
pub const HEAD_BYTES: usize = 32;
/// Bytes of an argument, at most.
pub const ARGUMENT_BYTES_MAX: usize = (1 << 14) - 1;
/// Bytes of data in an argument, at most: a multiple of eight.
pub const DATA_BYTES_MAX: usize = (ARGUMENT_BYTES_MAX - HEAD_BYTES) & !7;
/// Bytes of an answer, at most.
pub const ANSWER_BYTES_MAX: usize = super::OUTPUT_BYTES_MAX + (64 << 10);

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Adds a piece to the program of the open file; at offset 0, another program begins.
    Put,
    /// Runs the program whose last piece this is; the answer, or its first piece.
    Run,
    /// Another piece of the answer.
    Get,
}

impl Command {
    const fn code(self) -> (u32, u32) {
        match self {
            Command::Put => (1, FROM_CALLER),
            Command::Run => (2, FROM_CALLER | TO_CALLER),
            Command::Get => (3, FROM_CALLER | TO_CALLER),
        }
    }

    /// Its number with an argument of so many bytes, which are at most [`ARGUMENT_BYTES_MAX`].
    pub const fn number(self, argument_bytes: usize) -> u32 {
        let (number, direction) = self.code();
        direction << 30 | (argument_bytes as u32 & ARGUMENT_BYTES_MAX as u32) << 16 | LETTER << 8 | number
    }

    /// The command that has this number, whatever the length of its argument.
    pub fn of(number: u32) -> Option<Command> {
        let is = |command: &Command| command.number(0) == number & !((ARGUMENT_BYTES_MAX as u32) << 16);
        [Command::Put, Command::Run, Command::Get].into_iter().find(is)
    }
}

/// What an argument begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// [`VERSION`].
    pub version: u32,
    /// The caller's number of the open file.
    pub descriptor: i32,
    /// Number of an answer that has more pieces; 0 for none.
    pub answer: u64,
    /// Bytes of the program that were put before, or of the answer that lie before this piece.
    pub offset: u32,
    /// Bytes of data that follow.
    pub len: u32,
    /// Bytes of the whole answer.
    pub whole: u32,
    /// 0.
    pub flags: u32,
}

impl Default for Head {
    fn default() -> Head {
        Head { version: VERSION, descriptor: -1, answer: 0, offset: 0, len: 0, whole: 0, flags: 0 }
    }
}

impl Head {
    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.version.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.descriptor.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.answer.to_ne_bytes());
        for (word, at) in [self.offset, self.len, self.whole, self.flags].iter().zip((16..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The head of an argument, and the data behind it; `None` when the argument is shorter than it says.
    pub fn parse(argument: &[u8]) -> Option<(Head, &[u8])> {
        let (head, data) = argument.split_first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let answer =
            head.get(8..16).and_then(|bytes| bytes.first_chunk()).map(|bytes| u64::from_ne_bytes(*bytes))?;
        let head = Head {
            version: word(0),
            descriptor: word(4) as i32,
            answer,
            offset: word(16),
            len: word(20),
            whole: word(24),
            flags: word(28),
        };
        Some((head, data.get(..head.len as usize)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_with_any_length_and_no_other_number_is_one() {
        assert_eq!(DATA_BYTES_MAX, 16_344);
        // As C has them: _IOW('w', 1, char[40]), _IOWR('w', 2, char[16376]), _IOWR('w', 3, char[32]).
        assert_eq!(Command::Put.number(40), 0x4028_7701);
        assert_eq!(Command::Run.number(16_376), 0xfff8_7702);
        assert_eq!(Command::Get.number(32), 0xc020_7703);
        for command in [Command::Put, Command::Run, Command::Get] {
            for bytes in [0, 32, ARGUMENT_BYTES_MAX] {
                assert_eq!(Command::of(command.number(bytes)), Some(command));
            }
        }
        for other in [0x4028_7702, 0xc020_7701, 0xc020_7704, 0xc020_7602, 0x8028_7702, 0] {
            assert_eq!(Command::of(other), None, "{other:#x}");
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_does_not_say_more_than_there_is() {
        let head = Head {
            version: 1,
            descriptor: -7,
            answer: 1 << 40 | 3,
            offset: 0x0102_0304,
            len: 3,
            whole: 9,
            flags: 0x8000_0001,
        };
        let bytes = [&head.to_bytes()[..], b"abcd"].concat();
        assert_eq!(Head::parse(&bytes), Some((head, &b"abc"[..])));
        assert_eq!(Head::parse(&bytes[..34]), None);
        assert_eq!(Head::parse(&bytes[..31]), None);
        assert_eq!(Head::parse(&Head { len: u32::MAX, ..head }.to_bytes()), None);
    }
}
