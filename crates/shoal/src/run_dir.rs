//! The run directories of a cluster's mounts: each has the lock, the control socket and the log of a mount's
//! process.
//!
//! **Model.** A run directory is named after the mount point ([`mounts::run_dir`]). The process holds the
//! lock in it until its end, and removes the directory then, unless it could not write everything back: the
//! log says why. The next mount at the same place takes it over. Others of the same user remove it after
//! [`RUN_DIR_KEPT_FOR`].
//!
//! **Assumes** that a lock file is removed only by the holder of its lock. So a process that has locked a
//! file which is not at its path any more has lost a race against a removal, and tries again.

use crate::data_dir::{self, DataError, LOCK_FILE};
use crate::limits::{DUMP_FILE, RUN_DIR_KEPT_FOR};
use crate::{logging, mounts};
use anyhow::Context;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

/// What a mount's process writes besides its log, whose names are in [`logging`].
const FILES: [&str; 3] = ["control.sock", mounts::DEVICE, DUMP_FILE];

/// Creates a run directory if necessary, and locks it.
pub fn take(dir: &Path) -> anyhow::Result<Flock<File>> {
    loop {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.with_context(|| dir.display().to_string())?;
        match data_dir::lock(dir) {
            Ok(lock) if is_in_place(&lock, dir) => return Ok(lock),
            // The process before has just removed it.
            Ok(_) => {}
            Err(DataError::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a locked file is still the lock of this directory.
fn is_in_place(lock: &File, dir: &Path) -> bool {
    let there = dir.join(LOCK_FILE).metadata().map(|there| (there.dev(), there.ino()));
    let ours = lock.metadata().map(|ours| (ours.dev(), ours.ino()));
    there.is_ok_and(|there| ours.is_ok_and(|ours| ours == there))
}

/// Removes a run directory whose lock the caller holds. Files of others stay, and the directory with them.
pub fn remove(dir: &Path, _lock: &Flock<File>) {
    let log = logging::path(dir);
    let old = logging::old(&log);
    for file in FILES.iter().map(|name| dir.join(name)).chain([log, old, dir.join(LOCK_FILE)]) {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::debug!(file = %file.display(), %error, "a file of the mount stays");
            }
            _ => {}
        }
    }
    if let Err(error) = std::fs::remove_dir(dir) {
        tracing::debug!(dir = %dir.display(), %error, "the run directory stays");
    }
}

/// Removes the run directories beside this one whose processes ended long ago without doing so.
pub fn sweep(own: &Path) {
    let all = own.parent().and_then(|parent| std::fs::read_dir(parent).ok());
    let mounted: Vec<_> = mounts::shoals().unwrap_or_default();
    for entry in all.into_iter().flatten().flatten() {
        let dir = entry.path();
        let is_mounted = || mounted.iter().any(|mount| mounts::run_dir(&mount.point) == dir);
        if dir == own || !is_outdated(&dir) || is_mounted() {
            continue;
        }
        let Ok(file) = File::open(dir.join(LOCK_FILE)) else { continue };
        if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            && is_in_place(&lock, &dir)
        {
            remove(&dir, &lock);
        }
    }
}

/// Whether nothing was written to the directory or its log for long.
fn is_outdated(dir: &Path) -> bool {
    let age = |path: &Path| {
        let changed = path.symlink_metadata().and_then(|it| it.modified()).ok()?;
        SystemTime::now().duration_since(changed).ok()
    };
    let is_old = |path: &Path| age(path).is_some_and(|age| age > RUN_DIR_KEPT_FOR);
    let log = logging::path(dir);
    is_old(dir) && (is_old(&log) || !log.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run directory with a log, and whether it is old.
    fn made(parent: &Path, name: &str, is_old: bool) -> std::path::PathBuf {
        let dir = parent.join(name);
        drop(take(&dir).unwrap());
        std::fs::write(logging::path(&dir), "log").unwrap();
        if is_old {
            let then = SystemTime::now() - 2 * RUN_DIR_KEPT_FOR;
            for path in [logging::path(&dir), dir.clone()] {
                File::open(path).unwrap().set_modified(then).unwrap();
            }
        }
        dir
    }

    #[test]
    fn run_directory_that_is_removed_can_be_taken_again_and_files_of_others_stay() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("mnt-web");
        let lock = take(&dir).unwrap();
        assert!(take(&dir).is_err(), "it is locked");
        remove(&dir, &lock);
        assert!(!dir.exists());
        let next = take(&dir).unwrap();
        assert!(is_in_place(&next, &dir) && !is_in_place(&lock, &dir));
        std::fs::write(dir.join("other"), "").unwrap();
        remove(&dir, &next);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn only_old_run_directories_without_a_process_are_swept() {
        let temp = tempfile::tempdir().unwrap();
        let [own, dead] = ["own", "dead"].map(|name| made(temp.path(), name, true));
        let recent = made(temp.path(), "recent", false);
        let busy = made(temp.path(), "busy", true);
        let lock = data_dir::lock(&busy).unwrap();
        sweep(&own);
        assert_eq!([&own, &dead, &recent, &busy].map(|dir| dir.exists()), [true, false, true, true]);
        drop(lock);
    }
}
