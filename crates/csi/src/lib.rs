//! A CSI driver: directories of Shoal volumes as volumes of Kubernetes and other container orchestrators.
//!
//! **Model.** CSI is gRPC on a Unix socket, version 1 of the specification. A CSI volume is a directory of a
//! Shoal volume, and its id names it: `web/csi/pvc-1` is the directory `csi/pvc-1` of the volume `web`. A
//! node stages it by a mount of that directory and publishes it by a bind mount. This crate knows the
//! protocol, the directories and their records; mounting comes in through [`Mounts`].
//!
//! **Assumes.** One controller works at a time, as the sidecars' leader election keeps it. Calls are
//! blocking: a mount takes seconds.
//!
//! **Promises.** Each call is idempotent, also after a crash halfway. A directory is deleted only if the
//! driver made it. A second call for a volume that has one in flight is answered ABORTED.
//!
//! **Refuses.** Block devices, file system types other than `shoal`, snapshots and clones. A capacity is
//! recorded and not enforced: there are no quotas.

mod capability;
mod controller;
mod directories;
mod grpc;
mod id;
mod identity;
mod inflight;
mod limits;
mod messages;
mod mounts;
mod node;
mod status;
#[cfg(test)]
mod tests;

pub use grpc::{Endpoint, serve};
pub use id::VolumeId;
pub use limits::VOLUMES_PER_NODE_MAX;
pub use mounts::{Mounted, Mounts, Usage};

use inflight::Inflight;
use std::path::PathBuf;

/// The name under which orchestrators know the driver.
pub const DRIVER: &str = "shoal.csi";

/// What an administrator sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of this node, as the orchestrator knows it.
    pub node: String,
    /// Shoal volumes in which directories are made; the first is the default.
    pub volumes: Vec<String>,
    /// Directory of a Shoal volume below which volumes are made: `csi`.
    pub directory: String,
    /// Where the controller mounts whole volumes.
    pub state: PathBuf,
    /// Mount options of every volume, before those of its storage class.
    pub options: String,
    /// How many volumes a node may have staged.
    pub volumes_max: i64,
}

/// The driver: answers every call of the three services.
pub struct Driver {
    settings: Settings,
    mounts: Box<dyn Mounts>,
    inflight: Inflight,
}

impl Driver {
    /// A driver that mounts through `mounts`.
    pub fn new(settings: Settings, mounts: Box<dyn Mounts>) -> anyhow::Result<Driver> {
        anyhow::ensure!(!settings.volumes.is_empty(), "no volume is named: say --volume NAME");
        for volume in &settings.volumes {
            // The longest directory that the driver makes must fit, too.
            let longest = "x".repeat(limits::DIRECTORY_BYTES_MAX);
            VolumeId::parse(&format!("{volume}/{}/{longest}", settings.directory))?;
        }
        Ok(Driver { settings, mounts, inflight: Inflight::default() })
    }
}
