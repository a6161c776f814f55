//! The cluster map, who keeps it, and where blocks go.
//!
//! - [`map`]: what there is; [`command`]: how it changes, a pure state machine; [`options`]: settings of volumes.

pub mod command;
pub mod map;
pub mod options;

pub use command::{Command, Outcome, apply};
pub use map::{Brick, BrickState, ClusterMap, Node, ReplicaPlace, Volume, VolumeState};
