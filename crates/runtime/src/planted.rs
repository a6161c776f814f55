//! Defects that can be planted, to prove that a simulation finds them.

use crate::simulator::here;

/// Whether to commit this defect here. Outside of a simulation: never.
#[inline]
pub fn mistake(name: &str) -> bool {
    here().is_some_and(|simulator| simulator.planted(name))
}
