//! Administration of a cluster: what can be asked of any node, and what is answered.
//!
//! **Models.** An administrator talks to the server of the machine at hand (over its control socket), and that server sees to it that
//! the right one acts: changes of the cluster map are decided by the leader of the map's group, healing is known to the
//! leader of a volume. So requests name things as people do (`HOST:/BRICK`, names of volumes), and answers are the same whichever node
//! gives them.
//!
//! **Promises.** The reports are also what `--json` prints: fields may be added, not changed. A request that is refused
//! changed nothing; the refusal says what to do instead. Whoever asks for what is so already is told so, as an error.

mod ask;
mod attention;
mod insight;
mod names;
pub mod render;
mod reports;
mod setup;

pub use ask::{act, ask, strange};
pub use insight::*;
pub use names::{BadName, BrickName, Token};
pub use reports::*;
pub use setup::{Begun, Init, Join, Joined, MountSpec, ServeSpec};

use serde::{Deserialize, Serialize};

/// Carries out what an administrator asks for.
pub trait Admin: Send + Sync {
    /// Answers by calling `say`: any number of [`AdminAnswer::Note`]s and the one answer that stands beside each request.
    /// An error of `say` means that nobody listens any more. An error as the outcome is shown to the administrator as it is.
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
    /// How the cluster does: [`AdminAnswer::Cluster`].
    ClusterStatus,
    /// A token for machines that are to join: [`AdminAnswer::Token`].
    IssueToken {
        /// For how long it is valid.
        hours: u32,
    },
    /// All nodes, this one included: [`AdminAnswer::Peers`].
    Peers,
    /// A node leaves the cluster: [`AdminAnswer::Done`].
    Detach {
        /// Its name, host or `HOST:PORT`.
        host: String,
        /// Even if it has bricks; what is on them is lost to the cluster.
        force: bool,
    },
    /// Makes a volume: [`AdminAnswer::Done`].
    CreateVolume {
        /// Its name.
        name: String,
        /// Copies of every block.
        replica: u8,
        /// Where.
        bricks: Vec<BrickName>,
        /// Nodes that keep metadata and no blocks.
        #[serde(default)]
        arbiters: Vec<String>,
        /// Even if copies may come to lie on one node, or no node may die without a standstill.
        force: bool,
    },
    /// Lets it be mounted: [`AdminAnswer::Done`].
    StartVolume {
        /// Which.
        name: String,
    },
    /// Ends that; what is mounted loses its volume: [`AdminAnswer::Done`].
    StopVolume {
        /// Which.
        name: String,
    },
    /// Forgets a volume that is stopped: [`AdminAnswer::Done`].
    DeleteVolume {
        /// Which.
        name: String,
    },
    /// What volumes there are: [`AdminAnswer::Volumes`].
    Volumes {
        /// Only this one.
        name: Option<String>,
    },
    /// What runs for volumes: [`AdminAnswer::Statuses`].
    VolumeStatus {
        /// Only this one.
        name: Option<String>,
        /// With digests of the metadata replicas; takes as long as reading all metadata.
        digest: bool,
    },
    /// Changes a setting: [`AdminAnswer::Done`].
    SetOption {
        /// Of which volume.
        name: String,
        /// Which.
        key: String,
        /// To what.
        value: String,
    },
    /// Puts settings back to their defaults: [`AdminAnswer::Done`].
    ResetOptions {
        /// Of which volume.
        name: String,
        /// Which; all if not said.
        key: Option<String>,
    },
    /// Adds bricks: [`AdminAnswer::Done`].
    AddBricks {
        /// To which volume.
        name: String,
        /// Where.
        bricks: Vec<BrickName>,
    },
    /// Takes bricks away: [`AdminAnswer::Done`], of [`RemoveStep::Status`] [`AdminAnswer::Removal`].
    RemoveBricks {
        /// From which volume.
        name: String,
        /// Which.
        bricks: Vec<BrickName>,
        /// How far.
        step: RemoveStep,
    },
    /// A brick takes another's place: [`AdminAnswer::Done`].
    ReplaceBrick {
        /// Of which volume.
        name: String,
        /// The one that goes. If it is online it is drained first, otherwise it counts as gone at once.
        old: BrickName,
        /// The one that comes; it may be the same directory on a new disk.
        new: BrickName,
    },
    /// Looks for blocks that lack copies, now: [`AdminAnswer::Heal`].
    Heal {
        /// Of which volume.
        name: String,
        /// Looks at all blocks.
        full: bool,
    },
    /// How healing stands: [`AdminAnswer::Heal`].
    HealInfo {
        /// Of which volume.
        name: String,
    },
    /// Spreads blocks over all bricks: [`AdminAnswer::Rebalance`].
    Rebalance {
        /// Of which volume.
        name: String,
        /// What to do.
        step: RebalanceStep,
    },
    /// Whether all metadata replicas of a volume hold the same: [`AdminAnswer::Statuses`] with digests, of one volume. The name
    /// `cluster` stands for the cluster map if no volume has it.
    Digest {
        /// Of which volume.
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
    /// Gives a volume another name: [`AdminAnswer::Done`].
    RenameVolume {
        /// Which.
        name: String,
        /// The new name.
        to: String,
    },
    /// Bricks of volumes with their disks and what is on them: [`AdminAnswer::Details`]. Reads about all blocks.
    VolumeDetail {
        /// Only this one.
        name: Option<String>,
    },
    /// Which mounts volumes have, and what they hold: [`AdminAnswer::Sessions`].
    Sessions {
        /// Only of this one.
        name: Option<String>,
    },
    /// What is being done about the blocks of volumes: [`AdminAnswer::Tasks`].
    Tasks {
        /// Only of this one.
        name: Option<String>,
    },
    /// Reading bricks through for damage: [`AdminAnswer::Scrub`].
    Scrub {
        /// Of which volume.
        name: String,
        /// What to do.
        step: ScrubStep,
    },
    /// Takes locks of programs away: [`AdminAnswer::Cleared`].
    ClearLocks {
        /// Of which volume.
        name: String,
        /// The file, from the volume's root.
        path: String,
        /// Which locks.
        kind: ClearKind,
        /// Only these bytes, first and last; all if not said.
        range: Option<(u64, u64)>,
    },
}

/// What to do about scrubbing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubStep {
    /// What was found so far.
    Status,
    /// Begin a round now.
    Start,
    /// Read no further.
    Pause,
    /// Go on.
    Resume,
}

/// Which locks are taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClearKind {
    /// Requests that wait.
    Blocked,
    /// Locks that are held.
    Granted,
    /// Both.
    All,
}

/// How far bricks are taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemoveStep {
    /// Begin to move away what is on them.
    Start,
    /// How far that has come.
    Status,
    /// Use them again.
    Stop,
    /// They are empty: forget them. Refused while they are not.
    Commit,
    /// Forget them with what is on them.
    Force,
}

/// What to do about spreading blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceStep {
    /// Begin.
    Start,
    /// How far it has come.
    Status,
    /// Leave blocks where they are.
    Stop,
}

/// What is answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum AdminAnswer {
    /// Something worth knowing, said before the answer itself.
    Note {
        /// A sentence.
        text: String,
    },
    /// It was done.
    Done,
    /// See [`ClusterReport`].
    Cluster(ClusterReport),
    /// See [`TokenReport`].
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
    /// What runs for them.
    Statuses {
        /// By name.
        volumes: Vec<VolumeStatus>,
    },
    /// How far the removal of bricks has come.
    Removal {
        /// In the order asked.
        bricks: Vec<RemovalReport>,
    },
    /// See [`HealReport`].
    Heal(HealReport),
    /// See [`RebalanceReport`].
    Rebalance(RebalanceReport),
    /// See [`CredentialsReport`].
    Credentials(CredentialsReport),
    /// All clients.
    Clients {
        /// By name.
        clients: Vec<ClientReport>,
    },
    /// Bricks with their disks.
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
    /// See [`ScrubbingReport`].
    Scrub(ScrubbingReport),
    /// See [`ClearedReport`].
    Cleared(ClearedReport),
}
