//! Chance with a seed: what failed once can fail again.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use std::ops::Range;

/// Where a test's random choices come from.
pub struct Random(StdRng);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(StdRng::seed_from_u64(seed))
    }

    /// A number from a range.
    pub fn below(&mut self, range: Range<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(0..n) == 0
    }

    /// One of some things.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(0..from.len() as u64) as usize]
    }

    /// A length that is small most of the time, and sometimes up to `most`.
    pub fn length(&mut self, most: u64) -> u64 {
        let bits = self.below(0..64 - u64::from(most.max(1).leading_zeros()) + 1);
        self.below(0..(1 << bits.min(62)) + 1).min(most)
    }

    /// Bytes without structure.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
