//! A mount's part in rounds: it polls one node after the other, and answers the rounds of that node.
//!
//! **Assumes** nothing about the nodes' versions: one that does not know the request refuses it, and is asked
//! again in its turn.

use super::calls::{NodeReply, NodeRequest, request_over};
use super::cluster_view::ClusterView;
use super::polling::links;
use crate::limits::{NODE_REPLY_WAIT_MAX, ROUND_POLL, ROUNDS_KEPT_MAX};
use crate::profile::{Round, RoundReply};
use parking_lot::{Condvar, Mutex};
use shoal_types::{GroupId, SessionId};
use std::collections::VecDeque;
use std::sync::Arc;

/// A mount, as a source of reports.
pub trait ReportSource: Send + Sync + 'static {
    /// The mount's session.
    fn session(&self) -> SessionId;
    /// Sessions that have ended since the last call, and what was lost with them.
    fn take_losses(&self) -> Vec<String>;
    /// The answer to a round.
    fn reply_to(&self, round: &Round) -> RoundReply;
}

/// Answers rounds until it is dropped.
pub struct Reporter(Arc<Stop>);

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Reporter {
    /// Begins to poll the nodes of the map and those at these addresses.
    pub fn start(
        view: Arc<ClusterView>,
        seeds: Vec<String>,
        volume: GroupId,
        mount: Arc<dyn ReportSource>,
    ) -> std::io::Result<Reporter> {
        let stop = Arc::new(Stop::default());
        let until = stop.clone();
        std::thread::Builder::new().name("shoal-report".into()).spawn(move || {
            let (mut turn, mut answered, mut losses) = (0, Answered::default(), Vec::new());
            let mut stopped = until.stopped.lock();
            while !*stopped {
                parking_lot::MutexGuard::unlocked(&mut stopped, || {
                    if let Err(why) =
                        poll(&view, &seeds, &mut turn, volume, (&mut answered, &mut losses), &*mount)
                    {
                        tracing::debug!(why, "polling a node for rounds failed");
                    }
                });
                if !*stopped {
                    until.changed.wait_for(&mut stopped, ROUND_POLL);
                }
            }
        })?;
        Ok(Reporter(stop))
    }
}

impl Drop for Reporter {
    /// The thread is not waited for: a server that does not answer may hold it up.
    fn drop(&mut self) {
        *self.0.stopped.lock() = true;
        self.0.changed.notify_all();
    }
}

/// The rounds that were answered last, the latest at the end. Nodes may have learned of them in different
/// orders.
#[derive(Default)]
struct Answered(VecDeque<u64>);

impl Answered {
    fn add(&mut self, round: u64) {
        if self.0.len() == ROUNDS_KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(round);
    }
}

/// Polls the next node, and answers its round.
fn poll(
    view: &ClusterView,
    seeds: &[String],
    turn: &mut usize,
    volume: GroupId,
    (answered, losses): (&mut Answered, &mut Vec<String>),
    mount: &dyn ReportSource,
) -> Result<(), String> {
    let links = links(view, seeds);
    let Some(link) = links.get(*turn % links.len().max(1)) else { return Ok(()) };
    *turn = turn.wrapping_add(1);
    let ask =
        |ask: NodeRequest| request_over(link, &ask, NODE_REPLY_WAIT_MAX).map_err(|error| error.to_string());
    losses.extend(mount.take_losses());
    while let Some(text) = losses.first().cloned() {
        ask(NodeRequest::Lost { volume, text })?;
        losses.remove(0);
    }
    let mut last = answered.0.back().copied().unwrap_or(0);
    for _ in 0..ROUNDS_KEPT_MAX {
        let round = match ask(NodeRequest::Round { volume, answered: last })? {
            NodeReply::Round(None) => return Ok(()),
            NodeReply::Round(Some(round)) => round,
            other => return Err(format!("unexpected answer: {other:?}")),
        };
        last = round.id;
        if answered.0.contains(&last) {
            continue;
        }
        let reply = mount.reply_to(&round);
        match ask(NodeRequest::SubmitRoundReply { volume, session: mount.session(), round: last, reply })? {
            NodeReply::Done(_) => answered.add(last),
            other => return Err(format!("unexpected answer: {other:?}")),
        }
    }
    Ok(())
}
