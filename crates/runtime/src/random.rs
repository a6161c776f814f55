//! Chance.

use crate::simulator::here;

/// Any number.
pub fn number() -> u64 {
    match here() {
        Some(simulator) => simulator.random(),
        None => rand::random(),
    }
}

/// Any number of twice the width.
pub fn wide() -> u128 {
    u128::from(number()) << 64 | u128::from(number())
}
