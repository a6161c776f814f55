//! `shoal csi`.

use crate::cluster_source::ClusterSource;
use crate::mounts::{self, Health, Mount};
use crate::options::Options;
use crate::signals::{DUMP, Signals};
use crate::{logging, notify};
use anyhow::{Context, bail};
use clap::Args;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use shoal_csi::{Driver, Endpoint, Mounted, Mounts, Settings, Usage, VOLUMES_PER_NODE_MAX};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Serves Kubernetes: a CSI driver, whose volumes are directories of the cluster's volumes.
///
/// Runs on each machine of Kubernetes until SIGTERM or Ctrl-C. Its mounts are processes of their own and go
/// on without it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal csi --servers node1,node2,node3 --volume web
  shoal csi --servers node1 --volume web --volume mail --directory kubernetes -o noatime

The manifests for Kubernetes are in /usr/share/shoal/kubernetes.")]
pub struct Csi {
    /// Nodes of the cluster, any of which will do
    #[arg(long, value_name = "HOST[,HOST...]")]
    servers: String,
    /// A volume of the cluster to make directories in; of several, the first is the default
    #[arg(long = "volume", value_name = "NAME", required = true)]
    volumes: Vec<String>,
    /// The directory of the volumes in which directories are made
    #[arg(long, value_name = "DIR", default_value = "csi")]
    directory: String,
    /// The socket to listen on
    #[arg(
        long,
        value_name = "unix:///PATH",
        default_value = "unix:///var/lib/kubelet/plugins/shoal.csi/csi.sock"
    )]
    endpoint: Endpoint,
    /// This machine's name in Kubernetes; its host name if left out
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Where the volumes are mounted whole, to make directories in them
    #[arg(long, value_name = "DIR", default_value = "/run/shoal/csi")]
    state: PathBuf,
    /// Mount options of every volume, before those of its storage class
    #[arg(short, long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    options: String,
    /// Directory of the client's credentials, if not in the usual place
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// How many volumes this machine may have mounted for pods
    #[arg(long, value_name = "N", default_value_t = VOLUMES_PER_NODE_MAX, value_parser = clap::value_parser!(i64).range(1..))]
    volumes_max: i64,
}

impl Csi {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let node = match self.node {
            Some(node) => node,
            None => nix::unistd::gethostname().context("host name")?.to_string_lossy().into_owned(),
        };
        let credentials = self.credentials.map(std::path::absolute).transpose()?;
        let mounts = NodeMounts { servers: self.servers, credentials };
        for volume in &self.volumes {
            mounts.source(volume)?;
        }
        mounts.check_options(&self.options).map_err(anyhow::Error::msg)?;
        let settings = Settings {
            node,
            volumes: self.volumes,
            directory: self.directory,
            state: std::path::absolute(self.state)?,
            options: self.options,
            volumes_max: self.volumes_max,
        };
        let driver = Driver::new(settings, Box::new(mounts))?;
        logging::to_stderr("info");
        let signals = Signals::take().context("signals")?;
        let (tell, told) = std::sync::mpsc::channel();
        // Ends with the process.
        std::thread::Builder::new().name("shoal-signals".into()).spawn(move || {
            while signals.wait().is_ok_and(|signal| signal == DUMP) {}
            let _ = tell.send(());
        })?;
        let listening = || {
            println!("CSI: unix://{}", self.endpoint.path().display());
            notify::ready();
        };
        let stop = move || {
            let _ = told.recv();
            notify::stopping();
        };
        shoal_csi::serve(driver, &self.endpoint, listening, stop)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Mounts of a cluster's volumes on this machine.
struct NodeMounts {
    servers: String,
    credentials: Option<PathBuf>,
}

impl NodeMounts {
    /// What is mounted for `VOLUME[/DIRECTORY]`, in the words of mount(8).
    fn source(&self, directory: &str) -> anyhow::Result<ClusterSource> {
        format!("{}:/{directory}", self.servers).parse().map_err(anyhow::Error::msg)
    }
}

/// Runs this program with other arguments. A mount then belongs to a process whose parent has ended, so it is
/// no child of the driver.
fn shoal(arguments: &[&OsStr]) -> anyhow::Result<()> {
    // Not `current_exe`: its name is wrong once the file was replaced by a newer one.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("shoal").args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // The service manager is told by the driver alone.
    let output = command.env_remove("NOTIFY_SOCKET").output().context("starting shoal")?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    bail!("{}", text.trim().trim_start_matches("shoal: "))
}

/// The Shoal mount at a path.
fn shoal_at(point: &Path) -> anyhow::Result<Mount> {
    let there = mounts::at(point).with_context(|| point.display().to_string())?;
    there.filter(Mount::is_shoal).with_context(|| format!("no volume is mounted on {}", point.display()))
}

impl Mounts for NodeMounts {
    fn at(&self, point: &Path) -> anyhow::Result<Option<Mounted>> {
        let mount = match mounts::at(point) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            found => found.with_context(|| point.display().to_string())?,
        };
        let Some(mount) = mount else { return Ok(None) };
        let read_only = mount.flags.split(',').any(|flag| flag == "ro");
        if !mount.is_shoal() {
            return Ok(Some(Mounted { directory: None, alive: true, read_only }));
        }
        let source = mount.source.to_str().and_then(|source| source.parse::<ClusterSource>().ok());
        let directory = source.map(|source| match source.subdirectory {
            Some(directory) => format!("{}/{directory}", source.volume),
            None => source.volume,
        });
        let alive = match mount.health() {
            Health::Alive => true,
            Health::Dead => false,
            Health::Hung => {
                bail!("the process that serves {} does not answer: see `shoal status`", point.display())
            }
        };
        Ok(Some(Mounted { directory, alive, read_only }))
    }

    fn mount(&self, directory: &str, point: &Path, options: &str) -> anyhow::Result<()> {
        let source = self.source(directory)?.text;
        let options = format!("--options={options}");
        let mut arguments = vec!["mount".as_ref(), source.as_ref(), point.as_os_str(), options.as_ref()];
        if let Some(credentials) = &self.credentials {
            arguments.extend(["--credentials".as_ref(), credentials.as_os_str()]);
        }
        shoal(&arguments).with_context(|| format!("mounting {source} on {}", point.display()))
    }

    fn unmount(&self, point: &Path) -> anyhow::Result<()> {
        shoal(&["umount".as_ref(), point.as_os_str()])
    }

    fn bind(&self, from: &Path, to: &Path, read_only: bool) -> anyhow::Result<()> {
        const NONE: Option<&str> = None;
        let shown = || format!("mounting {} on {}", from.display(), to.display());
        mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE).with_context(shown)?;
        if read_only {
            // The other flags of the mount would be cleared if they were not repeated.
            let kept = shoal_at(to).map(|mount| flags(&mount.flags));
            let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            let done = kept.and_then(|kept| Ok(mount(NONE, to, NONE, flags | kept, NONE)?));
            if let Err(error) = done {
                let _ = umount2(to, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
                return Err(error.context(shown()));
            }
        }
        Ok(())
    }

    fn unbind(&self, point: &Path) -> anyhow::Result<()> {
        let there = shoal_at(point)?;
        let unmount = || umount2(&there.point, MntFlags::UMOUNT_NOFOLLOW);
        match mounts::retry_while_busy(|errno| *errno == Errno::EBUSY, unmount) {
            Ok(()) => Ok(()),
            Err(Errno::EBUSY) if there.health() == Health::Dead => {
                Ok(umount2(&there.point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?)
            }
            Err(Errno::EBUSY) => bail!("{}", there.why_busy()),
            Err(errno) => Err(errno).with_context(|| format!("unmounting {}", point.display())),
        }
    }

    fn usage(&self, path: &Path) -> anyhow::Result<Usage> {
        let stat = nix::sys::statvfs::statvfs(path).with_context(|| path.display().to_string())?;
        Ok(Usage {
            bytes: stat.blocks() * stat.fragment_size(),
            bytes_available: stat.blocks_available() * stat.fragment_size(),
            inodes: stat.files(),
            inodes_available: stat.files_available(),
        })
    }

    fn check_options(&self, options: &str) -> Result<(), String> {
        let options: Options = options.parse()?;
        let Options { credentials, servers, subdirectory, remount, .. } = &options;
        if credentials.is_some() || !servers.is_empty() || subdirectory.is_some() || *remount {
            return Err(
                "what is mounted is the driver's: leave out credentials, servers, subdir and remount".into(),
            );
        }
        Ok(())
    }
}

/// Flags of a mount that a bind mount of it is to keep.
fn flags(shown: &str) -> MsFlags {
    let flag = |name| match name {
        "nosuid" => MsFlags::MS_NOSUID,
        "nodev" => MsFlags::MS_NODEV,
        "noexec" => MsFlags::MS_NOEXEC,
        "noatime" => MsFlags::MS_NOATIME,
        "nodiratime" => MsFlags::MS_NODIRATIME,
        _ => MsFlags::empty(),
    };
    shown.split(',').map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_class_sets_options_of_mounts_but_not_what_is_mounted() {
        let mounts = NodeMounts { servers: "node1".into(), credentials: None };
        for good in ["", "ro,noatime", "cache=64"] {
            mounts.check_options(good).unwrap_or_else(|why| panic!("{good}: {why}"));
        }
        for bad in ["subdir=other", "credentials=/etc", "remount", "cache=x", "backup-volfile-servers=node2"]
        {
            assert!(mounts.check_options(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn read_only_bind_mount_keeps_the_flags_of_its_mount() {
        assert_eq!(flags("rw,nosuid,nodev,relatime"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV);
        assert_eq!(flags("rw"), MsFlags::empty());
    }
}
