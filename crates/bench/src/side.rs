//! The two sides of a comparison: a Shoal volume and a plain directory.

use crate::limits::FORGOTTEN_WITHIN;
use crate::nodes::{self, Counted, Latencies};
use anyhow::{Context, ensure};
use shoal_suites::machine::dir_bytes;
use shoal_suites::programs::quietly;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Which side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// A mounted volume.
    Shoal,
    /// A plain directory on the same disk.
    Local,
}

/// The scope of programs' locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locks {
    /// One mount: the kernel keeps the locks, and a warm read sends no message.
    Local,
    /// All mounts: open(2) and close(2) send a message each.
    Cluster,
}

impl Locks {
    /// The mount option.
    pub fn option(self) -> &'static str {
        match self {
            Locks::Local => "locks=local",
            Locks::Cluster => "locks=cluster",
        }
    }
}

/// One side of a comparison. Dropping it removes what it created.
pub struct Side {
    /// Which side it is.
    pub which: Which,
    /// Servers of the cluster; 0: one process for everything.
    nodes: usize,
    /// Mounts of a cluster's volume.
    mounts: usize,
    program: PathBuf,
    top: PathBuf,
    /// [`Locks::Cluster`] instead of [`Locks::Local`].
    cluster_locks: AtomicBool,
}

impl Side {
    /// Creates an empty side in a directory. Only a cluster has several mounts.
    pub fn new(
        which: Which,
        nodes: usize,
        mounts: usize,
        program: &Path,
        dir: &Path,
    ) -> anyhow::Result<Side> {
        let top = dir.join(match which {
            Which::Shoal => "shoal",
            Which::Local => "local",
        });
        ensure!(mounts == 1 || nodes > 0, "`shoal up` mounts once");
        let side = Side {
            which,
            nodes,
            mounts,
            program: program.to_owned(),
            top,
            cluster_locks: AtomicBool::new(false),
        };
        side.clear()?;
        for mount in side.all_mounts() {
            fs::create_dir_all(mount)?;
        }
        side.start()?;
        Ok(side)
    }

    /// The directory of the work.
    pub fn path(&self) -> PathBuf {
        self.top.join("mnt")
    }

    /// The directory of the work as seen by one of the mounts, from 0; a plain directory has only one path.
    pub fn mount(&self, number: usize) -> PathBuf {
        match (self.which, number) {
            (Which::Local, _) | (_, 0) => self.path(),
            _ => self.top.join(format!("mnt{number}")),
        }
    }

    fn all_mounts(&self) -> impl Iterator<Item = PathBuf> {
        (0..self.mounts).map(|number| self.mount(number))
    }

    fn data(&self) -> PathBuf {
        self.top.join("data")
    }

    fn start(&self) -> anyhow::Result<()> {
        if self.which == Which::Shoal && self.nodes > 0 {
            nodes::start(&self.program, &self.top, self.nodes)?;
            for mount in self.all_mounts() {
                nodes::mount(&self.program, &self.top, self.nodes, &mount, self.locks().option())?;
            }
            return Ok(());
        }
        if self.which == Which::Shoal {
            let mut up = Command::new(&self.program);
            up.arg("up")
                .args(["-o", self.locks().option()])
                .arg("--data")
                .arg(self.data())
                .arg("--mount")
                .arg(self.path())
                .arg("--background");
            quietly(&mut up)?;
        }
        Ok(())
    }

    fn stop(&self) -> anyhow::Result<()> {
        if self.which == Which::Shoal {
            for mount in self.all_mounts() {
                self.unmount(&mount)?;
            }
            nodes::stop(&self.top, self.nodes)?;
        }
        Ok(())
    }

    fn unmount(&self, mount: &Path) -> anyhow::Result<()> {
        let mounted = fs::read_to_string("/proc/mounts")?.contains(&format!(" {} ", mount.display()));
        if mounted { quietly(Command::new(&self.program).arg("umount").arg(mount)) } else { Ok(()) }
    }

    /// Mounts again, so that the caches of this mount are cold.
    pub fn mount_anew(&self, number: usize) -> anyhow::Result<()> {
        if self.which == Which::Local {
            return Ok(());
        }
        let mount = self.mount(number);
        self.unmount(&mount)?;
        nodes::mount(&self.program, &self.top, self.nodes, &mount, self.locks().option())
    }

    fn locks(&self) -> Locks {
        if self.cluster_locks.load(Relaxed) { Locks::Cluster } else { Locks::Local }
    }

    /// Mounts again if the scope of locks is to change.
    pub fn set_locks(&self, locks: Locks) -> anyhow::Result<()> {
        let cluster = locks == Locks::Cluster;
        if self.cluster_locks.swap(cluster, Relaxed) == cluster || self.which == Which::Local {
            return Ok(());
        }
        self.stop()?;
        self.start()
    }

    /// Drops the kernel's caches; processes keep theirs. Returns when the mounts have handled the FORGET
    /// requests for everything that was dropped at once.
    pub fn empty_caches(&self) -> anyhow::Result<()> {
        drop_caches()?;
        std::thread::sleep(FORGOTTEN_WITHIN);
        Ok(())
    }

    /// Returns when everything written is on disk.
    pub fn sync(&self) -> anyhow::Result<()> {
        self.sync_mount(0)
    }

    /// Returns when everything written through one mount is on disk.
    pub fn sync_mount(&self, number: usize) -> anyhow::Result<()> {
        let top = File::open(self.mount(number))?;
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
        self.restart().map(drop)
    }

    /// Restarts Shoal with cold caches. Answers how long it took to stop, and how long until the root could
    /// be read.
    pub fn restart(&self) -> anyhow::Result<(Duration, Duration)> {
        self.sync()?;
        let begun = Instant::now();
        self.stop()?;
        let stopped = begun.elapsed();
        drop_caches()?;
        let begun = Instant::now();
        self.start()?;
        fs::metadata(self.path())?;
        let started = begun.elapsed();
        drop_caches()?;
        Ok((stopped, started))
    }

    /// Process ids of a cluster's servers.
    pub fn servers(&self) -> Vec<i32> {
        nodes::running(&self.top, self.nodes)
    }

    /// Bytes on disk of everything that the side keeps.
    pub fn disk_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.top)? {
            let path = entry?.path();
            if !self.all_mounts().any(|mount| mount == path) {
                bytes += dir_bytes(&path)?;
            }
        }
        Ok(bytes)
    }

    /// Recalls sent to all mounts; none on a plain directory.
    pub fn recalls(&self) -> anyhow::Result<u64> {
        match self.which {
            Which::Local => Ok(0),
            Which::Shoal => self.all_mounts().map(|mount| nodes::recalls(&self.program, &mount)).sum(),
        }
    }

    /// Latencies of the kernel's requests to all mounts so far; none on a plain directory.
    pub fn latencies(&self) -> anyhow::Result<Latencies> {
        match self.which {
            Which::Local => Ok(Latencies::default()),
            Which::Shoal => nodes::latencies(&self.program, self.all_mounts()),
        }
    }

    /// The client's requests to its servers since it was mounted; of a cluster only.
    pub fn counted(&self) -> anyhow::Result<Option<Counted>> {
        match self.nodes {
            0 => Ok(None),
            _ if self.which == Which::Local => Ok(None),
            _ => nodes::counted(&self.program, &self.path()).map(Some),
        }
    }

    /// One of the mount's counters, as `shoal stats` names it; `None` of a plain directory.
    pub fn client_figure(&self, name: &str) -> anyhow::Result<Option<u64>> {
        if self.which == Which::Local {
            return Ok(None);
        }
        let out = Command::new(&self.program).arg("stats").arg(self.path()).arg("--json").output()?;
        let stats: serde_json::Value = serde_json::from_slice(&out.stdout).context("shoal stats --json")?;
        let figures = stats["client"].as_array().context("shoal stats tells no figures")?;
        let its = figures.iter().find(|figure| figure["name"] == name);
        Ok(its.and_then(|figure| figure["value"].as_u64()))
    }

    /// Process id of the mount, which is the server's, too, if one process is both.
    pub fn server(&self) -> anyhow::Result<u32> {
        let out = Command::new(&self.program).arg("status").arg(self.path()).arg("--json").output()?;
        let status: serde_json::Value = serde_json::from_slice(&out.stdout).context("shoal status --json")?;
        status["pid"]
            .as_u64()
            .and_then(|pid| pid.try_into().ok())
            .context("shoal status does not tell a process id")
    }

    fn clear(&self) -> anyhow::Result<()> {
        self.stop()?;
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

/// Writes back everything, and drops the kernel's caches.
pub fn drop_caches() -> anyhow::Result<()> {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::sync() };
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches")
}
