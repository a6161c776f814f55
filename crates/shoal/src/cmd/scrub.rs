//! `shoal scrub`.

use crate::control::{ControlError, ReplyStream, Request, ScrubReport};
use crate::data_dir::DataDir;
use crate::limits::{FINDINGS_SHOWN_MAX, SERVER_DATA_DEFAULT};
use crate::server::{CLUSTER_SCRUB, node_dir};
use crate::{find, node, show};
use anyhow::{anyhow, bail};
use clap::Args;
use shoal_brick::Brick;
use shoal_types::parse_bytes;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Reads every block of a volume of this machine and checks it, mounted or not. Exit code 0: all intact, 1:
/// some are damaged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal scrub /mnt/shoal
  shoal scrub --data /srv/shoal --rate 50     in the background of other work, at 50 MB/s

In a cluster every node reads its bricks through all the time: see `shoal volume scrub --help`.")]
pub struct Scrub {
    /// The mount, or anything on it
    path: Option<PathBuf>,
    /// The data directory, mounted or not
    #[arg(long, value_name = "DIR", conflicts_with = "path")]
    data: Option<PathBuf>,
    /// Read at most this much per second: megabytes, or a size with a unit
    #[arg(long, value_name = "MB/S", value_parser = parse_rate)]
    rate: Option<u64>,
}

impl Scrub {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // The path may be a cluster server's data directory; nothing mounted means the default one.
        if let Some(path) = self.data.as_deref().or(self.path.as_deref())
            && !find::is_mount(path)
            && node_dir::exists(path)
        {
            bail!("{CLUSTER_SCRUB}");
        }
        let data = match find::nodes(self.data.as_deref().or(self.path.as_deref()))?.as_slice() {
            [data] => data.clone(),
            [] if node_dir::exists(Path::new(SERVER_DATA_DEFAULT)) => bail!("{CLUSTER_SCRUB}"),
            [] => {
                bail!("no Shoal volume is mounted here: say which one, as in `shoal scrub --data /srv/shoal`")
            }
            _ => bail!("several volumes are mounted here: say which one, as in `shoal scrub /mnt/shoal`"),
        };
        let bytes_per_second = self.rate;
        let mut view = View::new();
        match ReplyStream::begin(&data, &Request::Scrub { bytes_per_second }) {
            Ok(reports) => {
                for report in reports {
                    view.show(report?);
                }
            }
            Err(ControlError::NotRunning(_)) => offline(&data, bytes_per_second, &mut view)?,
            Err(error) => return Err(error.into()),
        }
        view.end()
    }
}

/// A rate in bytes per second, from a number of megabytes or a size with a unit.
fn parse_rate(text: &str) -> Result<u64, String> {
    let bytes = match text.parse::<u64>() {
        Ok(megabytes) => megabytes.checked_mul(1_000_000).ok_or("that is more than can be counted")?,
        Err(_) => parse_bytes(text)?,
    };
    if bytes == 0 { Err("a rate is not 0".into()) } else { Ok(bytes) }
}

/// The data directory is not served: lock it and read the brick in this process.
fn offline(data: &Path, bytes_per_second: Option<u64>, view: &mut View) -> anyhow::Result<()> {
    let data = DataDir::open(data)?;
    let brick = Brick::open(&data.brick())?;
    node::scrub(&brick, bytes_per_second, &mut |report| {
        view.show(report);
        Ok(())
    })
    .map_err(|error| anyhow!(error))
}

struct View {
    bar: indicatif::ProgressBar,
    shown: u64,
    /// Blocks, bytes, damaged blocks; `None` until all were read.
    summary: Option<(u64, u64, u64)>,
}

impl View {
    fn new() -> View {
        View { bar: show::counter("blocks read"), shown: 0, summary: None }
    }

    fn show(&mut self, report: ScrubReport) {
        match report {
            ScrubReport::Progress { blocks, .. } => self.bar.set_position(blocks),
            ScrubReport::Damaged { what } => {
                self.shown += 1;
                if self.shown <= FINDINGS_SHOWN_MAX {
                    self.bar.suspend(|| println!("{what}"));
                }
            }
            ScrubReport::Done { blocks, bytes, damaged } => self.summary = Some((blocks, bytes, damaged)),
        }
    }

    fn end(self) -> anyhow::Result<ExitCode> {
        self.bar.finish_and_clear();
        let Some((blocks, bytes, damaged)) = self.summary else {
            bail!(
                "the scrub ended before all blocks were read: the volume was unmounted, or its process has died"
            );
        };
        println!("{blocks} blocks read, {} intact, {damaged} damaged.", show::bytes(bytes));
        if damaged > 0 {
            println!(
                "`{} fsck`, with the volume unmounted, says which files they belong to.",
                show::program()
            );
        }
        Ok(ExitCode::from(u8::from(damaged > 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_in_megabytes_unless_it_has_a_unit() {
        assert_eq!((parse_rate("50"), parse_rate("50KB")), (Ok(50_000_000), Ok(50 << 10)));
        assert!(parse_rate("0").is_err() && parse_rate("fast").is_err());
    }
}
