//! Mounting a volume of a cluster: a client, the map, and the kernel's mount, in one process.
//!
//! **Promises.** Any one of the given servers is enough to mount, and none of them is needed later: the map
//! names all nodes. A volume that cannot be mounted is refused with the reason and the volumes there are.

use super::cluster_view::{ClusterView, VolumeReplicas};
use super::polling::{Poller, links};
use super::reporter::{ReportSource, Reporter};
use super::waiting::MountWait;
use crate::admin::MountSpec;
use crate::control::{Answer, Control, Dumped, Handler, Request, Statistics, Status, Synced};
use crate::limits::{MOUNT_MAP_PATIENCE, MOUNT_NEWS_PATIENCE, TOP_FILES_MAX};
use crate::measure::MetaWatches;
use crate::memory;
use crate::mount_report::{MountReport, Volume, number, reports, traffic_figures};
use crate::mounts;
use crate::node::client_options;
use crate::pieces::tell_content;
use crate::profile::{Marker, Profile, Round, RoundReply, Top, TopInode, Wanted};
use crate::subdirectory;
use anyhow::{Context, bail};
use parking_lot::Mutex;
use shoal_client::Client;
use shoal_cluster::{Bricks, ClusterMap, ReplicatedBlocks, VolumeState};
use shoal_fuse::{HotBy, Mounted};
use shoal_net::{Credentials, Lane, Network};
use shoal_types::{GroupId, InodeId, SessionId};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two rounds of asking all servers.
const AGAIN: Duration = Duration::from_millis(500);

/// A mounted volume of a cluster.
pub struct ClusterMount {
    shared: Arc<Shared>,
    running: Mutex<Option<(Control, Poller, Reporter)>>,
}

struct Shared {
    started: Instant,
    spec: MountSpec,
    volume: GroupId,
    view: Arc<ClusterView>,
    client: Arc<Client>,
    mounted: Mounted,
    /// The latencies of its requests for metadata.
    requests: Arc<MetaWatches>,
    marker: Marker,
}

impl ClusterMount {
    /// Mounts it.
    pub fn start(spec: &MountSpec) -> anyhow::Result<Arc<ClusterMount>> {
        let credentials = Credentials::load(&spec.credentials)?;
        let network = Network::new(cluster_of(&credentials)?, credentials)?;
        let view = ClusterView::new(network, None, ClusterMap::default(), Box::new(|_| {}));
        let wait = MountWait::begin(&view, &spec.servers)?;
        fetch_map(&view, &spec.servers)?;
        view.find_local_node();
        let volume = find_soon(&view, &spec.servers, &spec.volume)?;
        let poller = Poller::start(view.clone(), spec.servers.clone())?;
        let bricks: Arc<dyn Bricks> = view.clone();
        let blocks = ReplicatedBlocks::new(volume, bricks);
        let requests = Arc::new(MetaWatches::default());
        let replicas = VolumeReplicas { view: view.clone(), volume, requests: requests.clone() };
        let replicas = Arc::new(replicas);
        let chosen = spec.options.on_top_of(&view.map().mount_options(volume)).map_err(anyhow::Error::msg)?;
        view.read_files(!chosen.reads_through_server);
        let origin = crate::origin::here();
        let has_ended = crate::origin::has_ended;
        let options =
            shoal_client::Options { origin, has_ended, ..client_options(&spec.mountpoint, &chosen) };
        memory::begin_mount(&chosen);
        let client = Client::open_replicated(replicas, blocks, options)
            .with_context(|| format!("volume {}", spec.volume))?;
        let mut mount = memory::fit(&chosen);
        mount.source = spec.source.clone();
        let root = spec.subdirectory.as_deref().map(|path| subdirectory::find(&client, &spec.volume, path));
        let mounted = root.transpose().and_then(|root| {
            mount.root = root.unwrap_or(InodeId::ROOT);
            Ok(shoal_fuse::mount(client.clone(), &spec.mountpoint, mount)?)
        });
        let mounted = mounted.inspect_err(|_| {
            // Nothing was done that could be lost.
            let _ = client.close();
        })?;
        drop(wait);
        memory::keep(Some(&client))?;
        mounts::note_device(&spec.run, mounted.device());
        let (started, spec) = (Instant::now(), spec.clone());
        let shared = Arc::new(Shared {
            started,
            spec,
            volume,
            view,
            client,
            mounted,
            requests,
            marker: Marker::new(),
        });
        let control = Control::open(&shared.spec.run, shared.clone()).context("control socket")?;
        let (view, seeds) = (shared.view.clone(), shared.spec.servers.clone());
        let reporter = Reporter::start(view, seeds, volume, shared.clone())?;
        Ok(Arc::new(ClusterMount { shared, running: Mutex::new(Some((control, poller, reporter))) }))
    }

    /// The mount.
    pub fn mounted(&self) -> &Mounted {
        &self.shared.mounted
    }

    /// Its run directory.
    pub fn run(&self) -> &Path {
        &self.shared.spec.run
    }

    /// Its state, as text for administrators.
    pub fn dump(&self) -> String {
        self.shared.report().dump(&self.shared.spec.volume)
    }

    /// After the mount has ended: makes everything durable and stops.
    pub fn stop(&self) -> anyhow::Result<()> {
        let closed = self.shared.client.close();
        self.running.lock().take();
        let log = crate::logging::path(&self.shared.spec.run);
        closed.with_context(|| {
            format!(
                "not everything that was written could be made durable; see {} if it ran in the background",
                log.display()
            )
        })
    }
}

/// The cluster that issued these credentials: its authority is named after it.
fn cluster_of(credentials: &Credentials) -> anyhow::Result<u128> {
    credentials.cluster().context("the credentials do not say which cluster they are for")
}

/// Fetches the map from any of these servers.
fn fetch_map(view: &ClusterView, servers: &[String]) -> anyhow::Result<()> {
    let due = Instant::now() + MOUNT_MAP_PATIENCE;
    loop {
        let (mut reasons, mut denied) = (Vec::new(), None);
        for server in servers {
            match view.catch_up(&view.network().link(server, Lane::Requests)) {
                Ok(()) if view.map().epoch > 0 => return Ok(()),
                Ok(()) => reasons.push(format!("{server} has no cluster map yet")),
                Err(why) => {
                    denied = denied.or_else(|| view.denied());
                    reasons.push(why);
                }
            }
        }
        if let Some(denial) = denied {
            bail!("{denial}");
        }
        if Instant::now() + AGAIN > due {
            bail!(
                "no server answers: {}; start one (`systemctl start shoal-server`), or name other nodes",
                reasons.join("; ")
            );
        }
        std::thread::sleep(AGAIN);
    }
}

/// The volume of this name. A server may learn a little late that a volume was created or started, so this
/// retries for a moment.
fn find_soon(view: &ClusterView, servers: &[String], name: &str) -> anyhow::Result<GroupId> {
    let due = Instant::now() + MOUNT_NEWS_PATIENCE;
    loop {
        let found = find(&view.map(), name);
        if found.is_ok() || Instant::now() > due {
            return found;
        }
        std::thread::sleep(AGAIN);
        for link in links(view, servers) {
            // A server that does not answer is skipped.
            let _ = view.catch_up(&link);
        }
    }
}

/// The volume of this name, if it can be mounted.
fn find(map: &ClusterMap, name: &str) -> anyhow::Result<GroupId> {
    let Some((id, volume)) = map.volume(name) else {
        let names: Vec<&str> = map.volumes.values().map(|volume| volume.name.as_str()).collect();
        match names[..] {
            [] => bail!(
                "there is no volume '{name}': the cluster has none yet (`shoal volume create` makes one)"
            ),
            _ => bail!("there is no volume '{name}'; there are: {}", names.join(", ")),
        }
    };
    if volume.state != VolumeState::Started {
        bail!("volume {name} is not started: `shoal volume start {name}` on a node of the cluster does that");
    }
    Ok(id)
}

impl Shared {
    fn report(&self) -> MountReport<'_> {
        MountReport { started: self.started, client: &self.client, mounted: &self.mounted }
    }

    fn status(&self) -> Result<Status, String> {
        let MountSpec { volume, run, source, options, .. } = &self.spec;
        let (id, options) = (self.volume.to_string(), options.words());
        let source = Some(source.as_str());
        let read_only = self.view.map().mount_options(self.volume).split(',').any(|word| word == "ro");
        let volume = Volume { name: volume, id: &id, data: run, source, options: &options, read_only };
        self.report().status(volume)
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = self.report().statistics();
        statistics.volume.clone_from(&self.spec.volume);
        statistics.meta = reports(&self.requests.stats());
        statistics.client.extend(traffic_figures(self.view.network().traffic()));
        let (reads, bytes) = self.view.near_bricks().counted();
        statistics.client.push(number("local_brick_reads_total", reads));
        statistics.client.push(number("local_brick_read_bytes_total", bytes));
        statistics
    }
}

impl ReportSource for Shared {
    fn session(&self) -> SessionId {
        self.client.session()
    }

    fn take_losses(&self) -> Vec<String> {
        self.client.take_losses()
    }

    fn reply_to(&self, round: &Round) -> RoundReply {
        match &round.what {
            Wanted::Profile { marks } => {
                let profiled = self.marker.answer(round.id, *marks, || {
                    let kernel = self.mounted.stats();
                    Profile::of(kernel.reads, kernel.writes, &kernel.ops, &self.requests.stats())
                });
                RoundReply::Profile(Box::new(profiled))
            }
            Wanted::Top(of) => {
                let by = if of.by_bytes { HotBy::Bytes } else { HotBy::Count };
                let count_max = of.count_max.min(TOP_FILES_MAX) as usize;
                let hot = self.mounted.hot(&of.operation, by, count_max);
                let (hot, since) = hot.unwrap_or_else(|| (Vec::new(), self.started));
                let inode = |one: shoal_fuse::HotInode| TopInode {
                    inode: one.ino.0,
                    count: one.count,
                    over_max: one.over_max,
                    bytes: one.bytes,
                };
                let inodes = hot.into_iter().map(inode).collect();
                RoundReply::Top(Top { duration_s: since.elapsed().as_secs(), inodes })
            }
            Wanted::ClearTop => {
                self.mounted.clear_hot();
                RoundReply::Cleared
            }
        }
    }
}

impl Handler for Shared {
    fn handle(
        &self,
        request: Request,
        say: &mut dyn FnMut(&dyn Answer) -> io::Result<()>,
    ) -> Result<(), String> {
        // If the client of the socket is gone, the error has no reader.
        let gone = |error: io::Error| error.to_string();
        match request {
            Request::Status => say(&self.status()?).map_err(gone),
            Request::Stats => say(&self.statistics()).map_err(gone),
            Request::Dump => say(&Dumped { text: self.report().dump(&self.spec.volume) }).map_err(gone),
            Request::Sync => {
                let refused = match (self.client.fsync(InodeId::ROOT), self.report().refused()) {
                    (Ok(()), _) => None,
                    (Err(_), Some(why)) => Some(why),
                    (Err(errno), None) => return Err(errno.to_string()),
                };
                say(&Synced { refused }).map_err(gone)
            }
            Request::Content { inode } => {
                let map = self.view.map();
                tell_content(&self.client, InodeId(inode), &|brick| map.brick_name(brick), &mut |pieces| {
                    say(&pieces).map_err(gone)
                })
            }
            Request::Abandon => {
                self.client.abandon();
                say(&Synced::default()).map_err(gone)
            }
            Request::Scrub { .. } => Err(super::CLUSTER_SCRUB.into()),
            Request::Admin { .. } => {
                Err("this process mounts a volume; `shoal server` serves the cluster".into())
            }
        }
    }
}
