//! The kernel tree of the published reports: exactly 17,477 files, made from Debian's `linux-source-6.1`.

use crate::limits::KERNEL_FILES;
use anyhow::{Context, ensure};
use shoal_suites::programs::bash;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The source archive of Debian's package.
const SOURCE: &str = "/usr/src/linux-source-6.1.tar.xz";
/// Directories that are taken whole; `tools` fills up to the number. Together about 1,100 directories, 210
/// MB.
const FOLDERS: &str = "LICENSES block certs crypto fs include init io_uring ipc kernel lib mm net rust samples scripts \
    security sound usr virt tools";

/// Directory of files that are kept between runs.
pub fn cache_dir() -> anyhow::Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(cache.join("shoal"))
}

/// The uncompressed archive; made on first use.
pub fn kernel_tar() -> anyhow::Result<PathBuf> {
    let cache = cache_dir()?;
    let archive = cache.join(format!("kernel-{KERNEL_FILES}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    ensure!(
        Path::new(SOURCE).exists(),
        "{SOURCE} is missing: run `scripts/setup bench`, or apt-get install linux-source-6.1"
    );
    eprintln!("making {} (once)", archive.display());
    let work = tempfile::tempdir_in(&cache)?;
    bash(
        work.path(),
        &format!("for f in {FOLDERS}; do set -- \"$@\" linux-source-6.1/$f; done; tar xf {SOURCE} \"$@\""),
    )?;
    let names = choose(&work.path().join("linux-source-6.1"))?;
    fs::write(work.path().join("names"), names.join("\n"))?;
    bash(work.path(), "tar --no-recursion -cf archive.tar -C linux-source-6.1 -T names")?;
    fs::rename(work.path().join("archive.tar"), &archive)?;
    Ok(archive)
}

/// Chooses the files, folder by folder in order of name, and the directories they are in.
fn choose(source: &Path) -> anyhow::Result<Vec<String>> {
    let (mut files, mut chosen) = (0, BTreeSet::new());
    for folder in FOLDERS.split_whitespace() {
        let mut found = Vec::new();
        regular_files(source, Path::new(folder), &mut found)?;
        found.sort();
        for path in found.into_iter().take(KERNEL_FILES - files) {
            files += 1;
            for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
                chosen.insert(part.to_string_lossy().into_owned());
            }
        }
    }
    ensure!(files == KERNEL_FILES, "{SOURCE} has only {files} files in the folders that are used");
    Ok(chosen.into_iter().collect())
}

fn regular_files(top: &Path, below: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(top.join(below))? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, below.join(entry.file_name()));
        if kind.is_dir() {
            regular_files(top, &path, found)?;
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}
