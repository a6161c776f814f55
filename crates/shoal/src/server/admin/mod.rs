//! What administrators ask for, carried out: requests become changes of the cluster map, or reports from all nodes.
//!
//! - [`change`]: what changes something;
//! - [`show`]: what is there and how it does;
//! - [`blocks`]: healing, spreading, and taking bricks away;
//! - [`insight`]: mounts, work on blocks, scrubbing, locks;
//! - [`names`]: what people call volumes, nodes and bricks.

mod blocks;
mod change;
mod insight;
mod names;
mod show;

use super::core::Core;
use crate::admin::{Admin, AdminAnswer, AdminRequest};
use crate::control::{Answer, Handler, Request};
use std::io;
use std::sync::Arc;

/// What to do where `shoal scrub` is asked for in a cluster.
pub const CLUSTER_SCRUB: &str = "the nodes of a cluster read their bricks through again and again, and repair what is damaged: \
     `shoal volume scrub NAME status` on any node shows what they found, `shoal volume scrub NAME start` has them begin now";

/// The server as its control socket shows it.
pub struct Controlled(pub Arc<Core>);

impl Handler for Controlled {
    fn handle(
        &self,
        request: Request,
        say: &mut dyn FnMut(&dyn Answer) -> io::Result<()>,
    ) -> Result<(), String> {
        match request {
            Request::Admin { request } => self.0.execute(request, &mut |answer| say(&answer)),
            Request::Status | Request::Stats | Request::Sync | Request::Abandon => {
                Err("this is a server without a mount of its own; `shoal cluster status` shows how it does"
                    .into())
            }
            Request::Scrub { .. } => Err(CLUSTER_SCRUB.into()),
        }
    }
}

impl Admin for Core {
    fn execute(
        &self,
        request: AdminRequest,
        say: &mut dyn FnMut(AdminAnswer) -> io::Result<()>,
    ) -> Result<(), String> {
        use AdminRequest as R;
        self.serves()?;
        self.freshen();
        let answer = match request {
            R::ClusterStatus => AdminAnswer::Cluster(self.cluster_report()),
            R::Peers => AdminAnswer::Peers { peers: self.peers(&self.gather(false)) },
            R::Volumes { name } => AdminAnswer::Volumes { volumes: self.volumes(name.as_deref())? },
            R::VolumeStatus { name, digest } => {
                AdminAnswer::Statuses { volumes: self.statuses(name.as_deref(), digest)? }
            }
            R::Digest { name } => AdminAnswer::Statuses { volumes: vec![self.digests(&name)?] },
            R::Clients => AdminAnswer::Clients { clients: self.clients() },
            R::IssueToken { hours } => AdminAnswer::Token(self.issue_token(hours)?),
            R::IssueClient { name } => AdminAnswer::Credentials(self.issue_client(&name)?),
            R::Heal { name, full } => AdminAnswer::Heal(self.heal_report(&name, full)?),
            R::HealInfo { name } => AdminAnswer::Heal(self.heal_report(&name, false)?),
            R::Rebalance { name, step } => AdminAnswer::Rebalance(self.rebalance(&name, step)?),
            R::RemoveBricks { name, bricks, step } => self.remove_bricks(&name, &bricks, step)?,
            R::VolumeDetail { name } => AdminAnswer::Details { volumes: self.details(name.as_deref())? },
            R::Sessions { name } => AdminAnswer::Sessions { volumes: self.session_reports(name.as_deref())? },
            R::Tasks { name } => AdminAnswer::Tasks { volumes: self.task_reports(name.as_deref())? },
            R::Scrub { name, step } => AdminAnswer::Scrub(self.scrub(&name, step)?),
            R::ClearLocks { name, path, kind, range } => {
                AdminAnswer::Cleared(self.clear(&name, path, kind, range)?)
            }
            other => {
                self.change(other, &mut |text| {
                    // Whoever does not listen any more misses a note.
                    let _ = say(AdminAnswer::Note { text });
                })?;
                AdminAnswer::Done
            }
        };
        // Whoever does not listen any more needs no reason either.
        say(answer).map_err(|error| error.to_string())
    }
}
