//! Signals that ask a serving process to stop, or for its state.

use nix::sys::signal::{SigSet, Signal};

/// The signal that asks for the state.
pub const DUMP: Signal = Signal::SIGUSR1;

/// Signals that are waited for instead of ending the process.
pub struct Signals(SigSet);

impl Signals {
    /// Takes the signals over. To be called before any other thread is started: threads inherit it.
    pub fn take() -> nix::Result<Signals> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, DUMP] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Signals(set))
    }

    /// The next one.
    pub fn wait(&self) -> nix::Result<Signal> {
        self.0.wait()
    }
}
