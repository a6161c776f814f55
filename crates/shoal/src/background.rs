//! Daemonizing: the program starts itself as a background process, which reports once it serves or has
//! failed.
//!
//! The report comes through a pipe, the standard output of the background process. Notes for the user may
//! come before it. The pipe closes when that process reports or dies, so the parent never waits for ever.

use crate::job::Job;
use crate::limits::LOG_LINES_SHOWN;
use crate::logging;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A line of JSON from the background process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    /// What it waits for.
    Note(String),
    /// The last line. Why it could not start; `None` if it serves.
    Report(Option<String>),
}

/// Whether the standard output of this process is the pipe to its parent.
static HAS_PARENT: AtomicBool = AtomicBool::new(false);

/// Starts a background process for a job and returns once it serves.
pub fn start<J: Job>(job: &J) -> anyhow::Result<()> {
    // Not `current_exe`: its name is wrong once the file was replaced by a newer one.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("shoal").args(job.arguments()).stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: setsid(2) is async-signal-safe. In a session of its own the process has no controlling terminal
    // whose closing could end it.
    unsafe { command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?)) };
    let mut child = command.spawn().context("starting the serving process")?;
    let mut lines = child.stdout.take().map(|pipe| BufReader::new(pipe.take(64 << 10)));
    let mut text = String::new();
    while let Some(lines) = &mut lines
        && lines.read_line(&mut text).context("waiting for the serving process")? > 0
    {
        match serde_json::from_str(&text) {
            Ok(Line::Note(note)) => eprintln!("note: {note}"),
            Ok(Line::Report(None)) => return Ok(()),
            Ok(Line::Report(Some(error))) => {
                // It is about to exit; the data directory is free only after that.
                let _ = child.wait();
                bail!("{error}")
            }
            Err(_) => break,
        }
        text.clear();
    }
    bail!("{}", last_words(&mut child, job.log_dir()))
}

/// In the background process: from now on its standard output is for its parent.
pub fn has_parent() {
    HAS_PARENT.store(true, Ordering::Relaxed);
}

/// Tells the user what a process that is not ready yet waits for.
pub fn note(text: &str) {
    tracing::warn!("{text}");
    let written = match HAS_PARENT.load(Ordering::Relaxed) {
        true => write_line(&Line::Note(text.to_owned())),
        // Of a process in the foreground, the log is on the terminal.
        false => Ok(()),
    };
    if let Err(error) = written {
        tracing::debug!(%error, "the note was not passed on");
    }
}

fn write_line(line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text).and_then(|()| stdout.flush())
}

/// In the background process: reports the outcome to the parent and closes the pipe.
pub fn report(outcome: &anyhow::Result<()>) -> anyhow::Result<()> {
    let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
    write_line(&Line::Report(error)).context("reporting")?;
    nix::unistd::dup2_stdout(File::options().write(true).open("/dev/null")?).context("standard output")
}

/// What can be told about a process that died without a report.
fn last_words(child: &mut Child, data: &Path) -> String {
    let how = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let log = logging::path(data);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default().join("\n  ");
    if tail.is_empty() {
        format!("the process in the background ended before it was ready ({how})")
    } else {
        format!(
            "the process in the background ended before it was ready ({how}); {} ends:\n  {tail}",
            log.display()
        )
    }
}
