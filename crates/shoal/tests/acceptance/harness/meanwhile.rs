//! Background load during a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Runs something again and again beside the test, until it is dropped.
pub struct Meanwhile {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Meanwhile {
    /// Begins.
    pub fn again_and_again(mut work: impl FnMut() + Send + 'static) -> Meanwhile {
        let stop: Arc<AtomicBool> = Arc::default();
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut rounds = 0;
            while !told.load(Ordering::Relaxed) {
                work();
                rounds += 1;
            }
            rounds
        });
        Meanwhile { stop, thread: Some(thread) }
    }

    /// Ends it and tells how often it was done. Panics if it did.
    pub fn rounds(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        thread.join().expect("what went on beside the test has not failed")
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The test has failed already.
            let _ = thread.join();
        }
    }
}
