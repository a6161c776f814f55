//! Where a session's client runs: what a machine needs to know of its own earlier sessions to say that they
//! are dead.
//!
//! **Assumes.** No two machines that run at the same time have the same certificate, machine digest and
//! boot. Where virtual machines are copies that differ in nothing but their boots, one can end the
//! session of another that is silent.

use serde::{Deserialize, Serialize};

/// A process on a machine, told from any other that ran there since the machine was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its PID namespace: only processes in the same one can look each other up.
    pub namespace: u64,
    /// Its number.
    pub number: u32,
    /// When it was started, in clock ticks since the machine was.
    pub started: u64,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// Whose certificate the client has shown, as the server says: what a client says itself does not count.
    pub certificate: String,
    /// Digest of what tells the machine from others.
    pub machine: u128,
    /// The kernel's identity of this run of the machine.
    pub boot: u128,
    /// The client's process.
    pub process: Process,
}

impl Origin {
    fn is_same_machine(&self, other: &Origin) -> bool {
        self.certificate == other.certificate && self.machine == other.machine
    }

    /// Whether the machine has been started anew since: nothing that ran on it then runs any more.
    pub fn outlives(&self, earlier: &Origin) -> bool {
        self.is_same_machine(earlier) && self.boot != earlier.boot
    }

    /// Whether a process here can find out whether the other one still runs.
    pub fn can_look_up(&self, other: &Origin) -> bool {
        self.is_same_machine(other)
            && self.boot == other.boot
            && self.process.namespace == other.process.namespace
    }
}
