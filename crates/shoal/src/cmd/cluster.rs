//! `shoal cluster`.

use super::local::{Local, Output, expect_answer};
use super::server::InitCommand;
use crate::admin::{AdminAnswer, AdminRequest, render};
use crate::limits::{TOKEN_HOURS_DEFAULT, TOKEN_HOURS_MAX};
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Begins a cluster and shows how it does.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal cluster init                    on the first machine; prints what to run on the others
  shoal cluster status                  nodes, volumes, what needs attention
  shoal cluster token --hours 1         lets further machines join for an hour
  shoal cluster token --web             opens the web pages of all nodes for a day")]
pub struct Cluster {
    #[command(flatten)]
    local: Local,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(InitCommand),
    /// Prints a new token, with which machines can join, or that opens the web pages
    Token {
        /// A token for the web pages instead: it opens those of all nodes, and nothing else
        #[arg(long)]
        web: bool,
        /// For how long it is valid
        #[arg(long, default_value_t = TOKEN_HOURS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(TOKEN_HOURS_MAX)))]
        hours: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Shows nodes and volumes. Exit code 1: the last lines say what needs attention, or some seconds
    Status {
        #[command(flatten)]
        output: Output,
    },
}

impl Cluster {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Init(init) => init.run(&self.local.data()?),
            Command::Token { web, hours, output } => {
                let (request, how): (_, fn(&_) -> _) = match web {
                    true => (AdminRequest::IssueWebToken { hours }, render::how_to_enter),
                    false => (AdminRequest::IssueToken { hours }, render::how_to_join),
                };
                let token = expect_answer!(self.local.request(request)?, AdminAnswer::Token(token) => token);
                output.print(&token, how)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Status { output } => {
                let report = expect_answer!(self.local.request(AdminRequest::ClusterStatus)?, AdminAnswer::Cluster(report) => report);
                output.print(&report, render::cluster)?;
                Ok(if report.attention.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
            }
        }
    }
}
