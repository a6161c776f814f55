//! Which machine, which run of it, and which process this is. The servers are told with each session,
//! so that a mount does not wait for the session that its predecessor left when it was killed or lost
//! power.
//!
//! **Assumes.** Two machines that run at the same time differ in `/etc/machine-id`, in the firmware's
//! UUID, or in their host names. Copies of a virtual machine that differ in none of these, and mount
//! with one certificate, can end each other's silent sessions. A mount whose session was ended reports
//! the loss and goes on in a new one.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use shoal_types::{Origin, Process};
use std::os::unix::fs::MetadataExt;
use xxhash_rust::xxh3::xxh3_128;

/// Of this process; `None` if the machine does not tell, as in some containers.
pub fn here() -> Option<Origin> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine_id = read("/etc/machine-id").filter(|id| !id.trim().is_empty())?;
    // Only root may read it, and not every machine has one.
    let firmware = read("/sys/class/dmi/id/product_uuid").unwrap_or_default();
    let host = nix::unistd::gethostname().ok()?;
    let machine = format!("{}\n{}\n{}", machine_id.trim(), firmware.trim(), host.to_string_lossy());
    let boot = read("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let number = std::process::id();
    let process = Process { namespace, number, started: started(number)? };
    let certificate = String::new();
    Some(Origin {
        certificate,
        machine: xxh3_128(machine.as_bytes()),
        boot: xxh3_128(boot.trim().as_bytes()),
        process,
    })
}

/// Whether a process of this PID namespace is gone for certain.
pub fn has_ended(process: &Process) -> bool {
    let Ok(number) = i32::try_from(process.number) else { return false };
    match kill(Pid::from_raw(number), None) {
        Err(Errno::ESRCH) => true,
        // Its number may have been given to another one.
        _ => {
            started(process.number).is_some_and(|started| started != process.started)
                || is_left(process.number)
        }
    }
}

/// Whether nothing is left of a process but the exit code that its parent has not asked for. While other
/// threads of it live, there is more.
fn is_left(number: u32) -> bool {
    let is_zombie = stat(number).is_some_and(|stat| stat.starts_with('Z'));
    is_zombie && std::fs::read_dir(format!("/proc/{number}/task")).is_ok_and(|threads| threads.count() == 1)
}

/// When a process was started: the 22nd field of proc_pid_stat(5).
fn started(number: u32) -> Option<u64> {
    stat(number)?.split_whitespace().nth(19)?.parse().ok()
}

/// The fields of proc_pid_stat(5) from the third on. The second one, in parentheses, may contain anything.
fn stat(number: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_not_ended_and_one_that_was_waited_for_has() {
        let Some(origin) = here() else { return };
        assert!(!has_ended(&origin.process));
        assert_eq!(here().as_ref(), Some(&origin));
        assert!(has_ended(&Process { started: origin.process.started + 1, ..origin.process }));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = child.id();
        let process = Process { number, started: started(number).unwrap(), ..origin.process };
        let begun = std::time::Instant::now();
        while !has_ended(&process) {
            // Its parent has not waited for it yet: its number is still its own.
            assert!(begun.elapsed().as_secs() < 30);
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(&process));
    }
}
