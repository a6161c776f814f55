//! A lossy hash table of fixed size, keyed by directory, with a clock for its entries. Directories with the
//! same slot share one entry.

use shoal_runtime::time::Instant;
use shoal_types::InodeId;

/// A table of slots. Times are milliseconds that fit 32 bits, so that a slot can be a number: `time <<
/// TID_BITS | tid`.
#[derive(Debug)]
pub(crate) struct SlotTable<P> {
    slots: Box<[P]>,
    pub(crate) begun: Instant,
}

/// Bits of a thread id.
pub(crate) const TID_BITS: u32 = 32;

impl<P: Default> SlotTable<P> {
    pub(crate) fn new(count: usize) -> SlotTable<P> {
        SlotTable { slots: (0..count).map(|_| P::default()).collect(), begun: Instant::now() }
    }
}

impl<P> SlotTable<P> {
    pub(crate) fn of(&self, dir: InodeId) -> &P {
        // Numbers of directories that are used together are close to each other.
        &self.slots[dir.0 as usize % self.slots.len()]
    }

    /// The current time. Never 0, which means never. The upper bits are lost after 49 days; then an old entry
    /// may look new, or a new one old, once.
    pub(crate) fn now_ms(&self) -> u64 {
        (self.begun.elapsed().as_millis() as u64 & u64::from(u32::MAX)).max(1)
    }
}
