//! The end of threads that work beside a test.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Sets a flag when it is dropped, for threads of a scope that work until then. So they end, too, if the test
/// fails.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
