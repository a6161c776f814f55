//! The messages of CSI 1 that the driver reads and writes, with the field numbers of its specification.
//!
//! Fields that the driver neither reads nor sets are left out: protobuf skips unknown fields. A `oneof` of
//! messages is written as optional fields, which are the same bytes. Calls without a function here are
//! answered UNIMPLEMENTED.

use std::collections::HashMap;

/// Text by text: parameters, contexts.
pub type Texts = HashMap<String, String>;

/// Values of `PluginCapability.Service.Type`.
pub const CONTROLLER_SERVICE: i32 = 1;
/// Values of `PluginCapability.VolumeExpansion.Type`.
pub const EXPANSION_ONLINE: i32 = 1;

/// Values of `VolumeCapability.AccessMode.Mode`.
pub mod access_mode {
    pub const UNKNOWN: i32 = 0;
    pub const SINGLE_NODE_WRITER: i32 = 1;
    pub const SINGLE_NODE_READER_ONLY: i32 = 2;
    pub const MULTI_NODE_READER_ONLY: i32 = 3;
    pub const MULTI_NODE_SINGLE_WRITER: i32 = 4;
    pub const MULTI_NODE_MULTI_WRITER: i32 = 5;
}

/// Values of `ControllerServiceCapability.RPC.Type`.
pub mod controller_rpc {
    pub const CREATE_DELETE_VOLUME: i32 = 1;
    pub const LIST_VOLUMES: i32 = 3;
    pub const GET_CAPACITY: i32 = 4;
    pub const EXPAND_VOLUME: i32 = 9;
}

/// Values of `NodeServiceCapability.RPC.Type`.
pub mod node_rpc {
    pub const STAGE_UNSTAGE_VOLUME: i32 = 1;
    pub const GET_VOLUME_STATS: i32 = 2;
    pub const EXPAND_VOLUME: i32 = 3;
}

/// Values of `VolumeUsage.Unit`.
pub mod unit {
    pub const BYTES: i32 = 1;
    pub const INODES: i32 = 2;
}

/// A message: `message Name { type field = number; ... }`.
macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty = [$($how:tt)*];)* })*) => {$(
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $name { $(#[prost($($how)*)] pub $field: $type,)* }
    )*};
}

messages! {
    // Identity
    GetPluginInfoRequest {}
    GetPluginInfoResponse {
        name: String = [string, tag = "1"];
        vendor_version: String = [string, tag = "2"];
        manifest: Texts = [map = "string, string", tag = "3"];
    }
    GetPluginCapabilitiesRequest {}
    GetPluginCapabilitiesResponse { capabilities: Vec<PluginCapability> = [message, repeated, tag = "1"]; }
    PluginCapability {
        service: Option<Typed> = [message, optional, tag = "1"];
        volume_expansion: Option<Typed> = [message, optional, tag = "2"];
    }
    Typed { r#type: i32 = [int32, tag = "1"]; }
    ProbeRequest {}
    ProbeResponse { ready: Option<bool> = [message, optional, tag = "1"]; }

    // Volumes
    VolumeCapability {
        block: Option<BlockVolume> = [message, optional, tag = "1"];
        mount: Option<MountVolume> = [message, optional, tag = "2"];
        access_mode: Option<AccessMode> = [message, optional, tag = "3"];
    }
    BlockVolume {}
    MountVolume {
        fs_type: String = [string, tag = "1"];
        mount_flags: Vec<String> = [string, repeated, tag = "2"];
    }
    AccessMode { mode: i32 = [int32, tag = "1"]; }
    CapacityRange {
        required_bytes: i64 = [int64, tag = "1"];
        limit_bytes: i64 = [int64, tag = "2"];
    }
    Volume {
        capacity_bytes: i64 = [int64, tag = "1"];
        volume_id: String = [string, tag = "2"];
        volume_context: Texts = [map = "string, string", tag = "3"];
    }
    ContentSource {}

    // Controller
    CreateVolumeRequest {
        name: String = [string, tag = "1"];
        capacity_range: Option<CapacityRange> = [message, optional, tag = "2"];
        volume_capabilities: Vec<VolumeCapability> = [message, repeated, tag = "3"];
        parameters: Texts = [map = "string, string", tag = "4"];
        volume_content_source: Option<ContentSource> = [message, optional, tag = "6"];
    }
    CreateVolumeResponse { volume: Option<Volume> = [message, optional, tag = "1"]; }
    DeleteVolumeRequest { volume_id: String = [string, tag = "1"]; }
    DeleteVolumeResponse {}
    ValidateVolumeCapabilitiesRequest {
        volume_id: String = [string, tag = "1"];
        volume_context: Texts = [map = "string, string", tag = "2"];
        volume_capabilities: Vec<VolumeCapability> = [message, repeated, tag = "3"];
        parameters: Texts = [map = "string, string", tag = "4"];
    }
    ValidateVolumeCapabilitiesResponse {
        confirmed: Option<Confirmed> = [message, optional, tag = "1"];
        message: String = [string, tag = "2"];
    }
    Confirmed {
        volume_context: Texts = [map = "string, string", tag = "1"];
        volume_capabilities: Vec<VolumeCapability> = [message, repeated, tag = "2"];
        parameters: Texts = [map = "string, string", tag = "3"];
    }
    ListVolumesRequest {
        max_entries: i32 = [int32, tag = "1"];
        starting_token: String = [string, tag = "2"];
    }
    ListVolumesResponse {
        entries: Vec<ListedVolume> = [message, repeated, tag = "1"];
        next_token: String = [string, tag = "2"];
    }
    ListedVolume { volume: Option<Volume> = [message, optional, tag = "1"]; }
    GetCapacityRequest {
        volume_capabilities: Vec<VolumeCapability> = [message, repeated, tag = "1"];
        parameters: Texts = [map = "string, string", tag = "2"];
    }
    GetCapacityResponse { available_capacity: i64 = [int64, tag = "1"]; }
    ControllerGetCapabilitiesRequest {}
    ControllerGetCapabilitiesResponse { capabilities: Vec<RpcCapability> = [message, repeated, tag = "1"]; }
    RpcCapability { rpc: Option<Typed> = [message, optional, tag = "1"]; }
    ControllerExpandVolumeRequest {
        volume_id: String = [string, tag = "1"];
        capacity_range: Option<CapacityRange> = [message, optional, tag = "2"];
        volume_capability: Option<VolumeCapability> = [message, optional, tag = "4"];
    }
    ControllerExpandVolumeResponse {
        capacity_bytes: i64 = [int64, tag = "1"];
        node_expansion_required: bool = [bool, tag = "2"];
    }

    // Node
    NodeStageVolumeRequest {
        volume_id: String = [string, tag = "1"];
        staging_target_path: String = [string, tag = "3"];
        volume_capability: Option<VolumeCapability> = [message, optional, tag = "4"];
    }
    NodeStageVolumeResponse {}
    NodeUnstageVolumeRequest {
        volume_id: String = [string, tag = "1"];
        staging_target_path: String = [string, tag = "2"];
    }
    NodeUnstageVolumeResponse {}
    NodePublishVolumeRequest {
        volume_id: String = [string, tag = "1"];
        staging_target_path: String = [string, tag = "3"];
        target_path: String = [string, tag = "4"];
        volume_capability: Option<VolumeCapability> = [message, optional, tag = "5"];
        readonly: bool = [bool, tag = "6"];
    }
    NodePublishVolumeResponse {}
    NodeUnpublishVolumeRequest {
        volume_id: String = [string, tag = "1"];
        target_path: String = [string, tag = "2"];
    }
    NodeUnpublishVolumeResponse {}
    NodeGetVolumeStatsRequest {
        volume_id: String = [string, tag = "1"];
        volume_path: String = [string, tag = "2"];
    }
    NodeGetVolumeStatsResponse { usage: Vec<VolumeUsage> = [message, repeated, tag = "1"]; }
    VolumeUsage {
        available: i64 = [int64, tag = "1"];
        total: i64 = [int64, tag = "2"];
        used: i64 = [int64, tag = "3"];
        unit: i32 = [int32, tag = "4"];
    }
    NodeExpandVolumeRequest {
        volume_id: String = [string, tag = "1"];
        volume_path: String = [string, tag = "2"];
        capacity_range: Option<CapacityRange> = [message, optional, tag = "3"];
    }
    NodeExpandVolumeResponse { capacity_bytes: i64 = [int64, tag = "1"]; }
    NodeGetCapabilitiesRequest {}
    NodeGetCapabilitiesResponse { capabilities: Vec<RpcCapability> = [message, repeated, tag = "1"]; }
    NodeGetInfoRequest {}
    NodeGetInfoResponse {
        node_id: String = [string, tag = "1"];
        max_volumes_per_node: i64 = [int64, tag = "2"];
    }
}
