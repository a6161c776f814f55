//! Makes and removes the directory of a run, in a process of its own: a call on a mount may hang.

use crate::limits;
use crate::pool::{self, TROUBLE};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Exit code if a new directory is seen through the other ones, but not at once.
pub const LATE: u8 = 3;

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Remove instead
    #[arg(long)]
    remove: bool,
    /// How many trees to make in it
    #[arg(long, default_value_t = 0)]
    trees: u32,
    /// The name of the directory
    name: String,
    /// The directories
    dirs: Vec<PathBuf>,
}

/// The result of [`make`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepared {
    /// It is done.
    Done,
    /// It is done, but was not seen everywhere at once.
    Late,
}

/// A new name.
pub fn fresh_name() -> String {
    format!("witness-{}-{}", std::process::id(), crate::clock::now_ns())
}

/// Makes a directory with trees in it.
pub fn make(name: &str, dirs: &[PathBuf], trees: u32) -> anyhow::Result<Prepared> {
    ask(name, dirs, &format!("--trees={trees}"))
}

/// Removes the directory.
pub fn remove(name: &str, dirs: &[PathBuf]) -> anyhow::Result<()> {
    ask(name, dirs, "--remove").map(drop)
}

/// Runs the hidden subcommand.
fn ask(name: &str, dirs: &[PathBuf], what: &str) -> anyhow::Result<Prepared> {
    let mut command = pool::this_program(&["prepare".to_owned(), what.to_owned(), name.to_owned()])?;
    command.arg("--").args(dirs).stdin(Stdio::null());
    let mut child = command.spawn().context("cannot start")?;
    match pool::wait(&mut child, limits::PREPARE_WAIT).map(|status| status.code()) {
        Some(Some(0)) => Ok(Prepared::Done),
        Some(Some(code)) if code == i32::from(LATE) => Ok(Prepared::Late),
        Some(_) => bail!("preparing failed"),
        None => {
            let _ = child.kill();
            let seconds = limits::PREPARE_WAIT.as_secs();
            bail!("making or removing the directory takes longer than {seconds} s")
        }
    }
}

/// The hidden subcommand.
pub fn prepare(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { remove, name, trees, dirs } = arguments;
    let first = dirs.first().context("no directory")?.join(name);
    if *remove {
        // Where one mount fails, another one may succeed.
        let mut removed = Ok(());
        for dir in dirs {
            let dir = dir.join(name);
            removed = std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string());
            if removed.is_ok() {
                break;
            }
        }
        return removed.map(|()| ExitCode::SUCCESS);
    }
    std::fs::create_dir(&first).with_context(|| first.display().to_string())?;
    for tree in 0..*trees {
        std::fs::create_dir(first.join(tree.to_string())).with_context(|| first.display().to_string())?;
    }
    let mut late = false;
    for dir in dirs {
        late |= appears(&dir.join(name))?;
    }
    Ok(if late { ExitCode::from(LATE) } else { ExitCode::SUCCESS })
}

/// Waits for a path, and returns whether it was not there at once.
fn appears(path: &Path) -> anyhow::Result<bool> {
    let began = Instant::now();
    let mut late = false;
    loop {
        match std::fs::symlink_metadata(path) {
            Ok(_) if late => {
                eprintln!("{} was there only after {:?}", path.display(), began.elapsed());
                return Ok(true);
            }
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => late = true,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
        if began.elapsed() > limits::SAME_VOLUME_WAIT {
            eprintln!("{} does not appear: are these directories the same volume?", path.display());
            std::process::exit(TROUBLE.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
