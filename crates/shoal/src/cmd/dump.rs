//! `shoal dump`.

use crate::control::{self, Dumped, Request};
use crate::limits::SERVER_DATA_DEFAULT;
use crate::server::node_dir;
use crate::{find, show};
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows what a mount or a server holds, caches and waits for, and for whom.
///
/// Of a mount: requests of the kernel that wait, since when, by which process and for what; the lease, the
/// metadata leader, the journal, rights, caches. Of a server: its replicas; of the volumes that it leads,
/// sessions, requests that wait for other clients, and recalls that are not acknowledged; its bricks.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal dump                    all mounts of this machine, and its server
  shoal dump /mnt/web           one mount
  shoal dump /var/lib/shoal     the server

kill -USR1 PID has the process write the same to state-dump.txt, beside its log: also where the control socket \
does not answer any more.")]
pub struct Dump {
    /// A mount, or anything on it, or a data directory; all mounts and the server if left out
    path: Option<PathBuf>,
}

impl Dump {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let homes = match self.path {
            Some(path) if !find::is_mount(&path) && node_dir::exists(&path) => vec![path],
            Some(path) => find::nodes(Some(&path))?,
            None => {
                let data = std::env::var_os("SHOAL_DATA").unwrap_or_else(|| SERVER_DATA_DEFAULT.into());
                let server = Some(PathBuf::from(data)).filter(|data| node_dir::exists(data));
                find::nodes(None)?.into_iter().chain(server).collect()
            }
        };
        if homes.is_empty() {
            bail!("no Shoal volume is mounted here, and there is no server");
        }
        let mut code = ExitCode::SUCCESS;
        for (n, home) in homes.iter().enumerate() {
            if n > 0 {
                println!();
            }
            match control::request::<Dumped>(home, &Request::Dump) {
                Ok(Dumped { text }) => print!("{text}"),
                Err(error) if homes.len() == 1 => return Err(error.into()),
                Err(error) => {
                    eprintln!("{}", show::runnable(&error.to_string()));
                    code = ExitCode::from(1);
                }
            }
        }
        Ok(code)
    }
}
