//! `shoal tier`.

use super::inode_of::locate;
use super::local::{Local, Output, expect_answer};
use crate::admin::{AdminAnswer, AdminRequest, PinStep, render};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Says which files belong on the hot tier of a volume.
///
/// `shoal volume tier NAME` attaches the hot tier and shows what moves.
#[derive(Debug, Args)]
pub struct Tier {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pins a directory or a file to a tier, or shows its pin
    ///
    /// The pin holds for all that is below a directory, unless a nearer one says otherwise, wherever the
    /// directory is moved.
    #[command(after_help = "Example: shoal tier pin /mnt/web/db hot; shoal tier pin /mnt/web/db")]
    Pin(Pin),
}

#[derive(Debug, Args)]
struct Pin {
    /// A directory or a file on a mounted volume
    path: PathBuf,
    /// hot: kept on the hot tier; cold: kept off it; auto: no pin of its own. Left out: show the pin
    to: Option<To>,
    #[command(flatten)]
    local: Local,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum To {
    Hot,
    Cold,
    Auto,
}

impl Tier {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Pin(pin) => pin.run(),
        }
    }
}

impl Pin {
    fn run(self) -> anyhow::Result<ExitCode> {
        let (name, inode) = locate(&self.path)?;
        let step = match self.to {
            None => PinStep::Show,
            Some(To::Hot) => PinStep::Hot,
            Some(To::Cold) => PinStep::Cold,
            Some(To::Auto) => PinStep::Auto,
        };
        let answer = self.local.request(AdminRequest::Pin { name, inode, step })?;
        let report = expect_answer!(answer, AdminAnswer::Pin(report) => report);
        self.output.print(&report, render::pin)?;
        Ok(ExitCode::SUCCESS)
    }
}
