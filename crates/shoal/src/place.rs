//! Local files relative to an open directory: a path may be longer than the kernel's limit, and a user may
//! replace any part of it by a symbolic link at any time.
//!
//! **Promises.** Below a [`Directory`] no symbolic link is followed. Attributes are set on a descriptor of
//! the file itself, whatever has its name meanwhile.

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat, renameat2,
};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmodat, mkdirat, mknodat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat, linkat, symlinkat};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An open local directory.
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens a directory by the path that the administrator has given: links in it are followed.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Directory(openat(AT_FDCWD, path, flags, Mode::empty())?))
    }

    /// Opens a directory below this one; itself if the path is empty.
    pub fn beneath(&self, path: &Path) -> io::Result<Directory> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        self.open_beneath(path, flags).map(Directory)
    }

    fn open_beneath(&self, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        match openat2(&self.0, path, OpenHow::new().flags(flags).resolve(resolve)) {
            Err(Errno::ELOOP) => Err(io::Error::other("its path leads through a symbolic link")),
            opened => Ok(opened?),
        }
    }

    /// A name below this directory.
    pub fn place(&self, path: &Path) -> io::Result<Place> {
        let parent = self.beneath(path.parent().unwrap_or(Path::new("")))?;
        // The path of the directory itself has no name.
        let name = path.file_name().unwrap_or(OsStr::new("."));
        Ok(Place { parent, name: name.to_owned() })
    }

    /// Makes a directory for its owner alone.
    pub fn make_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::S_IRWXU)?)
    }

    pub fn make_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    pub fn make_symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        Ok(symlinkat(target, &self.0, name)?)
    }

    pub fn make_node(&self, name: &OsStr, kind: SFlag, device: u64) -> io::Result<()> {
        Ok(mknodat(&self.0, name, kind, Mode::S_IRUSR | Mode::S_IWUSR, device)?)
    }

    /// What has a name in this directory; a symbolic link itself, not its target.
    pub fn object(&self, name: &OsStr) -> io::Result<Object> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Object(self.open_beneath(Path::new(name), flags)?.into()))
    }

    /// The directory itself.
    pub fn itself(&self) -> io::Result<Object> {
        self.object(OsStr::new("."))
    }

    /// A path of this directory that leads through no symbolic link, as long as it is open.
    pub fn path(&self) -> PathBuf {
        path_of(&self.0)
    }
}

/// A name in an open directory, which need not be taken.
pub struct Place {
    pub parent: Directory,
    pub name: OsString,
}

impl Place {
    /// A path of it in which only the last component can be a symbolic link, as long as this lives.
    pub fn path(&self) -> PathBuf {
        self.parent.path().join(&self.name)
    }

    /// Of what has the name; of a symbolic link itself.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.parent.object(&self.name)?.metadata()
    }

    /// Gives the file that has this name a further one.
    pub fn link_as(&self, further: &Place) -> io::Result<()> {
        let none = AtFlags::empty();
        Ok(linkat(&self.parent.0, &*self.name, &further.parent.0, &*further.name, none)?)
    }

    /// Gives the file that has this name another one, unless that is taken.
    pub fn rename_new(&self, to: &Place) -> io::Result<()> {
        let (from, to) = ((&self.parent.0, &*self.name), (&to.parent.0, &*to.name));
        match renameat2(from.0, from.1, to.0, to.1, RenameFlags::RENAME_NOREPLACE) {
            // A file system that does not know the flag.
            Err(Errno::EINVAL) => Ok(renameat(from.0, from.1, to.0, to.1)?),
            renamed => Ok(renamed?),
        }
    }
}

/// Attributes as a file is to have them.
pub struct Attributes {
    pub uid: u32,
    pub gid: u32,
    /// `None` for a symbolic link, which has no mode of its own.
    pub mode: Option<u32>,
    /// With what happened when the value was read.
    pub xattrs: Vec<(CString, io::Result<Vec<u8>>)>,
    pub atime: TimeSpec,
    pub mtime: TimeSpec,
}

/// A file of any kind, by a descriptor of it.
pub struct Object(File);

impl From<File> for Object {
    fn from(file: File) -> Object {
        Object(file)
    }
}

impl Object {
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Sets them all; returns what failed. The order matters: a change of owner clears set-id bits and
    /// capabilities, an ACL holds the mode of the group, and every change updates times.
    pub fn set(&self, wanted: Attributes) -> Vec<String> {
        // The kernel resolves this to the open file itself, also to a symbolic link.
        let path = path_of(&self.0);
        let mut problems = Vec::new();
        let mut tell = |what: &str, outcome: io::Result<()>| {
            if let Err(error) = outcome {
                problems.push(format!("cannot set its {what}: {error}"));
            }
        };
        let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        let owned = fchownat(&self.0, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH);
        tell("owner", owned.map_err(Into::into));
        if let Some(mode) = wanted.mode {
            let mode = Mode::from_bits_truncate(mode);
            tell("mode", fchmodat(AT_FDCWD, &path, mode, FchmodatFlags::FollowSymlink).map_err(Into::into));
        }
        for (name, value) in wanted.xattrs {
            let set = value.and_then(|value| set_xattr(&path, &name, &value));
            tell(&format!("attribute {}", name.to_string_lossy()), set);
        }
        tell("times", self.set_times(&wanted.atime, &wanted.mtime));
        problems
    }

    pub fn set_times(&self, atime: &TimeSpec, mtime: &TimeSpec) -> io::Result<()> {
        Ok(utimensat(AT_FDCWD, &path_of(&self.0), atime, mtime, UtimensatFlags::FollowSymlink)?)
    }
}

fn set_xattr(path: &Path, name: &CString, value: &[u8]) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings end with NUL, and `value` has the length that is passed.
    let done = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(done).map(drop)?;
    Ok(())
}

fn path_of(descriptor: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn no_symbolic_link_is_followed_below_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        fs::create_dir_all(inside.join("d/below")).unwrap();
        fs::create_dir_all(outside.join("below")).unwrap();
        let root = Directory::open(&inside).unwrap();
        assert!(root.beneath(Path::new("d/below")).is_ok());
        assert!(root.beneath(Path::new("../outside")).is_err());
        symlink(&outside, inside.join("link")).unwrap();
        assert!(root.beneath(Path::new("link")).is_err());
        let error = root.place(Path::new("link/below")).err().expect("refused").to_string();
        assert!(error.contains("leads through a symbolic link"), "{error}");
        let link = root.place(Path::new("link")).unwrap();
        assert!(link.metadata().unwrap().is_symlink());
        let time = TimeSpec::new(5, 6);
        link.parent.object(&link.name).unwrap().set_times(&time, &time).unwrap();
        assert_eq!(fs::symlink_metadata(inside.join("link")).unwrap().mtime(), 5);
        assert_ne!(fs::metadata(&outside).unwrap().mtime(), 5);
        assert_eq!(
            root.place(Path::new("")).unwrap().metadata().unwrap().ino(),
            fs::metadata(&inside).unwrap().ino()
        );
    }
}
