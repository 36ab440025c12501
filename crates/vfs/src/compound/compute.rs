//! Computation on bytes and numbers, which needs no host.

use super::{Arith, Compare, Failure, NOT_FOUND, Near};
use std::time::Instant;
use weft_compute::{Error, FUEL_MAX, Limits};

/// `len` bytes from `from` on.
pub(super) fn slice(bytes: &[u8], from: u64, len: u64) -> Result<&[u8], Failure> {
    let end = from.checked_add(len).ok_or(Failure::Range)?;
    if end > bytes.len() as u64 {
        return Err(Failure::Range);
    }
    Ok(&bytes[from as usize..end as usize])
}

/// The number in `width` little-endian bytes.
pub(super) fn pack(num: u64, width: u8) -> Result<Vec<u8>, Failure> {
    let (kept, rest) = (&num.to_le_bytes()[..usize::from(width)], &num.to_le_bytes()[usize::from(width)..]);
    if rest.iter().any(|byte| *byte != 0) {
        return Err(Failure::Overflow);
    }
    Ok(kept.to_vec())
}

pub(super) fn unpack(bytes: &[u8], from: u64, width: u8) -> Result<u64, Failure> {
    let mut whole = [0; 8];
    whole[..usize::from(width)].copy_from_slice(slice(bytes, from, width.into())?);
    Ok(u64::from_le_bytes(whole))
}

pub(super) fn arith(arith: Arith, left: u64, right: u64) -> Result<u64, Failure> {
    match arith {
        Arith::Add => left.checked_add(right),
        Arith::Sub => left.checked_sub(right),
        Arith::Mul => left.checked_mul(right),
        Arith::Div => left.checked_div(right),
        Arith::Rem => left.checked_rem(right),
        Arith::Min => Some(left.min(right)),
        Arith::Max => Some(left.max(right)),
    }
    .ok_or(Failure::Overflow)
}

/// Where `what` begins first at or behind `from`. It takes linear time whatever the bytes are: a program cannot hold a server with a
/// needle that nearly fits everywhere.
pub(super) fn find(bytes: &[u8], what: &[u8], from: u64) -> u64 {
    let Some(rest) = usize::try_from(from).ok().and_then(|from| bytes.get(from..)) else { return NOT_FOUND };
    if what.is_empty() {
        return from;
    }
    // Knuth, Morris and Pratt: for each beginning of `what`, how much of `what` its end is.
    let mut borders = vec![0usize; what.len()];
    let mut matched = 0;
    for at in 1..what.len() {
        while matched > 0 && what[at] != what[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(what[at] == what[matched]);
        borders[at] = matched;
    }
    matched = 0;
    for (at, byte) in rest.iter().enumerate() {
        while matched > 0 && *byte != what[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(*byte == what[matched]);
        if matched == what.len() {
            return from + (at + 1 - what.len()) as u64;
        }
    }
    NOT_FOUND
}

/// `base` with other bytes from `at` on.
pub(super) fn patch(base: &[u8], at: u64, with: &[u8]) -> Result<Vec<u8>, Failure> {
    slice(base, at, with.len() as u64)?;
    let mut patched = base.to_vec();
    patched[at as usize..at as usize + with.len()].copy_from_slice(with);
    Ok(patched)
}

/// What `make` makes within a limit: at most `max` bytes, and as many as there is room for.
pub(super) fn bounded(
    max: u64,
    room: usize,
    make: impl FnOnce(usize) -> Result<Vec<u8>, Error>,
) -> Result<Vec<u8>, Failure> {
    let allowed = usize::try_from(max).unwrap_or(usize::MAX).min(room);
    match make(allowed) {
        Err(Error::TooLong { .. }) if (allowed as u64) < max => Err(Failure::Limit("16 MiB of values")),
        made => Ok(made?),
    }
}

/// What a program's calls have taken so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Calls {
    fuel: u64,
    ns: u64,
}

impl Calls {
    /// Calls the function of a module.
    pub(super) fn call(
        &mut self,
        near: &dyn Near,
        (module, input): (&[u8], &[u8]),
        limits: Limits,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<Vec<u8>, Error> {
        let (begun, before) = (Instant::now(), self.ns);
        let limits = Limits { fuel: limits.fuel.min(FUEL_MAX - self.fuel), ..limits };
        let returned = near.call(module, input, limits, &mut |ns| goes_on(before + ns))?;
        self.fuel += returned.fuel;
        self.ns += begun.elapsed().as_nanos() as u64;
        Ok(returned.bytes)
    }
}

pub(super) fn holds<T: Ord + ?Sized>(left: &T, compare: Compare, right: &T) -> bool {
    match compare {
        Compare::Equal => left == right,
        Compare::NotEqual => left != right,
        Compare::Less => left < right,
        Compare::LessOrEqual => left <= right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn a_slice_and_a_patch_lie_within_their_bytes() {
        assert_eq!(slice(b"abc", 1, 2).unwrap(), b"bc");
        assert_eq!(slice(b"abc", 3, 0).unwrap(), b"");
        for (from, len) in [(1, 3), (4, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(matches!(slice(b"abc", from, len), Err(Failure::Range)));
        }
        assert_eq!(patch(b"abcd", 1, b"XY").unwrap(), b"aXYd");
        assert!(matches!(patch(b"abcd", 3, b"XY"), Err(Failure::Range)));
    }

    #[test]
    fn numbers_are_packed_little_endian_or_refused() {
        assert_eq!(pack(0x1234, 2).unwrap(), [0x34, 0x12]);
        assert!(matches!(pack(0x1234, 1), Err(Failure::Overflow)));
        assert_eq!(pack(u64::MAX, 8).unwrap(), [255; 8]);
        assert_eq!(unpack(&[9, 0x34, 0x12], 1, 2).unwrap(), 0x1234);
        assert!(matches!(unpack(&[1, 2], 1, 2), Err(Failure::Range)));
    }

    #[test]
    fn what_is_made_has_room_and_says_whose_limit_it_meets() {
        let made = bounded(u64::MAX, 10, |max| Ok(vec![7; max])).unwrap();
        assert_eq!(made.len(), 10);
        assert_eq!(bounded(4, 10, |max| Ok(vec![7; max])).unwrap().len(), 4);
        let too_long = |max| Err(Error::TooLong { max });
        assert!(matches!(bounded(u64::MAX, 10, too_long), Err(Failure::Limit(_))));
        assert!(matches!(bounded(10, 10, too_long), Err(Failure::Compute(Error::TooLong { max: 10 }))));
    }

    #[test]
    fn arithmetic_never_wraps() {
        for (op, left, right, is) in [
            (Arith::Add, 2, 3, Some(5)),
            (Arith::Add, u64::MAX, 1, None),
            (Arith::Sub, 2, 3, None),
            (Arith::Mul, 1 << 32, 1 << 32, None),
            (Arith::Div, 7, 2, Some(3)),
            (Arith::Div, 7, 0, None),
            (Arith::Rem, 7, 4, Some(3)),
            (Arith::Rem, 7, 0, None),
            (Arith::Min, 7, 4, Some(4)),
            (Arith::Max, 7, 4, Some(7)),
        ] {
            assert_eq!(arith(op, left, right).ok(), is, "{op:?} {left} {right}");
        }
    }

    #[test]
    fn find_is_what_trying_each_place_finds() {
        let mut random = StdRng::seed_from_u64(1);
        let mut bytes = |len: usize| -> Vec<u8> {
            let len = random.random_range(0..=len);
            (0..len).map(|_| random.random_range(b'a'..=b'b')).collect()
        };
        for _ in 0..5_000 {
            let (all, what, from) = (bytes(30), bytes(4), bytes(32).len());
            let expected =
                (from..=all.len()).find(|at| all[*at..].starts_with(&what)).map_or(NOT_FOUND, |at| at as u64);
            assert_eq!(find(&all, &what, from as u64), expected, "{what:?} in {all:?} from {from}");
        }
        assert_eq!(find(b"aaa", b"a", u64::MAX), NOT_FOUND);
    }

    #[test]
    fn comparisons_of_bytes_are_those_of_memcmp() {
        assert!(
            holds(&b"ab"[..], Compare::Less, &b"abc"[..]) && holds(&b"b"[..], Compare::NotEqual, &b"abc"[..])
        );
        assert!(
            holds(&2, Compare::LessOrEqual, &2)
                && !holds(&2, Compare::Less, &2)
                && holds(&2, Compare::Equal, &2)
        );
    }
}
