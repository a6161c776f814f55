//! Files of a disk, as a brick uses them.
//!
//! Block files are read and written past the page cache where the file system can. A block that was written
//! is in the cache of the mount that wrote it, and one that is read will be in the cache of the mount that
//! reads it. A third copy would only displace something useful. It is faster, too: one request of 4 MiB
//! instead of a thousand pages.

use crate::aligned::Buffer;
use crate::layout::Layout;
use crate::limits::ALIGN_BYTES;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{self, FsType};
use shoal_runtime::durable::sync_dir;
use shoal_wire::BlockError;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// What the disk under a brick can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    /// Whether files may be opened with `O_DIRECT`.
    direct: bool,
    /// Whether syncing a new file makes its name durable, too.
    name_follows_file: bool,
}

impl Disk {
    /// Finds out.
    pub fn probe(layout: &Layout, buffer: &mut Buffer) -> io::Result<Disk> {
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(layout.marker())
            .and_then(|file| file.read_at(&mut buffer[..ALIGN_BYTES], 0));
        let kind = statfs::statfs(&layout.blocks)?.filesystem_type();
        Ok(Disk { direct: direct.is_ok(), name_follows_file: name_follows_file(kind) })
    }

    /// Makes a file that is not there yet.
    pub fn create_new(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(self.flags()).open(path)
    }

    /// Opens a file for reading.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).custom_flags(self.flags() | libc::O_NOFOLLOW).open(path)?;
        if !self.direct {
            advise(&file, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        }
        Ok(file)
    }

    /// Reads up to the buffer's length; what is missing at the end of the file is missing from the answer.
    pub fn read(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // At the end of a file, direct I/O reads a ragged piece and could not go on from there.
            if !done.is_multiple_of(ALIGN_BYTES) {
                break;
            }
        }
        Ok(done)
    }

    /// Makes a new file durable under its name, and drops it from the page cache.
    pub fn sync_new(&self, file: &File, directory: &Path) -> io::Result<()> {
        file.sync_data()?;
        if !self.direct {
            self.forget(file);
        }
        if self.name_follows_file { Ok(()) } else { sync_dir(directory) }
    }

    /// The pages of a file will not be needed again.
    pub fn forget(&self, file: &File) {
        if !self.direct {
            advise(file, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
    }

    fn flags(&self) -> i32 {
        if self.direct { libc::O_DIRECT } else { 0 }
    }
}

/// ext4, XFS and btrfs commit a new file's name together with the file; their developers keep it so because
/// programs rely on it. (ext4 even without a journal: it syncs the parent of a new file.) Saves a disk flush
/// per block. Everywhere else the directory is synced as POSIX wants it.
fn name_follows_file(kind: FsType) -> bool {
    [statfs::EXT4_SUPER_MAGIC, statfs::XFS_SUPER_MAGIC, statfs::BTRFS_SUPER_MAGIC].contains(&kind)
}

/// Advice may be ignored by the kernel, so its failure may be ignored here.
fn advise(file: &File, advice: PosixFadviseAdvice) {
    if let Err(errno) = posix_fadvise(file, 0, 0, advice) {
        tracing::debug!(%errno, ?advice, "fadvise");
    }
}

/// The disk's error as the brick's.
pub(crate) fn refused(path: &Path) -> impl FnOnce(io::Error) -> BlockError {
    move |error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => BlockError::Full,
        _ => BlockError::Io { what: path.display().to_string(), cause: error.to_string() },
    }
}
