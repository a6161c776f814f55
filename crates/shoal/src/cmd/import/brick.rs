//! `shoal import brick`.

use crate::flush::flush;
use crate::import::{Bricks, Counts, Listener, Mode, Summary, import};
use crate::{find, show};
use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copies the files of a stopped volume of GlusterFS from its bricks into a mounted volume.
///
/// Before the volume is stopped, `gluster volume heal NAME info` must show no entries: a brick does not know
/// what it has missed. Bricks are only read. What is in the target already and is the same is skipped, so an
/// import that ended early is started again. Exit code 0: everything is imported, 1: something is not, and
/// was listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal import brick /srv/brick1 --to /mnt/web --dry-run      what would be copied, and what is in the way
  shoal import brick /srv/brick1 --to /mnt/web --verify       copies, then compares every byte
  shoal import brick /srv/b1 /srv/b2 --to /mnt/web --part     other bricks are imported on their machines")]
pub struct Brick {
    /// Bricks of the volume, of each replica set at least one; with all of them the newest copy is found
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
}

impl Brick {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let bricks = Bricks::open(&self.bricks, self.part)?;
        let mount = find::mount_of(&self.to)?;
        let target = self.to.canonicalize().with_context(|| self.to.display().to_string())?;
        if !target.is_dir() {
            bail!("{} is not a directory", target.display());
        }
        if let Some(inside) = bricks.bricks.iter().find(|brick| target.starts_with(&brick.path)) {
            bail!("{} is in the brick {}", target.display(), inside.path.display());
        }
        let mode = match (self.dry_run, self.verify) {
            (true, _) => Mode::DryRun,
            (false, true) => Mode::CopyAndVerify,
            (false, false) => Mode::Copy,
        };
        let mut shown = Shown::new("not imported");
        let imported = import(&bricks, &target, mode, &mut shown);
        shown.end();
        let summary = imported.context("the import ended early; start it again, and it goes on")?;
        if mode != Mode::DryRun
            && let Some(why) = flush(&mount, None).context("not everything is on disk")?
        {
            bail!("{}: {why}", mount.point.display());
        }
        print!("{}", report(&summary, mode, &target));
        Ok(ExitCode::from(u8::from(summary.problems > 0)))
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
        let Summary { found, copied_bytes, .. } = summary;
        self.bar.set_message(format!(
            "{} files, {} copied",
            found.files + found.symlinks + found.special,
            show::bytes(*copied_bytes)
        ));
        self.bar.tick();
    }

    fn problem(&mut self, what: &str) {
        self.bar.suspend(|| eprintln!("{}: {what}", self.outcome));
    }

    fn note(&mut self, what: &str) {
        self.bar.suspend(|| eprintln!("note: {what}"));
    }
}

fn report(summary: &Summary, mode: Mode, target: &Path) -> String {
    let Summary { found, present, copied_bytes, verified, problems } = summary;
    let Counts { directories, files, hard_links, symlinks, special, bytes } = found;
    let mut report = format!(
        "On the bricks: {files} files of {} in {directories} directories, {symlinks} symbolic links, \
         {hard_links} further hard links, {special} devices, pipes and sockets.\n",
        show::bytes(*bytes)
    );
    match mode {
        Mode::DryRun => report.push_str("Nothing was written.\n"),
        Mode::Copy | Mode::CopyAndVerify => report.push_str(&format!(
            "Copied {} to {}; {present} were there already, of an earlier import.\n",
            show::bytes(*copied_bytes),
            target.display()
        )),
    }
    if mode == Mode::CopyAndVerify {
        report.push_str(&format!("Compared {verified} files with the bricks.\n"));
    }
    match problems {
        0 => report.push_str("Nothing is missing.\n"),
        _ => {
            report.push_str(&format!("{problems} problems: see above. The bricks still have these files.\n"))
        }
    }
    report
}
