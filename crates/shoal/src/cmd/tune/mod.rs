//! `shoal tune`.
//!
//! [`layers`] says what can be switched, [`source`] mounts the volume, [`judge`] compares, [`report`] tells.

mod judge;
mod layers;
mod report;
mod source;

use super::bench::kernel_requests;
use super::local::{Local, Output};
use super::sizes::{Sizes, number};
use super::volume::change_settings;
use crate::limits::{TUNE_MOUNTS_MAX, TUNE_ROUNDS_DEFAULT, TUNE_ROUNDS_MIN};
use crate::options::Options;
use anyhow::{bail, ensure};
use clap::Args;
use layers::{Layer, Trial};
use report::{Report, Times};
use shoal_suites::interrupt;
use shoal_suites::limits::ROUNDS_MAX;
use shoal_suites::plan::{Plan, Suite};
use shoal_suites::rounds::{self, Hooks, Subject};
use source::{Mounts, Points, Source};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tells which layers of caching pay for themselves under a workload of yours, and sets those that do not.
///
/// The volume is mounted on temporary mount points: as it is now, and with one layer at a time switched to
/// another value. A suite of `shoal bench` runs on each in turn, several rounds. The work is done in a
/// subdirectory, which is removed at the end, and nothing of the volume is changed without --set.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub struct Tune {
    /// NAME on a node of the cluster, HOST:/VOLUME[/DIR] elsewhere, or a data directory of `shoal up` that is
    /// not mounted
    volume: String,
    /// The workload, one suite or several: small-read, untar, cluster, smallfile, stream, web, git, maildir,
    /// build
    #[arg(long, value_name = "SUITE", value_delimiter = ',', required = true)]
    suite: Vec<Suite>,
    /// Only these layers [default: all but statistics]
    #[arg(long, value_name = "LAYER", value_delimiter = ',', value_parser = layers::find)]
    layer: Vec<&'static Layer>,
    /// Also compare with these mount options, as in --try readers=8,waiters=64; may be repeated
    #[arg(long = "try", value_name = "OPTIONS")]
    tries: Vec<Options>,
    /// Mount options of all mounts
    #[arg(short, long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    options: Options,
    /// How often everything is measured
    #[arg(long, default_value_t = TUNE_ROUNDS_DEFAULT, value_name = "N", value_parser = number(ROUNDS_MAX))]
    rounds: usize,
    #[command(flatten)]
    sizes: Sizes,
    /// Mounts that the suite works on at once [default: 1; 2 for cluster]
    #[arg(long, value_name = "N", value_parser = number(TUNE_MOUNTS_MAX))]
    mounts: Option<usize>,
    /// No cold reads; otherwise the volume is mounted anew for each, and root drops the machine's caches
    #[arg(long)]
    warm: bool,
    /// Change the settings of the volume for what costs time
    #[arg(long)]
    set: bool,
    /// Directory of the client's credentials, if not in the usual place
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    #[command(flatten)]
    local: Local,
    #[command(flatten)]
    output: Output,
}

fn after_help() -> String {
    let mut text = "Layers, with the value that is usual and the one that is tried:\n".to_owned();
    for layer in layers::ALL {
        let values = format!("{}, {}", layer.default, layer.alternative);
        text.push_str(&format!("  {:<19} {values:<15} {}\n", layer.name, layer.what));
    }
    text.push_str(
        "\nExamples:\n  \
         shoal tune web --suite untar                    on a node, all layers, five rounds\n  \
         shoal tune web --suite small-read --set         and set what is faster for all mounts\n  \
         shoal tune node1:/web --suite smallfile --files 1000 --layer locks,kernel-cache\n  \
         shoal tune node1:/web --suite build --try readers=8 --try cache=2GB",
    );
    text
}

/// The temporary mounts of one variant of the options.
struct Variant<'a> {
    source: &'a Source,
    points: &'a Points,
    mounts: usize,
    options: String,
    label: &'a str,
}

impl Variant<'_> {
    /// Runs the suites once. Everything is unmounted when this returns.
    fn run(&self, plan: &Plan) -> anyhow::Result<Vec<(String, f64)>> {
        interrupt::check()?;
        let mounts = Mounts::create(self.source, self.points, self.mounts, &self.options)?;
        let subject = Subject { label: self.label.to_owned(), mounts: mounts.points().to_vec() };
        let remount = |point: &Path| mounts.remount(point);
        let hooks = Hooks { counter: &kernel_requests, remount: Some(&remount) };
        let outcome = rounds::run(plan, &[subject], hooks, env!("CARGO_PKG_VERSION"))?;
        let time =
            |row: &shoal_suites::outcome::Row| Some((format!("{}: {}", row.suite, row.what), row.median(0)?));
        Ok(outcome.rows.iter().filter_map(time).collect())
    }
}

impl Tune {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(self.rounds >= TUNE_ROUNDS_MIN, "--rounds: at least {TUNE_ROUNDS_MIN} are needed to compare");
        let plan = Plan { warm_only: self.warm, ..self.sizes.plan(&self.suite, 1)? };
        let source = Source::find(&self.volume, &self.local, self.credentials.as_deref())?;
        let mounts = self.mounts(&plan, &source)?;
        ensure!(
            !self.set || source.can_be_set(),
            "--set changes settings of a volume of a cluster: run it on one of the cluster's nodes"
        );
        let trials = self.trials(&source)?;
        interrupt::catch()?;
        let mut report = self.measure(&plan, &source, mounts, trials)?;
        if self.set {
            let settings = report.settings();
            report.set = settings.iter().map(|(key, value)| format!("{key} {value}")).collect();
            if let Some(volume) = source.volume() {
                change_settings(&self.local, volume, settings)?;
            }
        }
        self.output
            .print(&report, |report| format!("{}\n{}", report.table(), self.advice(report, &source)))?;
        Ok(ExitCode::SUCCESS)
    }

    fn mounts(&self, plan: &Plan, source: &Source) -> anyhow::Result<usize> {
        let least = if plan.suites.contains(&Suite::Cluster) { 2 } else { 1 };
        let mounts = self.mounts.unwrap_or(least);
        ensure!(mounts >= least, "suite cluster needs at least {least} mounts");
        if mounts > 1 && source.volume().is_none() {
            bail!("{} can be mounted only once: several mounts take a volume of a cluster", self.volume);
        }
        Ok(mounts)
    }

    /// What is compared with what is now.
    fn trials(&self, source: &Source) -> anyhow::Result<Vec<Trial>> {
        let (own, is_cluster) = (self.options.words(), source.volume().is_some());
        let named = |layer: &Layer| self.layer.iter().any(|chosen| chosen.name == layer.name);
        let is_meant = |layer: &&Layer| match self.layer.is_empty() {
            true => layer.kind.is_usual(is_cluster),
            false => named(layer),
        };
        if let Some(layer) =
            self.layer.iter().find(|layer| layer.kind == layers::Kind::Cluster && !is_cluster)
        {
            bail!("layer {} is one of volumes of a cluster, and {} is none", layer.name, self.volume);
        }
        let layers = layers::ALL.iter().filter(is_meant);
        let mut trials: Vec<Trial> = layers.map(|layer| layer.trial(source.value(&own, layer.key))).collect();
        trials.extend(self.tries.iter().map(|options| Trial::of_options(&options.words())));
        Ok(trials)
    }

    /// Measures what is now, the same again, and all trials, in turn.
    fn measure(
        &self,
        plan: &Plan,
        source: &Source,
        mounts: usize,
        trials: Vec<Trial>,
    ) -> anyhow::Result<Report> {
        let points = Points::create()?;
        let own = self.options.words();
        let tried = trials.iter().map(|trial| (trial.options.clone(), trial.options.as_str()));
        let same = [(String::new(), "as it is now"), (String::new(), "as it is now, again")];
        let variants: Vec<Variant> = same
            .into_iter()
            .chain(tried)
            .map(|(options, label)| {
                let words =
                    [own.as_str(), &options].map(str::to_owned).into_iter().filter(|words| !words.is_empty());
                let options = words.collect::<Vec<_>>().join(",");
                Variant { source, points: &points, mounts, options, label }
            })
            .collect();
        let mut times = vec![Times::new(); variants.len()];
        for round in 0..self.rounds {
            for turn in 0..variants.len() {
                let number = (round + turn) % variants.len();
                eprintln!("round {} of {}: {}", round + 1, self.rounds, variants[number].label);
                report::add(&mut times[number], variants[number].run(plan)?);
            }
        }
        drop(variants);
        let others = times.split_off(2);
        let compared: Vec<(Trial, Times)> = trials.into_iter().zip(others).collect();
        Ok(Report {
            volume: source.text(),
            options: own,
            suites: plan.suites.iter().map(|suite| suite.name().to_owned()).collect(),
            rounds: self.rounds,
            seconds: report::total(&times[0]),
            noise: report::noise(&times[0], &times[1]),
            layers: report::layers(&times[0], &times[1], &compared),
            set: Vec::new(),
        })
    }

    /// What to do about it.
    fn advice(&self, report: &Report, source: &Source) -> String {
        let mut text = String::new();
        let mut say = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        let (settings, options) = (report.settings(), report.mount_options());
        for (key, value) in &settings {
            match source.volume() {
                Some(volume) if self.set => say(format!("Set for all mounts of {volume}: {key} {value}")),
                Some(volume) => {
                    say(format!("For all mounts: `shoal volume set {volume} {key} {value}` (--set)"))
                }
                None => {}
            }
        }
        match source.volume() {
            _ if options == report.options => say("No mount option makes this workload faster.".into()),
            Some(volume) => {
                say(format!("/etc/fstab: {} /mnt/{volume} shoal _netdev,{options} 0 0", source.text()))
            }
            None => say(format!("Mount it with -o {options}")),
        }
        for (options, why) in report.cautions() {
            say(format!("Faster as well, but your decision: {options} ({why})"));
        }
        text
    }
}
