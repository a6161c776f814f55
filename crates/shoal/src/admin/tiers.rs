//! Reports about the tiers of a volume.

use super::BrickName;
use serde::{Deserialize, Serialize};

/// What to do with the tiers of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierStep {
    /// Report.
    Status,
    /// Report what would be moved now, and why.
    Plan,
    /// Begin to empty the hot tier.
    DetachStart,
    /// Use it again.
    DetachStop,
    /// Remove it, once it is empty.
    DetachCommit,
}

/// The tiers of a volume.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierReport {
    /// The volume.
    pub name: String,
    /// Copies of a block on the hot tier; of a block that is too short for shards, if there are shards.
    pub replica: u8,
    /// Data shards and parity shards of a block on the hot tier.
    pub shards: Option<(u8, u8)>,
    /// The bricks of the hot tier.
    pub bricks: Vec<BrickName>,
    /// It is being emptied.
    pub detaching: bool,
    /// It is empty and can be removed with `detach commit`.
    pub can_be_removed: bool,
    /// Nothing is moved.
    pub paused: bool,
    /// Blocks on the hot tier.
    pub hot_blocks: u64,
    /// What can be stored there with all copies, and how much of that is free, in bytes; unknown if its
    /// bricks do not answer.
    pub room_bytes: Option<(u64, u64)>,
    /// Blocks are moved to this tier as long as it is used to no more than this, in percent; 0: not known,
    /// from an older server.
    #[serde(default)]
    pub high_watermark_percent: u8,
    /// Blocks moved to the cold tier by the leader's server since it started.
    pub demoted_blocks: u64,
    /// Their bytes.
    pub demoted_bytes: u64,
    /// Blocks moved to the hot tier.
    pub promoted_blocks: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// Failed attempts; they are repeated.
    pub failures: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// Pinned directories and files.
    #[serde(default)]
    pub pins: Vec<PinnedPath>,
}

/// A pinned directory or file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PinnedPath {
    /// Its path from the root of the volume; none if it was not found, or no longer exists.
    pub path: Option<String>,
    /// Its inode number.
    pub inode: u64,
    /// `hot` or `cold`.
    pub pinned: String,
}

/// What to do with the pin of a directory or file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinStep {
    /// Report it.
    Show,
    /// Its content belongs on the hot tier.
    Hot,
    /// Its content belongs on the cold tier.
    Cold,
    /// It has no pin of its own.
    Auto,
}

/// The pin of a directory or file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PinReport {
    /// The volume.
    pub volume: String,
    /// `hot` or `cold`; none: age, fill and reads decide.
    pub pinned: Option<String>,
    /// The directory whose pin it is, if it is not its own.
    pub inherited_from: Option<String>,
    /// Whether the volume has a hot tier.
    pub has_hot_tier: bool,
}

/// What would be moved now.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierPlanReport {
    /// The volume.
    pub name: String,
    /// The next moves, in their order.
    pub moves: Vec<PlannedMove>,
}

/// A block that would be moved.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlannedMove {
    /// The block.
    pub block: String,
    /// The file that wrote it, if that is known.
    pub path: Option<String>,
    /// Its length.
    pub bytes: u32,
    /// Whether it moves to the hot tier, or else to the cold one.
    pub to_hot: bool,
    /// Why.
    pub reason: String,
}
