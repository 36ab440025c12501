//! Bytes as a source of decisions: a script that never ends badly, since what is missing is zero.

/// A stream of numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `n`; 0 if that is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.roll() % n as u64) as usize }
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Numbers at which code changes its mind.
pub const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    16,
    63,
    64,
    127,
    255,
    256,
    4095,
    4096,
    4097,
    65_535,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// A script being read.
#[derive(Clone, Debug)]
pub struct Script<'a>(pub &'a [u8]);

impl Script<'_> {
    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    /// The next bytes as a number below `n`, of one byte if that is enough.
    pub fn below(&mut self, n: usize) -> usize {
        let mut value = usize::from(self.byte());
        let mut most = 256;
        while most < n {
            value = value << 8 | usize::from(self.byte());
            most <<= 8;
        }
        if n == 0 { 0 } else { value % n }
    }

    /// A number that is small, at an edge, or any.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            kind @ 0..64 => u64::from(kind),
            kind @ 64..128 => EDGES[usize::from(kind) % EDGES.len()],
            128..192 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            _ => (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte())),
        }
    }

    /// Up to `max` bytes.
    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max + 1);
        (0..len).map(|_| self.byte()).collect()
    }

    /// One of several.
    pub fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}
