//! A single-machine node: data directory, brick, metadata server, client and mount, in one process.
//!
//! It starts from the inside out and stops in the opposite order, each part when nothing uses it any more.
//! The mount ends, the client writes everything back and ends its session, the metadata server flushes its
//! store, and the process releases the data directory.

use crate::control::{Answer, Control, Dumped, Handler, Request, ScrubReport, Statistics, Status, Synced};
use crate::data_dir::{DataDir, Manifest};
use crate::measure::{MeasuredBlocks, MeasuredMeta, MetaWatches};
use crate::memory;
use crate::mount_report::{MountReport, Volume, number, reports};
use crate::options::Options;
use crate::pieces::tell_content;
use crate::subdirectory;
use anyhow::Context;
use shoal_brick::{Brick, ScrubOptions};
use shoal_client::Client;
use shoal_fuse::Mounted;
use shoal_meta::Server;
use shoal_runtime::budget::of_process;
use shoal_types::InodeId;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A serving, mounted node.
pub struct Node {
    started: Instant,
    mounted: Mounted,
    client: Arc<Client>,
    requests: Arc<MetaWatches>,
    server: Arc<Server>,
    blocks: Arc<MeasuredBlocks>,
    brick: Arc<Brick>,
    /// Mount options, as they were given.
    options: String,
    // Dropped last: a process that waits for its lock then finds everything else released, too.
    data: DataDir,
}

impl Node {
    /// Opens a data directory, creating what a new one lacks, starts everything in it and mounts it.
    pub fn start(mut data: DataDir, mountpoint: &Path, options: &Options) -> anyhow::Result<Arc<Node>> {
        let shown = data.path().display().to_string();
        memory::begin_single(options);
        let mut mount = memory::fit(options);
        mount.source = data.path().to_str().map(str::to_owned).with_context(|| {
            format!("{shown}: the mount table needs a path in UTF-8; choose another data directory")
        })?;
        if data.is_new() {
            Brick::format(&data.brick())?;
        }
        let brick = Brick::open(&data.brick())?;
        let blocks = Arc::new(MeasuredBlocks::new(brick.clone(), data.brick().display().to_string()));
        let server = Server::open(&data.meta(), blocks.clone(), crate::volume::options(&data)?)
            .with_context(|| format!("metadata in {shown}"))?;
        data.finish()?;
        let requests = Arc::new(MetaWatches::default());
        let meta = Arc::new(MeasuredMeta::new(server.clone(), requests.clone()));
        let client = Client::open(meta, blocks.clone(), client_options(mountpoint, options))?;
        let volume = &data.manifest.volume;
        let root = options.subdirectory.as_deref().map(|path| subdirectory::find(&client, volume, path));
        let mounted = root.transpose().and_then(|root| {
            mount.root = root.unwrap_or(InodeId::ROOT);
            Ok(shoal_fuse::mount(client.clone(), mountpoint, mount)?)
        });
        let mounted = match mounted {
            Ok(mounted) => mounted,
            Err(error) => {
                // Nothing was done that could be lost, but the directory should be left as after any other
                // stop.
                let _ = client.close();
                server.shutdown();
                return Err(error);
            }
        };
        memory::keep(Some(&client))?;
        let (started, options) = (Instant::now(), options.words());
        Ok(Arc::new(Node { started, data, brick, blocks, server, requests, client, mounted, options }))
    }

    /// The data directory.
    pub fn data(&self) -> &DataDir {
        &self.data
    }

    /// The mount.
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// Opens the control socket.
    pub fn control(self: &Arc<Node>) -> anyhow::Result<Control> {
        Control::open(self.data.path(), self.clone()).context("control socket")
    }

    /// After the mount has ended: makes everything durable and stops.
    pub fn stop(&self) -> anyhow::Result<()> {
        let closed = self.client.close();
        self.server.shutdown();
        let log = crate::logging::path(self.data.path());
        closed.with_context(|| {
            format!(
                "not everything that was written could be made durable; see {} if it ran in the background",
                log.display()
            )
        })
    }

    /// Its state, for people.
    pub fn dump(&self) -> String {
        let mut text = self.report().dump(&self.data.manifest.volume);
        text.push_str("\nMetadata server\n");
        text.extend(self.server.dump().iter().map(|line| format!("  {line}\n")));
        text
    }

    fn report(&self) -> MountReport<'_> {
        MountReport { started: self.started, client: &self.client, mounted: &self.mounted }
    }

    fn status(&self) -> Result<Status, String> {
        let Manifest { volume, id, .. } = &self.data.manifest;
        let (data, options) = (self.data.path(), self.options.as_str());
        self.report().status(Volume { name: volume, id, data, source: None, options, read_only: false })
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            volume: self.data.manifest.volume.clone(),
            meta: reports(&self.requests.stats()),
            server: self.server.stats().iter().map(|(name, value)| number(name, *value)).collect(),
            brick: reports(&self.blocks.stats()),
            ..self.report().statistics()
        }
    }
}

impl Handler for Node {
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
            Request::Dump => say(&Dumped { text: self.dump() }).map_err(gone),
            Request::Sync => {
                self.client.fsync(InodeId::ROOT).map_err(|errno| errno.to_string())?;
                say(&Synced::default()).map_err(gone)
            }
            Request::Content { inode } => {
                // A group without a cluster names no brick: there is one.
                tell_content(&self.client, InodeId(inode), &|brick| brick.to_string(), &mut |pieces| {
                    say(&pieces).map_err(gone)
                })
            }
            Request::Abandon => {
                self.client.abandon();
                say(&Synced::default()).map_err(gone)
            }
            Request::Scrub { bytes_per_second } => {
                scrub(&self.brick, bytes_per_second, &mut |report| say(&report))
            }
            Request::Admin { .. } => {
                Err("it serves a volume of this machine only; `shoal server` serves a cluster".into())
            }
        }
    }
}

/// Verifies all blocks of a brick and reports each step, until the caller closes its connection.
pub fn scrub(
    brick: &Brick,
    bytes_per_second: Option<u64>,
    say: &mut dyn FnMut(ScrubReport) -> io::Result<()>,
) -> Result<(), String> {
    let options = ScrubOptions { bytes_per_second: bytes_per_second.and_then(NonZeroU64::new) };
    let stop = AtomicBool::new(false);
    let (mut blocks, mut bytes) = (0, 0);
    let summary = brick.scrub(&options, &stop, &mut |_, outcome| {
        let report = match outcome {
            Ok(len) => {
                blocks += 1;
                bytes += u64::from(len);
                ScrubReport::Progress { blocks, bytes }
            }
            Err(error) => ScrubReport::Damaged { what: error.to_string() },
        };
        if say(report).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let summary = summary.map_err(|error| error.to_string())?;
    let done = ScrubReport::Done { blocks: summary.blocks, bytes: summary.bytes, damaged: summary.damaged };
    if summary.stopped { Ok(()) } else { say(done).map_err(|error| error.to_string()) }
}

/// The client options of a mount.
pub fn client_options(mountpoint: &Path, options: &Options) -> shoal_client::Options {
    let defaults = shoal_client::Options::default();
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    shoal_client::Options {
        memory: of_process().clone(),
        name: format!("{host}:{} (process {})", mountpoint.display(), std::process::id()),
        cache_bytes: options.cache_bytes.unwrap_or(defaults.cache_bytes),
        block_cache_bytes: options.block_cache_bytes.unwrap_or(defaults.block_cache_bytes),
        inline_bytes_max: options.inline_bytes_max.unwrap_or(defaults.inline_bytes_max),
        journal_age_max: options.journal_age_max.unwrap_or(defaults.journal_age_max),
        tree_read_ahead: !options.no_tree_read_ahead,
        file_read_ahead: !options.no_file_read_ahead,
        ..defaults
    }
}
