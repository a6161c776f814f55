//! `shoal client`.

use super::local::{Confirmation, Local, Mode, Output, expect_answer};
use crate::admin::{AdminAnswer, AdminRequest, CredentialsReport, render};
use crate::limits::CREDENTIALS_DEFAULT;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use shoal_runtime::durable;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Credentials of machines that mount volumes without being nodes.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal client issue laptop             writes laptop/ca.pem, cert.pem and key.pem
  shoal client list
  shoal client revoke laptop            refuses them from now on

A client looks for its credentials in {CREDENTIALS_DEFAULT}."))]
pub struct Client {
    #[command(flatten)]
    local: Local,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes credentials for a client
    Issue {
        /// The client's name
        name: String,
        /// Directory to write them to; ./NAME if not said
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Refuses a client's credentials from now on
    Revoke {
        /// The client's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Lists clients that have or had credentials
    List {
        #[command(flatten)]
        output: Output,
    },
}

impl Client {
    pub fn run(self, mode: Mode) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Issue { name, out } => {
                let dir = out.unwrap_or_else(|| PathBuf::from(&name));
                check_free(&dir)?;
                let request = AdminRequest::IssueClient { name };
                let credentials = expect_answer!(self.local.request(request)?, AdminAnswer::Credentials(credentials) => credentials);
                write(&dir, &credentials)?;
                println!(
                    "client issue: {}: success: ca.pem, cert.pem and key.pem are in {}\nMove them to {CREDENTIALS_DEFAULT} on \
                     the client, readable for root only; then: mount -t shoal HOST:/VOLUME /mnt",
                    credentials.name,
                    dir.display()
                );
            }
            Command::Revoke { name, confirmation } => {
                confirmation.require(mode, &format!("What '{name}' has mounted will stop working."))?;
                self.local.act(AdminRequest::RevokeClient { name: name.clone() })?;
                println!("client revoke: {name}: success");
            }
            Command::List { output } => {
                let clients = expect_answer!(self.local.request(AdminRequest::Clients)?, AdminAnswer::Clients { clients } => clients);
                output.print(&clients, |clients| render::clients(clients))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

const FILES: [&str; 3] = ["ca.pem", "cert.pem", "key.pem"];

/// Before credentials are issued: that they can be written.
fn check_free(dir: &Path) -> anyhow::Result<()> {
    for name in FILES {
        let file = dir.join(name);
        if file.symlink_metadata().is_ok() {
            bail!("{} is there already; choose another directory with --out", file.display());
        }
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| dir.display().to_string())
}

fn write(dir: &Path, credentials: &CredentialsReport) -> anyhow::Result<()> {
    let texts = [&credentials.authority, &credentials.certificate, &credentials.key];
    let mut made = Vec::new();
    let written = FILES.iter().zip(texts).try_for_each(|(name, text)| {
        let path = dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file: File| {
            made.push(path.clone());
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.with_context(|| path.display().to_string())
    });
    if written.is_err() {
        // As on a full disk: the next attempt may use the directory.
        made.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
    written?;
    durable::sync_dir(dir).with_context(|| dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn credentials_are_written_for_their_owner_only_and_never_over_others() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("laptop");
        let text = |text: &str| text.to_owned();
        let credentials = CredentialsReport {
            name: text("laptop"),
            authority: text("A"),
            certificate: text("C"),
            key: text("K"),
        };
        check_free(&dir).unwrap();
        write(&dir, &credentials).unwrap();
        for (name, content) in FILES.iter().zip(["A", "C", "K"]) {
            let path = dir.join(name);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(check_free(&dir).unwrap_err().to_string().contains("--out"));
        assert!(write(&dir, &credentials).is_err());
        let half = temp.path().join("half");
        check_free(&half).unwrap();
        std::fs::write(half.join("key.pem"), "another one's").unwrap();
        assert!(write(&half, &credentials).is_err());
        assert!(!half.join("ca.pem").exists(), "the next attempt finds the directory free");
        assert_eq!(std::fs::read_to_string(half.join("key.pem")).unwrap(), "another one's");
    }
}
