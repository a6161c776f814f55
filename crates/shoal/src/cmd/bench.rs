//! `shoal bench`.

use super::sizes::{Sizes, number};
use crate::control::{self, Request, Statistics};
use crate::find;
use anyhow::{Context, bail};
use clap::Args;
use shoal_suites::limits::{ROUNDS_DEFAULT, ROUNDS_MAX};
use shoal_suites::outcome::Outcome;
use shoal_suites::plan::{Plan, Suite};
use shoal_suites::programs::bash_with;
use shoal_suites::rounds::{self, Hooks, Remount, Subject};
use shoal_suites::{interrupt, page, table};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures directories with the usual workloads, side by side: Shoal mounts or any others.
///
/// All work is done in a subdirectory of each directory, which is removed at the end. What writes is measured
/// until it is on disk.
#[derive(Debug, Args)]
#[command(after_help = "\
Suites:
  small-read  small files, read by one tar and by 100 at once, with and without their data
  untar       a tree like the kernel's: unpack, tar, rm -rf; on each number of mounts at once
  cluster     unpack, tar, rm on several mounts at once: a tree for each mount, and one for all
  smallfile   threads that create, stat, read, rename and delete files
  stream      clients that write and read long files: in sequence, at random, in strides
  web         files served at random, some of them most of the time
  git         add, commit, status, checkout, gc
  maildir     messages delivered with an fsync each, read, expunged
  build       make of many C files, and once more with nothing to do

Examples:
  shoal bench /mnt/shoal /srv/plain                 the first four suites; ratios to /mnt/shoal
  shoal bench /srv/plain /mnt/a,/mnt/b --suite untar  second: two mounts of one file system
  shoal bench /srv/plain,/srv/plain /mnt/a,/mnt/b --suite cluster
                                                    two programs in one directory, for comparison
  shoal bench /mnt/web --suite web,git --json monday.json --html monday.html
  shoal bench --compare monday.json friday.json --html both.html")]
pub struct Bench {
    /// Directories to measure; the first one is what the others are compared with. Several mounts of one file
    /// system are separated by commas
    #[arg(required_unless_present = "compare", conflicts_with = "compare", value_name = "DIR[,DIR]")]
    dirs: Vec<String>,
    /// What to run [default: small-read,untar,smallfile,stream]
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    suite: Vec<Suite>,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = ROUNDS_DEFAULT, value_name = "N", value_parser = number(ROUNDS_MAX))]
    rounds: usize,
    #[command(flatten)]
    sizes: Sizes,
    /// No cold reads, and the machine's caches are left alone; otherwise root drops them
    #[arg(long, conflicts_with = "remount")]
    warm: bool,
    /// Before each cold read, run this with the directory as $1, as in 'umount "$1" && mount "$1"'
    #[arg(long, value_name = "COMMAND")]
    remount: Option<String>,
    /// Compare the results of earlier runs, and measure nothing
    #[arg(long, num_args = 1.., value_name = "FILE.json")]
    compare: Vec<PathBuf>,
    /// Write the results to this file, for --compare
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with charts to this file; it needs no other file and no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        for file in self.json.iter().chain(&self.html) {
            writable(file)?;
        }
        let outcome = if self.compare.is_empty() {
            let (plan, subjects) = (self.plan()?, self.subjects()?);
            interrupt::catch()?;
            let script = plan.remount.clone().unwrap_or_default();
            let remount = |mount: &Path| bash_with(Path::new("/"), &script, &[mount]).context("--remount");
            let remount = plan.remount.is_some().then_some(&remount as Remount);
            let hooks = Hooks { counter: &kernel_requests, remount };
            rounds::run(&plan, &subjects, hooks, env!("CARGO_PKG_VERSION"))?
        } else {
            let named = |path: &PathBuf| Ok((path.display().to_string(), Outcome::read(path)?));
            Outcome::merge(self.compare.iter().map(named).collect::<anyhow::Result<Vec<_>>>()?)?
        };
        print!("{}", table::table(&outcome));
        if let Some(file) = &self.json {
            outcome.write(file)?;
        }
        if let Some(file) = &self.html {
            fs::write(file, page::page(&outcome)).with_context(|| file.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let suites = if self.suite.is_empty() { Suite::DEFAULT } else { &self.suite };
        let plan = self.sizes.plan(suites, self.rounds)?;
        Ok(Plan { warm_only: self.warm, remount: self.remount.clone(), ..plan })
    }

    fn subjects(&self) -> anyhow::Result<Vec<Subject>> {
        let mut subjects: Vec<Subject> = Vec::new();
        for dir in &self.dirs {
            // A comma may be part of a name.
            let mounts = match Path::new(dir).exists() {
                true => vec![PathBuf::from(dir)],
                false => dir.split(',').map(PathBuf::from).collect(),
            };
            if let Some(none) = mounts.iter().find(|mount| !mount.is_dir()) {
                bail!("'{}' is not a directory that can be measured", none.display());
            }
            if subjects.iter().any(|subject| subject.label == *dir) {
                bail!("'{dir}' is named twice");
            }
            // A relative path would lead elsewhere in --remount.
            let mounts = mounts.iter().map(|mount| mount.canonicalize()).collect::<Result<Vec<_>, _>>();
            subjects.push(Subject { label: dir.clone(), mounts: mounts.with_context(|| dir.clone())? });
        }
        Ok(subjects)
    }
}

/// Refuses a file that cannot be written before hours are spent on what it is to hold.
fn writable(file: &Path) -> anyhow::Result<()> {
    let new = !file.exists();
    let opened = fs::File::options().create(true).append(true).open(file);
    opened.with_context(|| format!("{} cannot be written", file.display()))?;
    if new {
        fs::remove_file(file).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Requests of the kernel that a mount has had; `None` of other file systems.
pub(super) fn kernel_requests(path: &Path) -> Option<u64> {
    let mount = find::mount_of(path).ok()?;
    let stats: Statistics = control::request(&mount.home(), &Request::Stats).ok()?;
    Some(stats.kernel_requests)
}
