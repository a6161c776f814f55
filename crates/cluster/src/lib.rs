//! The cluster map, the nodes that keep it, and the placement of blocks.
//!
//! - [`map`]: the cluster's state; [`command`]: its changes, a pure state machine; [`options`]: settings of
//!   volumes.
//! - [`blocks`]: a volume's blocks on its bricks; [`placement`]: which bricks those are; [`scrub`]: early
//!   detection of damage.
//! - [`tolerance`]: which nodes may fail without stopping a volume.

pub mod blocks;
pub mod command;
pub mod draining;
pub mod limits;
pub mod map;
pub mod options;
pub mod placement;
pub mod scrub;
pub mod tolerance;

pub use blocks::{Bricks, CopyRequest, CopyTask, ReplicatedBlocks, kept_free};
pub use command::{ARBITRATED_COPIES, Command, FOUNDERS_MAX, Outcome, apply};
pub use draining::Draining;
pub use map::{Brick, BrickState, ClusterMap, HotTier, Node, ReplicaPlace, Shards, Volume, VolumeState};
pub use tolerance::Tolerance;
