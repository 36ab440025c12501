//! What a turn has computed, for a try that begins anew: compression and functions take long, and whoever computes anew meets the
//! others, with whom it contends for a file, again.

use super::data::Data;

/// A value, and what it was made of.
#[derive(Debug)]
struct Made<'a> {
    /// The operation.
    at: usize,
    of: [Data<'a>; 2],
    number: u64,
    value: Data<'a>,
}

/// The values that a turn has computed so far.
#[derive(Default, Debug)]
pub(super) struct Computed<'a>(Vec<Made<'a>>);

impl<'a> Computed<'a> {
    /// What an operation has made of the same before, if it has no more than `room` bytes.
    pub(super) fn again(&self, at: usize, of: [&[u8]; 2], number: u64, room: usize) -> Option<Data<'a>> {
        let made = self.0.iter().find(|made| made.at == at)?;
        let is_same = made.number == number && made.of.iter().zip(of).all(|(before, now)| **before == *now);
        (is_same && made.value.len() <= room).then(|| made.value.clone())
    }

    /// Keeps what an operation has made of this.
    pub(super) fn keep(&mut self, at: usize, of: [Data<'a>; 2], number: u64, value: Vec<u8>) -> Data<'a> {
        let value = Data::from(value);
        self.0.retain(|made| made.at != at);
        self.0.push(Made { at, of, number, value: value.clone() });
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_there_again_only_for_the_same_operation_on_the_same() {
        let mut computed = Computed::default();
        let of = || [Data::Lit(b"module"), Data::Lit(b"input")];
        assert_eq!(&*computed.keep(3, of(), 7, b"value".to_vec()), b"value");
        let again = |at, module: &[u8], input: &[u8], number, room| {
            computed.again(at, [module, input], number, room).map(|value| value.to_vec())
        };
        assert_eq!(again(3, b"module", b"input", 7, 5).as_deref(), Some(&b"value"[..]));
        assert_eq!(again(2, b"module", b"input", 7, 5), None);
        assert_eq!(again(3, b"module", b"inputs", 7, 5), None);
        assert_eq!(again(3, b"modulo", b"input", 7, 5), None);
        assert_eq!(again(3, b"module", b"input", 8, 5), None);
        assert_eq!(again(3, b"module", b"input", 7, 4), None, "there is no room for it");
        computed.keep(3, of(), 7, b"other".to_vec());
        assert_eq!(computed.again(3, [b"module", b"input"], 7, 5).as_deref(), Some(&b"other"[..]));
    }
}
