//! Local files, opened relative to their directory, because a path may be longer than the kernel's limit.

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmodat, makedev, mkdirat, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat, linkat, symlinkat};
use shoal_namespace::query::FileRecord;
use shoal_types::{FileKind, Name, Timestamp, XattrName};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An open local directory.
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens the target of an export, and makes it if it is not there.
    pub fn open_empty(path: &Path) -> io::Result<Directory> {
        std::fs::create_dir_all(path)?;
        if let Some(entry) = std::fs::read_dir(path)?.next() {
            let found = entry?.file_name();
            return Err(io::Error::other(format!(
                "it is not empty ({found:?} is there): choose a new directory"
            )));
        }
        Ok(Directory(File::open(path)?.into()))
    }

    pub fn make_directory(&self, name: &Name) -> io::Result<Directory> {
        let name = os(name);
        mkdirat(&self.0, name, Mode::S_IRWXU)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Directory(openat(&self.0, name, flags, Mode::empty())?))
    }

    pub fn make_file(&self, name: &Name) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, os(name), flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    pub fn make_symlink(&self, name: &Name, target: &[u8]) -> io::Result<()> {
        Ok(symlinkat(OsStr::from_bytes(target), &self.0, os(name))?)
    }

    pub fn make_node(&self, name: &Name, kind: FileKind, rdev: u32) -> io::Result<()> {
        // The kernel's `new_encode_dev`.
        let (major, minor) = ((rdev & 0xf_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00));
        let device = makedev(major.into(), minor.into());
        let kind = SFlag::from_bits_truncate(kind.mode_bits());
        Ok(mknodat(&self.0, os(name), kind, Mode::S_IRUSR | Mode::S_IWUSR, device)?)
    }

    /// Hard-links a file, given by its path below `root`, under a name in this directory.
    pub fn link(&self, root: &Directory, path: &Path, name: &Name) -> io::Result<()> {
        let path = path.strip_prefix("/").unwrap_or(path);
        Ok(linkat(&root.0, path, &self.0, os(name), AtFlags::empty())?)
    }

    /// Sets a file's owner, mode, extended attributes and times to those of the original. Returns what
    /// failed.
    pub fn copy_attributes(&self, name: &Name, record: &FileRecord) -> Vec<String> {
        self.copy_attributes_to(os(name), record)
    }

    /// Sets the directory's own attributes to those of the original.
    pub fn copy_own_attributes(&self, record: &FileRecord) -> Vec<String> {
        self.copy_attributes_to(OsStr::new("."), record)
    }

    /// The order matters: a change of owner clears set-id bits and capabilities, and every change updates
    /// times.
    fn copy_attributes_to(&self, name: &OsStr, record: &FileRecord) -> Vec<String> {
        let inode = &record.inode;
        let mut problems = Vec::new();
        let mut tell = |what: &str, outcome: nix::Result<()>| {
            if let Err(errno) = outcome {
                problems.push(format!("cannot set its {what}: {}", io::Error::from(errno)));
            }
        };
        let (uid, gid) = (Uid::from_raw(inode.uid), Gid::from_raw(inode.gid));
        tell("owner", fchownat(&self.0, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW));
        if inode.kind != FileKind::Symlink {
            let mode = Mode::from_bits_truncate(inode.perm);
            tell("mode", fchmodat(&self.0, name, mode, FchmodatFlags::FollowSymlink));
        }
        for (attribute, value) in &record.xattrs {
            tell(&format!("attribute {attribute}"), self.set_xattr(name, attribute, value));
        }
        let (atime, mtime) = (time(inode.atime), time(inode.mtime));
        tell("times", utimensat(&self.0, name, &atime, &mtime, UtimensatFlags::NoFollowSymlink));
        problems
    }

    fn set_xattr(&self, name: &OsStr, attribute: &XattrName, value: &[u8]) -> nix::Result<()> {
        let path = [format!("/proc/self/fd/{}/", self.0.as_raw_fd()).as_bytes(), name.as_bytes()].concat();
        let nul = |_| nix::errno::Errno::EINVAL;
        let (path, attribute) =
            (CString::new(path).map_err(nul)?, CString::new(attribute.as_bytes()).map_err(nul)?);
        // SAFETY: both strings end with NUL, and `value` has the length that is passed.
        let done = unsafe {
            libc::lsetxattr(path.as_ptr(), attribute.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        };
        nix::errno::Errno::result(done).map(drop)
    }
}

/// Everything on the file system that holds `path` is durable when this returns.
pub fn sync_all_of(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the descriptor is open.
    nix::errno::Errno::result(unsafe { libc::syncfs(file.as_raw_fd()) })?;
    Ok(())
}

fn os(name: &Name) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

fn time(time: Timestamp) -> TimeSpec {
    TimeSpec::new(time.secs, i64::from(time.nanos))
}
