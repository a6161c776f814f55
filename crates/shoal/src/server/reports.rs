//! Reports of what runs on this node and on the other nodes.

use super::calls::{NodeReply, NodeRequest, Report};
use super::context::ServerContext;
use crate::limits::{DIGEST_PATIENCE, REPORT_PATIENCE};
use shoal_types::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

impl ServerContext {
    /// The report of this node: process, metadata replicas, and bricks.
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

    /// The reports of all nodes that answer.
    pub(super) fn gather(&self, digest: bool) -> BTreeMap<NodeId, Report> {
        let patience = if digest { DIGEST_PATIENCE } else { REPORT_PATIENCE };
        let answers = self.request_from_all(&NodeRequest::Report { digest }, patience);
        let report = |(node, answer): (NodeId, NodeReply)| match answer {
            NodeReply::Report(report) => Some((node, report)),
            other => {
                tracing::warn!(%node, ?other, "unexpected answer");
                None
            }
        };
        answers.into_iter().filter_map(report).collect()
    }

    /// The answers of all nodes that answer, this one included. All are asked at once.
    pub(super) fn request_from_all(
        &self,
        ask: &NodeRequest,
        patience: Duration,
    ) -> BTreeMap<NodeId, NodeReply> {
        let nodes: Vec<NodeId> = self.view.map().nodes.keys().copied().collect();
        self.request_from_nodes(&nodes, ask, patience)
    }

    /// The answers of those of these nodes that answer. All are asked at once.
    pub(super) fn request_from_nodes(
        &self,
        nodes: &[NodeId],
        ask: &NodeRequest,
        patience: Duration,
    ) -> BTreeMap<NodeId, NodeReply> {
        let ask_one = |node: NodeId| match node == self.node {
            true => Some((node, self.answer(ask))),
            false => {
                let answer = self.view.request(node, ask, patience);
                answer
                    .inspect_err(|why| tracing::debug!(%node, why, "a node does not answer"))
                    .ok()
                    .map(|a| (node, a))
            }
        };
        std::thread::scope(|scope| {
            let asked: Vec<_> = nodes.iter().map(|node| scope.spawn(move || ask_one(*node))).collect();
            asked.into_iter().filter_map(|one| one.join().ok().flatten()).collect()
        })
    }
}
