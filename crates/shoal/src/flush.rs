//! Makes a mount write everything back.
//!
//! **Models.** The process behind the mount is asked over its control socket. That wait can be abandoned at
//! any time, while a program that waits in the kernel for an unresponsive file system cannot even be killed.
//! A caller without access to the socket uses the kernel's syncfs(2).

use crate::control::{self, ControlError, Request, Statistics, Synced};
use crate::limits::NOTE_WRITE_BACK_AFTER;
use crate::mounts::Mount;
use anyhow::{Context, bail};
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval between two checks for progress.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Returns once everything done on a mount so far is durable. With `patience`: fails when there has been no
/// progress for that long. If the servers do not serve the mount any more, returns why there is nothing to
/// write back, and what was lost.
pub fn flush(mount: &Mount, patience: Option<Duration>) -> anyhow::Result<Option<String>> {
    let home = mount.home();
    let (tell, told) = mpsc::channel();
    let asked = home.clone();
    // The thread ends with this process at the latest.
    std::thread::spawn(move || tell.send(control::request::<Synced>(&asked, &Request::Sync)));
    let (mut last, mut progress, mut is_noted) = (None, Instant::now(), false);
    loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(Ok(Synced { refused })) => return Ok(refused),
            Ok(Err(ControlError::NotRunning(_) | ControlError::Io { .. })) => {
                let synced = File::open(&mount.point).and_then(|root| root.sync_all());
                return synced.map(|()| None).context("fsync");
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(RecvTimeoutError::Disconnected) => bail!("asking the process behind it failed"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = uncommitted(&home);
        if now != last {
            (last, progress) = (now, Instant::now());
        }
        if progress.elapsed() >= NOTE_WRITE_BACK_AFTER && !std::mem::replace(&mut is_noted, true) {
            let left = last.as_ref().and_then(|state| state.first().copied()).unwrap_or(0);
            eprintln!(
                "note: waiting for the servers and disks: {} are to be written back, and nothing was for {} seconds (Ctrl-C \
                 to stop)",
                crate::show::bytes(left),
                progress.elapsed().as_secs()
            );
        }
        if patience.is_some_and(|patience| progress.elapsed() > patience) {
            let left = last.and_then(|state| state.first().copied()).unwrap_or(0);
            bail!(
                "{} could not be written back, without any progress for {} seconds: do the servers and disks answer?",
                crate::show::bytes(left),
                progress.elapsed().as_secs()
            );
        }
    }
}

/// Returns once everything done on a mount so far is durable. Fails also if the servers do not serve the
/// mount any more.
pub fn make_durable(mount: &Mount) -> anyhow::Result<()> {
    match flush(mount, None).with_context(|| mount.point.display().to_string())? {
        None => Ok(()),
        Some(why) => bail!("{}: {why}", mount.point.display()),
    }
}

/// Values that change while a mount writes back; the first is the number of bytes that are left.
fn uncommitted(home: &Path) -> Option<Vec<u64>> {
    const COUNTERS: [&str; 4] = [
        "journal_uncommitted_bytes",
        "journal_batches_total",
        "blocks_put_total",
        "journal_uncommitted_batches",
    ];
    let statistics: Statistics = control::request(home, &Request::Stats).ok()?;
    let value = |name: &&str| statistics.client.iter().find(|number| number.name == **name).map(|n| n.value);
    Some(COUNTERS.iter().filter_map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Answer, Control, Handler, Number};
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A process with `left` bytes to write back. Each request for statistics reduces them, unless it is
    /// stuck.
    struct Slow {
        left: AtomicU64,
        stuck: bool,
    }

    impl Handler for Slow {
        fn handle(
            &self,
            request: Request,
            say: &mut dyn FnMut(&dyn Answer) -> io::Result<()>,
        ) -> Result<(), String> {
            match request {
                Request::Stats => {
                    if !self.stuck {
                        self.left
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                            .ok();
                    }
                    let value = self.left.load(Ordering::SeqCst);
                    let client = vec![Number { name: "journal_uncommitted_bytes".into(), value }];
                    say(&Statistics { client, ..Statistics::default() }).map_err(|error| error.to_string())
                }
                Request::Sync => {
                    while self.left.load(Ordering::SeqCst) > 0 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    say(&Synced::default()).map_err(|error| error.to_string())
                }
                _ => Err("no".into()),
            }
        }
    }

    fn mount(dir: &Path) -> Mount {
        Mount {
            point: dir.join("mnt"),
            kind: "fuse.shoal".into(),
            source: dir.to_owned(),
            device: "0:1".into(),
            flags: "rw".into(),
        }
    }

    #[test]
    fn flush_waits_while_there_is_progress_and_fails_without() {
        let dir = tempfile::tempdir().unwrap();
        let patience = Some(Duration::from_millis(1500));
        let slow = Slow { left: AtomicU64::new(3), stuck: false };
        let control = Control::open(dir.path(), Arc::new(slow)).unwrap();
        flush(&mount(dir.path()), patience).unwrap();
        drop(control);
        let stuck = Arc::new(Slow { left: AtomicU64::new(5), stuck: true });
        let _control = Control::open(dir.path(), stuck.clone()).unwrap();
        let error = flush(&mount(dir.path()), patience).unwrap_err().to_string();
        assert!(error.starts_with("5 B could not be written back"), "{error}");
        // Lets the conversation end.
        stuck.left.store(0, Ordering::SeqCst);
    }

    #[test]
    fn flush_uses_the_kernel_without_a_control_socket() {
        let dir = tempfile::tempdir().unwrap();
        let mount = mount(dir.path());
        std::fs::create_dir(&mount.point).unwrap();
        flush(&mount, None).unwrap();
        std::fs::remove_dir(&mount.point).unwrap();
        assert!(flush(&mount, None).is_err());
    }
}
