//! `shoal fileinfo`.

use crate::control::{Piece, Place};
use crate::flush::make_durable;
use crate::pieces::ask_content;
use crate::{find, show};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use shoal_types::{BlockId, SessionId};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows where the content of files is: in the metadata, or in blocks on which bricks.
///
/// What GlusterFS tells in the attribute `trusted.glusterfs.pathinfo`. Everything written on the mount so far
/// is made durable first. Exit code 1: a file could not be shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal fileinfo /mnt/web/video.mp4
  shoal fileinfo --json /mnt/web/*.iso     one JSON object per file and line")]
pub struct Fileinfo {
    /// Files on a mount
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// One JSON object per file and line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    file: &'a str,
    inode: u64,
    bytes: u64,
    pieces: &'a [Piece],
}

impl Fileinfo {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut flushed = Vec::new();
        let failed = for_each_file(&self.files, |file| self.show(file, &mut flushed));
        Ok(ExitCode::from(u8::from(failed > 0)))
    }

    /// Shows a file. `flushed`: mounts that were made durable before.
    fn show(&self, file: &Path, flushed: &mut Vec<PathBuf>) -> anyhow::Result<()> {
        let name = || file.display().to_string();
        let stat = fs::metadata(file).with_context(name)?;
        if !stat.is_file() {
            bail!("{} is not a regular file: only those have content", file.display());
        }
        let mount = find::mount_of(file)?;
        if !flushed.contains(&mount.point) {
            make_durable(&mount)?;
            flushed.push(mount.point.clone());
        }
        let pieces = ask_content(&mount.home(), stat.ino()).with_context(name)?;
        if self.json {
            let (file, inode) = (&*file.to_string_lossy(), stat.ino());
            let shown = Shown { file, inode, bytes: stat.len(), pieces: &pieces };
            println!("{}", serde_json::to_string(&shown)?);
            return Ok(());
        }
        println!("{}: {}, inode {}", file.display(), show::bytes(stat.len()), stat.ino());
        pieces.iter().for_each(|piece| println!("  {}", line(piece)));
        Ok(())
    }
}

/// Shows all files, past those that fail, as ls(1) does. Returns how many failed.
fn for_each_file(files: &[PathBuf], mut show: impl FnMut(&Path) -> anyhow::Result<()>) -> usize {
    let mut failed = 0;
    for file in files {
        if let Err(error) = show(file) {
            eprintln!("shoal: {}", show::runnable(&format!("{error:#}")));
            failed += 1;
        }
    }
    failed
}

fn line(piece: &Piece) -> String {
    let place = match &piece.place {
        Place::Metadata => "in the metadata, on each of its replicas".to_owned(),
        Place::Reserved => "reserved, not written".to_owned(),
        Place::Block { session, sequence, data_shards, bricks, .. } => {
            let id = BlockId { session: SessionId(*session), seq: *sequence };
            let how = match (data_shards, bricks.is_empty()) {
                (_, true) => "on this machine's disk".to_owned(),
                (0, false) => format!("copies on {}", bricks.join(" ")),
                (shards, false) => {
                    format!("in shards, of which {shards} are needed, on {}", bricks.join(" "))
                }
            };
            format!("block {id}, {how}")
        }
    };
    format!("{:>14}  {:>10}  {place}", piece.offset, show::bytes(piece.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_fails_does_not_keep_the_others_from_being_shown() {
        let mut shown = Vec::new();
        let failed = for_each_file(&["a", "missing", "b"].map(PathBuf::from), |file| {
            shown.push(file.to_owned());
            if file == Path::new("missing") {
                bail!("No such file or directory");
            }
            Ok(())
        });
        assert_eq!((failed, shown.len()), (1, 3));
    }

    #[test]
    fn a_line_says_which_bricks_have_what() {
        let of = |data_shards, bricks: &[&str]| {
            let bricks = bricks.iter().map(|brick| (*brick).to_owned()).collect();
            let place = Place::Block { session: 26, sequence: 3, within: 0, data_shards, bricks };
            line(&Piece { offset: 0, bytes: 4 << 20, place })
        };
        assert!(of(0, &["a:/b", "c:/d"]).ends_with("4.00 MiB  block 1a-3, copies on a:/b c:/d"));
        assert!(of(2, &["a:/b"]).ends_with("in shards, of which 2 are needed, on a:/b"));
        assert!(of(0, &[]).ends_with("on this machine's disk"));
        let inline = Piece { offset: 65_536, bytes: 3, place: Place::Metadata };
        assert!(line(&inline).starts_with("         65536"), "{}", line(&inline));
    }
}
