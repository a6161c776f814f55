//! Carries out the requests of administrators: changes of the cluster map, and reports from all nodes.
//!
//! - [`activity`]: profiles of bricks and mounts, busiest files;
//!
//! - [`change`]: changes of the configuration;
//!
//! - [`detach`]: whether a node can be detached;
//!
//! - [`show`]: configuration and health;
//!
//! - [`blocks`]: healing, rebalancing, and removing bricks;
//!
//! - [`insight`]: mounts, work on blocks, scrubbing, locks;
//!
//! - [`tiers`]: the hot tier of a volume;
//!
//! - [`names`]: lookup of volumes, nodes and bricks by their names.

mod activity;
mod blocks;
mod change;
mod detach;
mod insight;
mod names;
mod schemes;
mod show;
mod tiers;

use super::context::ServerContext;
use super::waiting::waited_for;
use crate::admin::{Admin, AdminAnswer, AdminRequest};
use crate::control::{Answer, Dumped, Handler, Request};
use crate::limits::NOTE_AFTER;
use shoal_types::InodeId;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The answer to `shoal scrub` in a cluster.
pub const CLUSTER_SCRUB: &str = "the nodes of a cluster read their bricks through again and again, and repair what is damaged: \
     `shoal volume scrub NAME status` on any node shows what they found, `shoal volume scrub NAME start` has them begin now";

/// The handler of the server's control socket.
pub struct Controlled(pub Arc<ServerContext>);

impl Handler for Controlled {
    fn handle(
        &self,
        request: Request,
        say: &mut dyn FnMut(&dyn Answer) -> io::Result<()>,
    ) -> Result<(), String> {
        match request {
            Request::Admin { request } => self.0.execute(request, &mut |answer| say(&answer)),
            Request::Stats => say(&self.0.statistics()).map_err(|error| error.to_string()),
            Request::Dump => say(&Dumped { text: self.0.dump() }).map_err(|error| error.to_string()),
            Request::Status | Request::Sync | Request::Content { .. } | Request::Abandon => {
                Err("this is a server without a mount of its own; `shoal cluster status` shows how it does"
                    .into())
            }
            Request::Scrub { .. } => Err(CLUSTER_SCRUB.into()),
        }
    }
}

impl Admin for ServerContext {
    /// A request that waits for nodes which do not answer says so.
    fn execute(
        &self,
        request: AdminRequest,
        say: &mut dyn FnMut(AdminAnswer) -> io::Result<()>,
    ) -> Result<(), String> {
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let work = scope.spawn(move || {
                self.carry_out(request, &mut |answer| {
                    tell.send(answer).map_err(|_| io::ErrorKind::BrokenPipe.into())
                })
            });
            let is_late = |answer: &Result<_, _>| matches!(answer, Err(RecvTimeoutError::Timeout));
            let mut first = told.recv_timeout(NOTE_AFTER);
            if is_late(&first) {
                let why = waited_for(&self.view, &[]);
                first = told.recv_timeout(Duration::ZERO);
                if let Some(why) = why.filter(|_| is_late(&first)) {
                    say(AdminAnswer::Note { text: why }).map_err(|error| error.to_string())?;
                }
            }
            for answer in first.into_iter().chain(told) {
                say(answer).map_err(|error| error.to_string())?;
            }
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl ServerContext {
    fn carry_out(
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
            R::IssueWebToken { hours } => AdminAnswer::Token(self.issue_web_token(hours)?),
            R::IssueClient { name } => AdminAnswer::Credentials(self.issue_client(&name)?),
            R::Heal { name, full } => AdminAnswer::Heal(self.heal_report(&name, full)?),
            R::HealInfo { name } => AdminAnswer::Heal(self.heal_info(&name)?),
            R::Rebalance { name, step } => AdminAnswer::Rebalance(self.rebalance(&name, step)?),
            R::RemoveBricks { name, bricks, step } => self.remove_bricks(&name, &bricks, step)?,
            R::VolumeDetail { name } => AdminAnswer::Details { volumes: self.details(name.as_deref())? },
            R::Sessions { name } => AdminAnswer::Sessions { volumes: self.session_reports(name.as_deref())? },
            R::Tasks { name } => AdminAnswer::Tasks { volumes: self.task_reports(name.as_deref())? },
            R::Tier { name, step } => self.tier(&name, step)?,
            R::Pin { name, inode, step } => AdminAnswer::Pin(self.pin(&name, InodeId(inode), step)?),
            R::DirectoryScheme { name, inode, step } => {
                AdminAnswer::DirectoryScheme(self.directory_scheme(&name, InodeId(inode), step)?)
            }
            R::Conversion { name } => AdminAnswer::Conversion(self.conversion(&name)?),
            R::Scrub { name, step } => AdminAnswer::Scrub(self.scrub(&name, step)?),
            R::Profile { name, step } => AdminAnswer::Profile(self.profile(&name, step)?),
            R::Top { name, of } => AdminAnswer::Top(self.top(&name, of)?),
            R::Events { seen } => AdminAnswer::Events(self.events_of_all(seen)),
            R::ClearTop { name } => AdminAnswer::Top(self.clear_top(&name)?),
            R::ClearLocks { name, path, kind, range } => {
                AdminAnswer::Cleared(self.clear(&name, path, kind, range)?)
            }
            other => {
                self.change(other, &mut |text| {
                    // A note is lost if the administrator's connection is closed.
                    let _ = say(AdminAnswer::Note { text });
                })?;
                AdminAnswer::Done
            }
        };
        // If the connection is closed, the error has no reader.
        say(answer).map_err(|error| error.to_string())
    }
}
