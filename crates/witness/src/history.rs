//! A recorded run: JSON lines. A header comes first, then one line for each call, in the order in which they
//! began.

use crate::limits;
use crate::ops::{Op, Outcome};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// Version of the format.
pub const VERSION: u32 = 1;

/// How a run was started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub shoal_witness_history: u32,
    /// The seed of the workers' choices.
    pub seed: u64,
    /// The directories, by number.
    pub dirs: Vec<String>,
    /// Worker processes for each directory. Worker `w` works in directory `w % dirs`.
    pub workers: u32,
    /// Directories whose mounts were allowed to die.
    pub may_die: Vec<u32>,
    /// Directories whose mounts were allowed to lose, once, what they had not synced, and to go on.
    #[serde(default)]
    pub may_lapse: Vec<u32>,
}

impl Header {
    /// The directory in which a worker works.
    pub fn mount_of(&self, worker: u32) -> u32 {
        worker % self.dirs.len().max(1) as u32
    }
}

/// One call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The worker that made it.
    pub worker: u32,
    /// The tree of the run in which it was made. Calls in one tree are independent of those in another.
    #[serde(default)]
    pub tree: u32,
    /// When it began, in nanoseconds of the machine's monotonic clock.
    pub start: u64,
    /// When it returned; never, if the worker died or hung in it.
    pub end: Option<u64>,
    /// The arguments.
    pub op: Op,
    /// What it returned. Missing where `end` is.
    pub outcome: Option<Outcome>,
}

impl Call {
    /// Whether it returned an error.
    fn failed(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Failed { .. }))
    }
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// How the run was started.
    pub header: Header,
    /// The calls, in the order in which they began.
    pub calls: Vec<Call>,
}

/// Known weaknesses that are tolerated on request, each by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Tolerance {
    /// A call by path that fails with `ESTALE` did not happen. Linux walks a path again when it meets a stale
    /// entry, but only once. On a mount whose names change elsewhere, the second walk may fail, too.
    Estale,
    /// The result of a read that overlaps a write on the same mount is ignored. Linux shows written data
    /// before the file system receives it.
    Contended,
}

/// For each mount that died or lapsed, up to when its calls count, in nanoseconds of the machine's clock.
pub type Cuts = BTreeMap<u32, u64>;

/// The losses of mounts, and when they were over.
#[derive(Default)]
struct Lapses {
    /// When a mount first reported a loss: calls that begin later count again.
    ends: BTreeMap<u32, u64>,
    /// The tree in which a mount was then. A worker may have lost some of its open files and kept others. So
    /// later calls in that tree, by any worker, are ignored.
    trees: BTreeMap<u32, u64>,
}

impl History {
    /// The cuts at which a mount that died or lapsed may have stopped writing back, the latest first.
    ///
    /// A file system may lose what was not synced, from some moment on. The last few calls that had returned
    /// are lost with it. What was synced, or has lasted longer than [`limits::UNSYNCED_MAX`]
    /// ([`limits::LAPSE_MAX`]), counts in any case.
    pub fn cuts(&self) -> Vec<Cuts> {
        let mut ages = BTreeSet::from([0]);
        let mut deaths = BTreeMap::new();
        let lapses = self.lapses();
        let lapsed = lapses.ends.iter().map(|(mount, end)| (mount, *end, limits::LAPSE_MAX));
        let dead = self.header.may_die.iter().map(|mount| (mount, u64::MAX, limits::UNSYNCED_MAX));
        for (mount, over, unsynced) in dead.chain(lapsed) {
            let calls = || self.calls_on(*mount);
            if !calls().any(|call| self.is_of_the_dead(call)) {
                continue;
            }
            let returned = |call: &&Call| call.end.is_some_and(|end| end < over);
            let living = || calls().filter(|call| returned(call) && !self.is_of_the_dead(call));
            let Some(death) = living().filter_map(|call| call.end).max() else { continue };
            let synced = living().filter(|call| matches!(call.op, Op::Fsync { .. }) && !call.failed());
            let unsynced = death.saturating_sub(unsynced.as_nanos() as u64);
            let kept = synced.map(|call| call.start).max().unwrap_or(0).max(unsynced);
            ages.extend(
                living().filter_map(|call| call.end).filter(|end| *end >= kept).map(|end| death - end),
            );
            ages.insert(death - kept.min(death));
            deaths.insert(*mount, (death, kept));
        }
        let cut = |age: u64| {
            deaths.iter().map(|(mount, (death, kept))| (*mount, (death - age).max(*kept))).collect()
        };
        ages.into_iter().map(cut).collect()
    }

    fn calls_on(&self, mount: u32) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| self.header.mount_of(call.worker) == mount)
    }

    fn lapses(&self) -> Lapses {
        let mut lapses = Lapses::default();
        for mount in &self.header.may_lapse {
            let failed = self.calls_on(*mount).filter(|call| self.is_of_the_dead(call));
            let Some(over) = failed.filter_map(|call| call.end).min() else { continue };
            lapses.ends.insert(*mount, over);
            let before: BTreeSet<u32> =
                self.calls_on(*mount).filter(|call| call.start < over).map(|call| call.tree).collect();
            let after = self.calls_on(*mount).filter(|call| call.end.is_none_or(|end| end >= over));
            for tree in after.map(|call| call.tree).filter(|tree| before.contains(tree)) {
                let earliest = lapses.trees.entry(tree).or_insert(over);
                *earliest = over.min(*earliest);
            }
        }
        lapses
    }

    /// Whether a call failed because its file system died or had lost something.
    fn is_of_the_dead(&self, call: &Call) -> bool {
        let mount = self.header.mount_of(call.worker);
        let (dies, lapses) = (self.header.may_die.contains(&mount), self.header.may_lapse.contains(&mount));
        match call.outcome {
            None => dies || lapses,
            // A mount that goes on does not report `ESTALE` for what it has lost, in a tree that counts.
            Some(Outcome::Failed { errno }) => {
                limits::DEATH_ERRNOS.contains(&errno) && (dies || (lapses && errno != libc::ESTALE))
            }
            Some(_) => false,
        }
    }

    /// The calls as the checker is to see them. Calls of mounts that died are open-ended. Calls that began
    /// after a cut, and before the mount went on, do not count. What is tolerated is left out.
    pub fn prepared(&self, tolerated: &[Tolerance], cuts: &Cuts) -> Vec<Call> {
        let mut calls = self.calls.clone();
        let lapses = self.lapses();
        calls.retain_mut(|call| {
            let mount = self.header.mount_of(call.worker);
            let over = lapses.ends.get(&mount).copied().unwrap_or(u64::MAX);
            let cut = cuts.get(&mount).copied().filter(|_| call.start < over).unwrap_or(u64::MAX);
            let last = lapses.trees.get(&call.tree).copied().unwrap_or(u64::MAX);
            let counts_until = cut.min(last);
            if call.end.is_none_or(|end| end > counts_until) && counts_until < u64::MAX {
                (call.end, call.outcome) = (None, None);
            }
            call.start <= counts_until
        });
        if tolerated.contains(&Tolerance::Contended) {
            calls = self.header.without_contended_reads(calls);
        }
        calls.retain_mut(|call| {
            let Some(Outcome::Failed { errno }) = call.outcome else { return true };
            if self.is_of_the_dead(call) {
                (call.end, call.outcome) = (None, None);
            }
            !(call.outcome.is_some()
                && errno == libc::ESTALE
                && call.op.walks()
                && tolerated.contains(&Tolerance::Estale))
        });
        calls.sort_by_key(|call| call.start);
        calls
    }

    /// Writes a file.
    pub fn save(&self, file: &Path) -> anyhow::Result<()> {
        let saved = || -> anyhow::Result<()> {
            let mut out = BufWriter::new(std::fs::File::create(file)?);
            serde_json::to_writer(&mut out, &self.header)?;
            for call in &self.calls {
                out.write_all(b"\n")?;
                serde_json::to_writer(&mut out, call)?;
            }
            out.write_all(b"\n")?;
            Ok(out.flush()?)
        };
        saved().with_context(|| format!("cannot write {}", file.display()))
    }

    /// Reads a file that [`save`](Self::save) wrote.
    pub fn load(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let opened = std::fs::File::open(file).with_context(|| format!("cannot open {name}"))?;
        let mut lines = BufReader::new(opened).lines();
        let first = lines.next().with_context(|| format!("{name} is empty"))??;
        let header: Header =
            serde_json::from_str(&first).with_context(|| format!("{name} does not begin with a header"))?;
        ensure!(
            header.shoal_witness_history == VERSION,
            "{name} is a history of version {}, this program reads version {VERSION}",
            header.shoal_witness_history
        );
        ensure!(!header.dirs.is_empty(), "{name} names no directories");
        let mut calls = Vec::new();
        for (number, line) in lines.enumerate() {
            let call: Call =
                serde_json::from_str(&line?).with_context(|| format!("{name}:{}", number + 2))?;
            let whole = call.end.is_some() == call.outcome.is_some();
            ensure!(
                whole && call.end.is_none_or(|end| end >= call.start),
                "{name}:{}: a call returns once, after it began",
                number + 2
            );
            calls.push(call);
        }
        calls.sort_by_key(|call| call.start);
        let mut free = BTreeMap::new();
        for Call { worker, start, end, .. } in &calls {
            let before = free.insert(worker, end.unwrap_or(u64::MAX));
            ensure!(before.is_none_or(|end| end < *start), "{name}: worker {worker} makes two calls at once");
        }
        Ok(Self { header, calls })
    }
}

impl Header {
    /// Leaves out successful reads of files that another call on the same mount may have been writing.
    fn without_contended_reads(&self, calls: Vec<Call>) -> Vec<Call> {
        let mut open: BTreeMap<(u32, u8), Option<u64>> = BTreeMap::new();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (number, call) in calls.iter().enumerate() {
            match (&call.op, &call.outcome) {
                (Op::Open { slot, .. }, Some(Outcome::Opened { ino })) => {
                    open.insert((call.worker, *slot), *ino);
                }
                (Op::Read { slot }, Some(Outcome::Content { .. })) => {
                    reads.push((number, open.get(&(call.worker, *slot)).copied().flatten()));
                }
                (Op::Write { slot, .. }, _) => {
                    writes.push((call, open.get(&(call.worker, *slot)).copied().flatten()));
                }
                _ => {}
            }
        }
        let contended = |(number, file): &(usize, Option<u64>)| {
            let read = &calls[*number];
            writes.iter().any(|(write, written)| {
                (file.is_none() || written.is_none() || file == written)
                    && write.tree == read.tree
                    && self.mount_of(write.worker) == self.mount_of(read.worker)
                    && read.end.is_none_or(|end| write.start <= end)
                    && write.end.is_none_or(|end| read.start <= end)
            })
        };
        let contended: BTreeSet<usize> =
            reads.iter().filter(|read| contended(read)).map(|read| read.0).collect();
        let kept = calls.into_iter().enumerate().filter(|(number, _)| !contended.contains(number));
        kept.map(|(_, call)| call).collect()
    }
}
