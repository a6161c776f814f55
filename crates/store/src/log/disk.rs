//! What the log needs of a disk. A trait, so that tests can lose what was not flushed.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A directory of files.
pub trait Disk: Send {
    /// Names of the files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file, or creates a new and empty one.
    fn open(&self, name: &str, create_new: bool) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file; the new name is free.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all of the above durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
#[allow(clippy::len_without_is_empty)] // No caller needs to know whether a file is empty.
pub trait DiskFile: Send {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Fills the buffer from an offset on.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of the bytes at an offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Sets the length.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes sure that there is space up to a length and sets the length to no less.
    fn reserve(&self, len: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Opens the disk of a directory.
pub type Opener = Rc<dyn Fn(&Path) -> io::Result<Box<dyn Disk>>>;

thread_local! {
    static OPENER: RefCell<Option<Opener>> = const { RefCell::new(None) };
}

/// Logs are opened on such disks by this thread from now on; `None`: on the system's. For simulations.
pub fn replace(opener: Option<Opener>) {
    OPENER.set(opener);
}

/// Opens a directory, which must exist.
pub fn open(dir: &Path) -> io::Result<Box<dyn Disk>> {
    match OPENER.with_borrow(Clone::clone) {
        Some(opener) => opener(dir),
        None => Ok(Box::new(OsDisk::open(dir)?)),
    }
}

/// A directory of the operating system.
pub struct OsDisk {
    dir: PathBuf,
    handle: File,
}

impl OsDisk {
    /// Opens a directory, which must exist.
    pub fn open(dir: &Path) -> io::Result<OsDisk> {
        Ok(OsDisk { dir: dir.to_owned(), handle: File::open(dir)? })
    }
}

impl Disk for OsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            // A name that is not UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, name: &str, create_new: bool) -> io::Result<Box<dyn DiskFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(create_new).open(self.dir.join(name))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        match nix::fcntl::posix_fallocate(self, 0, len as libc::off_t) {
            // Not every file system can; room is then found as it is needed.
            Err(nix::Error::EOPNOTSUPP | nix::Error::EINVAL) => {
                if DiskFile::len(self)? < len {
                    File::set_len(self, len)?;
                }
                Ok(())
            }
            other => other.map_err(io::Error::from),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
