//! The state shared by all sessions of a mount.

use crate::clock::Clock;
use crate::kernel::KernelCache;
use crate::options::Options;
use shoal_runtime::channel::Sender;
use shoal_types::SessionId;
use shoal_wire::VolumeBlocks;
use std::sync::{Arc, OnceLock};

/// The state shared by all sessions of a mount.
pub(crate) struct MountShared {
    pub(crate) bricks: Arc<dyn VolumeBlocks>,
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    /// The cache in front of the client.
    pub(crate) kernel: OnceLock<Arc<dyn KernelCache>>,
    /// The sending end for sessions that the servers have ended.
    pub(crate) ended: Sender<SessionId>,
}
