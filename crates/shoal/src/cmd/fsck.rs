//! `shoal fsck`.

use crate::check::{self, Listener, Report};
use crate::data_dir::DataDir;
use crate::limits::{DATA_DEFAULT, FINDINGS_SHOWN_MAX};
use crate::{show, volume};
use clap::Args;
use indicatif::ProgressBar;
use shoal_brick::Brick;
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks a volume that is not mounted: names, links, attributes, content maps, counters, and every block's checksums.
///
/// Changes nothing in it. Exit code 0: clean, 1: something is wrong, 2: it could not be checked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal fsck --data /srv/shoal
  shoal fsck --data /srv/shoal --quick      without reading the content of blocks

What to do when it finds something: `shoal export` writes out all that can be read.")]
pub struct Fsck {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Look for blocks, but do not read them
    #[arg(long)]
    quick: bool,
    /// One JSON object, for programs
    #[arg(long)]
    json: bool,
}

impl Fsck {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let data = DataDir::open(&self.data)?;
        let brick = Brick::open(&data.brick())?;
        let opening = show::spinner("replaying the log");
        let store = volume::at_rest(&data);
        opening.finish_and_clear();
        let store = store?;
        let mut view = View { bar: ProgressBar::hidden(), json: self.json, findings: Vec::new(), count: 0 };
        let identity = volume::mismatch(&data, &*store)?;
        let mut report = check::check(&*store, &brick, self.quick, &mut view)?;
        view.bar.finish_and_clear();
        if let Some(mismatch) = identity {
            view.finding(mismatch);
            report.findings += 1;
            report.clean = false;
        }
        if self.json {
            let mut object = serde_json::to_value(&report)?;
            object["volume"] = data.manifest.volume.clone().into();
            object["id"] = data.manifest.id.clone().into();
            object["messages"] = view.findings.into();
            println!("{object}");
        } else {
            summary(&data, &report, view.count);
        }
        Ok(ExitCode::from(u8::from(!report.clean)))
    }
}

fn summary(data: &DataDir, report: &Report, shown: u64) {
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
    if report.blocks_unused > 0 {
        println!(
            "{} more blocks are not in use; the server removes them when it runs.",
            report.blocks_unused
        );
    }
    let volume = &data.manifest.volume;
    if report.clean {
        println!("Volume {volume} is clean.");
    } else {
        println!(
            "Volume {volume} is NOT clean: {} findings in the namespace, {} blocks missing, {} damaged.",
            report.findings, report.blocks_missing, report.blocks_damaged
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
