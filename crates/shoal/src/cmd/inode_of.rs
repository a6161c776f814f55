//! Finds what a path means to the servers of a volume.

use crate::cluster_source::ClusterSource;
use crate::find;
use crate::flush::make_durable;
use anyhow::{Context, bail};
use shoal_types::InodeId;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The volume that a path is on, and its inode, which the servers know then.
pub(super) fn locate(path: &Path) -> anyhow::Result<(String, u64)> {
    let mount = find::mount_of(path)?;
    let source = mount.source.to_string_lossy();
    let Ok(source) = source.parse::<ClusterSource>() else {
        bail!(
            "{} is on {}, which is not a volume of a cluster: it has one brick",
            path.display(),
            mount.source.display()
        );
    };
    let found = std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    if !found.is_dir() && !found.is_file() {
        bail!("{} is neither a directory nor a file, so it has no content to place", path.display());
    }
    if found.ino() == InodeId::ROOT.0 && source.subdirectory.is_some() {
        bail!(
            "{} is the root of a mount of a subdirectory: name it through a mount of the volume",
            path.display()
        );
    }
    // It may have been created a moment ago.
    make_durable(&mount)?;
    Ok((source.volume, found.ino()))
}
