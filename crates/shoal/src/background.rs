//! Daemonizing: the program starts itself as a background process, which reports once it serves or has
//! failed.
//!
//! The report comes through a pipe, the standard output of the background process. The pipe closes when that
//! process reports or dies, so the parent never waits for ever.

use crate::job::Job;
use crate::limits::LOG_LINES_SHOWN;
use crate::logging;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The report of the background process, as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    /// Why it could not start; `None` if it serves.
    error: Option<String>,
}

/// Starts a background process for a job and returns once it serves.
pub fn start<J: Job>(job: &J) -> anyhow::Result<()> {
    // Not `current_exe`: its name is wrong once the file was replaced by a newer one.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("shoal").args(job.arguments()).stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: setsid(2) is async-signal-safe. In a session of its own the process has no controlling terminal
    // whose closing could end it.
    unsafe { command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?)) };
    let mut child = command.spawn().context("starting the serving process")?;
    let mut text = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(64 << 10).read_to_end(&mut text).context("waiting for the serving process")?;
    }
    match serde_json::from_slice(&text) {
        Ok(Report { error: None }) => Ok(()),
        Ok(Report { error: Some(error) }) => {
            // It is about to exit; the data directory is free only after that.
            let _ = child.wait();
            bail!("{error}")
        }
        Err(_) => bail!("{}", last_words(&mut child, job.log_dir())),
    }
}

/// In the background process: reports the outcome to the parent and closes the pipe.
pub fn report(outcome: &anyhow::Result<()>) -> anyhow::Result<()> {
    let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
    let mut line = serde_json::to_vec(&Report { error })?;
    line.push(b'\n');
    let mut stdout = std::io::stdout();
    stdout.write_all(&line).and_then(|()| stdout.flush()).context("reporting")?;
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
