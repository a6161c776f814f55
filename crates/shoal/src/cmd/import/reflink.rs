//! `shoal import reflink`.

use crate::control::Piece;
use crate::flush::make_durable;
use crate::import::{Reflinks, Target, reflink};
use crate::limits::REFLINK_PASS_EVERY;
use crate::mounts::Mount;
use crate::pieces::ask_content;
use crate::{find, show};
use anyhow::{Context, bail};
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Has a new brick share disk space with the old brick that its files were imported from.
///
/// The old brick stays as it is, and takes no disk space of its own any more, except for files up to 64 KiB.
/// For bricks on one file system that can share, as XFS with `reflink=1` and Btrfs do. Run it on each node,
/// with --follow at the same time as the import: then only the last few files are ever stored twice. The
/// kernel compares the bytes before it shares them: no byte changes, and it may be ended and started again at
/// any time.
#[derive(Debug, Args)]
#[command(after_help = "\
Example, on a node whose bricks are below /srv:
  shoal import reflink /srv/web --with /srv/web.shoal --to /mnt/web --follow")]
pub struct Reflink {
    /// The old brick, or any directory whose files are in the volume under the same names
    old: PathBuf,
    /// The new brick on the same file system
    #[arg(long, value_name = "BRICK")]
    with: PathBuf,
    /// The directory of a mounted volume to which the files were imported
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Go on until the import that runs there has ended
    #[arg(long)]
    follow: bool,
}

impl Reflink {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let directory = |path: &Path| {
            let path = path.canonicalize().with_context(|| path.display().to_string())?;
            if !path.is_dir() {
                bail!("{} is not a directory", path.display());
            }
            Ok(path)
        };
        let (old, new, to) = (directory(&self.old)?, directory(&self.with)?, directory(&self.to)?);
        if !new.join("shoal-brick").exists() {
            bail!("{} is not a brick of Shoal: it has no file `shoal-brick`", new.display());
        }
        let mount = find::mount_of(&to)?;
        let mut imported = Imported { mount, directory: to, passes: 0 };
        let done = reflink(&old, &new, self.follow, &mut imported)
            .context("it ended early; what shares disk space goes on to do so")?;
        print!("{}", report(&done, &new));
        Ok(ExitCode::SUCCESS)
    }
}

struct Imported {
    mount: Mount,
    directory: PathBuf,
    passes: u64,
}

impl Target for Imported {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn pieces(&self, inode: u64) -> io::Result<Vec<Piece>> {
        ask_content(&self.mount.home(), inode).map_err(io::Error::other)
    }

    fn pass(&mut self, so_far: &Reflinks) -> io::Result<()> {
        if self.passes > 0 {
            eprintln!("{} share disk space so far; waiting for more files", show::bytes(so_far.shared_bytes));
            std::thread::sleep(REFLINK_PASS_EVERY);
        }
        self.passes += 1;
        make_durable(&self.mount).map_err(|error| io::Error::other(format!("{error:#}")))
    }
}

fn report(done: &Reflinks, new: &Path) -> String {
    let Reflinks { files, shared_bytes, differing_bytes, elsewhere_bytes, absent_files } = *done;
    let mut report =
        format!("{} of {files} files share disk space with {}.\n", show::bytes(shared_bytes), new.display());
    let mut line = |count: u64, text: String| {
        if count > 0 {
            report.push_str(&text);
        }
    };
    line(
        differing_bytes,
        format!("Not the same bytes as in the volume: {}.\n", show::bytes(differing_bytes)),
    );
    line(elsewhere_bytes, format!("Not in whole copies on this brick: {}.\n", show::bytes(elsewhere_bytes)));
    line(absent_files, format!("{absent_files} files are not in the volume.\n"));
    report
}
