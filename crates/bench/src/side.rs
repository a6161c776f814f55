//! The two things that are compared: a Shoal volume and a plain directory.

use crate::nodes::{self, Counted};
use anyhow::{Context, bail, ensure};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// A mounted volume.
    Shoal,
    /// A plain directory on the same disk.
    Local,
}

/// One side of a comparison. Removes what it made when dropped.
pub struct Side {
    /// Which one it is.
    pub which: Which,
    /// Servers of the cluster; 0: one process for everything.
    nodes: usize,
    program: PathBuf,
    top: PathBuf,
}

impl Side {
    /// Makes a side below a directory, empty and ready.
    pub fn new(which: Which, nodes: usize, program: &Path, dir: &Path) -> anyhow::Result<Side> {
        let top = dir.join(match which {
            Which::Shoal => "shoal",
            Which::Local => "local",
        });
        let side = Side { which, nodes, program: program.to_owned(), top };
        side.clear()?;
        fs::create_dir_all(side.path())?;
        side.start()?;
        Ok(side)
    }

    /// Where the work is done.
    pub fn path(&self) -> PathBuf {
        self.top.join("mnt")
    }

    fn data(&self) -> PathBuf {
        self.top.join("data")
    }

    fn start(&self) -> anyhow::Result<()> {
        if self.which == Which::Shoal && self.nodes > 0 {
            return nodes::start(&self.program, &self.top, self.nodes, &self.path());
        }
        if self.which == Which::Shoal {
            let mut up = Command::new(&self.program);
            up.arg("up").arg("--data").arg(self.data()).arg("--mount").arg(self.path()).arg("--background");
            quietly(&mut up)?;
        }
        Ok(())
    }

    fn stop(&self) -> anyhow::Result<()> {
        if self.which == Which::Shoal {
            quietly(Command::new(&self.program).arg("umount").arg(self.path()))?;
            nodes::stop(&self.top, self.nodes)?;
        }
        Ok(())
    }

    /// Returns once everything written is on disk.
    pub fn sync(&self) -> anyhow::Result<()> {
        let top = File::open(self.path())?;
        match self.which {
            // An fsync covers all that was done before it; syncfs(2) does not reach a FUSE server.
            Which::Shoal => top.sync_all()?,
            // SAFETY: a system call on an open descriptor.
            Which::Local => ensure!(unsafe { libc::syncfs(top.as_raw_fd()) } == 0, "syncfs failed"),
        }
        Ok(())
    }

    /// Empties all caches: restarts Shoal, drops the kernel's.
    pub fn make_cold(&self) -> anyhow::Result<()> {
        self.sync()?;
        self.stop()?;
        self.start()?;
        // SAFETY: takes nothing, cannot fail.
        unsafe { libc::sync() };
        fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches")
    }

    /// What the client has asked its servers for, since it was mounted; of a cluster only.
    pub fn counted(&self) -> anyhow::Result<Option<Counted>> {
        match self.nodes {
            0 => Ok(None),
            _ if self.which == Which::Local => Ok(None),
            _ => nodes::counted(&self.program, &self.path()).map(Some),
        }
    }

    /// Process id of the server.
    pub fn server(&self) -> anyhow::Result<u32> {
        let out = Command::new(&self.program).arg("status").arg(self.path()).arg("--json").output()?;
        let status: serde_json::Value = serde_json::from_slice(&out.stdout).context("shoal status --json")?;
        status["pid"]
            .as_u64()
            .and_then(|pid| pid.try_into().ok())
            .context("shoal status does not tell a process id")
    }

    fn clear(&self) -> anyhow::Result<()> {
        if self.which == Which::Shoal
            && fs::read_to_string("/proc/mounts")?.contains(&format!(" {} ", self.path().display()))
        {
            self.stop()?;
        }
        nodes::stop(&self.top, self.nodes)?;
        match fs::remove_dir_all(&self.top) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context(self.top.display().to_string())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            eprintln!("shoal-bench: cleaning up {}: {error:#}", self.top.display());
        }
    }
}

/// Runs a program whose output matters only if it fails.
pub fn quietly(command: &mut Command) -> anyhow::Result<()> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !out.status.success() {
        bail!("{command:?} ended with {}:\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(())
}

/// Runs a bash script in a directory.
pub fn bash(dir: &Path, script: &str) -> anyhow::Result<()> {
    quietly(Command::new("bash").arg("-euo").arg("pipefail").arg("-c").arg(script).current_dir(dir))
}
