//! `shoal export`.

use crate::data_dir::DataDir;
use crate::export::{self, Listener, Summary};
use crate::limits::FINDINGS_SHOWN_MAX;
use crate::{show, volume};
use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use shoal_brick::Brick;
use shoal_namespace::query;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a volume that is not mounted out as plain files.
///
/// Needs the data directory only, and shoal. Run it as root to keep owners, devices and protected attributes.
/// Exit code 0: everything came out as it is, 1: not everything (it says what).
#[derive(Debug, Args)]
#[command(after_help = "Example: shoal export --data /srv/shoal /backup/shoal-2026-11-21")]
pub struct Export {
    /// Data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where to: a new or empty directory
    dest: PathBuf,
}

impl Export {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let data = DataDir::open(&self.data)?;
        let dest = std::path::absolute(&self.dest)?;
        if dest.starts_with(data.path()) {
            bail!("{} is in the data directory: choose another place", dest.display());
        }
        // A directory is open for each level of the tree.
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
        let brick = Brick::open(&data.brick())?;
        let store = volume::at_rest(&data)?;
        let total = query::counters(&*store).map_or(0, |counters| counters.inodes);
        let mut view = View { bar: show::bar("files", total), shown: 0 };
        let outcome = export::export(&*store, &*brick, &dest, &mut view);
        view.bar.finish_and_clear();
        let summary = outcome.with_context(|| format!("exporting to {}", dest.display()))?;
        println!(
            "{} files, {} of content, are in {}.",
            summary.files,
            show::bytes(summary.bytes),
            dest.display()
        );
        if summary.problems > 0 {
            println!("{} things did not come out as they are in the volume.", summary.problems);
        }
        Ok(ExitCode::from(u8::from(summary.problems > 0)))
    }
}

struct View {
    bar: ProgressBar,
    shown: u64,
}

impl Listener for View {
    fn progress(&mut self, summary: &Summary) {
        self.bar.set_position(summary.files);
    }

    fn problem(&mut self, what: &str) {
        self.shown += 1;
        if self.shown <= FINDINGS_SHOWN_MAX {
            self.bar.suspend(|| eprintln!("{what}"));
        }
    }
}
