//! Threads that read requests go to the processor of the program that keeps them busy.
//!
//! A program that makes one small call after the other waits for each answer, so one processor is enough for it and for the thread that answers.
//! On two, each message costs an interrupt from one to the other, twice: on virtual machines that is most of what a small call takes. Where several
//! programs make calls, or much is moved in one call after the other, the threads run wherever there is room, as usual. (One now and then is a file of
//! a tree that is a little longer than the others.)

use crate::limits::{LARGE_CALLS_MIN, NEAR_AFTER, NEAR_LOOK_EVERY, SMALL_BYTES_MAX};
use crate::thread::processor_of;
use std::cell::RefCell;
use std::mem::{size_of, zeroed};
use std::sync::OnceLock;

/// The processors that this process may use.
static ALL: OnceLock<Processors> = OnceLock::new();

thread_local! {
    static COMPANY: RefCell<Company> = const { RefCell::new(Company { tid: 0, calls: 0, large: 0, on: None }) };
}

/// Whose requests a thread has read last.
struct Company {
    tid: u32,
    /// How many of his in a row.
    calls: u32,
    /// How many of the last of them in a row were not small.
    large: u32,
    /// The one processor that it runs on because of that.
    on: Option<usize>,
}

#[derive(Clone, Copy)]
struct Processors(libc::cpu_set_t);

impl Processors {
    /// Those that the thread may run on.
    fn here() -> Option<Processors> {
        // SAFETY: a set is a row of bits, of which none need be set.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: the call writes as much as it is told where it is pointed to.
        let outcome = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        (outcome == 0).then_some(Processors(set))
    }

    /// This one alone.
    fn one(number: usize) -> Processors {
        // SAFETY: as above.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: the call sets a bit within the set, or none.
        unsafe { libc::CPU_SET(number, &mut set) };
        Processors(set)
    }

    fn has(&self, number: usize) -> bool {
        // SAFETY: the call looks at a bit within the set.
        number < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(number, &self.0) }
    }

    /// The thread runs on these from now on. Answers whether it does.
    fn take(&self) -> bool {
        // SAFETY: the call reads a set of this size.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) == 0 }
    }
}

impl Company {
    fn met(&mut self, tid: u32, bytes: usize) {
        self.large = if bytes <= SMALL_BYTES_MAX { 0 } else { self.large.saturating_add(1) };
        if tid != self.tid || self.large >= LARGE_CALLS_MIN {
            (self.tid, self.calls) = (tid, 0);
            return self.part();
        }
        self.calls = self.calls.wrapping_add(1);
        if self.calls >= NEAR_AFTER && self.calls.is_multiple_of(NEAR_LOOK_EVERY) {
            self.join();
        }
    }

    /// Goes where he is.
    fn join(&mut self) {
        let Some(all) = all() else { return };
        let Some(number) = processor_of(self.tid) else { return self.part() };
        if self.on != Some(number) && all.has(number) && Processors::one(number).take() {
            self.on = Some(number);
        }
    }

    fn part(&mut self) {
        if self.on.take().is_some() {
            everywhere();
        }
    }
}

fn all() -> Option<&'static Processors> {
    if let Some(all) = ALL.get() {
        return Some(all);
    }
    // Nobody is confined before this is known.
    let here = Processors::here()?;
    Some(ALL.get_or_init(|| here))
}

/// This thread has read a request of that thread, which waits for the answer: of so many bytes, or for so many.
pub(crate) fn met(tid: u32, bytes: usize) {
    COMPANY.with_borrow_mut(|company| company.met(tid, bytes));
}

/// This thread runs wherever there is room: it may have been started by one that does not.
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
    fn a_thread_stays_with_who_keeps_it_busy_until_somebody_else_comes() {
        std::thread::spawn(|| {
            let before = processors();
            let mut company = Company { tid: 0, calls: 0, large: 0, on: None };
            let me = nix::unistd::gettid().as_raw() as u32;
            (0..=NEAR_AFTER + NEAR_LOOK_EVERY).for_each(|_| company.met(me, 0));
            assert_eq!(processors(), 1, "it is where the other one, which is itself, was last");
            std::thread::spawn(everywhere).join().expect("it runs");
            company.met(me, SMALL_BYTES_MAX + 1);
            company.met(me, 0);
            assert_eq!(processors(), 1, "one long file is no stream");
            (0..LARGE_CALLS_MIN).for_each(|_| company.met(me, SMALL_BYTES_MAX + 1));
            assert_eq!(processors(), before, "but this is");
            (0..=NEAR_AFTER + NEAR_LOOK_EVERY).for_each(|_| company.met(me, 0));
            assert_eq!(processors(), 1, "it has come back");
            company.met(me + 1, 0);
            assert_eq!(processors(), before);
            (0..=NEAR_AFTER + NEAR_LOOK_EVERY).for_each(|_| company.met(u32::MAX, 0));
            assert_eq!(processors(), before, "nobody knows where that one is");
        })
        .join()
        .expect("it runs");
    }
}
