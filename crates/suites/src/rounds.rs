//! Runs suites on systems, in rounds.

use crate::limits::SYSTEMS_MAX;
use crate::outcome::{FORMAT, Outcome, Row, System};
use crate::plan::{Plan, Suite};
use crate::programs::missing;
use crate::sandbox::{Sandbox, sync};
pub use crate::turn::{Hooks, Remount};
use crate::turn::{Measured, Turn};
use crate::{machine, suites};
use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What is measured: directories that are mounts of one file system.
pub struct Subject {
    /// Its name in tables.
    pub label: String,
    /// Its directories, at least one.
    pub mounts: Vec<PathBuf>,
}

/// Measures all systems.
pub fn run(plan: &Plan, subjects: &[Subject], hooks: Hooks, version: &str) -> anyhow::Result<Outcome> {
    ensure!(!subjects.is_empty(), "name at least one directory");
    ensure!(subjects.len() <= SYSTEMS_MAX, "at most {SYSTEMS_MAX} directories can be compared");
    for suite in &plan.suites {
        let missing = missing(suite.programs());
        ensure!(missing.is_empty(), "suite {}: not installed: {}", suite.name(), missing.join(", "));
    }
    if plan.suites.contains(&Suite::Cluster)
        && let Some(alone) = subjects.iter().find(|subject| subject.mounts.len() < 2)
    {
        bail!(
            "suite cluster: {0} is one mount: name several of one file system, separated by commas; a plain directory \
             may be named more than once, as in {0},{0}",
            alone.label
        );
    }
    let mut sandboxes = Vec::new();
    for (number, subject) in subjects.iter().enumerate() {
        let of_it = |(mount, dir): (usize, &PathBuf)| {
            Sandbox::create(dir, number * SYSTEMS_MAX + mount, plan.bytes_needed())
        };
        sandboxes.push(subject.mounts.iter().enumerate().map(of_it).collect::<anyhow::Result<Vec<_>>>()?);
    }
    // The input is in memory where /dev/shm is, and not on a disk that is measured.
    let memory = Path::new("/dev/shm");
    let inputs = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let input = match plan.suites.iter().any(|suite| matches!(suite, Suite::Untar | Suite::Cluster)) {
        true => {
            Some(Sandbox::create(&inputs, subjects.len() * SYSTEMS_MAX, 3 * plan.bytes_of(Suite::Untar))?)
        }
        false => None,
    };
    let archives = input.as_ref().map(|input| suites::trees::archives(input.path(), plan)).transpose()?;

    let mut outcome = begin(plan, subjects, hooks, version)?;
    for &suite in &plan.suites {
        for round in 0..plan.rounds {
            for turn in 0..subjects.len() {
                let system = (round + turn) % subjects.len();
                let tops = sandboxes[system].iter().map(|sandbox| sandbox.path().join("work")).collect();
                let mut turn = Turn {
                    plan,
                    suite,
                    seed: round as u64,
                    tops,
                    mounts: &subjects[system].mounts,
                    archives: archives.as_ref(),
                    label: &subjects[system].label,
                    hooks,
                    measured: Vec::new(),
                };
                one(&mut turn)?;
                keep(&mut outcome, suite, system, turn.measured);
            }
        }
    }
    Ok(outcome)
}

/// One suite on one system, in directories that are empty before and gone after.
fn one(turn: &mut Turn) -> anyhow::Result<()> {
    for top in &turn.tops {
        fs::create_dir(top).with_context(|| top.display().to_string())?;
    }
    turn.sync()?;
    suites::run(turn)?;
    for top in &turn.tops {
        fs::remove_dir_all(top).with_context(|| top.display().to_string())?;
        // The next turn must not pay for what this one has removed.
        if let Some(sandbox) = top.parent() {
            sync(sandbox)?;
        }
    }
    Ok(())
}

fn begin(plan: &Plan, subjects: &[Subject], hooks: Hooks, version: &str) -> anyhow::Result<Outcome> {
    let mut systems = Vec::new();
    for Subject { label, mounts } in subjects {
        let paths = mounts.iter().map(|mount| mount.display().to_string()).collect();
        systems.push(System { label: label.clone(), paths, filesystem: machine::filesystem(&mounts[0])? });
    }
    let root = nix::unistd::geteuid().is_root();
    let note = match (plan.warm_only, root, hooks.remount) {
        (true, ..) => "warm only, as asked for",
        (_, true, Some(_)) => "cold: remounted by --remount, and the kernel's caches dropped",
        (_, true, None) => {
            "cold: the kernel's caches dropped; daemons of a file system keep theirs (--remount)"
        }
        (_, false, Some(_)) => "cold: remounted by --remount; the kernel's other caches were kept",
        (_, false, None) => "no cold reads: run as root, or say with --remount how to mount anew",
    };
    Ok(Outcome {
        format: FORMAT,
        version: version.to_owned(),
        unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        machine: machine::describe(&subjects[0].mounts[0])?,
        plan: plan.clone(),
        systems,
        rows: Vec::new(),
        notes: vec![note.to_owned()],
    })
}

fn keep(outcome: &mut Outcome, suite: Suite, system: usize, measured: Vec<Measured>) {
    let columns = outcome.systems.len();
    for (what, seconds, requests) in measured {
        let at = outcome.rows.iter().position(|row| row.suite == suite.name() && row.what == what);
        let at = at.unwrap_or_else(|| {
            let none = vec![Vec::new(); columns];
            let suite = suite.name().to_owned();
            outcome.rows.push(Row { suite, what, seconds: none.clone(), requests_per_file: none });
            outcome.rows.len() - 1
        });
        outcome.rows[at].seconds[system].push(seconds);
        outcome.rows[at].requests_per_file[system].extend(requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::trees::split_mounts;

    const NONE: Hooks = Hooks { counter: &|_| None, remount: None };

    /// Every suite in a small size: the tests run in parallel with others, so caches are left alone.
    fn tiny(suites: &[Suite]) -> Plan {
        Plan {
            suites: suites.to_vec(),
            rounds: 2,
            files: Some(8),
            file_bytes: Some(1_000),
            threads: 2,
            tars: 5,
            stream_bytes: 256 << 10,
            record_bytes: vec![16 << 10],
            warm_only: true,
            remount: None,
        }
    }

    #[test]
    fn every_suite_measures_every_system_in_every_round_and_leaves_nothing() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, two, three] = [0, 1, 2].map(|number: usize| dirs[number].path().to_owned());
        let apart = [
            Subject { label: "one".into(), mounts: vec![one.clone()] },
            Subject { label: "two".into(), mounts: vec![two.clone(), three] },
        ];
        let shared = [
            Subject { label: "one".into(), mounts: vec![one.clone(), one] },
            Subject { label: "two".into(), mounts: vec![two.clone(), two.clone(), two] },
        ];
        let counting = Hooks { counter: &|_| Some(7), ..NONE };
        for &suite in Suite::ALL {
            let subjects = if suite == Suite::Cluster { &shared } else { &apart };
            if !missing(suite.programs()).is_empty() {
                continue;
            }
            let outcome = run(&tiny(&[suite]), subjects, counting, "1").unwrap();
            assert!(outcome.rows.len() >= 3, "{suite:?}: {:?}", outcome.rows);
            for row in &outcome.rows {
                let mounts = split_mounts(&row.what).1;
                let is_there = mounts <= subjects[0].mounts.len();
                assert_eq!(row.seconds[0].len(), if is_there { 2 } else { 0 }, "{}", row.what);
                assert_eq!(row.seconds[1].len(), 2, "{}", row.what);
                assert!(row.seconds.iter().flatten().all(|seconds| *seconds > 0.0), "{}", row.what);
                assert_eq!(row.requests(1), Some(0.0), "the counter stands still");
            }
        }
        for dir in &dirs {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn cluster_refuses_a_single_mount_and_mounts_of_different_file_systems() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, two] = [0, 1].map(|number: usize| dirs[number].path().to_owned());
        let refused = |mounts: Vec<PathBuf>| {
            let subject = Subject { label: "it".into(), mounts };
            format!("{:#}", run(&tiny(&[Suite::Cluster]), &[subject], NONE, "1").unwrap_err())
        };
        assert!(refused(vec![one.clone()]).contains("it,it"));
        assert!(refused(vec![one, two]).contains("not mounts of one file system"));
        for dir in &dirs {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn failed_suite_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let subject = Subject { label: "it".into(), mounts: vec![dir.path().to_owned()] };
        let mut plan = tiny(&[Suite::Smallfile]);
        plan.warm_only = false;
        let fails = |_: &Path| anyhow::bail!("it cannot be mounted");
        let hooks = Hooks { remount: Some(&fails), ..NONE };
        let error = format!("{:#}", run(&plan, &[subject], hooks, "1").unwrap_err());
        assert!(error.contains("cannot be mounted"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
