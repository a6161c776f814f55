//! Sharing disk space between a new brick and the old one that its files came from, so that an import needs
//! disk space once.
//!
//! **Model.** Each file of the old brick has its name in the target, too. The target's mount tells in which
//! blocks the content is; those that the new brick has as whole copies share the extents of the old file. The
//! kernel compares the bytes before ([`shoal_brick::share`]), so a file that has changed on either side just
//! keeps its own.
//!
//! **Promises.** No byte of either side changes, whenever it is ended.
//!
//! **Leaves out** files up to [`SHARED_BYTES_MIN`], whose content is in the metadata unless told otherwise,
//! and what is in shards, of GlusterFS or of Shoal.

use super::at;
use super::run::is_internal;
use super::work::is_in_progress;
use crate::control::{Piece, Place};
use crate::limits::SHARED_BYTES_MIN;
use nix::errno::Errno;
use shoal_brick::Sharing;
use shoal_types::{BlockId, SessionId};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What became of the files of an old brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reflinks {
    /// Files of which at least a part shares its disk space.
    pub files: u64,
    /// Bytes that share their disk space.
    pub shared_bytes: u64,
    /// Bytes of blocks whose content is another one, or that begin elsewhere within a page.
    pub differing_bytes: u64,
    /// Bytes that the new brick does not have as a copy.
    pub elsewhere_bytes: u64,
    /// Files that the target does not have.
    pub absent_files: u64,
}

/// Where the files were imported to.
pub trait Target {
    /// The directory of the mount.
    fn directory(&self) -> &Path;
    /// Where the content of a file is.
    fn pieces(&self, inode: u64) -> io::Result<Vec<Piece>>;
    /// Before each pass over the files that are left: what was written is to be committed.
    fn pass(&mut self, so_far: &Reflinks) -> io::Result<()>;
}

/// Has the blocks of the files of `old` share its extents. If `follow`, files that the target does not have
/// yet are waited for as long as an import runs there.
pub fn reflink(old: &Path, new: &Path, follow: bool, target: &mut dyn Target) -> io::Result<Reflinks> {
    let mut left = files(old)?;
    let mut done = Reflinks::default();
    loop {
        // Looked at first: what is still absent when it has ended stays absent.
        let runs = follow && is_in_progress(target.directory());
        target.pass(&done)?;
        let mut absent = Vec::new();
        for relative in left {
            let inode = match fs::symlink_metadata(target.directory().join(&relative)) {
                Ok(stat) if stat.is_file() => stat.ino(),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    absent.push(relative);
                    continue;
                }
                Err(error) => return Err(at(&target.directory().join(&relative), error)),
            };
            let pieces = target.pieces(inode)?;
            let path = old.join(&relative);
            share(&path, new, &pieces, &mut done).map_err(|error| at(&path, error))?;
        }
        if !runs || absent.is_empty() {
            done.absent_files = absent.len() as u64;
            return Ok(done);
        }
        left = absent;
    }
}

/// Paths below the old brick of all files that are large enough.
fn files(old: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let path = old.join(&directory);
        for entry in fs::read_dir(&path).map_err(|error| at(&path, error))? {
            let entry = entry.map_err(|error| at(&path, error))?;
            let relative = directory.join(entry.file_name());
            let is_internal = directory.as_os_str().is_empty() && is_internal(&entry.file_name());
            let stat = entry.metadata().map_err(|error| at(&entry.path(), error))?;
            match () {
                () if is_internal => {}
                () if stat.is_dir() => directories.push(relative),
                () if stat.is_file() && stat.len() > SHARED_BYTES_MIN => found.push(relative),
                () => {}
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn share(old: &Path, new: &Path, pieces: &[Piece], done: &mut Reflinks) -> io::Result<()> {
    let file = File::open(old)?;
    let before = done.shared_bytes;
    for piece in pieces {
        let Place::Block { session, sequence, within, data_shards: 0, .. } = piece.place else {
            done.elsewhere_bytes += piece.bytes;
            continue;
        };
        let id = BlockId { session: SessionId(session), seq: sequence };
        // A block is not longer than 4 MiB.
        let len = piece.bytes as u32;
        match shoal_brick::share(new, id, within, len, &file, piece.offset) {
            Ok(Sharing::Shared(bytes)) => done.shared_bytes += bytes,
            Ok(Sharing::Differs) => done.differing_bytes += piece.bytes,
            Ok(Sharing::Absent) => done.elsewhere_bytes += piece.bytes,
            // The old file is shorter.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                done.differing_bytes += piece.bytes;
            }
            Err(error) => return Err(explained(error)),
        }
    }
    done.files += u64::from(done.shared_bytes > before);
    Ok(())
}

fn explained(error: io::Error) -> io::Error {
    let why = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EXDEV) => {
            "old and new brick are on different file systems, which cannot share disk space"
        }
        Some(Errno::EOPNOTSUPP | Errno::ENOTTY) => {
            "its file system cannot share disk space between files: XFS with reflink=1 and Btrfs can"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}
