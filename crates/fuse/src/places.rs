//! A table of fixed size about directories, and a clock for what it says of them.
//!
//! Directories that share a place in it are taken for one.

use shoal_types::InodeId;
use std::time::Instant;

/// See the module. Times in it are milliseconds that fit 32 bits, so that a place can be a number: `time << TID_BITS | tid`.
#[derive(Debug)]
pub(crate) struct Places<P> {
    places: Box<[P]>,
    pub(crate) begun: Instant,
}

/// Of the number of a thread.
pub(crate) const TID_BITS: u32 = 32;

impl<P: Default> Places<P> {
    pub(crate) fn new(count: usize) -> Places<P> {
        Places { places: (0..count).map(|_| P::default()).collect(), begun: Instant::now() }
    }
}

impl<P> Places<P> {
    pub(crate) fn of(&self, dir: InodeId) -> &P {
        // Numbers of directories that are used together are close to each other.
        &self.places[dir.0 as usize % self.places.len()]
    }

    /// Never 0, which means never. That the upper bits are lost after 49 days makes something that is long past look new, or new look past, once.
    pub(crate) fn now_ms(&self) -> u64 {
        (self.begun.elapsed().as_millis() as u64 & u64::from(u32::MAX)).max(1)
    }
}
