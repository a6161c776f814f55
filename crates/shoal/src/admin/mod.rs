//! Administration of a cluster: what can be asked of any node, and what is answered.
//!
//! **Models.** An administrator talks to the server of the local machine over its control socket. That server
//! forwards the request to the node that can act on it: changes of the cluster map are decided by the leader
//! of the map's group, healing is known to the leader of a volume. Requests therefore use the administrator's
//! names (`HOST:/BRICK`, volume names), and every node gives the same answer.
//!
//! **Promises.** The reports are also what `--json` prints: fields may be added, not changed. A request that
//! is refused has changed nothing, and the refusal says what to do instead. A request for a state that
//! already exists is refused with an error that says so.

mod activity;
mod attention;
mod events;
mod insight;
mod names;
pub mod render;
mod reports;
mod setup;
mod tiers;

pub use activity::*;
pub use events::*;
pub use insight::*;
pub use names::{BadName, BrickName, Token};
pub use reports::*;
pub use setup::{Begun, Init, Join, Joined, MountSpec, ServeSpec, WebListen};
pub use tiers::*;

use crate::profile::TopOf;
use serde::{Deserialize, Serialize};

/// Carries out what an administrator asks for.
pub trait Admin: Send + Sync {
    /// Answers by calling `say`: any number of [`AdminAnswer::Note`]s, then the one answer named beside each
    /// request. `say` fails if the administrator's connection is closed. An error as the outcome is shown to
    /// the administrator as it is.
    fn execute(
        &self,
        request: AdminRequest,
        say: &mut dyn FnMut(AdminAnswer) -> std::io::Result<()>,
    ) -> Result<(), String>;
}

/// What can be asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "admin", rename_all = "kebab-case")]
pub enum AdminRequest {
    /// The health of the cluster: [`AdminAnswer::Cluster`].
    ClusterStatus,
    /// A token for machines that are to join: [`AdminAnswer::Token`].
    IssueToken {
        /// Its validity.
        hours: u32,
    },
    /// A token that opens the web page of any node: [`AdminAnswer::Token`].
    IssueWebToken {
        /// Its validity.
        hours: u32,
    },
    /// All nodes, this one included: [`AdminAnswer::Peers`].
    Peers,
    /// A node leaves the cluster: [`AdminAnswer::Done`].
    Detach {
        /// Its name, host or `HOST:PORT`.
        host: String,
        /// Even if it has bricks; the data on them is lost to the cluster.
        force: bool,
    },
    /// Makes a volume: [`AdminAnswer::Done`].
    CreateVolume {
        /// Its name.
        name: String,
        /// Copies of every block.
        replica: u8,
        /// The bricks.
        bricks: Vec<BrickName>,
        /// Nodes that keep metadata and no blocks.
        #[serde(default)]
        arbiters: Vec<String>,
        /// Blocks are stored as shards: data shards and parity shards. `replica` counts for nothing then.
        #[serde(default)]
        shards: Option<(u8, u8)>,
        /// Even if two copies of a block may lie on one node, or the volume stops when any node is down.
        force: bool,
    },
    /// Lets it be mounted: [`AdminAnswer::Done`].
    StartVolume {
        /// The volume.
        name: String,
    },
    /// Forbids mounting it; existing mounts stop working: [`AdminAnswer::Done`].
    StopVolume {
        /// The volume.
        name: String,
    },
    /// Deletes a stopped volume: [`AdminAnswer::Done`].
    DeleteVolume {
        /// The volume.
        name: String,
    },
    /// The configuration of volumes: [`AdminAnswer::Volumes`].
    Volumes {
        /// Only this volume.
        name: Option<String>,
    },
    /// The running parts of volumes: [`AdminAnswer::Statuses`].
    VolumeStatus {
        /// Only this volume.
        name: Option<String>,
        /// With digests of the metadata replicas; this reads all metadata.
        digest: bool,
    },
    /// Changes a setting: [`AdminAnswer::Done`].
    SetOption {
        /// The volume.
        name: String,
        /// The setting.
        key: String,
        /// The new value.
        value: String,
    },
    /// Resets settings to their defaults: [`AdminAnswer::Done`].
    ResetOptions {
        /// The volume.
        name: String,
        /// The setting; all if not given.
        key: Option<String>,
    },
    /// Adds bricks: [`AdminAnswer::Done`].
    AddBricks {
        /// The volume.
        name: String,
        /// The new bricks.
        bricks: Vec<BrickName>,
        /// Even where a retired brick of this cluster lies; it is deleted first.
        #[serde(default)]
        force: bool,
    },
    /// Removes bricks: [`AdminAnswer::Done`], or [`AdminAnswer::Removal`] for [`RemoveStep::Status`].
    RemoveBricks {
        /// The volume.
        name: String,
        /// The bricks.
        bricks: Vec<BrickName>,
        /// The step.
        step: RemoveStep,
    },
    /// Replaces a brick by another one: [`AdminAnswer::Done`].
    ReplaceBrick {
        /// The volume.
        name: String,
        /// The old brick. If it is online it is drained first, otherwise it counts as lost at once.
        old: BrickName,
        /// The new brick; it may be the same directory on a new disk.
        new: BrickName,
        /// Even where a retired brick of this cluster lies; it is deleted first.
        #[serde(default)]
        force: bool,
    },
    /// Looks for degraded blocks now: [`AdminAnswer::Heal`].
    Heal {
        /// The volume.
        name: String,
        /// Examines all blocks.
        full: bool,
    },
    /// The progress of healing: [`AdminAnswer::Heal`].
    HealInfo {
        /// The volume.
        name: String,
    },
    /// Rebalances blocks over all bricks: [`AdminAnswer::Rebalance`].
    Rebalance {
        /// The volume.
        name: String,
        /// The step.
        step: RebalanceStep,
    },
    /// Whether all metadata replicas of a volume have equal state: [`AdminAnswer::Statuses`] with digests, of
    /// one volume. The name `cluster` stands for the cluster map if no volume has it.
    Digest {
        /// The volume.
        name: String,
    },
    /// Makes credentials for a client: [`AdminAnswer::Credentials`].
    IssueClient {
        /// Its name.
        name: String,
    },
    /// Refuses a client's credentials from now on: [`AdminAnswer::Done`].
    RevokeClient {
        /// Its name.
        name: String,
    },
    /// Clients with credentials: [`AdminAnswer::Clients`].
    Clients,
    /// Renames a volume: [`AdminAnswer::Done`].
    RenameVolume {
        /// The volume.
        name: String,
        /// The new name.
        to: String,
    },
    /// Bricks of volumes with their disks and their contents: [`AdminAnswer::Details`]. Reads the records of
    /// all blocks.
    VolumeDetail {
        /// Only this volume.
        name: Option<String>,
    },
    /// The mounts of volumes and what they hold: [`AdminAnswer::Sessions`].
    Sessions {
        /// Only of this volume.
        name: Option<String>,
    },
    /// Healing, rebalancing and draining in volumes: [`AdminAnswer::Tasks`].
    Tasks {
        /// Only of this volume.
        name: Option<String>,
    },
    /// Scrubbing of bricks: [`AdminAnswer::Scrub`].
    Scrub {
        /// The volume.
        name: String,
        /// The step.
        step: ScrubStep,
    },
    /// Clears locks of programs: [`AdminAnswer::Cleared`].
    ClearLocks {
        /// The volume.
        name: String,
        /// The file, as a path from the volume's root.
        path: String,
        /// Which locks.
        kind: ClearKind,
        /// Only these bytes, first and last; all if not given.
        range: Option<(u64, u64)>,
    },
    /// What the bricks and mounts of a volume have done: [`AdminAnswer::Profile`].
    Profile {
        /// The volume.
        name: String,
        /// The step.
        step: ProfileStep,
    },
    /// The files and directories of a volume with the most requests: [`AdminAnswer::Top`].
    Top {
        /// The volume.
        name: String,
        /// Which of them.
        of: TopOf,
    },
    /// What the nodes have seen happen: [`AdminAnswer::Events`].
    Events {
        /// The last events of nodes that are known already.
        seen: Vec<SeenEvent>,
    },
    /// Has mounts count the requests of files anew: [`AdminAnswer::Top`] without files.
    ClearTop {
        /// The volume.
        name: String,
    },
    /// Attaches a hot tier to a volume: [`AdminAnswer::Done`].
    AttachTier {
        /// The volume.
        name: String,
        /// Copies of every block.
        replica: u8,
        /// Blocks are stored as shards: data shards and parity shards. `replica` counts for nothing then.
        shards: Option<(u8, u8)>,
        /// The bricks.
        bricks: Vec<BrickName>,
        /// Even if two copies of a block may lie on one node.
        force: bool,
    },
    /// Changes how a volume stores its blocks, those that it has included: [`AdminAnswer::Done`].
    Convert {
        /// The volume.
        name: String,
        /// Copies of every block.
        replica: u8,
        /// Blocks are stored as shards: data shards and parity shards. `replica` counts for nothing then.
        shards: Option<(u8, u8)>,
        /// Even if two shards of a block may lie on one node.
        force: bool,
    },
    /// How the blocks of a volume are stored: [`AdminAnswer::Conversion`].
    Conversion {
        /// The volume.
        name: String,
    },
    /// Reports about the tiers of a volume, or detaches the hot one: [`AdminAnswer::Tiers`],
    /// [`AdminAnswer::TierPlan`] for [`TierStep::Plan`], and otherwise [`AdminAnswer::Done`].
    Tier {
        /// The volume.
        name: String,
        /// The step.
        step: TierStep,
    },
    /// Pins a directory or file to a tier, or reports its pin: [`AdminAnswer::Pin`].
    Pin {
        /// The volume.
        name: String,
        /// The inode number of the directory or file.
        inode: u64,
        /// The step.
        step: PinStep,
    },
    /// Gives a directory or file a scheme, takes it away or reports it: [`AdminAnswer::DirectoryScheme`].
    DirectoryScheme {
        /// The volume.
        name: String,
        /// The inode number of the directory or file.
        inode: u64,
        /// The step.
        step: SchemeStep,
    },
}

/// A step of profiling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileStep {
    /// Report, and begin an interval.
    Mark,
    /// Report only.
    Peek,
}

/// A step of scrubbing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubStep {
    /// Report what was found so far.
    Status,
    /// Begin a round now.
    Start,
    /// Pause.
    Pause,
    /// Resume.
    Resume,
}

/// The locks to clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClearKind {
    /// Waiting requests.
    Blocked,
    /// Granted locks.
    Granted,
    /// Both.
    All,
}

/// A step of removing bricks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemoveStep {
    /// Begin to drain them.
    Start,
    /// Report the progress of draining.
    Status,
    /// Stop draining and use them again.
    Stop,
    /// Whether [`RemoveStep::Commit`] would succeed: [`AdminAnswer::Done`], or its refusal.
    Check,
    /// Remove them from the volume. Refused while they still hold blocks.
    Commit,
    /// Remove them together with the blocks on them.
    Force,
}

/// A step of rebalancing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceStep {
    /// Begin.
    Start,
    /// Report the progress.
    Status,
    /// Stop; blocks stay where they are.
    Stop,
}

/// An answer to an administrator's request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum AdminAnswer {
    /// Information that precedes the answer itself.
    Note {
        /// A sentence.
        text: String,
    },
    /// The request was carried out.
    Done,
    /// The health of the cluster.
    Cluster(ClusterReport),
    /// A new join token.
    Token(TokenReport),
    /// All nodes.
    Peers {
        /// In the order in which they joined.
        peers: Vec<PeerReport>,
    },
    /// Volumes.
    Volumes {
        /// By name.
        volumes: Vec<VolumeReport>,
    },
    /// Their running parts.
    Statuses {
        /// By name.
        volumes: Vec<VolumeStatus>,
    },
    /// The progress of removing bricks.
    Removal {
        /// In the order of the request.
        bricks: Vec<RemovalReport>,
    },
    /// The progress of healing.
    Heal(HealReport),
    /// The progress of rebalancing.
    Rebalance(RebalanceReport),
    /// The credentials of a client.
    Credentials(CredentialsReport),
    /// All clients.
    Clients {
        /// By name.
        clients: Vec<ClientReport>,
    },
    /// Bricks and their disks.
    Details {
        /// By name.
        volumes: Vec<VolumeDetail>,
    },
    /// Mounts.
    Sessions {
        /// By name.
        volumes: Vec<SessionsReport>,
    },
    /// Work on blocks.
    Tasks {
        /// By name.
        volumes: Vec<TasksReport>,
    },
    /// The progress and findings of scrubbing.
    Scrub(ScrubbingReport),
    /// The locks that were cleared.
    Cleared(ClearedReport),
    /// What bricks and mounts have done.
    Profile(ProfileReport),
    /// The files and directories with the most requests.
    Top(TopReport),
    /// What has happened.
    Events(EventsReport),
    /// How the tiers are.
    Tiers(TierReport),
    /// What would be moved between them.
    TierPlan(TierPlanReport),
    /// The pin of a directory or file.
    Pin(PinReport),
    /// How blocks are stored.
    Conversion(ConversionReport),
    /// The scheme of a directory or file.
    DirectoryScheme(SchemeOfReport),
}
