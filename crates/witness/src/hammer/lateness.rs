//! How late a thread is scheduled, to tell the delays of file systems from those of a busy machine.

use crate::limits::LATENESS_NAP;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How late a thread was scheduled after each nap.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lateness {
    naps: u32,
    total: Duration,
    longest: Duration,
}

impl Lateness {
    fn add(&mut self, late: Duration) {
        self.naps += 1;
        self.total += late;
        self.longest = self.longest.max(late);
    }

    fn mean(&self) -> Duration {
        self.total.checked_div(self.naps).unwrap_or_default()
    }
}

impl Display for Lateness {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "a thread that sleeps waits {:.1} ms for a processor, {:.0} ms at most",
            ms(self.mean()),
            ms(self.longest)
        )
    }
}

/// Measures until it is stopped.
#[derive(Debug)]
pub struct LatenessSampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Lateness>,
}

impl LatenessSampler {
    /// Starts the measurement.
    pub fn start() -> LatenessSampler {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut lateness = Lateness::default();
            while !stopped.load(Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(LATENESS_NAP);
                lateness.add(begun.elapsed().saturating_sub(LATENESS_NAP));
            }
            lateness
        });
        LatenessSampler { stop, thread }
    }

    /// Ends the measurement.
    pub fn stop(self) -> Lateness {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_longest_are_told() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.mean(), Duration::ZERO);
        lateness.add(Duration::from_millis(1));
        lateness.add(Duration::from_millis(9));
        assert_eq!(lateness.to_string(), "a thread that sleeps waits 5.0 ms for a processor, 9 ms at most");
        let sampler = LatenessSampler::start();
        std::thread::sleep(LATENESS_NAP * 3);
        assert!(sampler.stop().naps > 0);
    }
}
