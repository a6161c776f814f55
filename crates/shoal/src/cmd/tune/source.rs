//! Which volume is tuned, and how it is mounted for that.

use super::layers::value_in;
use crate::admin::{AdminAnswer, AdminRequest, PeerReport};
use crate::cluster_source::{ClusterSource, looks_like_one};
use crate::cmd::cluster_mount::ServeMount;
use crate::cmd::local::{Local, expect_answer};
use crate::cmd::serve::Serve;
use crate::cmd::umount::Umount;
use crate::cmd::volume::volumes;
use crate::options::Options;
use crate::{background, data_dir, mounts};
use anyhow::{Context, bail};
use nix::mount::{MntFlags, umount2};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The volume.
pub enum Source {
    /// A volume of a cluster.
    Cluster {
        /// As for `shoal mount`.
        source: ClusterSource,
        /// Its credentials, if not the usual ones.
        credentials: Option<PathBuf>,
        /// Its settings, as mount options, if this machine's server knows them.
        settings: String,
        /// Whether this machine's server can change them.
        is_ours: bool,
    },
    /// The data directory of `shoal up`.
    Data(PathBuf),
}

impl Source {
    /// What is meant by a word: HOST:/VOLUME, a data directory, or a volume of the cluster of this node.
    pub fn find(word: &str, local: &Local, credentials: Option<&Path>) -> anyhow::Result<Source> {
        let given = credentials.map(Path::to_owned);
        if looks_like_one(word) {
            let source: ClusterSource = word.parse().map_err(anyhow::Error::msg)?;
            let is_ours = is_of_this_node(local, &source);
            let settings = if is_ours { settings(local, &source.volume)? } else { String::new() };
            return Ok(Source::Cluster { source, credentials: given, settings, is_ours });
        }
        let path = Path::new(word);
        if path.join("shoal.json").exists() {
            let data = std::path::absolute(path)?;
            if let Some(pid) = data_dir::user_of(&data) {
                bail!("{word} is served by process {pid}: unmount it first (`shoal status` shows where)");
            }
            return Ok(Source::Data(data));
        }
        if word.contains('/') {
            bail!(
                "{word} is neither a volume (NAME on a node of its cluster, HOST:/VOLUME elsewhere) nor a data directory"
            );
        }
        let settings = settings(local, word)?;
        // This node comes first: it answers.
        let (own, others): (Vec<_>, Vec<_>) = nodes(local)?.into_iter().partition(|node| node.local);
        let nodes = own.into_iter().chain(others).map(|node| node.address);
        let text = format!("{}:/{word}", nodes.collect::<Vec<_>>().join(","));
        let source = text.parse().map_err(anyhow::Error::msg)?;
        let credentials = Some(given.unwrap_or(local.data()?.join("tls")));
        Ok(Source::Cluster { source, credentials, settings, is_ours: true })
    }

    /// As it is named for mount(8).
    pub fn text(&self) -> String {
        match self {
            Source::Cluster { source, .. } => source.text.clone(),
            Source::Data(data) => data.display().to_string(),
        }
    }

    /// Its name as a volume of a cluster.
    pub fn volume(&self) -> Option<&str> {
        match self {
            Source::Cluster { source, .. } => Some(&source.volume),
            Source::Data(_) => None,
        }
    }

    /// Whether settings of the volume can be changed from here.
    pub fn can_be_set(&self) -> bool {
        matches!(self, Source::Cluster { is_ours: true, .. })
    }

    /// The value of an option now, if it is known: a mount's own options override the volume's settings.
    pub fn value<'a>(&'a self, own: &'a str, key: &str) -> Option<&'a str> {
        let of_volume = match self {
            Source::Cluster { settings, .. } => settings.as_str(),
            Source::Data(_) => "locks=local",
        };
        value_in(own, key).or_else(|| value_in(of_volume, key))
    }
}

/// The nodes of this node's cluster.
fn nodes(local: &Local) -> anyhow::Result<Vec<PeerReport>> {
    let answer = local.request(AdminRequest::ClusterStatus)?;
    Ok(expect_answer!(answer, AdminAnswer::Cluster(report) => report).nodes)
}

/// Whether a volume is one of this node's own cluster: another one may have a volume of that name.
fn is_of_this_node(local: &Local, source: &ClusterSource) -> bool {
    let nodes = nodes(local).unwrap_or_default();
    let is_node = |server: &String| {
        let host = server.rsplit_once(':').map_or(server.as_str(), |(host, _)| host);
        nodes.iter().any(|node| node.address == *server || node.name == host)
    };
    source.servers.iter().any(is_node)
}

/// The settings of a volume that differ from the default, as mount options.
fn settings(local: &Local, name: &str) -> anyhow::Result<String> {
    let volumes = volumes(local, Some(name.to_owned()))?;
    let Some(volume) = volumes.into_iter().find(|volume| volume.name == name) else {
        bail!("there is no volume '{name}'; `shoal volume list` shows those that there are");
    };
    let words = volume.options.iter().map(|(key, value)| format!("{key}={value}"));
    Ok(words.collect::<Vec<_>>().join(","))
}

/// The directory with temporary mount points. Dropping it removes it.
pub struct Points(PathBuf);

impl Points {
    /// Creates it, for this process alone.
    pub fn create() -> anyhow::Result<Points> {
        let path = std::env::temp_dir().join(format!("shoal-tune-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| path.display().to_string())?;
        Ok(Points(path.canonicalize().with_context(|| path.display().to_string())?))
    }
}

impl Drop for Points {
    fn drop(&mut self) {
        // Not with its content: if a mount is left, that is the volume.
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("shoal tune: {} is left: {error}", self.0.display());
        }
    }
}

/// Temporary mounts of a volume. Dropping them unmounts them.
pub struct Mounts<'a> {
    source: &'a Source,
    options: Options,
    points: Vec<PathBuf>,
}

impl<'a> Mounts<'a> {
    /// Mounts the volume so many times, with mount options.
    pub fn create(
        source: &'a Source,
        points: &Points,
        number: usize,
        options: &str,
    ) -> anyhow::Result<Mounts<'a>> {
        let options: Options = options.parse().map_err(anyhow::Error::msg)?;
        let mut mounts = Mounts { source, options, points: Vec::new() };
        for number in 1..=number {
            let point = points.0.join(number.to_string());
            fs::create_dir(&point).with_context(|| point.display().to_string())?;
            mounts.points.push(point.clone());
            mounts.mount(&point)?;
        }
        Ok(mounts)
    }

    /// The mount points.
    pub fn points(&self) -> &[PathBuf] {
        &self.points
    }

    fn mount(&self, point: &Path) -> anyhow::Result<()> {
        let options = self.options.clone();
        match self.source {
            Source::Cluster { source, credentials, .. } => {
                background::start(&ServeMount::new(source.clone(), point, credentials.as_deref(), options)?)
            }
            Source::Data(data) => {
                let (data, mount) = (data.clone(), point.to_owned());
                background::start(&Serve { data, mount, create: None, options })
            }
        }
    }

    /// Unmounts one and mounts it again: its caches are cold then.
    pub fn remount(&self, point: &Path) -> anyhow::Result<()> {
        unmount(point)?;
        self.mount(point)
    }
}

/// Unmounts, if it is mounted.
fn unmount(point: &Path) -> anyhow::Result<()> {
    if mounts::at(point).with_context(|| point.display().to_string())?.is_some() {
        Umount::of(point.to_owned(), false, false).run()?;
    }
    Ok(())
}

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for point in &self.points {
            if let Err(error) = unmount(point) {
                eprintln!("shoal tune: {}: {error:#}", point.display());
                // What was measured is removed by now, so nothing of value can be lost.
                let _ = umount2(point, MntFlags::MNT_DETACH);
            }
            if let Source::Cluster { .. } = self.source {
                let _ = fs::remove_dir_all(mounts::run_dir(point));
            }
            if let Err(error) = fs::remove_dir(point) {
                eprintln!("shoal tune: {} is left: {error}", point.display());
            }
        }
    }
}
