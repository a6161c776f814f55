//! `shoal import brick`.

use super::super::local::{self, Confirmation};
use crate::flush::make_durable;
use crate::import::{Bricks, Counts, Destination, Listener, Mode, Summary, import};
use crate::{find, show};
use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copies the files of a stopped volume of GlusterFS from its bricks into a mounted volume.
///
/// Before the volume is stopped, `gluster volume heal NAME info` must show no entries: a brick does not know
/// what it has missed. Bricks are only read, unless you say --move. What is in the target already and is the
/// same is skipped, so an import that ended early is started again. Exit code 0: everything is imported (and
/// removed from the bricks, with --move), 1: something is not, and was listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal import brick /srv/brick1 --to /mnt/web --dry-run     what would be copied, and what not
  shoal import brick /srv/brick1 --to /mnt/web --verify      copies, then compares every byte
  shoal import brick /srv/b1 /srv/b2 --to /mnt/web --part    other bricks are imported elsewhere
  shoal import brick /srv/b1 --to /mnt/web --move            if there is no room for a second copy
  shoal import brick /srv/b2 --to /mnt/web --move --no-copy  then frees the other brick")]
pub struct Brick {
    /// Bricks of the volume, of each replica set at least one with data; with all the newest copy is found
    #[arg(required = true, value_name = "BRICK")]
    bricks: Vec<PathBuf>,
    /// Directory of a mounted volume
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Write nothing
    #[arg(long, conflicts_with = "verify")]
    dry_run: bool,
    /// Compare every file with its brick afterwards
    #[arg(long)]
    verify: bool,
    /// These are not all bricks: files of the others are left out without a word
    #[arg(long)]
    part: bool,
    /// The files of this brick, of those given, are all empty indeed: it is no arbiter's
    #[arg(long, value_name = "BRICK")]
    empty: Vec<PathBuf>,
    /// Remove each file from the bricks, once it is durable in the volume and every byte was compared
    #[arg(long = "move")]
    moves: bool,
    /// Remove from the bricks what the volume has, and copy nothing: for the other bricks of a replica set
    #[arg(long, requires = "moves", conflicts_with = "dry_run")]
    no_copy: bool,
    #[command(flatten)]
    confirmation: Confirmation,
}

impl Brick {
    pub fn run(self, asking: local::Mode) -> anyhow::Result<ExitCode> {
        let bricks = Bricks::open(&self.bricks, &self.empty, self.part)?;
        let mount = find::mount_of(&self.to)?;
        let target = self.to.canonicalize().with_context(|| self.to.display().to_string())?;
        if !target.is_dir() {
            bail!("{} is not a directory", target.display());
        }
        if let Some(inside) = bricks.bricks.iter().find(|brick| target.starts_with(&brick.path)) {
            bail!("{} is in the brick {}", target.display(), inside.path.display());
        }
        let mode = self.mode();
        let _lock = if mode.frees() { bricks.lock()? } else { Vec::new() };
        if mode.frees() {
            let places: Vec<String> = self.bricks.iter().map(|brick| brick.display().to_string()).collect();
            let what = "Files are removed from the old bricks, which GlusterFS cannot serve any more then:";
            self.confirmation.require(asking, &format!("{what} {}.", places.join(", ")))?;
        }
        let mut shown = Shown::new("not imported");
        let device = target.metadata().with_context(|| target.display().to_string())?.dev();
        // Below a mount that is gone is a directory of this machine, to which files would be moved.
        let is_durable = || {
            make_durable(&mount).map_err(|error| io::Error::other(format!("{error:#}")))?;
            match target.metadata()?.dev() == device {
                true => Ok(()),
                false => Err(io::Error::other(format!("{} was unmounted", target.display()))),
            }
        };
        let to = Destination::open(&target, &is_durable)?;
        let imported = import(&bricks, &to, mode, &mut shown);
        shown.end();
        let summary = imported.context("the import ended early; start it again, and it goes on")?;
        if mode != Mode::DryRun {
            is_durable().context("not everything is on disk")?;
        }
        print!("{}", report(&summary, mode, self.moves, &target));
        Ok(ExitCode::from(u8::from(summary.problems > 0 || summary.freed.kept > 0)))
    }

    fn mode(&self) -> Mode {
        match () {
            () if self.dry_run => Mode::DryRun,
            () if self.no_copy => Mode::Free,
            () if self.moves => Mode::Move,
            () if self.verify => Mode::CopyAndVerify,
            () => Mode::Copy,
        }
    }
}

/// Shows the progress on a terminal, and every problem.
pub struct Shown {
    bar: ProgressBar,
    /// What a problem means for its file.
    outcome: &'static str,
}

impl Shown {
    /// Begins to show it.
    pub fn new(outcome: &'static str) -> Shown {
        let bar = ProgressBar::new_spinner();
        // The template is constant.
        bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("it is well formed"));
        Shown { bar, outcome }
    }

    /// Removes the progress from the terminal.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Listener for Shown {
    fn progress(&mut self, summary: &Summary) {
        let Summary { found, copied_bytes, freed, .. } = summary;
        let freed = match freed.files {
            0 => String::new(),
            _ => format!(", {} freed", show::bytes(freed.bytes)),
        };
        self.bar.set_message(format!(
            "{} files, {} copied{freed}",
            found.files + found.symlinks + found.special,
            show::bytes(*copied_bytes)
        ));
        self.bar.tick();
    }

    fn problem(&mut self, what: &str) {
        self.bar.suspend(|| eprintln!("{}: {what}", self.outcome));
    }

    fn kept(&mut self, what: &str) {
        self.bar.suspend(|| eprintln!("kept: {what}"));
    }

    fn note(&mut self, what: &str) {
        self.bar.suspend(|| eprintln!("note: {what}"));
    }
}

fn report(summary: &Summary, mode: Mode, moves: bool, target: &Path) -> String {
    let Summary { found, present, copied_bytes, verified, problems, freed } = summary;
    let Counts { directories, files, hard_links, symlinks, special, bytes } = found;
    let mut report = format!(
        "On the bricks: {files} files of {} in {directories} directories, {symlinks} symbolic links, \
         {hard_links} further hard links, {special} devices, pipes and sockets.\n",
        show::bytes(*bytes)
    );
    match mode {
        Mode::DryRun if moves => report.push_str(&format!(
            "Nothing was written or removed. {} would be freed, of copies that are equal.\n",
            show::bytes(freed.bytes)
        )),
        Mode::DryRun => report.push_str("Nothing was written.\n"),
        Mode::Free => report.push_str(&format!("{present} files of any kind are in {}.\n", target.display())),
        Mode::Copy | Mode::CopyAndVerify | Mode::Move => report.push_str(&format!(
            "Copied {} to {}; {present} were there already, of an earlier import.\n",
            show::bytes(*copied_bytes),
            target.display()
        )),
    }
    if mode == Mode::CopyAndVerify || mode.frees() {
        report.push_str(&format!("Compared {verified} files with the bricks.\n"));
    }
    if mode.frees() {
        report.push_str(&format!(
            "Freed {} on the bricks: {} copies of files were removed, {} kept. {} names of files are left there, of {}.\n",
            show::bytes(freed.bytes),
            freed.files,
            freed.kept,
            freed.left_files,
            show::bytes(freed.left_bytes)
        ));
    }
    match problems {
        0 => report.push_str("Nothing is missing.\n"),
        _ => {
            report.push_str(&format!("{problems} problems: see above. The bricks still have these files.\n"))
        }
    }
    report
}
