//! What runs, here and on the other nodes.

use super::calls::{Answer, Ask, Report};
use super::context::ServerContext;
use crate::limits::{DIGEST_PATIENCE, REPORT_PATIENCE};
use shoal_types::NodeId;
use std::collections::BTreeMap;

impl ServerContext {
    /// What runs here.
    pub(super) fn report(&self, digest: bool) -> Report {
        Report {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            epoch: self.view.map().epoch,
            replicas: self.groups.reports(digest),
            bricks: self.bricks.reports(),
            retired: self.retiring.reports(),
        }
    }

    /// What runs on all nodes that answer.
    pub(super) fn gather(&self, digest: bool) -> BTreeMap<NodeId, Report> {
        let map = self.view.map();
        let patience = if digest { DIGEST_PATIENCE } else { REPORT_PATIENCE };
        let ask = |node: NodeId| {
            if node == self.node {
                return Some((node, self.report(digest)));
            }
            match self.view.ask(node, &Ask::Report { digest }, patience) {
                Ok(Answer::Report(report)) => Some((node, report)),
                Ok(other) => {
                    tracing::warn!(%node, ?other, "a strange answer");
                    None
                }
                Err(why) => {
                    tracing::debug!(%node, why, "it does not answer");
                    None
                }
            }
        };
        std::thread::scope(|scope| {
            let asked: Vec<_> = map.nodes.keys().map(|node| scope.spawn(move || ask(*node))).collect();
            asked.into_iter().filter_map(|one| one.join().ok().flatten()).collect()
        })
    }
}
