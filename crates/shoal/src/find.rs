//! Which node a command is about: the argument is a mount, a path on one, or a data directory.

use crate::cluster_source;
use crate::mounts::{self, Mount};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// The data directories of the nodes meant: that of `path`, or of everything mounted. A cluster's mount has
/// its run directory instead.
pub fn nodes(path: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    match path {
        Some(path) => Ok(vec![node(path)?]),
        None => Ok(mounted()?.into_iter().map(|(home, _)| home).collect()),
    }
}

/// All mounts of this machine that have a process of this program: its directory, and the mount point.
pub fn mounted() -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let mounts = mounts::shoals().context("mount table")?.into_iter();
    // Another program may use the front end as a library, without a node of this program behind it.
    let ours = mounts.filter(|mount| {
        mount.source.is_absolute() || mount.source.to_str().is_some_and(cluster_source::looks_like_one)
    });
    // A bind mount has the same process as the mount that it was made of.
    let mut seen = std::collections::HashSet::new();
    let homes = ours.map(|mount| (mount.home(), mount.point));
    Ok(homes.filter(|(home, _)| seen.insert(home.clone())).collect())
}

/// Whether a Shoal volume is mounted at a path. Nothing below the path is looked up: the mount may wait for
/// servers, and a call on it for as long.
pub fn is_mount(path: &Path) -> bool {
    mounts::at(path).is_ok_and(|mount| mount.is_some_and(|mount| mount.is_shoal()))
}

/// The data directory of the node meant.
fn node(path: &Path) -> anyhow::Result<PathBuf> {
    if let Some(mount) = mounts::at(path).with_context(|| path.display().to_string())?
        && mount.is_shoal()
    {
        return Ok(mount.home());
    }
    if path.join("shoal.json").exists() {
        return path.canonicalize().with_context(|| path.display().to_string());
    }
    if crate::server::node_dir::exists(path) {
        bail!(
            "{0} is the directory of a cluster's server: `shoal cluster status --data {0}` shows it",
            path.display()
        );
    }
    Ok(mount_of(path)?.home())
}

/// The Shoal mount that a path is on.
pub fn mount_of(path: &Path) -> anyhow::Result<Mount> {
    match mounts::containing(path).with_context(|| path.display().to_string())? {
        Some(mount) if mount.is_shoal() => Ok(mount),
        Some(mount) => bail!(
            "{} is not on a Shoal volume but on {} ({}); `shoal status` lists the volumes mounted here",
            path.display(),
            mount.point.display(),
            mount.kind
        ),
        None => bail!("{} is not on a mounted file system", path.display()),
    }
}
