//! What all administration commands have in common: which server they talk to, and how they answer.

use crate::admin::{self, AdminAnswer, AdminRequest};
use crate::limits::SERVER_DATA_DEFAULT;
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

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
pub struct Consent {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Local {
    /// Where the server's data are.
    pub fn data(&self) -> anyhow::Result<PathBuf> {
        std::path::absolute(&self.data).with_context(|| self.data.display().to_string())
    }

    /// Asks the server.
    pub fn ask(&self, request: AdminRequest) -> anyhow::Result<AdminAnswer> {
        admin::ask(&self.data()?, request)
    }

    /// Asks it to do something.
    pub fn act(&self, request: AdminRequest) -> anyhow::Result<()> {
        admin::act(&self.data()?, request)
    }
}

impl Output {
    /// Prints a report, one way or the other.
    pub fn print<T: Serialize + ?Sized>(
        self,
        report: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let text =
            if self.json { format!("{}\n", serde_json::to_string_pretty(report)?) } else { text(report) };
        std::io::stdout().write_all(text.as_bytes()).context("standard output")
    }
}

impl Consent {
    /// Asks a person; whoever is no person and wrote the command down has decided.
    pub fn obtain(self, what: &str) -> anyhow::Result<()> {
        if self.yes || !std::io::stdin().is_terminal() {
            return Ok(());
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
macro_rules! the_answer {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => $value,
            other => return Err($crate::admin::strange(&other)),
        }
    };
}
pub(super) use the_answer;
