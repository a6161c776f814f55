//! `shoal export`: from a data directory at rest, or from a mount.

use super::import::Shown;
use crate::data_dir::DataDir;
use crate::export::{self, Listener, Summary};
use crate::import::{self, Bricks, Destination, Mode};
use crate::limits::FINDINGS_SHOWN_MAX;
use crate::{find, show, volume};
use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use shoal_brick::Brick;
use shoal_namespace::query;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes a volume out as plain files: with --data one that is not mounted, with --mount one of a cluster.
///
/// Run it as root to keep owners, devices and protected attributes. Exit code 0: everything came out as it
/// is, 1: not everything (it says what).
///
/// With --data it needs the data directory only, and shoal. With --mount nothing should change the volume
/// meanwhile. What is in the target already and is the same is skipped, so such an export that ended early is
/// started again. The target may become a brick of GlusterFS, see docs/ADMIN.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal export --data /srv/shoal /backup/shoal-2026-11-21
  shoal export --mount /mnt/web /srv/brick1/web --verify      copies, then compares every byte")]
pub struct Export {
    /// Data directory of a volume that is not mounted
    #[arg(long, value_name = "DIR", required_unless_present = "mount", conflicts_with = "mount")]
    data: Option<PathBuf>,
    /// A mounted volume, or a directory of it
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Compare every file with the mounted volume afterwards
    #[arg(long, requires = "mount")]
    verify: bool,
    /// Where to: a new or empty directory
    dest: PathBuf,
}

impl Export {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dest = std::path::absolute(&self.dest)?;
        match (&self.data, &self.mount) {
            (Some(data), _) => from_data(data, &dest),
            (None, Some(mount)) => from_mount(mount, &dest, self.verify),
            (None, None) => bail!("say --data DIR or --mount DIR"),
        }
    }
}

fn from_data(data: &Path, dest: &Path) -> anyhow::Result<ExitCode> {
    let data = DataDir::open(data)?;
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
    let outcome = export::export(&*store, &*brick, dest, &mut view);
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

fn from_mount(mount: &Path, dest: &Path, verify: bool) -> anyhow::Result<ExitCode> {
    let source = mount.canonicalize().with_context(|| mount.display().to_string())?;
    let volume = find::mount_of(&source)?;
    let check = |dest: &Path| match dest.starts_with(&volume.point) {
        true => bail!("{} is in the volume itself: choose another place", dest.display()),
        false => Ok(()),
    };
    check(dest)?;
    std::fs::create_dir_all(dest).with_context(|| dest.display().to_string())?;
    // A symbolic link may lead back.
    let dest = dest.canonicalize().with_context(|| dest.display().to_string())?;
    check(&dest)?;
    let mode = if verify { Mode::CopyAndVerify } else { Mode::Copy };
    let mut shown = Shown::new("not exported");
    // All is made durable at the end, below.
    let target = Destination::open(&dest, &|| Ok(()))?;
    let copied = import::import(&Bricks::plain(source)?, &target, mode, &mut shown);
    shown.end();
    let summary = copied.context("the export ended early; start it again, and it goes on")?;
    export::sync_all_of(&dest).with_context(|| format!("{}: not everything is on disk", dest.display()))?;
    let found = summary.found;
    println!(
        "{} files of {}, {} directories, {} symbolic links, {} further hard links and {} devices, pipes and sockets.",
        found.files,
        show::bytes(found.bytes),
        found.directories,
        found.symlinks,
        found.hard_links,
        found.special
    );
    println!(
        "Copied {} to {}; {} were there already, of an earlier export.",
        show::bytes(summary.copied_bytes),
        dest.display(),
        summary.present
    );
    if verify {
        println!("Compared {} files with the volume.", summary.verified);
    }
    match summary.problems {
        0 => println!("Nothing is missing."),
        problems => println!("{problems} problems: see above."),
    }
    Ok(ExitCode::from(u8::from(summary.problems > 0)))
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
