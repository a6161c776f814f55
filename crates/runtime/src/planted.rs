//! Mistakes that can be planted, to see that a simulation finds them.

use crate::simulator::here;

/// Whether to do this mistake here. Outside of a simulation: never.
#[inline]
pub fn mistake(name: &str) -> bool {
    here().is_some_and(|simulator| simulator.planted(name))
}
