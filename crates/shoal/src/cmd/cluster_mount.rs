//! Mounting a volume of a cluster: `shoal mount HOST:/VOLUME MNT` in the foreground, or its background
//! process, `shoal serve-mount`.

use super::serve::clear_dead_mount;
use crate::admin::MountSpec;
use crate::cluster_source::{ClusterSource, with_port};
use crate::job::{Job, Running};
use crate::limits::{CREDENTIALS_DEFAULT, PORT_DEFAULT, SERVER_DATA_DEFAULT};
use crate::mounts;
use crate::options::Options;
use crate::run_dir;
use crate::server::mount::ClusterMount;
use anyhow::{Context, bail};
use clap::Args;
use nix::fcntl::Flock;
use shoal_fuse::Mounted;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to mount and where.
#[derive(Debug, Clone, Args)]
pub struct ServeMount {
    /// The volume, HOST[,HOST...]:/VOLUME
    #[arg(long)]
    source: ClusterSource,
    /// Where to mount it
    #[arg(long)]
    mount: PathBuf,
    /// Where the client's credentials are
    #[arg(long)]
    credentials: PathBuf,
    /// Mount options
    #[arg(short, long, default_value = "")]
    options: Options,
    /// Where the control socket, the lock and the log are
    #[arg(skip)]
    run: PathBuf,
}

impl ServeMount {
    /// Checks the command line, and that there are credentials.
    pub fn new(
        source: ClusterSource,
        mountpoint: &Path,
        credentials: Option<&Path>,
        options: Options,
    ) -> anyhow::Result<ServeMount> {
        let shown = mountpoint.display();
        // Named as in the mount table, so that `shoal umount` finds the process.
        let mount = mounts::resolve(mountpoint).with_context(|| match mountpoint.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                format!("there is no directory {shown} to mount on: `mkdir -p {shown}` makes it")
            }
            _ => format!("mount point {shown}"),
        })?;
        let credentials = match credentials.or(options.credentials.as_deref()) {
            Some(dir) => std::path::absolute(dir)?,
            None => usual_credentials(&places())?,
        };
        Ok(ServeMount { source, mount, credentials, options, run: PathBuf::new() }.located())
    }

    /// Fills in the directory that is not given on a command line.
    pub fn located(self) -> ServeMount {
        ServeMount { run: mounts::run_dir(&self.mount), ..self }
    }

    fn spec(&self) -> anyhow::Result<MountSpec> {
        let subdirectory = match (&self.source.subdirectory, &self.options.subdirectory) {
            (Some(one), Some(other)) if one != other => bail!(
                "{} names the subdirectory {one}, and subdir= names {other}: leave one of them out",
                self.source.text
            ),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let mut servers = self.source.servers.clone();
        for server in &self.options.servers {
            servers.push(
                with_port(server, PORT_DEFAULT).with_context(|| format!("'{server}' names no server"))?,
            );
        }
        Ok(MountSpec {
            servers,
            volume: self.source.volume.clone(),
            subdirectory,
            mountpoint: self.mount.clone(),
            source: self.source.text.clone(),
            credentials: self.credentials.clone(),
            options: self.options.clone(),
            run: self.run.clone(),
        })
    }
}

/// Directories in which credentials are looked for.
fn places() -> Vec<PathBuf> {
    let server = std::env::var_os("SHOAL_DATA").map_or_else(|| SERVER_DATA_DEFAULT.into(), PathBuf::from);
    vec![CREDENTIALS_DEFAULT.into(), server.join("tls")]
}

fn usual_credentials(places: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let there = places.iter().find(|dir| dir.join("cert.pem").exists());
    match there {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => bail!(
            "this machine has no credentials (looked in {}): `shoal client issue NAME` on a node of the cluster makes some; \
             move them to {CREDENTIALS_DEFAULT}, or say where they are with --credentials DIR (in fstab: credentials=DIR)",
            places.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Fails at once if no server's name can be resolved, instead of waiting for a time-out.
fn check_names(servers: &[String]) -> anyhow::Result<()> {
    let mut unknown = Vec::new();
    for server in servers {
        match server.to_socket_addrs() {
            Ok(_) => return Ok(()),
            Err(error) => unknown.push(format!("{server}: {error}")),
        }
    }
    bail!("none of the servers has an address: {}", unknown.join("; "))
}

/// A mounted volume of a cluster. Dropping it releases its lock.
pub struct ServingMount {
    mount: Arc<ClusterMount>,
    lock: Flock<File>,
    /// It has made everything durable.
    has_stopped: AtomicBool,
}

impl Drop for ServingMount {
    fn drop(&mut self) {
        if self.has_stopped.load(Ordering::Relaxed) {
            run_dir::remove(self.mount.run(), &self.lock);
        }
    }
}

impl Running for ServingMount {
    fn mounted(&self) -> Option<&Mounted> {
        Some(self.mount.mounted())
    }

    fn dump(&self) -> (String, PathBuf) {
        (self.mount.dump(), self.mount.run().to_owned())
    }

    fn stop(&self) -> anyhow::Result<()> {
        self.mount.stop()?;
        self.has_stopped.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Job for ServeMount {
    type Taken = Flock<File>;
    type Running = ServingMount;
    const LOG_LEVEL: &'static str = "warn";

    fn arguments(&self) -> Vec<OsString> {
        vec![
            "serve-mount".into(),
            "--source".into(),
            self.source.text.clone().into(),
            "--mount".into(),
            self.mount.clone().into(),
            "--credentials".into(),
            self.credentials.clone().into(),
            format!("--options={}", self.options.words()).into(),
        ]
    }

    fn log_dir(&self) -> &Path {
        &self.run
    }

    fn options(&self) -> Option<&Options> {
        Some(&self.options)
    }

    fn take(&self) -> anyhow::Result<(Flock<File>, PathBuf)> {
        clear_dead_mount(&self.mount)?;
        let lock = run_dir::take(&self.run)?;
        run_dir::sweep(&self.run);
        Ok((lock, self.run.clone()))
    }

    fn start(&self, lock: Flock<File>) -> anyhow::Result<ServingMount> {
        let started = self.spec().and_then(|spec| {
            check_names(&spec.servers)?;
            ClusterMount::start(&spec)
        });
        // The caller reports why it did not start.
        let mount = started.inspect_err(|_| run_dir::remove(&self.run, &lock))?;
        Ok(ServingMount { mount, lock, has_stopped: AtomicBool::new(false) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_from_the_first_place_that_has_some() {
        let temp = tempfile::tempdir().unwrap();
        let places = [temp.path().join("client"), temp.path().join("tls")];
        let error = usual_credentials(&places).unwrap_err().to_string();
        assert!(error.contains("client issue") && error.contains(places[1].to_str().unwrap()), "{error}");
        for dir in places.iter().rev() {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(dir.join("cert.pem"), "").unwrap();
            assert_eq!(&usual_credentials(&places).unwrap(), dir);
        }
    }

    #[test]
    fn mounting_fails_at_once_if_no_server_name_resolves_and_one_that_does_is_enough() {
        let unknown = "no-port".to_owned();
        let error = check_names(std::slice::from_ref(&unknown)).unwrap_err().to_string();
        assert!(error.contains("no-port"), "{error}");
        check_names(&[unknown, "127.0.0.1:7470".into()]).unwrap();
    }

    #[test]
    fn another_process_is_given_the_same_to_do() {
        let temp = tempfile::tempdir().unwrap();
        let options: Options = "ro,_netdev,backup-volfile-servers=node3".parse().unwrap();
        let source: ClusterSource = "node1,node2:web/sites/a".parse().unwrap();
        let job = ServeMount::new(source, temp.path(), Some(Path::new("/c")), options).unwrap();
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            job: ServeMount,
        }
        let again = <Line as clap::Parser>::try_parse_from(job.arguments()).unwrap_or_else(|e| panic!("{e}"));
        let (spec, again) = (job.spec().unwrap(), again.job.located().spec().unwrap());
        assert_eq!(format!("{spec:?}"), format!("{again:?}"));
        assert_eq!(spec.servers, ["node1:7470", "node2:7470", "node3:7470"]);
        assert_eq!((spec.volume.as_str(), spec.options.mount.read_only), ("web", true));
        assert_eq!(spec.subdirectory.as_deref(), Some("sites/a"));
        assert_eq!(spec.run, mounts::run_dir(&temp.path().canonicalize().unwrap()));
    }
}
