//! Random numbers.

use crate::simulator::here;

/// 64 random bits.
pub fn number() -> u64 {
    match here() {
        Some(simulator) => simulator.random(),
        None => rand::random(),
    }
}

/// 128 random bits.
pub fn wide() -> u128 {
    u128::from(number()) << 64 | u128::from(number())
}
