//! A mount's process is killed while many programs work on it, in a directory that is also changed on another
//! mount.

use crate::harness::{Shared, plain};
use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const ROUNDS: u64 = 8;
/// Programs on the mount that is to die. There are so many that at any moment some are about to send a
/// request while they hold the directory's lock.
const WORKERS: u64 = 12;
/// Programs on the other mount, whose changes make the dying one invalidate names.
const OTHERS: u64 = 2;
/// Names that all programs change.
const NAMES: u64 = 6;
/// Longest wait for a mount that has died.
const PATIENCE: Duration = Duration::from_secs(30);

/// Changes names until a call fails, or it is stopped.
fn work(dir: &Path, worker: u64, stop: &AtomicBool) -> Result<(), Error> {
    let own = dir.join(format!("own{worker}"));
    for round in worker.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = dir.join(format!("name{}", round % NAMES));
        fs::write(&own, "content")?;
        fs::rename(&own, &name)?;
        // Another program may have removed it first.
        match fs::remove_file(&name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Errors of calls on a dead mount. `EIO`: the process died while it had this request.
fn is_of_the_dead(code: i32) -> bool {
    matches!(code, libc::ECONNABORTED | libc::ECANCELED | libc::ENOTCONN | libc::EIO)
}

/// Works until the end and reports the error. A thread that hangs is left behind.
fn start(dir: PathBuf, worker: u64, stop: Arc<AtomicBool>, ended: Sender<Option<i32>>) {
    std::thread::spawn(move || {
        let outcome = work(&dir, worker, &stop);
        let _ = ended.send(outcome.err().map(|error| error.raw_os_error().unwrap_or_default()));
    });
}

#[test]
fn calls_end_with_an_error_when_the_process_of_their_mount_is_killed() {
    if plain() {
        return;
    }
    let shared = Shared::start("killed", 2);
    fs::create_dir(shared.path(0).join("dir")).expect("mkdir");
    let (stop, living) = (Arc::new(AtomicBool::new(false)), channel());
    for worker in 0..OTHERS {
        start(shared.path(0).join("dir"), worker, stop.clone(), living.0.clone());
    }
    for round in 0..ROUNDS {
        let (tell, ended) = channel();
        for worker in 0..WORKERS {
            start(shared.path(1).join("dir"), OTHERS + worker, stop.clone(), tell.clone());
        }
        std::thread::sleep(Duration::from_millis(200 + 37 * round));
        shared.kill(1);
        for left in (1..=WORKERS).rev() {
            let error = ended.recv_timeout(PATIENCE);
            let error = error.unwrap_or_else(|_| panic!("{left} programs hang in round {round}"));
            assert!(matches!(error, Some(code) if is_of_the_dead(code)), "{error:?}");
        }
        // No program can write into the directory below the mount by mistake.
        let error = fs::write(shared.path(1).join("file"), "").expect_err("the mount is dead");
        assert!(is_of_the_dead(error.raw_os_error().unwrap_or_default()), "{error}");
        shared.mount_again(1);
    }
    stop.store(true, Ordering::Relaxed);
    for _ in 0..OTHERS {
        assert_eq!(living.1.recv_timeout(PATIENCE), Ok(None), "a program on the other mount");
    }
    shared.finish();
}
