//! `shoal events`.

use super::local::{Local, expect_answer};
use crate::admin::{AdminAnswer, AdminRequest, Event, EventsReport, SeenEvent};
use crate::limits::EVENTS_FOLLOW_EVERY;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;

/// Shows what has happened in the cluster: nodes down and up, leaders, sessions ended and what they lost,
/// healing, bricks, clocks, refused certificates.
///
/// Each node keeps the last 1,000 events of its server's present run in memory; this merges those of all
/// nodes by time. The names of events are those of --json.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal events                     what has happened, the newest last
  shoal events --follow            and what happens from now on, until it is killed
  shoal events --json              one JSON object per line, for programs")]
pub struct Events {
    #[command(flatten)]
    local: Local,
    /// One JSON object per event and line
    #[arg(long)]
    json: bool,
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
}

impl Events {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (mut seen, mut away) = (BTreeMap::new(), BTreeSet::new());
        loop {
            let request = AdminRequest::Events { seen: seen.values().cloned().collect() };
            let EventsReport { events, silent } =
                expect_answer!(self.local.request(request)?, AdminAnswer::Events(report) => report);
            for event in &events {
                self.print(event)?;
                let Event { node, run, number, .. } = event.clone();
                seen.insert(node.clone(), SeenEvent { node, run, number });
            }
            let silent: BTreeSet<String> = silent.into_iter().collect();
            for node in silent.difference(&away) {
                eprintln!("note: node {node} does not answer: what it has seen is missing");
            }
            away = silent;
            if !self.follow {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(EVENTS_FOLLOW_EVERY);
        }
    }

    fn print(&self, event: &Event) -> anyhow::Result<()> {
        let line = if self.json { serde_json::to_string(event)? } else { event.to_string() };
        // A program that follows wants each line at once.
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }
}
