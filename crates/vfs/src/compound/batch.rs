//! Runs of programs that the other side has already, several in one request.
//!
//! ```text
//! run  program u64 | files u8 | file u64 ... | inputs u8 | input ...
//! input  0 u8 | bytes u32 | byte ...    or    1 u8 | number u64
//! ```

use super::wire::{DecodeError, Encoded, Wire};
use super::{FILES_MAX, Input};

/// Runs of a batch, at most.
pub const BATCH_RUNS_MAX: usize = 64;
/// Inputs of a run, at most.
pub const INPUTS_MAX: usize = 64;

/// A run of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run<'a> {
    /// The number under which the other side has the program.
    pub program: u64,
    /// Open files that are given with it, as the transport numbers them.
    pub files: Vec<u64>,
    /// What comes with it.
    pub inputs: Vec<Input<'a>>,
}

impl<'a> Run<'a> {
    /// Adds the run to a batch.
    pub fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.files.len() <= FILES_MAX && self.inputs.len() <= INPUTS_MAX);
        self.program.put(out);
        (self.files.len() as u8).put(out);
        self.files.iter().for_each(|file| file.put(out));
        (self.inputs.len() as u8).put(out);
        for input in &self.inputs {
            match *input {
                Input::Bytes(bytes) => {
                    debug_assert!(u32::try_from(bytes.len()).is_ok());
                    out.push(0);
                    (bytes.len() as u32).put(out);
                    out.extend_from_slice(bytes);
                }
                Input::Num(num) => {
                    out.push(1);
                    num.put(out);
                }
            }
        }
    }

    /// All runs of a batch.
    ///
    /// # Errors
    /// The bytes are no batch, or its runs, or their files or inputs, are too many.
    pub fn get_all(bytes: &'a [u8]) -> Result<Vec<Run<'a>>, DecodeError> {
        let mut encoded = Encoded(bytes);
        let mut runs = Vec::new();
        while encoded.end().is_err() {
            if runs.len() == BATCH_RUNS_MAX {
                return Err(DecodeError::Unknown(BATCH_RUNS_MAX as u64 + 1, "number of runs"));
            }
            runs.push(Run::get(&mut encoded)?);
        }
        Ok(runs)
    }

    /// The run that a batch begins with.
    ///
    /// # Errors
    /// The bytes are no run, or its files or inputs are too many.
    pub fn first(bytes: &'a [u8]) -> Result<Run<'a>, DecodeError> {
        Run::get(&mut Encoded(bytes))
    }

    fn get(encoded: &mut Encoded<'a>) -> Result<Run<'a>, DecodeError> {
        let program = u64::get(encoded)?;
        let files = count(encoded, FILES_MAX, "number of files")?;
        let files = (0..files).map(|_| u64::get(encoded)).collect::<Result<_, _>>()?;
        let inputs = count(encoded, INPUTS_MAX, "number of inputs")?;
        let inputs = (0..inputs).map(|_| input(encoded)).collect::<Result<_, _>>()?;
        Ok(Run { program, files, inputs })
    }
}

fn count(encoded: &mut Encoded<'_>, max: usize, what: &'static str) -> Result<u8, DecodeError> {
    match u8::get(encoded)? {
        count if usize::from(count) > max => Err(DecodeError::Unknown(count.into(), what)),
        count => Ok(count),
    }
}

fn input<'a>(encoded: &mut Encoded<'a>) -> Result<Input<'a>, DecodeError> {
    Ok(match u8::get(encoded)? {
        0 => {
            let len = u32::get(encoded)?;
            Input::Bytes(encoded.take(len as usize)?)
        }
        1 => Input::Num(u64::get(encoded)?),
        other => return Err(DecodeError::Unknown(other.into(), "input")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_and_what_is_no_batch_is_refused() {
        let runs = [
            Run { program: 1, files: vec![], inputs: vec![] },
            Run { program: u64::MAX, files: vec![7, 8], inputs: vec![Input::Num(9), Input::Bytes(b"bytes")] },
        ];
        let mut out = Vec::new();
        runs.iter().for_each(|run| run.put(&mut out));
        assert_eq!(Run::get_all(&out).unwrap(), runs);
        assert_eq!(Run::get_all(&[]).unwrap(), []);
        // Between two runs a batch may end.
        let first = 10;
        for end in (1..out.len()).filter(|end| *end != first) {
            assert_eq!(Run::get_all(&out[..end]), Err(DecodeError::Short), "{end} bytes");
        }
        let run = |files, inputs| {
            let mut out = vec![0; 8];
            out.push(files);
            out.extend(vec![0; 8 * usize::from(files)]);
            out.push(inputs);
            out.extend(vec![1; 9 * usize::from(inputs)]);
            out
        };
        assert!(Run::get_all(&run(16, 64)).is_ok());
        assert!(matches!(Run::get_all(&run(17, 0)), Err(DecodeError::Unknown(17, _))));
        assert!(matches!(Run::get_all(&run(0, 65)), Err(DecodeError::Unknown(65, _))));
        assert!(Run::get_all(&run(0, 0).repeat(64)).is_ok());
        assert!(matches!(Run::get_all(&run(0, 0).repeat(65)), Err(DecodeError::Unknown(65, _))));
        assert!(matches!(Run::get_all(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]), Err(DecodeError::Unknown(2, _))));
    }
}
