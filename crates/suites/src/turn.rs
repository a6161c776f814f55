//! One suite on one system, once: what it times, and what it needs for that.

use crate::interrupt;
use crate::limits::FORGOTTEN_WITHIN;
use crate::plan::{Plan, Suite};
use crate::sandbox::sync;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Tells how many requests of the kernel a mount has had, if that is known.
pub type Counter<'a> = &'a (dyn Fn(&Path) -> Option<u64> + Sync);

/// What one turn has measured: what, seconds, requests per file.
pub type Measured = (String, f64, Option<f64>);

/// Mounts a directory anew, so that its caches are cold.
pub type Remount<'a> = &'a (dyn Fn(&Path) -> anyhow::Result<()> + Sync);

/// What is unpacked by the suites with trees.
pub struct Archives {
    /// The whole tree.
    pub tree: PathBuf,
    /// Parts of it, each with files of all directories; none without the suite that needs them.
    pub parts: Vec<PathBuf>,
}

/// What the caller of the suites can do for them.
#[derive(Clone, Copy)]
pub struct Hooks<'a> {
    /// Counts requests.
    pub counter: Counter<'a>,
    /// Empties caches that the kernel does not keep.
    pub remount: Option<Remount<'a>>,
}

/// One suite on one system.
pub struct Turn<'a> {
    /// The sizes.
    pub plan: &'a Plan,
    /// The suite.
    pub suite: Suite,
    /// A seed that is the same for all systems of a round.
    pub seed: u64,
    /// The directories to work in, one on each mount of the system.
    pub tops: Vec<PathBuf>,
    /// The directories as the user named them.
    pub mounts: &'a [PathBuf],
    /// The archives that are unpacked.
    pub archives: Option<&'a Archives>,
    /// The system's name, for messages of progress.
    pub label: &'a str,
    /// Counts requests, and empties caches.
    pub hooks: Hooks<'a>,
    /// The results.
    pub measured: Vec<Measured>,
}

impl Turn<'_> {
    /// Files of the suite.
    pub fn files(&self) -> usize {
        self.plan.files_of(self.suite)
    }

    /// The directory of a thread: threads are spread over the mounts.
    pub fn top(&self, thread: usize) -> &Path {
        &self.tops[thread % self.tops.len()]
    }

    /// The directory of the first mount, as another mount shows it; `None` if its path is not of the usual
    /// form.
    pub fn first_top_on(&self, mount: usize) -> Option<PathBuf> {
        let (sandbox, work) = (self.tops[0].parent()?.file_name()?, self.tops[0].file_name()?);
        Some(self.tops[mount].parent()?.parent()?.join(sandbox).join(work))
    }

    /// Measures some work on so many files.
    pub fn time(
        &mut self,
        what: &str,
        files: usize,
        work: impl FnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        interrupt::check()?;
        let before = self.requests();
        let started = Instant::now();
        work(self).with_context(|| format!("{}: {what}: {}", self.suite.name(), self.label))?;
        let seconds = started.elapsed().as_secs_f64();
        let requests = before.zip(self.requests()).map(|(before, after)| after.saturating_sub(before));
        interrupt::check()?;
        eprintln!("{}: {what}: {}: {seconds:.4} s", self.suite.name(), self.label);
        let per_file = requests.map(|requests| requests as f64 / files.max(1) as f64);
        self.measured.push((what.to_owned(), seconds, per_file));
        Ok(())
    }

    fn requests(&self) -> Option<u64> {
        self.mounts.iter().map(|mount| (self.hooks.counter)(mount)).sum()
    }

    /// Returns when everything is on disk.
    pub fn sync(&self) -> anyhow::Result<()> {
        self.tops.iter().try_for_each(|top| sync(top))
    }

    /// Empties the caches; answers whether that could be done.
    pub fn make_cold(&self) -> anyhow::Result<bool> {
        if self.plan.warm_only {
            return Ok(false);
        }
        self.sync()?;
        if let Some(remount) = self.hooks.remount {
            self.mounts.iter().try_for_each(|mount| remount(mount))?;
        }
        if nix::unistd::geteuid().is_root() {
            fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches")?;
            std::thread::sleep(FORGOTTEN_WITHIN);
            return Ok(true);
        }
        Ok(self.hooks.remount.is_some())
    }

    /// Does the work of all threads at once, each with its number.
    pub fn parallel(
        &self,
        threads: usize,
        work: impl Fn(usize) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        let work = &work;
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            let ended: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
            ended.into_iter().try_for_each(|outcome| match outcome {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}
