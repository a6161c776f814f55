//! The bricks of one volume, and to what replica set each belongs.

use super::arbiter::{self, Files};
use super::{at, xattr};
use crate::place::Directory;
use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// GlusterFS's id of a root directory.
const ROOT_GFID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// First and last hash of the names that a replica set holds.
type Range = (u32, u32);

pub struct Brick {
    pub path: PathBuf,
    /// Bricks with the same number are replicas of each other.
    pub set: usize,
    /// It is an arbiter's: its regular files are empty, whatever the file's content is.
    pub is_arbiter: bool,
}

/// Bricks of a volume.
pub struct Bricks {
    pub bricks: Vec<Brick>,
    /// Others are imported elsewhere: what is on none of these is there.
    pub is_part: bool,
    /// It is a tree of files of any file system, in which GlusterFS keeps nothing for itself.
    pub is_plain: bool,
    /// The root of such a tree, in which users may work meanwhile.
    live: Option<Directory>,
}

impl Bricks {
    /// A directory of any file system, in the place of bricks.
    pub fn plain(path: PathBuf) -> io::Result<Bricks> {
        let live = Some(Directory::open(&path).map_err(|error| at(&path, error))?);
        let bricks = vec![Brick { path, set: 0, is_arbiter: false }];
        Ok(Bricks { bricks, is_part: false, is_plain: true, live })
    }

    /// A path of a brick's directory. In a live tree no symbolic link leads elsewhere, while the descriptor
    /// that comes with it is open.
    pub fn directory(&self, brick: &Brick, relative: &Path) -> io::Result<(PathBuf, Option<Directory>)> {
        let Some(live) = &self.live else { return Ok((brick.path.join(relative), None)) };
        let directory = live.beneath(relative)?;
        Ok((directory.path(), Some(directory)))
    }

    /// Fails if a file of a live tree was found through a symbolic link, or was replaced meanwhile.
    pub fn check_found(&self, relative: &Path, found: &Metadata) -> io::Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let stat = live.place(relative)?.metadata()?;
        match (stat.dev(), stat.ino()) == (found.dev(), found.ino()) {
            true => Ok(()),
            false => Err(io::Error::other("another file has this name meanwhile")),
        }
    }

    /// Opens bricks, of each replica set at least one unless they are a part of the volume. Those of `empty`
    /// are no arbiter's, although all of their files are empty.
    pub fn open(paths: &[PathBuf], empty: &[PathBuf], is_part: bool) -> anyhow::Result<Bricks> {
        let mut volume: Option<(Vec<u8>, PathBuf)> = None;
        let mut found: Vec<(PathBuf, Option<Range>)> = Vec::new();
        for path in paths {
            let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
            if found.iter().any(|(known, _)| *known == path) {
                bail!("{} is given twice", path.display());
            }
            check_is_brick(&path)?;
            if let Some(id) =
                xattr::get(&path, c"trusted.glusterfs.volume-id").map_err(|error| at(&path, error))?
            {
                match &volume {
                    Some((known, other)) if *known != id => {
                        bail!("{} and {} are of different volumes", other.display(), path.display())
                    }
                    _ => volume = Some((id, path.clone())),
                }
            }
            let layout = xattr::get(&path, c"trusted.glusterfs.dht").map_err(|error| at(&path, error))?;
            found.push((path, layout.as_deref().and_then(range)));
        }
        let mut ranges: BTreeMap<Option<Range>, usize> = BTreeMap::new();
        for (_, range) in &found {
            ranges.entry(*range).or_default();
        }
        if !is_part {
            check_complete(&found, &ranges)?;
        }
        ranges.values_mut().enumerate().for_each(|(number, set)| *set = number);
        let brick = |(path, range)| Brick { path, set: ranges[&range], is_arbiter: false };
        let mut bricks: Vec<Brick> = found.into_iter().map(brick).collect();
        mark_arbiters(&mut bricks, empty)?;
        Ok(Bricks { bricks, is_part, is_plain: false, live: None })
    }

    /// Fails if a process serves one of the bricks.
    pub fn check_unused(&self) -> Result<(), String> {
        self.bricks.iter().try_for_each(|brick| check_unused(&brick.path))
    }

    /// Keeps other imports from changing these bricks.
    pub fn lock(&self) -> anyhow::Result<Vec<Flock<File>>> {
        let lock = |brick: &Brick| {
            let directory = File::open(&brick.path).with_context(|| brick.path.display().to_string())?;
            Flock::lock(directory, FlockArg::LockExclusiveNonblock)
                .map_err(|_| anyhow::anyhow!("another import moves {}", brick.path.display()))
        };
        self.bricks.iter().map(lock).collect()
    }

    /// The bricks that have the content of their files.
    pub fn with_content(&self) -> impl Iterator<Item = &Brick> {
        self.bricks.iter().filter(|brick| !brick.is_arbiter)
    }

    /// How many replica sets there are: a file is in one of them.
    pub fn sets(&self) -> usize {
        self.bricks.iter().map(|brick| brick.set + 1).max().unwrap_or(0)
    }
}

fn range(layout: &[u8]) -> Option<Range> {
    let number = |at: usize| Some(u32::from_be_bytes(layout.get(at..at + 4)?.try_into().ok()?));
    let range = (number(8)?, number(12)?);
    (range != (0, 0)).then_some(range)
}

/// Finds out which bricks are arbiters'. Fails if a replica set has no other one.
fn mark_arbiters(bricks: &mut [Brick], empty: &[PathBuf]) -> anyhow::Result<()> {
    let mut said = Vec::new();
    for path in empty {
        let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        if bricks.iter().all(|brick| brick.path != path) {
            bail!("--empty {}: it is none of the bricks that are given", path.display());
        }
        said.push(path);
    }
    let mut files = Vec::new();
    for brick in bricks.iter() {
        files.push(match said.contains(&brick.path) {
            true => Files::WithContent,
            false => arbiter::files_of(&brick.path)?,
        });
    }
    let sets_with_content: BTreeSet<usize> = bricks
        .iter()
        .zip(&files)
        .filter(|(_, files)| **files == Files::WithContent)
        .map(|(b, _)| b.set)
        .collect();
    for (brick, files) in bricks.iter_mut().zip(files) {
        let Files::Empty(count) = files else { continue };
        if !sets_with_content.contains(&brick.set) {
            let shown = brick.path.display();
            bail!(
                "{shown} looks like an arbiter's brick, which stores no content: each of its {count} files \
                 is empty. Leave it out, and give a data brick of its replica set here or, with --part, \
                 elsewhere (gluster volume info NAME marks the arbiters). If its files are empty indeed, \
                 say --empty {shown}"
            );
        }
        brick.is_arbiter = true;
    }
    Ok(())
}

fn check_is_brick(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let names = xattr::names(path).map_err(|error| at(path, error))?;
    if names.iter().any(|name| name.as_bytes().starts_with(b"trusted.ec.")) {
        bail!(
            "{shown} is a brick of a dispersed volume, in which no brick has a whole file. \
             Mount the volume with GlusterFS and copy through the mount: \
             rsync -aHAX --sparse /mnt/old/ /mnt/new/"
        );
    }
    let gfid = xattr::get(path, c"trusted.gfid").map_err(|error| at(path, error))?;
    if gfid.as_deref() != Some(&ROOT_GFID) {
        bail!(
            "{shown} is no brick of GlusterFS: its attribute trusted.gfid is not that of a root directory \
             (only root can read it)"
        );
    }
    check_unused(path).map_err(anyhow::Error::msg)
}

fn check_unused(path: &Path) -> Result<(), String> {
    match server_of(path) {
        None => Ok(()),
        Some(process) => Err(format!(
            "process {process} serves {}: stop the volume first (gluster volume stop NAME)",
            path.display()
        )),
    }
}

/// The process that serves a brick on this machine: it was started for it, or has files of it open, as one
/// that serves several bricks.
fn server_of(path: &Path) -> Option<String> {
    let is_brick = |name: &[u8]| {
        let name = Path::new(OsStr::from_bytes(name));
        name == path || fs::canonicalize(name).is_ok_and(|name| name == path)
    };
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        if !words.first().is_some_and(|word| word.ends_with(b"glusterfsd")) {
            continue;
        }
        let is_named = words.windows(2).any(|two| two[0] == b"--brick-name" && is_brick(two[1]));
        let open = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let mut targets = open.filter_map(|open| fs::read_link(open.path()).ok());
        if is_named || targets.any(|target| target.starts_with(path)) {
            return Some(entry.file_name().to_string_lossy().into_owned());
        }
    }
    None
}

/// Every hash must belong to a set, or files would be missing without a word.
fn check_complete(
    found: &[(PathBuf, Option<Range>)],
    ranges: &BTreeMap<Option<Range>, usize>,
) -> anyhow::Result<()> {
    if let (Some((path, _)), true) = (found.iter().find(|(_, range)| range.is_none()), ranges.len() > 1) {
        bail!(
            "{} has no hash range, although other bricks have one: a brick was being added or removed. Start the volume \
             and run: gluster volume rebalance NAME fix-layout start (or finish remove-brick with commit)",
            path.display()
        );
    }
    let mut next = 0_u64;
    for (first, last) in ranges.keys().flatten() {
        if u64::from(*first) != next {
            bail!(
                "bricks are missing: the names with hashes {next:#010x} to {:#010x} are on none of these. \
                 Give at least one brick of each replica set (gluster volume info NAME lists them), or say \
                 --part here and on the machines that have the others",
                first.saturating_sub(1)
            );
        }
        next = u64::from(*last) + 1;
    }
    if next != 0 && next != 1 << 32 {
        bail!(
            "bricks are missing: the names with hashes from {next:#010x} on are on none of these. \
             Give at least one brick of each replica set (gluster volume info NAME lists them), or say \
             --part here and on the machines that have the others"
        );
    }
    Ok(())
}
