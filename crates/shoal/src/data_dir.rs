//! The data directory of a node: everything a node keeps, in one place.
//!
//! ```text
//! DATA/shoal.json    what this is: format version, volume, identity
//! DATA/lock          held (flock) by the process that uses the directory; its id inside
//! DATA/meta/         raft log and store of the metadata group's replica
//! DATA/brick/        blocks
//! DATA/control.sock  where the running process answers `shoal status`, `stats`, ...
//! DATA/shoal.log     its log when it runs in the background
//! ```
//!
//! **Promises.** One process at a time. `shoal.json` says `creating` until all parts exist for the first
//! time. A creation that was cut off is repeated, since nothing can have been stored yet; a complete
//! directory is never created over. Directories in the format of a newer Shoal, or with unrelated files, are
//! refused.

use crate::clock::since_1970;
use crate::limits::{MANIFEST_BYTES_MAX, VOLUME_NAME_BYTES_MAX};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use shoal_runtime::durable;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file that the process which uses a directory has locked.
pub const LOCK_FILE: &str = "lock";
/// Version of the directory's layout. Its parts have versions of their own.
const FORMAT: u32 = 1;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("there is no data directory {0}")]
    NotFound(PathBuf),
    #[error("{0} is not a data directory of Shoal: there is no shoal.json in it")]
    NotData(PathBuf),
    #[error("{path} has files of something else in it ({entry:?}): choose a new or empty directory")]
    Foreign { path: PathBuf, entry: std::ffi::OsString },
    #[error(
        "{path} is already in use by process {pid}; `shoal status` shows where it is mounted, `shoal umount` stops \
         it. If it is mounted nowhere, programs still use it after `umount --lazy`: end them, or `kill {pid}`"
    )]
    InUse { path: PathBuf, pid: String },
    #[error("{path} has format version {found}, this program knows version {FORMAT}: use a newer shoal")]
    Version { path: PathBuf, found: u64 },
    #[error("{path} was never completed: start it once with `shoal up`")]
    Incomplete { path: PathBuf },
    #[error("{path} is damaged: {what}")]
    Damaged { path: PathBuf, what: String },
    #[error(
        "{what:?} cannot name a volume: use 1 to {VOLUME_NAME_BYTES_MAX} letters, digits, '-', '_' and '.', beginning with a letter or digit"
    )]
    BadName { what: String },
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
}

/// What `shoal.json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    state: Completeness,
    /// Name of the volume.
    pub volume: String,
    /// Identity of the volume, 32 hexadecimal digits.
    pub id: String,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Completeness {
    Creating,
    Ready,
}

/// A data directory that this process holds locked until it drops this.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// What it is.
    pub manifest: Manifest,
    _lock: Flock<File>,
}

impl DataDir {
    /// Locks an existing directory.
    pub fn open(path: &Path) -> Result<DataDir, DataError> {
        let path = canonical(path)?;
        if !path.join("shoal.json").exists() {
            return Err(DataError::NotData(path));
        }
        let lock = lock(&path)?;
        let manifest = read_manifest(&path)?;
        if manifest.state != Completeness::Ready {
            return Err(DataError::Incomplete { path });
        }
        Ok(DataDir { path, manifest, _lock: lock })
    }

    /// Locks an existing directory, or makes a new one if `path` is empty or does not exist. A new one is
    /// complete after [`finish`](Self::finish).
    pub fn open_or_create(path: &Path, volume: &str) -> Result<DataDir, DataError> {
        if !is_volume_name(volume) {
            return Err(DataError::BadName { what: volume.to_owned() });
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|cause| DataError::Io { path: path.to_owned(), cause })?;
        let path = canonical(path)?;
        if !path.join("shoal.json").exists() {
            check_is_empty(&path)?;
        }
        let lock = lock(&path)?;
        let closed = close_to_others(&path);
        let manifest = match read_manifest(&path) {
            Err(DataError::NotData(_)) => {
                let now = since_1970().as_secs();
                let state = Completeness::Creating;
                Manifest {
                    format: FORMAT,
                    state,
                    volume: volume.to_owned(),
                    id: random_id(&path)?,
                    created_unix_s: now,
                }
            }
            other => other?,
        };
        let data = DataDir { path, manifest, _lock: lock };
        if let (Err(error), false) = (&closed, data.is_new()) {
            tracing::warn!(path = %data.path.display(), %error, "other users may read the data directory");
        }
        if data.is_new() {
            closed.map_err(|cause| DataError::Io { path: data.path.clone(), cause })?;
            data.write_manifest()?;
            for part in [data.meta(), data.brick()] {
                match std::fs::remove_dir_all(&part) {
                    Err(cause) if cause.kind() != ErrorKind::NotFound => {
                        return Err(DataError::Io { path: part, cause });
                    }
                    _ => {}
                }
            }
        }
        Ok(data)
    }

    /// Whether the parts are yet to be made.
    pub fn is_new(&self) -> bool {
        self.manifest.state == Completeness::Creating
    }

    /// All parts exist and are durable.
    pub fn finish(&mut self) -> Result<(), DataError> {
        self.manifest.state = Completeness::Ready;
        self.write_manifest()
    }

    /// The directory, absolute and without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata group's part.
    pub fn meta(&self) -> PathBuf {
        self.path.join("meta")
    }

    /// The brick's part.
    pub fn brick(&self) -> PathBuf {
        self.path.join("brick")
    }

    /// Writes `shoal.json` so that a crash leaves either the old one or the new one.
    fn write_manifest(&self) -> Result<(), DataError> {
        let written = || {
            let mut text = serde_json::to_vec_pretty(&self.manifest)?;
            text.push(b'\n');
            durable::replace(&self.path, "shoal.json", &text, 0o666)?;
            self.path.parent().map_or(Ok(()), durable::sync_dir)
        };
        written().map_err(|cause| DataError::Io { path: self.path.join("shoal.json"), cause })
    }
}

/// Reads the manifest of a data directory without locking it.
pub fn read_manifest(path: &Path) -> Result<Manifest, DataError> {
    let file = path.join("shoal.json");
    let text = read_whole(&file, MANIFEST_BYTES_MAX).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => DataError::NotData(path.to_owned()),
        _ => DataError::Io { path: file.clone(), cause },
    })?;
    let damaged =
        |error: serde_json::Error| DataError::Damaged { path: file.clone(), what: error.to_string() };
    // The version first: a newer format may look different in everything else.
    let value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(found) if found == u64::from(FORMAT) => serde_json::from_value(value).map_err(damaged),
        Some(found) => Err(DataError::Version { path: file, found }),
        None => Err(DataError::Damaged { path: file, what: "there is no format version in it".into() }),
    }
}

/// Reads a file of at most `bytes_max` bytes.
pub fn read_whole(file: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is longer than {bytes_max} bytes, which no shoal has written"),
        ));
    }
    Ok(text)
}

/// The process that holds the directory's lock, if any.
pub fn user_of(path: &Path) -> Option<String> {
    let file = File::open(path.join(LOCK_FILE)).ok()?;
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Err((file, nix::errno::Errno::EWOULDBLOCK)) => Some(pid_in(&file)),
        _ => None,
    }
}

fn canonical(path: &Path) -> Result<PathBuf, DataError> {
    path.canonicalize().map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => DataError::NotFound(path.to_owned()),
        _ => DataError::Io { path: path.to_owned(), cause },
    })
}

/// Takes a directory away from all users but its owner: an administrator may have made it, or it is the root
/// of a file system. The metadata in it has the content of small files, and a cluster's keys.
pub fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => std::fs::set_permissions(path, Permissions::from_mode(mode & 0o700)),
    }
}

/// Locks a directory for this process, or says which process holds it.
pub fn lock(path: &Path) -> Result<Flock<File>, DataError> {
    let name = path.join(LOCK_FILE);
    let io = |cause| DataError::Io { path: name.clone(), cause };
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&name);
    let file = opened.map_err(io)?;
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => file,
        Err((file, nix::errno::Errno::EWOULDBLOCK)) => {
            return Err(DataError::InUse { path: path.to_owned(), pid: pid_in(&file) });
        }
        Err((_, errno)) => return Err(io(errno.into())),
    };
    // For people and `shoal umount`; the flock itself is what counts.
    file.set_len(0)
        .and_then(|()| file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0))
        .map_err(io)?;
    Ok(file)
}

/// The process id in a lock file. A process that has just locked it may not have written its id yet.
fn pid_in(file: &File) -> String {
    let mut text = [0; 16];
    let len = file.read_at(&mut text, 0).unwrap_or(0);
    let pid = text.get(..len).map(String::from_utf8_lossy).unwrap_or_default().trim().to_owned();
    if pid.is_empty() { "(unknown)".into() } else { pid }
}

/// A new data directory must be empty, except for `lost+found`, which the root of a fresh file system has,
/// and for the remains of an earlier attempt.
fn check_is_empty(path: &Path) -> Result<(), DataError> {
    let io = |cause| DataError::Io { path: path.to_owned(), cause };
    for entry in std::fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let known = ["lost+found", LOCK_FILE, "shoal.json.new", "shoal.log", "shoal.log.1"];
        if !known.iter().any(|known| name == *known) {
            return Err(DataError::Foreign { path: path.to_owned(), entry: name });
        }
    }
    Ok(())
}

fn is_volume_name(name: &str) -> bool {
    name.len() <= VOLUME_NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn random_id(path: &Path) -> Result<String, DataError> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|cause| DataError::Io { path: path.to_owned(), cause })?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_is_created_once_and_then_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/data");
        assert!(matches!(DataDir::open(&path), Err(DataError::NotFound(_))));
        let mut data = DataDir::open_or_create(&path, "vol").unwrap();
        assert!(data.is_new());
        data.finish().unwrap();
        let id = data.manifest.id.clone();
        drop(data);
        let data = DataDir::open_or_create(&path, "other").unwrap();
        assert!(!data.is_new());
        assert_eq!((data.manifest.volume.as_str(), &data.manifest.id), ("vol", &id));
    }

    #[test]
    fn existing_directory_is_closed_to_other_users() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        DataDir::open_or_create(dir.path(), "vol").unwrap();
        assert_eq!(std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_creation_that_was_cut_off_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open_or_create(dir.path(), "vol").unwrap();
        std::fs::create_dir(data.brick()).unwrap();
        std::fs::write(data.brick().join("half"), "").unwrap();
        drop(data);
        assert!(matches!(DataDir::open(dir.path()), Err(DataError::Incomplete { .. })));
        let data = DataDir::open_or_create(dir.path(), "vol").unwrap();
        assert!(data.is_new() && !data.brick().exists());
    }

    #[test]
    fn the_second_user_of_a_directory_hears_who_is_the_first() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(user_of(dir.path()), None);
        let mut data = DataDir::open_or_create(dir.path(), "vol").unwrap();
        data.finish().unwrap();
        let us = std::process::id().to_string();
        match DataDir::open(dir.path()) {
            Err(DataError::InUse { pid, .. }) => assert_eq!(pid, us),
            other => panic!("{other:?}"),
        }
        assert_eq!(user_of(dir.path()), Some(us));
        drop(data);
        assert_eq!(user_of(dir.path()), None);
    }

    #[test]
    fn directories_of_others_and_of_newer_versions_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.tex"), "").unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(DataError::NotData(_))));
        assert!(matches!(DataDir::open_or_create(dir.path(), "vol"), Err(DataError::Foreign { .. })));
        std::fs::write(dir.path().join("shoal.json"), r#"{"format": 2, "cells": []}"#).unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(DataError::Version { found: 2, .. })));
        for junk in ["", "[]", "{}", r#"{"format": 1}"#] {
            std::fs::write(dir.path().join("shoal.json"), junk).unwrap();
            assert!(matches!(DataDir::open(dir.path()), Err(DataError::Damaged { .. })), "{junk}");
        }
        let long = " ".repeat(MANIFEST_BYTES_MAX as usize + 1);
        std::fs::write(dir.path().join("shoal.json"), long).unwrap();
        assert!(
            DataDir::open(dir.path()).is_err_and(|error| error.to_string().contains("longer than 65536"))
        );
        for name in ["", "a b", "-x", "ä", "a/b", &"x".repeat(64)] {
            assert!(matches!(DataDir::open_or_create(dir.path(), name), Err(DataError::BadName { .. })));
        }
    }
}
