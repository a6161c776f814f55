//! Volumes as directories below one directory of a Shoal volume, each with a record.
//!
//! ```text
//! BASE/pvc-1                             what pods see
//! BASE/.shoal-csi/volumes/pvc-1.json     its record
//! BASE/.pvc-1.new                        what has no mode yet
//! BASE/.shoal-csi/deleted/pvc-1-N        what is being deleted
//! ```
//!
//! A record is written before its directory is made and removed after the directory is out of the way, so a
//! call that is repeated after a crash finishes the work. A directory without a record is an administrator's:
//! it is neither handed out nor deleted.

use crate::limits::RECORD_BYTES_MAX;
use anyhow::{Context, anyhow, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The directory of the records.
const OWN: &str = ".shoal-csi";

/// The version of a record's format.
const RECORD_VERSION: u32 = 1;

/// What is known of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// The name by which it was created.
    pub name: String,
    /// Its capacity in bytes, 0 if none was given.
    pub capacity_bytes: i64,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
}

/// Why a volume cannot be created.
#[derive(Debug)]
pub enum CreateError {
    /// Something else is there.
    Taken(String),
    /// The file system failed.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for CreateError {
    fn from(error: anyhow::Error) -> CreateError {
        CreateError::Failed(error)
    }
}

/// The volumes below a directory.
pub struct Directories {
    base: PathBuf,
}

impl Directories {
    /// Opens a directory of volumes, and makes what is missing of it.
    pub fn open(base: PathBuf) -> anyhow::Result<Directories> {
        let directories = Directories { base };
        for part in ["volumes", "deleted"] {
            let dir = directories.base.join(OWN).join(part);
            DirBuilder::new().recursive(true).create(&dir).with_context(|| dir.display().to_string())?;
        }
        let own = directories.base.join(OWN);
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700))
            .with_context(|| own.display().to_string())?;
        Ok(directories)
    }

    fn records(&self) -> PathBuf {
        self.base.join(OWN).join("volumes")
    }

    fn record_of(&self, directory: &str) -> PathBuf {
        self.records().join(format!("{directory}.json"))
    }

    /// The record of a volume, if the driver has made it.
    pub fn get(&self, directory: &str) -> anyhow::Result<Option<Record>> {
        let path = self.record_of(directory);
        let shown = || format!("the record {}", path.display());
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.with_context(shown)?,
        };
        let mut text = String::new();
        file.take(RECORD_BYTES_MAX).read_to_string(&mut text).with_context(shown)?;
        let record: Record = serde_json::from_str(&text).with_context(shown)?;
        ensure!(
            record.version == RECORD_VERSION,
            "{} has version {}, and this program reads {RECORD_VERSION}: use a newer shoal",
            shown(),
            record.version
        );
        Ok(Some(record))
    }

    /// Makes a volume, or finishes making it. Returns its record, which may be an earlier one.
    pub fn create(
        &self,
        directory: &str,
        name: &str,
        capacity_bytes: i64,
        mode: u32,
    ) -> Result<Record, CreateError> {
        let path = self.base.join(directory);
        let record = match self.get(directory)? {
            Some(record) if record.name == name => record,
            Some(record) => {
                return Err(CreateError::Taken(format!(
                    "the volume '{}' has the directory {directory}",
                    record.name
                )));
            }
            None => {
                if path.symlink_metadata().is_ok() {
                    return Err(CreateError::Taken(format!(
                        "there is a directory {directory} that the driver has not made: use another name, or move it away"
                    )));
                }
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let created_unix_s = now.as_secs();
                let record =
                    Record { version: RECORD_VERSION, name: name.to_owned(), capacity_bytes, created_unix_s };
                self.store(directory, &record)?;
                record
            }
        };
        if path.symlink_metadata().is_err() {
            self.make(directory, &path, mode).with_context(|| path.display().to_string())?;
        }
        sync(&path)?;
        sync(&self.base)?;
        Ok(record)
    }

    /// Makes the directory of a volume, which gets its name when it has its mode.
    fn make(&self, directory: &str, path: &Path, mode: u32) -> io::Result<()> {
        // No volume's name begins with a dot. It gets the group and the default ACL of its place.
        let new = self.base.join(format!(".{directory}.new"));
        match fs::create_dir(&new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // Not the mode of mkdir(2), which the umask reduces.
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, path)
    }

    /// Writes a record in one step.
    fn store(&self, directory: &str, record: &Record) -> anyhow::Result<()> {
        let (path, new) = (self.record_of(directory), self.records().join(format!(".{directory}.new")));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(record)?)?;
            file.sync_all()
        });
        written
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("the record {}", path.display()))?;
        sync(&self.records())
    }

    /// Records a greater capacity; returns the capacity then. `None` if there is no such volume.
    pub fn expand(&self, directory: &str, capacity_bytes: i64) -> anyhow::Result<Option<i64>> {
        let Some(mut record) = self.get(directory)? else { return Ok(None) };
        if record.capacity_bytes < capacity_bytes {
            record.capacity_bytes = capacity_bytes;
            self.store(directory, &record)?;
        }
        Ok(Some(record.capacity_bytes))
    }

    /// Takes a volume away. Its contents are left to [`sweep`](Self::sweep).
    pub fn delete(&self, directory: &str) -> anyhow::Result<()> {
        if self.get(directory)?.is_none() {
            return Ok(());
        }
        let path = self.base.join(directory);
        let trash = self.base.join(OWN).join("deleted");
        for attempt in 0.. {
            match fs::rename(&path, trash.join(format!("{directory}-{attempt}"))) {
                // An earlier call has come as far.
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                // A volume of this name is already being deleted.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                renamed => {
                    renamed.with_context(|| path.display().to_string())?;
                    break;
                }
            }
        }
        sync(&self.base)?;
        let record = self.record_of(directory);
        fs::remove_file(&record).with_context(|| record.display().to_string())?;
        sync(&self.records())
    }

    /// Removes the contents of deleted volumes, also those that an ended process has left.
    pub fn sweep(&self) -> anyhow::Result<()> {
        let trash = self.base.join(OWN).join("deleted");
        let mut outcome = Ok(());
        for entry in fs::read_dir(&trash).with_context(|| trash.display().to_string())? {
            let path = entry?.path();
            match fs::remove_dir_all(&path) {
                // The others are removed all the same.
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    outcome = outcome.and(Err(anyhow!(error).context(path.display().to_string())));
                }
                _ => {}
            }
        }
        outcome
    }

    /// The directories of all volumes, in order.
    pub fn list(&self) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.records()).with_context(|| self.records().display().to_string())? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".json"));
            names.extend(name.map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Makes what was changed in a directory durable.
fn sync(dir: &Path) -> anyhow::Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| format!("syncing {}", dir.display()))
}
