//! `shoal top`.
//!
//! [`feed`] asks, [`crate::rates`] and [`files`] compare each answer with the one before, [`state`] keeps
//! what is known, [`screen`] and [`text`] show it, and [`terminal`] has the keys.

mod columns;
mod feed;
mod files;
mod screen;
#[cfg(test)]
mod screen_tests;
mod state;
#[cfg(test)]
mod state_tests;
mod terminal;
mod text;

use super::local::Local;
use crate::limits::{
    TOP_BATCH_MAX, TOP_INTERVAL_S_DEFAULT, TOP_INTERVAL_S_MAX, TOP_INTERVAL_S_MIN, TOP_ONCE_PATIENCE,
};
use crate::signals::Signals;
use crate::{find, show};
use anyhow::{Context, bail};
use clap::Args;
use feed::{Feed, Source};
use state::{Action, Sort, State, What};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Shows live what a volume does: throughput and latency over time, and its busiest mounts, bricks and files.
///
/// Runs on any node of the cluster; a path shows a mount of this machine. Without a terminal it prints tables
/// once, and ends.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal top                        the first volume of the cluster; ? shows the keys
  shoal top web --interval 5       the volume web, every 5 seconds
  shoal top web --once             tables of the next 2 seconds as text
  shoal top web --batch 60 --json  a minute or more, a JSON object per line
  shoal top /mnt/web               only this mount of this machine, as it sees itself")]
pub struct Top {
    /// A volume, or a path on a mount of this machine, or a data directory; the first volume if left out
    volume: Option<String>,
    #[command(flatten)]
    local: Local,
    /// Seconds between two questions
    #[arg(long, value_name = "SECONDS", default_value_t = TOP_INTERVAL_S_DEFAULT, value_parser = interval)]
    interval: f64,
    /// Print tables once, as text
    #[arg(long, conflicts_with = "batch")]
    once: bool,
    /// Print tables so many times, as text
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=TOP_BATCH_MAX))]
    batch: Option<u64>,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    let range = TOP_INTERVAL_S_MIN..=TOP_INTERVAL_S_MAX;
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| range.contains(seconds));
    seconds.ok_or_else(|| format!("say seconds, {TOP_INTERVAL_S_MIN} to {TOP_INTERVAL_S_MAX}"))
}

impl Top {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (source, volume, state) = self.source()?;
        let interval = Duration::from_secs_f64(self.interval);
        let live = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if live && !self.once && self.batch.is_none() && !self.json {
            // Threads inherit this, so it comes first.
            let signals = Signals::take()?;
            let feed = Feed::start(source, volume, interval)?;
            return terminal::show(state, &feed, signals);
        }
        let feed = Feed::start(source, volume, interval)?;
        self.print(state, &feed)
    }

    /// Who is asked about what.
    fn source(&self) -> anyhow::Result<(Source, Option<String>, State)> {
        let is_path = |name: &&String| name.contains('/') || matches!(name.as_str(), "." | "..");
        let path = self.volume.as_ref().filter(is_path);
        let has_server = crate::server::node_dir::exists(&self.local.data()?);
        if path.is_none() && (self.volume.is_some() || has_server) {
            let volume = self.volume.clone();
            let state = State::of_cluster(volume.clone(), self.interval);
            return Ok((Source::Cluster(self.local.clone()), volume, state));
        }
        let homes = find::nodes(path.map(Path::new))?;
        if homes.is_empty() {
            bail!(
                "there is no server of a cluster and no mounted volume here: `shoal up` serves and mounts one, \
                 --data DIR (or SHOAL_DATA) says where a server is"
            );
        }
        let called = path.cloned().unwrap_or_else(|| "mounts of this machine".into());
        Ok((Source::Mounts(homes), None, State::of_mounts(called, self.interval)))
    }

    /// Prints text, or JSON, as soon as there is something to compare.
    fn print(&self, mut state: State, feed: &Feed) -> anyhow::Result<ExitCode> {
        let mut left = self.batch.unwrap_or(1);
        let due = Instant::now() + Duration::from_secs_f64(3.0 * self.interval) + TOP_ONCE_PATIENCE;
        let mut printed = false;
        while left > 0 {
            let patience = due.saturating_duration_since(Instant::now());
            let news = match printed {
                true => feed.news.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => feed.news.recv_timeout(patience),
            };
            let is_sample = match news {
                Ok(news) => {
                    let is_sample = matches!(news.what, What::Profile(_) | What::Mounts(_));
                    if let Action::Watch(volume) = state.learn(news) {
                        feed.watch(volume);
                    }
                    is_sample
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the threads that ask have ended"),
                // What there is by now is better than nothing.
                Err(RecvTimeoutError::Timeout) => true,
            };
            let late = !printed && Instant::now() >= due;
            if let Some(why) = state.trouble().filter(|_| !printed) {
                bail!("{why}");
            }
            if late || (state.is_complete() && (is_sample || !printed)) {
                self.print_one(&state)?;
                (printed, left) = (true, left - 1);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print_one(&self, state: &State) -> anyhow::Result<()> {
        let text = match self.json {
            true => format!("{}\n", serde_json::to_string(state.shown())?),
            false => {
                let text = text::tables(state.shown(), Sort::default(), state.has_files());
                let gap = if self.batch.is_some_and(|times| times > 1) { "\n" } else { "" };
                format!("{}{gap}", show::runnable(&text))
            }
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
    }
}
