//! `shoal scheme`.

use super::inode_of::locate;
use super::local::{Local, Output, expect_answer};
use super::volume::grammar::{self, or_usage};
use crate::admin::{AdminAnswer, AdminRequest, SchemeStep, render};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Says how the content of a directory or a file is stored, as copies or as shards, or shows it.
///
/// It holds for all that is below a directory, unless a nearer one says otherwise, wherever the directory is
/// moved. Blocks that are there are stored anew in the background; `shoal volume convert NAME status` shows
/// how far that is.
#[derive(Debug, Args)]
#[command(
    override_usage = "shoal scheme PATH [replica N | disperse N redundancy M [force] | auto]",
    after_help = "Example: shoal scheme /mnt/web/archive disperse 6 redundancy 2; shoal scheme /mnt/web/archive"
)]
pub struct Scheme {
    /// A directory or a file on a mounted volume
    path: PathBuf,
    /// As for `volume convert`; auto: as the directory above, or the volume. Left out: show the scheme
    #[arg(value_name = "WHAT")]
    words: Vec<String>,
    #[command(flatten)]
    local: Local,
    #[command(flatten)]
    output: Output,
}

impl Scheme {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let step = match self.words.as_slice() {
            [] => SchemeStep::Show,
            [auto] if auto == "auto" => SchemeStep::Auto,
            words => {
                let grammar::Conversion { replica, shards, force } =
                    or_usage(grammar::conversion(words, "auto"));
                SchemeStep::Set { replica, shards, force }
            }
        };
        let (name, inode) = locate(&self.path)?;
        let answer = self.local.request(AdminRequest::DirectoryScheme { name, inode, step })?;
        let report = expect_answer!(answer, AdminAnswer::DirectoryScheme(report) => report);
        self.output.print(&report, render::scheme_of)?;
        Ok(ExitCode::SUCCESS)
    }
}
