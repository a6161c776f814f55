//! The work of a long-running process. It can be passed as arguments to another process of this program.

use crate::options::Options;
use shoal_fuse::Mounted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Work that goes on until the process is told to stop.
pub trait Job {
    /// What is acquired before anything is logged: a locked directory.
    type Taken;
    /// The job under way.
    type Running: Running;
    /// The log level in the foreground unless `SHOAL_LOG` sets another one.
    const LOG_LEVEL: &'static str;

    /// The arguments with which another process of this program does the same job in the background.
    fn arguments(&self) -> Vec<OsString>;
    /// Directory of the log, in which the parent finds the last lines of a process that died without a
    /// report.
    fn log_dir(&self) -> &Path;
    /// The mount options, if it has a mount.
    fn options(&self) -> Option<&Options> {
        None
    }
    /// Locks the job's directory against a second process; also returns the directory of the log.
    fn take(&self) -> anyhow::Result<(Self::Taken, PathBuf)>;
    /// Starts everything, the control socket included.
    fn start(&self, taken: Self::Taken) -> anyhow::Result<Self::Running>;
}

/// A job under way.
pub trait Running: Send + Sync + 'static {
    /// Its mount, if it has one.
    fn mounted(&self) -> Option<&Mounted>;
    /// Its state, for people, and the directory for a file with it.
    fn dump(&self) -> (String, PathBuf);
    /// After the mount has ended: makes everything durable and stops.
    fn stop(&self) -> anyhow::Result<()>;
}
