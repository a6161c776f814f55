//! Owner, mode, extended attributes and times of an imported file.

use super::candidates::{Candidate, Time};
use super::xattr;
use crate::place::{Attributes, Object};
use nix::sys::time::TimeSpec;
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

/// Sets them all; returns what failed.
pub fn set(source: &Candidate, target: &Object, mtime: Time) -> Vec<String> {
    let value = |name| xattr::get(&source.path, name).transpose();
    let xattrs = source.copied_xattrs().filter_map(|name| Some((name.clone(), value(name)?))).collect();
    target.set(Attributes {
        uid: source.stat.uid(),
        gid: source.stat.gid(),
        mode: (!source.stat.is_symlink()).then(|| source.mode()),
        xattrs,
        atime: timespec(source.atime),
        mtime: timespec(mtime),
    })
}

pub fn timespec((seconds, nanos): Time) -> TimeSpec {
    TimeSpec::new(seconds, nanos)
}
