//! What all administration commands have in common: which server they talk to, and how they answer.

use super::request;
use crate::admin::{AdminAnswer, AdminRequest};
use crate::limits::SERVER_DATA_DEFAULT;
use crate::show;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The server of this machine.
#[derive(Debug, Clone, Args)]
pub struct Local {
    /// Data directory of this machine's server
    #[arg(long, value_name = "DIR", env = "SHOAL_DATA", default_value = SERVER_DATA_DEFAULT, global = true)]
    data: PathBuf,
}

/// How to answer.
#[derive(Debug, Clone, Copy, Args)]
pub struct Output {
    /// JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Whether to ask before something is lost.
#[derive(Debug, Clone, Copy, Args)]
pub struct Confirmation {
    /// Do not ask for confirmation; needed where there is no terminal to ask on
    #[arg(short, long)]
    yes: bool,
}

/// As with GlusterFS: `shoal --mode=script ...` asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Every question is answered with yes.
    Script,
    /// A person is asked.
    Interactive,
}

/// A command for the server of this machine whose data are in `data`, that works in this shell as it stands.
pub fn command(data: &Path, words: &str) -> String {
    let usual =
        std::env::var_os("SHOAL_DATA").map_or_else(|| PathBuf::from(SERVER_DATA_DEFAULT), PathBuf::from);
    let flag = if data == usual { String::new() } else { format!(" --data {}", data.display()) };
    format!("{} {words}{flag}", show::program())
}

impl Local {
    /// A command for the same server.
    pub fn command(&self, words: &str) -> String {
        command(&self.data, words)
    }

    /// Where the server's data are.
    pub fn data(&self) -> anyhow::Result<PathBuf> {
        std::path::absolute(&self.data).with_context(|| self.data.display().to_string())
    }

    /// Sends the server a request.
    pub fn request(&self, request: AdminRequest) -> anyhow::Result<AdminAnswer> {
        request::request(&self.data()?, request)
    }

    /// Sends the server a request, without notes on the terminal.
    pub fn request_quietly(&self, request: AdminRequest) -> anyhow::Result<AdminAnswer> {
        request::request_with_notes(&self.data()?, request, |_| {})
    }

    /// Asks it to do something.
    pub fn act(&self, request: AdminRequest) -> anyhow::Result<()> {
        request::act(&self.data()?, request)
    }
}

impl Output {
    /// Prints a report, one way or the other.
    pub fn print<T: Serialize + ?Sized>(
        self,
        report: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let text = match self.json {
            true => format!("{}\n", serde_json::to_string_pretty(report)?),
            false => show::runnable(&text(report)).into_owned(),
        };
        std::io::stdout().write_all(text.as_bytes()).context("standard output")
    }
}

impl Confirmation {
    /// Asks a person. Without a terminal nothing is done that was not agreed to on the command line.
    pub fn require(self, mode: Mode, what: &str) -> anyhow::Result<()> {
        if self.yes || mode == Mode::Script {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            bail!(
                "{what} There is no terminal to ask on, so nothing was done: say -y (--yes) if that is what you want"
            );
        }
        eprint!("{what} Continue? (y/n) ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("standard input")?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => bail!("nothing was done"),
        }
    }
}

/// Binds the one answer that a request may have.
macro_rules! expect_answer {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => $value,
            other => return Err($crate::cmd::request::unexpected_answer(&other)),
        }
    };
}
pub(super) use expect_answer;
