//! Owner, mode, extended attributes and times of an imported file.

use super::candidates::{Candidate, Time};
use super::xattr;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmodat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The extended attributes, ACLs among them, that a file of an earlier import lacks or has otherwise.
pub fn differing(source: &Candidate, target: &Path) -> io::Result<Vec<String>> {
    let mut differing = Vec::new();
    for name in source.copied_xattrs() {
        if xattr::get(&source.path, name)? != xattr::get(target, name)? {
            differing.push(format!("its attribute {} in the target differs", name.to_string_lossy()));
        }
    }
    Ok(differing)
}

/// Sets them all; returns what failed. The order matters: a change of owner clears set-id bits and
/// capabilities, an ACL holds the mode of the group, and every change updates times.
pub fn set(source: &Candidate, target: &Path, mtime: Time) -> Vec<String> {
    let mut problems = Vec::new();
    let mut tell = |what: &str, outcome: io::Result<()>| {
        if let Err(error) = outcome {
            problems.push(format!("cannot set its {what}: {error}"));
        }
    };
    let (uid, gid) = (Uid::from_raw(source.stat.uid()), Gid::from_raw(source.stat.gid()));
    let own = fchownat(AT_FDCWD, target, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW);
    tell("owner", own.map_err(Into::into));
    if !source.stat.is_symlink() {
        let mode = Mode::from_bits_truncate(source.mode());
        let set = fchmodat(AT_FDCWD, target, mode, FchmodatFlags::FollowSymlink);
        tell("mode", set.map_err(Into::into));
    }
    for name in source.copied_xattrs() {
        let copied = xattr::get(&source.path, name)
            .and_then(|value| value.map_or(Ok(()), |value| xattr::set(target, name, &value)));
        tell(&format!("attribute {}", name.to_string_lossy()), copied);
    }
    let time = |(seconds, nanos): Time| TimeSpec::new(seconds, nanos);
    let (atime, mtime) = (time(source.atime), time(mtime));
    let set = utimensat(AT_FDCWD, target, &atime, &mtime, UtimensatFlags::NoFollowSymlink);
    tell("times", set.map_err(Into::into));
    problems
}
