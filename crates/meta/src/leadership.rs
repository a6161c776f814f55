//! A term of leadership of a volume's server: reads the sessions from the store, creates the volume if the
//! group has just begun, and does the background work until leadership is lost.

use crate::background;
use crate::limits::RETRY_AFTER;
use crate::options::Options;
use crate::shared::Shared;
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Command, Outcome, query};
use shoal_types::Timestamp;
use shoal_wire::MetaError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a replica that does not lead checks whether it is stopped.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until the server stops.
pub(crate) fn run(shared: &Arc<Shared>, options: &Options) {
    let core = &shared.replica.core;
    loop {
        let term = match core.wait_for(LOOK_EVERY, |applied| core.lead.holds(applied)) {
            Ok(term) => term,
            Err(MetaError::NotLeader { .. }) => continue,
            Err(_) => return,
        };
        if let Err(error) = adopt(shared, term, options) {
            if core.running().is_err() {
                return;
            }
            tracing::warn!(group = %core.group, %error, "taking over leadership failed");
            shoal_runtime::thread::sleep(LOOK_EVERY / 10);
            continue;
        }
        tracing::info!(group = %core.group, term, "leads");
        shared.background.begin();
        shared.heal.lead(true);
        // Checked again now that there is work to stop: a loss of leadership before this is seen here, a
        // later one stops the work.
        let leads = || core.running().is_ok() && core.lead.holds(core.applied()) == Some(term);
        if leads() {
            background::run(shared, options);
        }
        shared.heal.lead(false);
        // Backoff: an error that ended a leader's work may last.
        let _ = core.wait_for(RETRY_AFTER, |_| (!leads_still(shared, term)).then_some(()));
    }
}

fn leads_still(shared: &Shared, term: u64) -> bool {
    let status = shared.replica.core.lead.status();
    status.role == crate::lead::Role::Leader && status.term == term
}

fn adopt(shared: &Arc<Shared>, term: u64, options: &Options) -> Result<(), MetaError> {
    let core = &shared.replica.core;
    if shared.adopted.load(Ordering::Acquire) == term {
        return Ok(());
    }
    if shared.tree(query::volume(&shared.store))?.is_none() {
        let volume = options.create.ok_or_else(|| MetaError::Failed("the store holds no volume".into()))?;
        format(shared, volume, options)?;
    }
    let sessions = shared.tree(query::sessions(&shared.store))?;
    // The end of sessions that was interrupted is completed.
    let (ended, living): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|(_, record)| record.has_ended());
    let ids: Vec<_> = living.iter().map(|(id, _)| *id).collect();
    let adopted = living.into_iter().map(|(id, record)| {
        let origin = record.origin().cloned();
        (id, record.client, origin)
    });
    shared.sessions.adopt(adopted);
    shared.leases.adopt(term, ids.into_iter());
    for (session, _) in ended {
        shared.end_session(session)?;
    }
    shared.adopted.store(term, Ordering::Release);
    core.progress_moved();
    Ok(())
}

/// Creates the volume.
pub(crate) fn format(shared: &Shared, volume: u128, options: &Options) -> Result<(), MetaError> {
    let format = Command::Format {
        volume,
        uid: 0,
        gid: 0,
        perm: 0o755,
        time: Timestamp::now(),
        options: VolumeOptions { replica: options.replica, ..VolumeOptions::default() },
    };
    match shared.propose(&format)? {
        Outcome::Done => Ok(()),
        other => Err(MetaError::Failed(format!("the volume was not made: {other:?}"))),
    }
}
