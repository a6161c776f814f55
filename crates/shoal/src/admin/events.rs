//! What has happened in a cluster: `shoal events`. `--json` prints a line for each event, as it is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that an administrator may want to know of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When, in milliseconds since 1970, by the clock of the node that has seen it.
    pub at_ms: u64,
    /// That node.
    pub node: String,
    /// The run of its server, and the number of the event in it.
    pub run: u64,
    /// See `run`.
    pub number: u64,
    /// What kind of event.
    pub kind: EventKind,
    /// The volume that it concerns, if it is one.
    pub volume: Option<String>,
    /// What has happened, for people.
    pub text: String,
}

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A node's server has started.
    ServerStarted,
    /// A node does not answer any more.
    NodeDown,
    /// It answers again.
    NodeUp,
    /// Another replica leads.
    LeaderChanged,
    /// A mount's session was ended by the servers, or a mount has lost something by that.
    SessionEnded,
    /// Blocks lack copies, or lie on the wrong bricks.
    HealBegun,
    /// None does any more.
    HealDone,
    /// A brick is not served any more.
    BrickOffline,
    /// It is served again.
    BrickOnline,
    /// A brick has little room left.
    BrickFull,
    /// It has enough again.
    BrickRoom,
    /// A node's clock differs from that of others.
    ClockOff,
    /// It does not any more.
    ClockRight,
    /// A connection, a certificate or a request was refused.
    Refused,
}

impl EventKind {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::ServerStarted => "server-started",
            EventKind::NodeDown => "node-down",
            EventKind::NodeUp => "node-up",
            EventKind::LeaderChanged => "leader-changed",
            EventKind::SessionEnded => "session-ended",
            EventKind::HealBegun => "heal-begun",
            EventKind::HealDone => "heal-done",
            EventKind::BrickOffline => "brick-offline",
            EventKind::BrickOnline => "brick-online",
            EventKind::BrickFull => "brick-full",
            EventKind::BrickRoom => "brick-room",
            EventKind::ClockOff => "clock-off",
            EventKind::ClockRight => "clock-right",
            EventKind::Refused => "refused",
        }
    }
}

/// The last event of a node that is known already.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeenEvent {
    /// The node.
    pub node: String,
    /// The run of its server.
    pub run: u64,
    /// The number of the event.
    pub number: u64,
}

/// The events of all nodes that answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventsReport {
    /// By time.
    pub events: Vec<Event>,
    /// Nodes that do not answer.
    pub silent: Vec<String>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}  {:<8} {:<15} {}",
            crate::show::date(self.at_ms / 1000),
            self.node,
            self.kind.name(),
            self.text
        )
    }
}
