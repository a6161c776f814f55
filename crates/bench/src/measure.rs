//! Measures times, alternating between both sides, and keeps them.

use crate::side::{Side, Which};
use shoal_suites::statistics::median;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A run of benchmarks.
pub struct Bench {
    program: PathBuf,
    /// The directory to work in.
    pub dir: PathBuf,
    /// Files to create, if not the benchmark's default.
    pub files: Option<usize>,
    /// Bricks, if not the benchmark's default.
    pub bricks: Option<usize>,
    /// Bytes of the store's block cache, if not the default.
    pub cache_bytes: Option<usize>,
    /// Runs of each measurement on each side.
    pub runs: usize,
    /// Servers of the measured cluster; 0: one process for everything.
    pub nodes: usize,
    rows: Vec<Row>,
    /// Results without a counterpart on the local side.
    pub facts: Vec<String>,
}

/// A measurement on both sides.
pub struct Row {
    /// Its name.
    pub what: String,
    /// The goal for the ratio, if there is one.
    pub goal: Option<f64>,
    shoal: Vec<f64>,
    local: Vec<f64>,
}

impl Row {
    /// Median of Shoal, in seconds.
    pub fn shoal(&self) -> f64 {
        median(&self.shoal).unwrap_or(f64::NAN)
    }

    /// Median of the local directory, in seconds.
    pub fn local(&self) -> f64 {
        median(&self.local).unwrap_or(f64::NAN)
    }

    /// Shoal's time divided by the local time.
    pub fn ratio(&self) -> f64 {
        self.shoal() / self.local()
    }
}

impl Bench {
    /// A run without measurements.
    pub fn new(program: &Path, dir: &Path, runs: usize, nodes: usize) -> anyhow::Result<Bench> {
        let program = program.canonicalize()?;
        let dir = dir.canonicalize()?;
        Ok(Bench {
            program,
            dir,
            files: None,
            bricks: None,
            cache_bytes: None,
            runs,
            nodes,
            rows: Vec::new(),
            facts: Vec::new(),
        })
    }

    /// The shoal program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Both sides, empty.
    pub fn sides(&self) -> anyhow::Result<[Side; 2]> {
        Ok([self.side(Which::Shoal)?, self.side(Which::Local)?])
    }

    /// One side, empty.
    pub fn side(&self, which: Which) -> anyhow::Result<Side> {
        Side::new(which, self.nodes, 1, &self.program, &self.dir)
    }

    /// A volume of a cluster, empty, mounted once.
    pub fn cluster(&self, nodes: usize) -> anyhow::Result<Side> {
        Side::new(Which::Shoal, nodes, 1, &self.program, &self.dir)
    }

    /// Both sides with several paths: mounts of one volume, which needs at least one separate server.
    pub fn sides_with_mounts(&self, mounts: usize) -> anyhow::Result<[Side; 2]> {
        let side = |which| Side::new(which, self.nodes.max(1), mounts, &self.program, &self.dir);
        Ok([side(Which::Shoal)?, side(Which::Local)?])
    }

    /// Does some work on both sides, as often as configured. The side that goes first alternates.
    pub fn alternate(
        &mut self,
        sides: &[Side; 2],
        mut work: impl FnMut(&mut Bench, &Side, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for run in 0..self.runs {
            for turn in 0..2 {
                work(self, &sides[(run + turn) % 2], run)?;
            }
        }
        Ok(())
    }

    /// Measures and keeps the time of some work.
    pub fn time<T>(
        &mut self,
        side: &Side,
        what: &str,
        goal: Option<f64>,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let started = Instant::now();
        let outcome = work()?;
        self.keep(side, what, goal, started.elapsed().as_secs_f64());
        Ok(outcome)
    }

    /// Keeps a time in seconds.
    pub fn keep(&mut self, side: &Side, what: &str, goal: Option<f64>, seconds: f64) {
        eprintln!("{what}: {:?} {seconds:.4} s", side.which);
        if !self.rows.iter().any(|row| row.what == what) {
            self.rows.push(Row { what: what.to_owned(), goal, shoal: Vec::new(), local: Vec::new() });
        }
        if let Some(row) = self.rows.iter_mut().find(|row| row.what == what) {
            match side.which {
                Which::Shoal => row.shoal.push(seconds),
                Which::Local => row.local.push(seconds),
            }
        }
    }

    /// All measurements, in the order of first appearance.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}
