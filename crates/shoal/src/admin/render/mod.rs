//! Reports as text, in the shapes that a GlusterFS administrator knows. Pure: a report in, lines out.

mod activity;
#[cfg(test)]
mod activity_tests;
mod cluster;
mod heal;
mod insight;
#[cfg(test)]
mod insight_tests;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod tiers;
mod volume;

pub use activity::{Shown, profile, top};
pub use cluster::{clients, cluster, how_to_enter, how_to_join, peers, pool};
pub use heal::{conversion, heal, rebalance, removal, scheme_of};
pub use insight::{cleared, details, heal_summary, scrubbing, sessions, split_brain, tasks};
pub use status::{Agreement, agreement, digests, statuses};
pub use table::Table;
pub use tiers::{pin, tier_plan, tiers};
pub use volume::{known_options, option_help, option_values, options, volumes};

use super::{BrickStatus, VolumeState};

/// A value that may not be known.
fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// A brick and its status, in the two lines that GlusterFS has.
fn connected(brick: &BrickStatus) -> String {
    let status = if brick.online { "Connected" } else { "Transport endpoint is not connected" };
    format!("Brick {}\nStatus: {status}", brick.brick)
}

fn yes(is_it: bool) -> &'static str {
    if is_it { "Y" } else { "N" }
}

fn state(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Created => "Created",
        VolumeState::Started => "Started",
        VolumeState::Stopped => "Stopped",
    }
}

/// `1 block`, `2 blocks`.
fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
