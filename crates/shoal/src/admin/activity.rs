//! What administrators are told of what bricks and mounts do: profiles, and the busiest files. As in
//! [`reports`](super::reports), `--json` prints them as they are.

use super::BrickName;
use crate::profile::Profiled;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `volume profile`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProfileReport {
    /// The volume's name.
    pub name: String,
    /// Its bricks.
    pub bricks: Vec<BrickProfile>,
    /// Its mounts that have answered.
    pub mounts: Vec<MountProfile>,
    /// Its mounts that have not.
    pub silent: Vec<MountName>,
    /// Why it is not known which mounts there are.
    pub trouble: Option<String>,
}

/// What a brick has done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BrickProfile {
    /// The brick.
    pub brick: BrickName,
    /// What it has done.
    pub profiled: Option<Profiled>,
    /// Why that is not known.
    pub trouble: Option<String>,
}

/// What a mount has done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MountProfile {
    /// The mount.
    pub mount: MountName,
    /// What it has done.
    pub profiled: Profiled,
}

/// A mount, as its machine calls it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountName {
    /// The machine, as it calls itself.
    pub host: String,
    /// Where it is mounted there, if it says so.
    pub mountpoint: Option<String>,
    /// Its process there, if it says so.
    pub pid: Option<u32>,
}

impl fmt::Display for MountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if let Some(mountpoint) = &self.mountpoint {
            write!(f, ":{mountpoint}")?;
        }
        match self.pid {
            Some(pid) => write!(f, " (process {pid})"),
            None => Ok(()),
        }
    }
}

/// `volume top`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TopReport {
    /// The volume's name.
    pub name: String,
    /// The kind of requests.
    pub operation: String,
    /// Those with the most bytes come first, instead of those with the most requests.
    pub by_bytes: bool,
    /// Its mounts that have answered.
    pub mounts: Vec<MountTop>,
    /// Its mounts that have not.
    pub silent: Vec<MountName>,
    /// Why it is not known which mounts there are.
    pub trouble: Option<String>,
}

/// The busiest files of a mount.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MountTop {
    /// The mount.
    pub mount: MountName,
    /// For how long it has counted, in seconds.
    pub duration_s: u64,
    /// The first files.
    pub files: Vec<TopFile>,
}

/// A file or directory, and what was counted of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TopFile {
    /// Its path from the root of the volume; `None` if it was removed, or is not committed yet.
    pub path: Option<String>,
    /// Number of its inode.
    pub inode: u64,
    /// Requests, at most.
    pub count: u64,
    /// How far that may be too high.
    pub over_max: u64,
    /// Bytes read or written.
    pub bytes: u64,
}
