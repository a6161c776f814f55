//! Removes the extents of dead inodes that have many, a few hundred per command.

use super::StepError;
use crate::limits::{REAP_EXTENTS, REAP_PAGE};
use crate::shared::Shared;
use shoal_namespace::{Command, Outcome, query};
use std::sync::atomic::Ordering;

/// Proposes one command for each of some dead inodes. Returns whether there are more.
pub(crate) fn step(shared: &Shared) -> Result<bool, StepError> {
    let dead = query::reap_queue(&shared.store, REAP_PAGE)?;
    let mut more = dead.len() >= REAP_PAGE;
    for ino in dead {
        let outcome = shared.propose(&Command::Reap { ino, extents_max: REAP_EXTENTS })?;
        shared.background.done.reap_steps.fetch_add(1, Ordering::Relaxed);
        more |= matches!(outcome, Outcome::Reaped { more: true });
    }
    Ok(more)
}
