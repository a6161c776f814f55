//! Keeps the copy of the cluster map up to date: polls one node after the other for a newer one.
//!
//! All nodes have to be polled, because one that is cut off from its peers is unaware of newer maps.

use super::cluster_view::ClusterView;
use crate::limits::MAP_POLL;
use shoal_net::{Lane, Link};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Polls until it is dropped.
pub struct Poller {
    view: Arc<ClusterView>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    /// Begins to poll the nodes of the map and, besides them, those at these addresses.
    pub fn start(view: Arc<ClusterView>, seeds: Vec<String>) -> std::io::Result<Poller> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ours, until) = (view.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("shoal-map".into()).spawn(move || {
            let (mut turn, mut seen) = (0, 0);
            while !until.load(Ordering::Acquire) {
                round(&ours, &seeds, &mut turn);
                seen = ours.wait(seen, MAP_POLL);
            }
        })?;
        Ok(Poller { view, stop, thread: Some(thread) })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.view.notify_waiters();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has logged that.
            let _ = thread.join();
        }
    }
}

/// Polls the next node; if it does not answer, the one after it, until one has answered or all were polled.
fn round(view: &ClusterView, seeds: &[String], turn: &mut usize) {
    if view.fence().is_some() {
        return;
    }
    let links = links(view, seeds);
    for _ in 0..links.len() {
        let Some(link) = links.get(*turn % links.len()) else { return };
        *turn = turn.wrapping_add(1);
        match view.catch_up(link) {
            Ok(()) => return,
            Err(why) => tracing::debug!(why, "polling for the cluster map failed"),
        }
    }
}

/// The connections to all nodes to poll, without duplicates: those of the map except this node, and `seeds`.
pub fn links(view: &ClusterView, seeds: &[String]) -> Vec<Arc<Link>> {
    let map = view.map();
    let own = view.own_node().and_then(|node| map.nodes.get(&node)).map(|node| node.address.as_str());
    let mut addresses: Vec<&str> = map.nodes.values().map(|node| node.address.as_str()).collect();
    addresses.extend(seeds.iter().map(String::as_str));
    addresses.retain(|address| Some(*address) != own);
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    addresses.into_iter().map(|address| view.network().link(address, Lane::Requests)).collect()
}
