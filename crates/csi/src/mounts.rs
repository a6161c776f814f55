//! What the driver needs of the machine.

use crate::id::VolumeId;
use std::path::Path;

/// A mount that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// The Shoal volume and the directory in it, as `VOLUME[/DIRECTORY]`; `None` if it is no Shoal mount.
    pub directory: Option<String>,
    /// Whether the process behind it is there.
    pub alive: bool,
    /// Whether it is mounted read-only.
    pub read_only: bool,
}

impl Mounted {
    /// Whether it is a mount of this volume.
    pub fn is(&self, id: &VolumeId) -> bool {
        self.directory.as_ref().is_some_and(|directory| *directory == id.to_string())
    }
}

/// How full a file system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// All bytes.
    pub bytes: u64,
    /// Bytes that can still be written.
    pub bytes_available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub inodes_available: u64,
}

/// Mounts volumes, and answers what is mounted.
pub trait Mounts: Send + Sync + 'static {
    /// The mount exactly at a path; an error if it does not respond.
    fn at(&self, point: &Path) -> anyhow::Result<Option<Mounted>>;
    /// Mounts `VOLUME[/DIRECTORY]`, in place of a dead mount if there is one. It survives this process.
    fn mount(&self, directory: &str, point: &Path, options: &str) -> anyhow::Result<()>;
    /// Writes everything back and unmounts.
    fn unmount(&self, point: &Path) -> anyhow::Result<()>;
    /// Mounts a mount at a second place.
    fn bind(&self, from: &Path, to: &Path, read_only: bool) -> anyhow::Result<()>;
    /// Removes what [`bind`](Self::bind) made.
    fn unbind(&self, point: &Path) -> anyhow::Result<()>;
    /// How full the file system at a path is.
    fn usage(&self, path: &Path) -> anyhow::Result<Usage>;
    /// Why mount options cannot be used.
    fn check_options(&self, options: &str) -> Result<(), String>;
}
