//! The program's log. `SHOAL_LOG` sets its level, in the syntax of `tracing` (`info`, `debug`,
//! `shoal_client=trace`).
//!
//! In the foreground it goes to standard error, in the background to `DATA/shoal.log`. That file is bounded:
//! at a named size it becomes `shoal.log.1`.

use crate::limits::LOG_BYTES_MAX;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Logs to standard error, at `level` unless `SHOAL_LOG` sets another one.
pub fn to_stderr(level: &str) {
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .with_ansi(colours)
        .with_target(false)
        .with_writer(io::stderr)
        .init();
}

/// Logs to a file, at `level` unless `SHOAL_LOG` sets another one.
pub fn to_file(path: &Path, level: &str) -> io::Result<()> {
    let writer = Rotating::open(path)?;
    tracing_subscriber::fmt().with_env_filter(filter(level)).with_ansi(false).with_writer(writer).init();
    Ok(())
}

/// The log file of a data directory.
pub fn path(data: &Path) -> PathBuf {
    data.join("shoal.log")
}

/// The log file of a process whose directory is `data`: in there, or `elsewhere`. Then a symbolic link in the
/// usual place leads to it, so that the log is found where every command says it is.
pub fn place(data: &Path, elsewhere: Option<&Path>) -> io::Result<PathBuf> {
    let usual = path(data);
    match usual.symlink_metadata() {
        Ok(found) if found.is_symlink() => std::fs::remove_file(&usual)?,
        Ok(_) if elsewhere.is_some() => std::fs::rename(&usual, old(&usual))?,
        _ => {}
    }
    let Some(file) = elsewhere else { return Ok(usual) };
    std::os::unix::fs::symlink(file, &usual)?;
    Ok(file.to_owned())
}

/// The name of a full log.
pub fn old(log: &Path) -> PathBuf {
    let mut old = log.to_owned().into_os_string();
    old.push(".1");
    old.into()
}

/// A panic may leave state half changed on which other threads rely; a file system that continues with it
/// loses data. So the process aborts, and recovers by a restart.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!("{panic}; ending the process, nothing that was synced is lost");
        report(panic);
        std::process::abort();
    }));
}

fn filter(default: &str) -> EnvFilter {
    match std::env::var("SHOAL_LOG") {
        Ok(wish) => EnvFilter::try_new(&wish).unwrap_or_else(|error| {
            eprintln!("shoal: SHOAL_LOG={wish}: {error}; logging '{default}'");
            EnvFilter::new(default)
        }),
        Err(_) => EnvFilter::new(default),
    }
}

/// A log file that starts anew when it is full.
#[derive(Clone)]
struct Rotating(Arc<Mutex<Open>>);

struct Open {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl Rotating {
    fn open(path: &Path) -> io::Result<Rotating> {
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Rotating(Arc::new(Mutex::new(Open {
            path: path.to_owned(),
            file,
            bytes,
            bytes_max: LOG_BYTES_MAX,
        }))))
    }
}

impl Open {
    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, old(&self.path))?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

impl Write for Rotating {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut open = self.0.lock();
        if open.bytes + text.len() as u64 > open.bytes_max {
            open.rotate()?;
        }
        open.file.write_all(text)?;
        open.bytes += text.len() as u64;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Rotating {
    type Writer = Rotating;
    fn make_writer(&'a self) -> Rotating {
        self.clone()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_elsewhere_leaves_a_link_in_the_usual_place_and_keeps_the_old_log() {
        let dir = tempfile::tempdir().unwrap();
        let (usual, elsewhere) = (path(dir.path()), dir.path().join("web.log"));
        assert_eq!(place(dir.path(), None).unwrap(), usual);
        std::fs::write(&usual, "before").unwrap();
        for _ in 0..2 {
            assert_eq!(place(dir.path(), Some(&elsewhere)).unwrap(), elsewhere);
            std::fs::write(&elsewhere, "elsewhere").unwrap();
            assert_eq!(std::fs::read_to_string(&usual).unwrap(), "elsewhere");
        }
        assert_eq!(std::fs::read_to_string(old(&usual)).unwrap(), "before");
        assert_eq!(place(dir.path(), None).unwrap(), usual);
        std::fs::write(&usual, "again").unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "elsewhere");
    }

    #[test]
    fn a_full_log_becomes_the_old_one_and_there_are_never_more_than_two() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::open(&dir.path().join("log")).unwrap();
        log.0.lock().bytes_max = 100;
        for n in 0..100 {
            writeln!(log, "line {n}").unwrap();
        }
        let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap()).collect();
        files.sort_by_key(|entry| entry.file_name());
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|file| file.metadata().unwrap().len() <= 100));
        assert!(std::fs::read_to_string(dir.path().join("log")).unwrap().ends_with("line 99\n"));
    }
}
