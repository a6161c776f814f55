//! The Node service: a volume is staged by a mount of its directory, and published by a bind mount of that.

use crate::controller::{require, rpc};
use crate::id::VolumeId;
use crate::limits::PATH_BYTES_MAX;
use crate::messages::*;
use crate::mounts::Mounted;
use crate::status::Status;
use crate::{Driver, capability};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// A path of a request: absolute, and without `..`.
fn path(text: &str, what: &str) -> Result<PathBuf, Status> {
    require(text, what)?;
    let path = Path::new(text);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || text.len() > PATH_BYTES_MAX || text.contains('\0') {
        return Err(Status::invalid_argument(format!("the {what} is no absolute path without '..'")));
    }
    Ok(path.to_owned())
}

/// The id of a volume that a node is to mount. It need not be one that the driver made.
fn volume(id: &str) -> Result<VolumeId, Status> {
    require(id, "volume id")?;
    VolumeId::parse(id).map_err(|error| Status::not_found(format!("{error:#}")))
}

fn foreign(point: &Path, mounted: &Mounted) -> Status {
    let what = mounted.directory.as_deref().unwrap_or("another file system");
    Status::already_exists(format!("{what} is mounted on {}: unmount it first", point.display()))
}

impl Driver {
    /// Mounts a volume unless it is, also again if the process behind the mount has ended.
    fn stage(&self, id: &VolumeId, staging: &Path, options: &str) -> Result<(), Status> {
        match self.mounts.at(staging)? {
            Some(mounted) if !mounted.is(id) => Err(foreign(staging, &mounted)),
            Some(Mounted { alive: true, .. }) => Ok(()),
            _ => {
                create_dir(staging)?;
                Ok(self.mounts.mount(&id.to_string(), staging, options)?)
            }
        }
    }

    pub(crate) fn node_stage_volume(
        &self,
        request: NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Status> {
        require(&request.volume_id, "volume id")?;
        let staging = path(&request.staging_target_path, "staging path")?;
        let options = self.options(&capability::required(request.volume_capability.as_ref())?);
        self.mounts.check_options(&options).map_err(Status::invalid_argument)?;
        let id = volume(&request.volume_id)?;
        let _call = self.inflight.begin(&request.volume_id)?;
        self.stage(&id, &staging, &options)?;
        Ok(NodeStageVolumeResponse {})
    }

    pub(crate) fn node_unstage_volume(
        &self,
        request: NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Status> {
        require(&request.volume_id, "volume id")?;
        let staging = path(&request.staging_target_path, "staging path")?;
        let _call = self.inflight.begin(&request.volume_id)?;
        match self.mounts.at(&staging)? {
            Some(mounted) if mounted.directory.is_none() => return Err(foreign(&staging, &mounted)),
            // The orchestrator may ask for a volume that is not staged there: another one stays.
            Some(mounted) if volume(&request.volume_id).is_ok_and(|id| mounted.is(&id)) => {
                self.mounts.unmount(&staging)?;
            }
            _ => {}
        }
        Ok(NodeUnstageVolumeResponse {})
    }

    pub(crate) fn node_publish_volume(
        &self,
        request: NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Status> {
        require(&request.volume_id, "volume id")?;
        let target = path(&request.target_path, "target path")?;
        let supported = capability::required(request.volume_capability.as_ref())?;
        let staging = path(&request.staging_target_path, "staging path")?;
        let id = volume(&request.volume_id)?;
        let _call = self.inflight.begin(&request.volume_id)?;
        if self.mounts.at(&staging)?.is_none() {
            let why = format!("{id} is not staged on {}: stage it first", staging.display());
            return Err(Status::failed_precondition(why));
        }
        // A dead mount is mounted again here: the orchestrator believes that it is staged.
        self.stage(&id, &staging, &self.options(&supported))?;
        let read_only = request.readonly || supported.read_only;
        match self.mounts.at(&target)? {
            Some(mounted) if !mounted.is(&id) => return Err(foreign(&target, &mounted)),
            Some(mounted) if mounted.alive && mounted.read_only == read_only => {
                return Ok(NodePublishVolumeResponse {});
            }
            Some(mounted) if mounted.alive => {
                let how = if mounted.read_only { "read-only" } else { "for writing" };
                return Err(Status::already_exists(format!(
                    "{id} is published there {how}: unpublish it first"
                )));
            }
            Some(_) => self.mounts.unbind(&target)?,
            None => {}
        }
        create_dir(&target)?;
        self.mounts.bind(&staging, &target, read_only)?;
        Ok(NodePublishVolumeResponse {})
    }

    pub(crate) fn node_unpublish_volume(
        &self,
        request: NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Status> {
        require(&request.volume_id, "volume id")?;
        let target = path(&request.target_path, "target path")?;
        let _call = self.inflight.begin(&request.volume_id)?;
        match self.mounts.at(&target)? {
            Some(mounted) if !volume(&request.volume_id).is_ok_and(|id| mounted.is(&id)) => {
                return Err(Status::failed_precondition(foreign(&target, &mounted).message));
            }
            Some(_) => self.mounts.unbind(&target)?,
            None => {}
        }
        // Only an empty directory is removed: whatever a defect left in it is kept.
        match std::fs::remove_dir(&target) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Status::internal(format!("{}: {error}", target.display())))
            }
            _ => Ok(NodeUnpublishVolumeResponse {}),
        }
    }

    /// The volume at a path, which must be mounted there.
    fn published(&self, id: &str, at: &str) -> Result<PathBuf, Status> {
        require(id, "volume id")?;
        require(at, "volume path")?;
        let at = path(at, "volume path").map_err(|status| Status::not_found(status.message))?;
        let id = volume(id)?;
        match self.mounts.at(&at) {
            Ok(Some(mounted)) if mounted.is(&id) => Ok(at),
            Ok(_) => Err(Status::not_found(format!("{id} is not mounted on {}", at.display()))),
            Err(_) if !at.exists() => Err(Status::not_found(format!("{} is not there", at.display()))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn node_get_volume_stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let usage = self.mounts.usage(&self.published(&request.volume_id, &request.volume_path)?)?;
        let figures = |unit, total: u64, available: u64| VolumeUsage {
            available: i64::try_from(available).unwrap_or(i64::MAX),
            total: i64::try_from(total).unwrap_or(i64::MAX),
            used: i64::try_from(total.saturating_sub(available)).unwrap_or(i64::MAX),
            unit,
        };
        let bytes = figures(unit::BYTES, usage.bytes, usage.bytes_available);
        let inodes = figures(unit::INODES, usage.inodes, usage.inodes_available);
        Ok(NodeGetVolumeStatsResponse { usage: vec![bytes, inodes] })
    }

    /// There is nothing to do on a node: its mount has no size of its own.
    pub(crate) fn node_expand_volume(
        &self,
        request: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        self.published(&request.volume_id, &request.volume_path)?;
        let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        Ok(NodeExpandVolumeResponse { capacity_bytes })
    }

    pub(crate) fn node_get_capabilities(
        &self,
        _: NodeGetCapabilitiesRequest,
    ) -> Result<NodeGetCapabilitiesResponse, Status> {
        use node_rpc::{EXPAND_VOLUME, GET_VOLUME_STATS, STAGE_UNSTAGE_VOLUME};
        let all = [STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS, EXPAND_VOLUME];
        Ok(NodeGetCapabilitiesResponse { capabilities: all.map(rpc).to_vec() })
    }

    pub(crate) fn node_get_info(&self, _: NodeGetInfoRequest) -> Result<NodeGetInfoResponse, Status> {
        let node_id = self.settings.node.clone();
        Ok(NodeGetInfoResponse { node_id, max_volumes_per_node: self.settings.volumes_max })
    }
}

/// Makes a mount point. A dead mount that is there counts as one.
fn create_dir(path: &Path) -> Result<(), Status> {
    match std::fs::create_dir_all(path) {
        Err(error) if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotConnected) => {
            Err(Status::internal(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}
