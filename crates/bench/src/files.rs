//! Small files that several threads write and read, each in directories of its own.

use anyhow::{Context, anyhow, bail};
use shoal_suites::limits::FILES_PER_DIR;
use shoal_suites::sandbox::sync;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

/// Files of one length below a directory.
pub struct Files {
    /// The directory.
    pub top: PathBuf,
    /// How many there are: a multiple of the threads.
    pub count: usize,
    /// The length of each, in bytes.
    pub bytes: usize,
    /// Threads that write and read them.
    pub threads: usize,
}

impl Files {
    /// Writes all of them, until they are on disk. Answers the files per second.
    pub fn write(&self) -> anyhow::Result<f64> {
        let content = vec![b't'; self.bytes];
        self.each(|path| {
            if let Some(dir) = path.parent().filter(|dir| !dir.exists()) {
                fs::create_dir_all(dir)?;
            }
            fs::write(path, &content).with_context(|| path.display().to_string())
        })
    }

    /// Reads all of them. Answers the files per second.
    pub fn read(&self) -> anyhow::Result<f64> {
        self.each(|path| {
            let content = fs::read(path).with_context(|| path.display().to_string())?;
            if content.len() == self.bytes { Ok(()) } else { bail!("{} is short", path.display()) }
        })
    }

    fn each(&self, work: impl Fn(&Path) -> anyhow::Result<()> + Sync) -> anyhow::Result<f64> {
        let work = &work;
        fs::create_dir_all(&self.top)?;
        let begun = Instant::now();
        thread::scope(|scope| -> anyhow::Result<()> {
            let one = |thread: usize| {
                let top = self.top.join(format!("thread-{thread}"));
                let path = move |n: usize| top.join(format!("dir-{}/file-{n}", n / FILES_PER_DIR));
                scope.spawn(move || (0..self.count / self.threads).try_for_each(|n| work(&path(n))))
            };
            let threads: Vec<_> = (0..self.threads).map(one).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked"))))
        })?;
        sync(&self.top)?;
        Ok(self.count as f64 / begun.elapsed().as_secs_f64())
    }
}
