//! SIGINT, SIGTERM and SIGHUP end a benchmark early, and not the process: it still has to clean up.
//!
//! The signals are blocked in all threads; a thread of its own waits for them, sets a flag and kills the
//! programs in flight, each of which leads a process group of its own.

use anyhow::bail;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Begins to catch the signals. To be called once, before there are other threads.
pub fn catch() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        while signals.wait().is_ok() {
            INTERRUPTED.store(true, SeqCst);
            groups().iter().for_each(|&group| kill(group));
        }
    })?;
    Ok(())
}

/// An error after a signal.
pub fn check() -> anyhow::Result<()> {
    if INTERRUPTED.load(SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

fn groups() -> std::sync::MutexGuard<'static, BTreeSet<i32>> {
    GROUPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn kill(group: i32) {
    // It may have ended by itself.
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

/// A process group in flight; it is killed by a signal to this process.
pub struct Group(i32);

impl Group {
    /// Registers the group of a child that leads one.
    pub fn of(child: &std::process::Child) -> Group {
        let group = child.id() as i32;
        groups().insert(group);
        // The signal may have come between the spawn and the insertion.
        if INTERRUPTED.load(SeqCst) {
            kill(group);
        }
        Group(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        groups().remove(&self.0);
    }
}
