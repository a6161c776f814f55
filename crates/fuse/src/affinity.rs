//! Moves the threads that read requests to the processor of the program that keeps them busy.
//!
//! A program that makes small calls one after the other waits for each reply, so one processor is enough for
//! it and for the answering thread. On two processors each message costs an inter-processor interrupt in
//! either direction, which on virtual machines is most of the cost of a small call. Where several programs
//! make calls, or a program makes large calls in a row, the threads run on any processor.
//!
//! A thread that is bound to fewer processors than the process is not moved, such as those that take requests
//! over io_uring.

use crate::limits::{LARGE_CALLS_MIN, NEAR_AFTER, NEAR_LOOK_EVERY, SMALL_BYTES_MAX};
use crate::thread::processor_of;
use shoal_runtime::simulator::is_entered;
use std::mem::{size_of, zeroed};
use std::sync::OnceLock;

/// The processors that this process may use.
static ALL: OnceLock<Processors> = OnceLock::new();

/// The affinity of a reading thread, and the calling thread that it follows.
#[derive(Default)]
pub(crate) struct Affinity {
    /// The thread whose requests it has read last.
    tid: u32,
    /// Its number of requests in a row.
    calls: u32,
    /// The number of the last requests in a row that were not small.
    large: u32,
    /// The processor to which the reading thread is bound by this module.
    on: Option<usize>,
    /// Whether the reading thread is bound for another reason; `None`: not known yet.
    is_bound: Option<bool>,
}

#[derive(Clone, Copy)]
struct Processors(libc::cpu_set_t);

impl Processors {
    /// The processors that the current thread may run on.
    fn here() -> Option<Processors> {
        // SAFETY: a set is a row of bits, of which none need be set.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: the call writes as much as it is told where it is pointed to.
        let outcome = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        (outcome == 0).then_some(Processors(set))
    }

    /// The set of one processor.
    fn one(number: usize) -> Processors {
        // SAFETY: a set is a row of bits, of which none need be set.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: the call sets a bit within the set, or none.
        unsafe { libc::CPU_SET(number, &mut set) };
        Processors(set)
    }

    fn has(&self, number: usize) -> bool {
        // SAFETY: the call reads a bit within the set.
        number < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(number, &self.0) }
    }

    fn count(&self) -> i32 {
        // SAFETY: the call counts the bits of the set.
        unsafe { libc::CPU_COUNT(&self.0) }
    }

    /// Binds the current thread to these processors. Returns false on failure.
    fn take(&self) -> bool {
        // SAFETY: the call reads a set of this size.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) == 0 }
    }
}

impl Affinity {
    /// The current thread has read a request of thread `tid`, which waits for the reply; `bytes` is the size
    /// of the data to move.
    pub(crate) fn record_request(&mut self, tid: u32, bytes: usize) {
        // A thread of a simulation has no processor.
        if *self.is_bound.get_or_insert_with(|| is_entered() || is_bound()) {
            return;
        }
        self.large = if bytes <= SMALL_BYTES_MAX { 0 } else { self.large.saturating_add(1) };
        if tid != self.tid || self.large >= LARGE_CALLS_MIN {
            (self.tid, self.calls) = (tid, 0);
            return self.unbind();
        }
        self.calls = self.calls.wrapping_add(1);
        if self.calls >= NEAR_AFTER && self.calls.is_multiple_of(NEAR_LOOK_EVERY) {
            self.follow();
        }
    }

    /// Moves this thread to the processor of the calling thread.
    fn follow(&mut self) {
        let Some(all) = all() else { return };
        let Some(number) = processor_of(self.tid) else { return self.unbind() };
        if self.on != Some(number) && all.has(number) && Processors::one(number).take() {
            self.on = Some(number);
        }
    }

    fn unbind(&mut self) {
        if self.on.take().is_some() {
            everywhere();
        }
    }
}

/// Records the processors of the process. To be called on a thread that is not bound, before any thread is.
pub(crate) fn remember() {
    all();
}

/// Whether the current thread may run on fewer processors than the process.
fn is_bound() -> bool {
    let counts = all().zip(Processors::here()).map(|(all, here)| (all.count(), here.count()));
    counts.is_some_and(|(all, here)| here < all)
}

fn all() -> Option<&'static Processors> {
    if let Some(all) = ALL.get() {
        return Some(all);
    }
    // No thread is bound before all processors are known.
    let here = Processors::here()?;
    Some(ALL.get_or_init(|| here))
}

/// Lets the current thread run on any processor: it may have been started by a bound thread.
pub(crate) fn everywhere() {
    if let Some(all) = ALL.get() {
        all.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors() -> usize {
        let here = Processors::here().expect("told");
        (0..libc::CPU_SETSIZE as usize).filter(|number| here.has(*number)).count()
    }

    #[test]
    fn thread_keeps_the_affinity_of_its_busiest_caller_until_another_one_comes() {
        std::thread::spawn(|| {
            let before = processors();
            let mut affinity = Affinity::default();
            let me = nix::unistd::gettid().as_raw() as u32;
            (0..=NEAR_AFTER + NEAR_LOOK_EVERY).for_each(|_| affinity.record_request(me, 0));
            assert_eq!(processors(), 1, "the processor of the calling thread, which is this thread");
            std::thread::spawn(everywhere).join().expect("it runs");
            affinity.record_request(me, SMALL_BYTES_MAX + 1);
            affinity.record_request(me, 0);
            assert_eq!(processors(), 1, "one large call is no stream");
            (0..LARGE_CALLS_MIN).for_each(|_| affinity.record_request(me, SMALL_BYTES_MAX + 1));
            assert_eq!(processors(), before, "a stream of large calls");
            (0..=NEAR_AFTER + NEAR_LOOK_EVERY).for_each(|_| affinity.record_request(me, 0));
            assert_eq!(processors(), 1, "small calls again");
            affinity.record_request(me + 1, 0);
            assert_eq!(processors(), before);
            (0..=NEAR_AFTER + NEAR_LOOK_EVERY).for_each(|_| affinity.record_request(u32::MAX, 0));
            assert_eq!(processors(), before, "the processor of that thread is unknown");
        })
        .join()
        .expect("it runs");
    }
}
