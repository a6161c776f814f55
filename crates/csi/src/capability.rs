//! What a volume can be used for.

use crate::messages::{VolumeCapability, access_mode};
use crate::status::Status;

/// A capability that the driver has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Supported {
    /// Whether no node writes.
    pub read_only: bool,
    /// Mount options of the storage class.
    pub options: Vec<String>,
}

/// Reads a capability, or says why the driver does not have it.
pub fn read(capability: &VolumeCapability) -> Result<Supported, String> {
    if capability.block.is_some() {
        return Err("Shoal has no block volumes: use volumeMode Filesystem".into());
    }
    let Some(mount) = &capability.mount else { return Err("the access type is missing".into()) };
    if !matches!(mount.fs_type.as_str(), "" | "shoal") {
        return Err(format!(
            "the file system type is '{}': leave it out, or say 'shoal'",
            mount.fs_type.escape_debug()
        ));
    }
    let mode = capability.access_mode.as_ref().map_or(access_mode::UNKNOWN, |access| access.mode);
    let read_only = match mode {
        access_mode::SINGLE_NODE_READER_ONLY | access_mode::MULTI_NODE_READER_ONLY => true,
        access_mode::SINGLE_NODE_WRITER
        | access_mode::MULTI_NODE_SINGLE_WRITER
        | access_mode::MULTI_NODE_MULTI_WRITER => false,
        other => {
            return Err(format!(
                "access mode {other} is not supported: use ReadWriteMany, ReadWriteOnce or ReadOnlyMany"
            ));
        }
    };
    Ok(Supported { read_only, options: mount.mount_flags.clone() })
}

/// Reads a capability of a request, which must have one (`INVALID_ARGUMENT`).
pub fn required(capability: Option<&VolumeCapability>) -> Result<Supported, Status> {
    let capability =
        capability.ok_or_else(|| Status::invalid_argument("the volume capability is missing"))?;
    read(capability).map_err(Status::invalid_argument)
}
