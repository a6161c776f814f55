//! `shoal fsck`.

use crate::check::{self, Bricks, Listener, Report};
use crate::data_dir::DataDir;
use crate::limits::{DATA_DEFAULT, FINDINGS_SHOWN_MAX, SERVER_DATA_DEFAULT};
use crate::server::{self, node_dir::NodeDir};
use crate::{show, volume};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use indicatif::ProgressBar;
use shoal_brick::Brick;
use shoal_cluster::ClusterMap;
use shoal_namespace::kv::KvRead;
use shoal_namespace::query;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Checks a volume that is not mounted: names, links, attributes, content maps, counters, and every block's
/// checksums.
///
/// Changes nothing in it. Exit code 0: clean, 1: something is wrong, 2: it could not be checked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal fsck --data /srv/shoal
  shoal fsck --data /srv/shoal --quick      without reading the content of blocks
  shoal fsck --data /var/lib/shoal --volume web

Of a cluster's volume it checks what this node keeps: its replica of the metadata and its bricks. The node's server \
must not run meanwhile; the others may.

What to do when it finds something: `shoal export` writes out all that can be read.")]
pub struct Fsck {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Which volume, if the data directory is that of a cluster's node
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Look for blocks, but do not read them
    #[arg(long)]
    quick: bool,
    /// One JSON object, for programs
    #[arg(long)]
    json: bool,
}

impl Fsck {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let opening = show::spinner("replaying the log");
        let subject = match server::node_dir::exists(&self.data) {
            true => Subject::of_node(&self.data, self.volume.as_deref()),
            false if self.volume.is_some() => Err(anyhow!(
                "{} is not the directory of a cluster's node: name that with --data ({SERVER_DATA_DEFAULT}, as a rule), or leave \
                 --volume out",
                self.data.display()
            )),
            false => Subject::of_data(&self.data),
        };
        opening.finish_and_clear();
        let subject = subject?;
        let mut view = View { bar: ProgressBar::hidden(), json: self.json, findings: Vec::new(), count: 0 };
        let mut report = check::check(&*subject.store, &subject.bricks, self.quick, &mut view)?;
        view.bar.finish_and_clear();
        if let Some(mismatch) = &subject.mismatch {
            view.finding(mismatch.clone());
            report.findings += 1;
            report.clean = false;
        }
        if self.json {
            let mut object = serde_json::to_value(&report)?;
            object["volume"] = subject.volume.clone().into();
            object["id"] = subject.id.clone().into();
            object["messages"] = view.findings.into();
            println!("{object}");
        } else {
            summary(&subject.volume, &report, view.count);
        }
        Ok(ExitCode::from(u8::from(!report.clean)))
    }
}

/// The volume to check. It is locked for as long as this lives.
struct Subject {
    volume: String,
    id: String,
    store: Box<dyn KvRead>,
    bricks: Bricks,
    mismatch: Option<String>,
    _lock: Box<dyn Any>,
}

impl Subject {
    /// The volume of a single machine's data directory.
    fn of_data(path: &Path) -> anyhow::Result<Subject> {
        let data = DataDir::open(path)?;
        let bricks = Bricks::single(Brick::open(&data.brick())?);
        let store = volume::at_rest(&data)?;
        let mismatch = volume::mismatch(&data, &*store)?;
        let (volume, id) = (data.manifest.volume.clone(), data.manifest.id.clone());
        Ok(Subject { volume, id, store, bricks, mismatch, _lock: Box::new(data) })
    }

    /// The part of a cluster's volume that a node keeps.
    fn of_node(path: &Path, volume: Option<&str>) -> anyhow::Result<Subject> {
        let dir = NodeDir::open(path)?;
        let shown = dir.path().display();
        let map = dir.read_map().with_context(|| format!("there is no cluster map in {shown} yet"))?;
        let map = ClusterMap::decode(&map).with_context(|| format!("{shown}/map"))?;
        let names = || map.volumes.values().map(|volume| volume.name.as_str()).collect::<Vec<_>>().join(", ");
        let wanted = match volume {
            Some(name) => map.volume(name),
            None if map.volumes.len() == 1 => map.volumes.iter().next().map(|(id, volume)| (*id, volume)),
            None => bail!("say which volume with --volume; there are: {}", names()),
        };
        let (group, wanted) =
            wanted.with_context(|| format!("there is no such volume; there are: {}", names()))?;
        let here = dir.identity().node;
        let Some(place) = wanted.replicas.iter().find(|place| place.node == here) else {
            bail!("this node keeps no metadata of volume {}: check it on one that does", wanted.name);
        };
        let store = shoal_meta::offline::open(&dir.replica(group, place.id)).context("metadata")?;
        let mut bricks = Vec::new();
        for (id, brick) in map.bricks_of(group).filter(|(_, brick)| brick.node == here) {
            bricks.push((id, Brick::open(&brick.path).with_context(|| brick.path.display().to_string())?));
        }
        let found = query::volume(&store)?.map(|volume| volume.id);
        Ok(Subject {
            volume: wanted.name.clone(),
            id: group.to_string(),
            bricks: Bricks::some(bricks, wanted.replica),
            mismatch: (found != Some(group.0)).then(|| "the metadata is that of another volume".to_owned()),
            store: Box::new(store),
            _lock: Box::new(dir),
        })
    }
}

fn summary(volume: &str, report: &Report, shown: u64) {
    if shown > FINDINGS_SHOWN_MAX {
        println!("... and {} more", shown - FINDINGS_SHOWN_MAX);
    }
    println!(
        "{} files, {} names, {} extents, {}; {} blocks with {}, {}.",
        report.inodes,
        report.names,
        report.extents,
        show::bytes(report.allocated_bytes),
        report.blocks,
        show::bytes(report.block_bytes),
        if report.blocks_read { "all read" } else { "only looked up" }
    );
    if report.copies_elsewhere > 0 {
        println!("{} copies of them are here, {} on other nodes.", report.copies, report.copies_elsewhere);
    }
    if report.blocks_unused > 0 {
        println!(
            "{} more copies are not in use; the server removes them when it runs.",
            report.blocks_unused
        );
    }
    if report.clean {
        println!("Volume {volume} is clean.");
    } else {
        println!(
            "Volume {volume} is NOT clean: {} findings in the namespace, {} copies missing, {} damaged, {} blocks with too few copies.",
            report.findings, report.blocks_missing, report.blocks_damaged, report.blocks_degraded
        );
    }
}

struct View {
    bar: ProgressBar,
    json: bool,
    findings: Vec<String>,
    count: u64,
}

impl Listener for View {
    fn begin(&mut self, what: &'static str, total: Option<u64>) {
        self.bar.finish_and_clear();
        self.bar = total.map_or_else(|| show::counter(what), |total| show::bar(what, total));
    }

    fn progress(&mut self, done: u64) {
        self.bar.set_position(done);
    }

    fn finding(&mut self, what: String) {
        self.count += 1;
        if self.count > FINDINGS_SHOWN_MAX {
            return;
        }
        if self.json {
            self.findings.push(what);
        } else {
            self.bar.suspend(|| println!("{what}"));
        }
    }
}
