//! A counting semaphore for work that is refused, and does not wait, when too much of it is in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Permits for a bounded number of activities at a time.
#[derive(Clone, Debug)]
pub struct Semaphore {
    acquired: Arc<AtomicUsize>,
    permits_max: usize,
}

/// Dropping it releases it.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl Semaphore {
    /// A semaphore with so many permits.
    pub fn new(permits_max: usize) -> Semaphore {
        Semaphore { acquired: Arc::default(), permits_max }
    }

    /// A permit, unless all are acquired. Never blocks.
    pub fn try_acquire(&self) -> Option<Permit> {
        let permit = Permit(self.acquired.clone());
        let before = self.acquired.fetch_add(1, Ordering::Relaxed);
        (before < self.permits_max).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permit_is_available_again_when_it_was_dropped() {
        let semaphore = Semaphore::new(2);
        let (one, _other) = (semaphore.try_acquire().unwrap(), semaphore.try_acquire().unwrap());
        assert!(semaphore.try_acquire().is_none() && semaphore.clone().try_acquire().is_none());
        drop(one);
        assert!(semaphore.try_acquire().is_some());
    }
}
