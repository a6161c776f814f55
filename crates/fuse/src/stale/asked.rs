//! Questions for attributes, until the kernel has looked at the answers.
//!
//! Attributes that the kernel is told to drop after it has asked for them are passed over when they come, and a read(2) that wanted to
//! know the size goes on with the one from before. So an inode is dropped while nobody is between his question and the moment
//! at which he has looked at the answer. Nobody tells when that is; but who asks sleeps until he is answered, and looks at the answer
//! as soon as he is given a processor: on a busy machine, that may take a while.

use super::state::thread_state;
use crate::limits::{
    ASKED_ANSWERS_MAX, ATTRIBUTES_GRACE, ATTRIBUTES_LOOK_EVERY, ATTRIBUTES_WAIT_MAX, RECENT_DROPS_MAX,
};
use shoal_types::InodeId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The thread that has asked, just before it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    tid: u32,
    /// How often it was given a processor. `None`: it does not sleep yet, or it cannot be told (it is in another container).
    runs: Option<u64>,
}

impl Asker {
    /// By the number of the thread, as the request names it.
    pub(crate) fn of(tid: u32) -> Asker {
        Asker { tid, runs: if sleeps(tid) { runs(tid) } else { None } }
    }
}

/// Whether a thread sleeps.
fn sleeps(tid: u32) -> bool {
    matches!(thread_state(&format!("/proc/{tid}/stat")), Some('S' | 'D'))
}

/// How often a thread was given a processor: the third number of `/proc/PID/schedstat`, see `Documentation/scheduler/sched-stats.rst`.
fn runs(tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// An answer on its way.
#[derive(Debug)]
struct Answered {
    asker: Option<Asker>,
    at: Instant,
    /// Since when whoever asked is known to have been given a processor.
    runs_since: Option<Instant>,
}

impl Answered {
    /// Whether it was looked at.
    fn is_taken_in(&mut self) -> bool {
        if self.at.elapsed() >= ATTRIBUTES_WAIT_MAX {
            return true;
        }
        let Some(Asker { tid, runs: Some(before) }) = self.asker else {
            return self.at.elapsed() >= ATTRIBUTES_GRACE;
        };
        // A thread that is not there any more has looked at it.
        if self.runs_since.is_none() && runs(tid) != Some(before) {
            self.runs_since = Some(Instant::now());
        }
        self.runs_since.is_some_and(|since| since.elapsed() >= ATTRIBUTES_LOOK_EVERY)
    }
}

#[derive(Default, Debug)]
struct Asked {
    under_way: u32,
    answered: Vec<Answered>,
}

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Questions(HashMap<InodeId, Asked>);

impl Questions {
    /// Somebody asks for the attributes of an inode.
    pub(super) fn asked(&mut self, ino: InodeId) {
        self.0.entry(ino).or_default().under_way += 1;
    }

    /// He was answered. `matters`: others may change the inode soon.
    pub(super) fn answered(&mut self, ino: InodeId, asker: Option<Asker>, matters: bool) {
        if self.0.len() > RECENT_DROPS_MAX {
            self.0.retain(|_, asked| asked.under_way > 0);
        }
        let Some(asked) = self.0.get_mut(&ino) else { return };
        asked.under_way = asked.under_way.saturating_sub(1);
        if matters && asked.answered.len() < ASKED_ANSWERS_MAX {
            asked.answered.push(Answered { asker, at: Instant::now(), runs_since: None });
        }
        if asked.under_way == 0 && asked.answered.is_empty() {
            self.0.remove(&ino);
        }
    }

    /// When to ask again whether the kernel has looked at all attributes that it has asked for; `None`: it has.
    pub(super) fn under_way(&mut self, ino: InodeId) -> Option<Duration> {
        let asked = self.0.get_mut(&ino)?;
        asked.answered.retain_mut(|answer| !answer.is_taken_in());
        if asked.under_way == 0 && asked.answered.is_empty() {
            self.0.remove(&ino);
            return None;
        }
        Some(ATTRIBUTES_LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const FILE: InodeId = InodeId(8);

    #[test]
    fn an_answer_is_on_its_way_until_whoever_asked_has_run() {
        let (tell_tid, tid) = channel();
        let (wake, sleep) = channel();
        let (tell_done, done) = channel::<()>();
        let thread = std::thread::spawn(move || {
            tell_tid.send(nix::unistd::gettid().as_raw() as u32).expect("heard");
            sleep.recv().expect("woken");
            let _ = done.recv();
        });
        let tid = tid.recv().expect("told");
        while !sleeps(tid) {
            std::thread::yield_now();
        }
        let mut questions = Questions::default();
        questions.asked(FILE);
        questions.answered(FILE, Some(Asker::of(tid)), true);
        // Longer than where nothing is known of the thread.
        std::thread::sleep(ATTRIBUTES_GRACE * 3);
        assert!(questions.under_way(FILE).is_some() || runs(tid).is_none(), "it sleeps");
        wake.send(()).expect("it waits");
        let begun = Instant::now();
        while let Some(pause) = questions.under_way(FILE) {
            std::thread::sleep(pause);
        }
        assert!(begun.elapsed() <= ATTRIBUTES_WAIT_MAX * 2, "it is woken, and nobody else is waited for");
        drop(tell_done);
        thread.join().expect("ends");
    }

    #[test]
    fn questions_are_counted_and_what_does_not_matter_is_forgotten() {
        let mut questions = Questions::default();
        questions.asked(FILE);
        questions.asked(FILE);
        questions.answered(FILE, None, false);
        assert!(questions.under_way(FILE).is_some());
        questions.answered(FILE, None, false);
        assert!(questions.under_way(FILE).is_none() && questions.0.is_empty());
    }
}
