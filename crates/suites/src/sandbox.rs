//! A subdirectory of a directory under test, in which all work is done.

use crate::limits::SPACE_SPARE_PART;
use anyhow::{Context, bail, ensure};
use nix::sys::statvfs::statvfs;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The subdirectory. Dropping it removes it with all that is in it.
pub struct Sandbox {
    path: PathBuf,
}

impl Sandbox {
    /// Creates one, if the directory can take the work. The number keeps those of one process apart.
    pub fn create(dir: &Path, number: usize, bytes: u64) -> anyhow::Result<Sandbox> {
        let shown = dir.display();
        let metadata =
            fs::metadata(dir).with_context(|| format!("{shown}: no such directory can be used"))?;
        ensure!(metadata.is_dir(), "{shown} is not a directory");
        let dir = dir.canonicalize().with_context(|| shown.to_string())?;
        let path = dir.join(format!(".shoal-bench-{}-{number}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("{shown} cannot be written to"))?;
        // From here on it is removed when it is dropped.
        let sandbox = Sandbox { path };
        let room = statvfs(&dir).with_context(|| shown.to_string())?;
        let free = room.blocks_available() as u64 * room.fragment_size() as u64;
        let wanted = bytes + bytes / SPACE_SPARE_PART;
        if free < wanted {
            bail!(
                "{shown} has {} MiB free, and {} MiB are needed: choose smaller sizes (--files, --stream-size)",
                free >> 20,
                wanted.div_ceil(1 << 20)
            );
        }
        Ok(sandbox)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("shoal bench: {} is left: {error}", self.path.display());
        }
    }
}

/// Returns when everything written to a directory's file system is on disk.
///
/// syncfs(2) does not reach a FUSE server, and an fsync of a directory does; local file systems need both.
pub fn sync(dir: &Path) -> anyhow::Result<()> {
    let open = File::open(dir).with_context(|| dir.display().to_string())?;
    // SAFETY: a system call on an open descriptor.
    let outcome = unsafe { libc::syncfs(open.as_raw_fd()) };
    ensure!(outcome == 0, "{}: syncfs: {}", dir.display(), std::io::Error::last_os_error());
    open.sync_all().with_context(|| format!("{}: fsync", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_is_removed_with_everything_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::create(dir.path(), 0, 1).unwrap();
        fs::create_dir_all(sandbox.path().join("a/b")).unwrap();
        fs::write(sandbox.path().join("a/b/c"), "c").unwrap();
        sync(sandbox.path()).unwrap();
        drop(sandbox);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn unfit_directories_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let refused =
            |dir: &Path, bytes| format!("{:#}", Sandbox::create(dir, 0, bytes).map(drop).unwrap_err());
        assert!(refused(&dir.path().join("none"), 0).contains("no such directory"));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(refused(&dir.path().join("file"), 0).contains("not a directory"));
        assert!(refused(dir.path(), 1 << 60).contains("smaller sizes"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the file alone");
        assert!(refused(Path::new("/proc"), 1).contains("cannot be written to"));
    }
}
