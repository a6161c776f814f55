//! The Controller service: volumes are directories.

use crate::capability;
use crate::directories::{CreateError, Directories};
use crate::id::{VolumeId, directory_of};
use crate::limits::{ID_BYTES_MAX, LISTED_MAX, NAME_BYTES_MAX};
use crate::messages::*;
use crate::status::Status;
use crate::{DRIVER, Driver};
use std::path::PathBuf;

/// The mode of a new volume's directory, unless the storage class has another one. The orchestrator gives it
/// to the pod's group.
const MODE_DEFAULT: u32 = 0o755;

/// Parameters with this prefix are the sidecars'.
const SIDECAR: &str = "csi.storage.k8s.io/";

/// The parameters of a storage class.
struct Parameters<'a> {
    volume: &'a str,
    mode: u32,
}

impl Driver {
    fn parameters<'a>(&'a self, given: &'a Texts) -> Result<Parameters<'a>, Status> {
        let first = self.settings.volumes.first().map_or("", String::as_str);
        let mut parameters = Parameters { volume: first, mode: MODE_DEFAULT };
        for (name, value) in given {
            match name.as_str() {
                "volume" => parameters.volume = self.known(value).map_err(Status::invalid_argument)?,
                "mode" => {
                    let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
                    parameters.mode = mode.ok_or_else(|| {
                        Status::invalid_argument(format!(
                            "mode '{value}' is no octal mode: say 0755 or the like"
                        ))
                    })?;
                }
                sidecar if sidecar.starts_with(SIDECAR) => {}
                other => {
                    let why = format!(
                        "the storage class has a parameter '{other}': {DRIVER} knows 'volume' and 'mode'"
                    );
                    return Err(Status::invalid_argument(why));
                }
            }
        }
        Ok(parameters)
    }

    /// A Shoal volume that the driver may use.
    fn known<'a>(&'a self, volume: &str) -> Result<&'a str, String> {
        let known = self.settings.volumes.iter().find(|known| *known == volume);
        known.map(String::as_str).ok_or_else(|| {
            let all = self.settings.volumes.join(", ");
            format!("the driver does not use the volume '{volume}' (it has {all}): start it with --volume {volume}, too")
        })
    }

    /// The directories of a Shoal volume, which is mounted if it is not.
    fn directories(&self, volume: &str) -> Result<Directories, Status> {
        Ok(Directories::open(self.mounted(volume)?.join(&self.settings.directory))?)
    }

    /// Where a whole Shoal volume is mounted.
    fn mounted(&self, volume: &str) -> Result<PathBuf, Status> {
        let point = self.settings.state.join(volume);
        let _call = loop {
            // Two calls may need the first mount at once.
            match self.inflight.begin(volume) {
                Ok(call) => break call,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
            }
        };
        let there = self.mounts.at(&point)?;
        if !there.is_some_and(|mount| mount.alive && mount.directory.as_deref() == Some(volume)) {
            std::fs::create_dir_all(&point)
                .map_err(|error| Status::internal(format!("{}: {error}", point.display())))?;
            self.mounts.mount(volume, &point, "")?;
        }
        Ok(point)
    }

    /// The volume of an id that the driver can have made, with the name of its directory.
    fn made(&self, id: &str) -> Option<(VolumeId, String)> {
        let id = VolumeId::parse(id).ok()?;
        self.known(&id.volume).ok()?;
        let directory = id.path.strip_prefix(&self.settings.directory)?.strip_prefix('/')?;
        let directory = directory.to_owned();
        (!directory.contains('/') && !directory.starts_with('.')).then_some((id, directory))
    }

    /// The record of a volume that must be there.
    fn existing(&self, id: &str) -> Result<(Directories, String), Status> {
        require(id, "volume id")?;
        let missing = || Status::not_found(format!("there is no volume '{}'", id.escape_debug()));
        let (id, directory) = self.made(id).ok_or_else(missing)?;
        let directories = self.directories(&id.volume)?;
        directories.get(&directory)?.ok_or_else(missing)?;
        Ok((directories, directory))
    }

    pub(crate) fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        require(&request.name, "name")?;
        if request.name.len() > NAME_BYTES_MAX {
            return Err(Status::invalid_argument(format!("the name is longer than {NAME_BYTES_MAX} bytes")));
        }
        self.supported(&request.volume_capabilities)?;
        if request.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "snapshots and clones are not supported: leave out the data source",
            ));
        }
        let parameters = self.parameters(&request.parameters)?;
        let range = request.capacity_range.unwrap_or_default();
        check_range(&range)?;
        let wanted = if range.required_bytes > 0 { range.required_bytes } else { range.limit_bytes };
        let directory = directory_of(&request.name);
        let id = format!("{}/{}/{directory}", parameters.volume, self.settings.directory);
        let _call = self.inflight.begin(&id)?;
        let directories = self.directories(parameters.volume)?;
        let record = directories.create(&directory, &request.name, wanted, parameters.mode);
        let record = record.map_err(|error| match error {
            CreateError::Taken(why) => Status::already_exists(why),
            CreateError::Failed(error) => error.into(),
        })?;
        let too_small = record.capacity_bytes < range.required_bytes;
        if too_small || (range.limit_bytes > 0 && record.capacity_bytes > range.limit_bytes) {
            return Err(Status::already_exists(format!(
                "the volume '{}' is there with a capacity of {} bytes: use another name, or expand it",
                request.name.escape_debug(),
                record.capacity_bytes
            )));
        }
        Ok(CreateVolumeResponse { volume: Some(shown(id, record.capacity_bytes)) })
    }

    pub(crate) fn delete_volume(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Status> {
        require(&request.volume_id, "volume id")?;
        // What the driver cannot have made is not there for it.
        if let Some((id, directory)) = self.made(&request.volume_id) {
            let _call = self.inflight.begin(&request.volume_id)?;
            let directories = self.directories(&id.volume)?;
            directories.delete(&directory)?;
            // Many files take a while: the caller does not wait. Two sweeps do not disturb each other.
            let swept = move || directories.sweep();
            let logged = move || {
                if let Err(error) = swept() {
                    tracing::warn!("deleted volumes are not removed yet: {error:#}");
                }
            };
            if let Err(error) = std::thread::Builder::new().name("shoal-csi-sweep".into()).spawn(logged) {
                tracing::warn!(%error, "no thread to remove a deleted volume: the next deletion does");
            }
        }
        Ok(DeleteVolumeResponse {})
    }

    pub(crate) fn validate_volume_capabilities(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        require(&request.volume_id, "volume id")?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the volume capabilities are missing"));
        }
        self.existing(&request.volume_id)?;
        let checked = self.supported(&request.volume_capabilities);
        let checked = checked.and_then(|()| self.parameters(&request.parameters).map(drop));
        Ok(match checked {
            Err(status) => ValidateVolumeCapabilitiesResponse { confirmed: None, message: status.message },
            Ok(()) => {
                let ValidateVolumeCapabilitiesRequest {
                    volume_context, volume_capabilities, parameters, ..
                } = request;
                let confirmed = Confirmed { volume_context, volume_capabilities, parameters };
                ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() }
            }
        })
    }

    pub(crate) fn list_volumes(&self, request: ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
        let most = match request.max_entries {
            0 => LISTED_MAX,
            entries => usize::try_from(entries)
                .map_err(|_| Status::invalid_argument("max_entries is negative"))?
                .min(LISTED_MAX),
        };
        // A token is the id that the last answer ended with: volumes may come and go in between.
        let token = request.starting_token;
        if !token.is_empty() && self.made(&token).is_none() {
            return Err(Status::aborted("the token is none of this driver's: begin again without one"));
        }
        let mut ids = Vec::new();
        for volume in &self.settings.volumes {
            let names = self.directories(volume)?.list()?;
            ids.extend(names.into_iter().map(|name| (volume.clone(), name)));
        }
        let id = |(volume, name): &(String, String)| format!("{volume}/{}/{name}", self.settings.directory);
        ids.sort_unstable_by_key(id);
        ids.dedup();
        let mut rest = ids.into_iter().filter(|one| token.is_empty() || id(one) > token);
        let mut entries = Vec::new();
        for one in rest.by_ref().take(most) {
            // It may have been deleted meanwhile.
            if let Some(record) = self.directories(&one.0)?.get(&one.1)? {
                entries.push(ListedVolume { volume: Some(shown(id(&one), record.capacity_bytes)) });
            }
        }
        let last =
            entries.last().and_then(|entry| entry.volume.as_ref()).map(|volume| volume.volume_id.clone());
        let next_token = if rest.next().is_some() { last.unwrap_or_default() } else { String::new() };
        Ok(ListVolumesResponse { entries, next_token })
    }

    pub(crate) fn get_capacity(&self, request: GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
        let parameters = self.parameters(&request.parameters)?;
        if request.volume_capabilities.iter().any(|one| capability::read(one).is_err()) {
            return Ok(GetCapacityResponse { available_capacity: 0 });
        }
        let usage = self.mounts.usage(&self.mounted(parameters.volume)?)?;
        Ok(GetCapacityResponse {
            available_capacity: i64::try_from(usage.bytes_available).unwrap_or(i64::MAX),
        })
    }

    pub(crate) fn controller_get_capabilities(
        &self,
        _: ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Status> {
        use controller_rpc::{CREATE_DELETE_VOLUME, EXPAND_VOLUME, GET_CAPACITY, LIST_VOLUMES};
        let all = [CREATE_DELETE_VOLUME, LIST_VOLUMES, GET_CAPACITY, EXPAND_VOLUME];
        Ok(ControllerGetCapabilitiesResponse { capabilities: all.map(rpc).to_vec() })
    }

    pub(crate) fn controller_expand_volume(
        &self,
        request: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        require(&request.volume_id, "volume id")?;
        let range = request
            .capacity_range
            .ok_or_else(|| Status::invalid_argument("the capacity range is missing"))?;
        check_range(&range)?;
        if let Some(capability) = &request.volume_capability {
            capability::required(Some(capability))?;
        }
        let _call = self.inflight.begin(&request.volume_id)?;
        let (directories, directory) = self.existing(&request.volume_id)?;
        let wanted = if range.required_bytes > 0 { range.required_bytes } else { range.limit_bytes };
        let capacity_bytes = directories.expand(&directory, wanted)?.unwrap_or(wanted);
        if range.limit_bytes > 0 && capacity_bytes > range.limit_bytes {
            return Err(Status::out_of_range(format!(
                "the volume has a capacity of {capacity_bytes} bytes already"
            )));
        }
        Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false })
    }

    /// Whether all of some capabilities are supported; there must be one.
    fn supported(&self, capabilities: &[VolumeCapability]) -> Result<(), Status> {
        if capabilities.is_empty() {
            return Err(Status::invalid_argument("the volume capabilities are missing"));
        }
        for capability in capabilities {
            let supported = capability::required(Some(capability))?;
            self.mounts.check_options(&self.options(&supported)).map_err(Status::invalid_argument)?;
        }
        Ok(())
    }

    /// The mount options for a capability.
    pub(crate) fn options(&self, supported: &capability::Supported) -> String {
        let read_only = supported.read_only.then(|| "ro".to_owned());
        let class = supported.options.iter().cloned();
        let all = [self.settings.options.clone()].into_iter().chain(class).chain(read_only);
        all.filter(|option| !option.is_empty()).collect::<Vec<_>>().join(",")
    }
}

/// A capability of a service.
pub fn rpc(r#type: i32) -> RpcCapability {
    RpcCapability { rpc: Some(Typed { r#type }) }
}

/// A field that must be there, and no longer than the specification allows.
pub fn require(value: &str, what: &str) -> Result<(), Status> {
    match value.len() {
        0 => Err(Status::invalid_argument(format!("the {what} is missing"))),
        bytes if bytes > ID_BYTES_MAX && what == "volume id" => {
            Err(Status::invalid_argument(format!("the {what} is longer than {ID_BYTES_MAX} bytes")))
        }
        _ => Ok(()),
    }
}

fn check_range(range: &CapacityRange) -> Result<(), Status> {
    if range.required_bytes < 0 || range.limit_bytes < 0 {
        return Err(Status::invalid_argument("a capacity is negative"));
    }
    if range.limit_bytes > 0 && range.required_bytes > range.limit_bytes {
        return Err(Status::out_of_range("the capacity required is above its limit"));
    }
    Ok(())
}

fn shown(volume_id: String, capacity_bytes: i64) -> Volume {
    Volume { capacity_bytes, volume_id, volume_context: Texts::new() }
}
