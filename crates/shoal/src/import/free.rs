//! Frees files of the bricks that the target has: the second half of a move.
//!
//! **Model.** Files that were imported, or found in the target, are collected up to a bound. Then the target
//! is made durable, and each brick's copy is compared with what the target has: names, owner, mode, time,
//! attributes, and every byte. A copy without a difference is removed under all its names, a copy with one is
//! kept and reported. Directories without files go at the end, if nothing was kept. An arbiter's brick stays
//! as it is.
//!
//! **Promises.** Nothing is removed that is not durable in the target and equal there. A move that was killed
//! is started again:
//! - A file loses GlusterFS's own name (in `.glusterfs`) first, so what is left of it is found by its names.
//! - Of a file with shards none is removed before the whole was compared, and a mark on it tells so.
//! - Removing a file changes the times of its directory: those are written to the attribute in which
//!   GlusterFS keeps times, and so the target gets the old ones from the second run, too.

use super::attributes::differing;
use super::bricks::{Brick, Bricks};
use super::candidates::{Candidate, Gfid, TIMES, written_times};
use super::content::{Content, FREED, Sharded, handle_name, open_regular, shard_is_in, shard_name, sharded};
use super::run::{is_as, is_internal};
use super::{Destination, Listener, Summary, at, xattr};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files after which the target is made durable and their copies are removed.
const FILES_MAX: usize = 1000;
/// Bytes after which this is done: the room that a move needs, beside that of its largest file.
const BYTES_MAX: u64 = 256 << 20;
/// stat(2) counts in these.
const BLOCK_BYTES: u64 = 512;

/// Files that are in the target, and still on the bricks.
#[derive(Default)]
pub struct Imported {
    /// Each with all its names.
    files: Vec<Vec<PathBuf>>,
    bytes: u64,
    /// Those of which further names are expected.
    partial: HashMap<Gfid, Vec<PathBuf>>,
}

impl Imported {
    /// One name of a file.
    pub fn add(&mut self, bricks: &Bricks, file: &Candidate, name: &Path) {
        let mut names = vec![name.to_owned()];
        let expected = names_of(bricks, file);
        if let (2.., Some(gfid)) = (expected, file.gfid) {
            let known = self.partial.entry(gfid).or_default();
            known.append(&mut names);
            if (known.len() as u64) < expected {
                return;
            }
            names = self.partial.remove(&gfid).unwrap_or_default();
        }
        self.bytes += file.size().unwrap_or(0);
        self.files.push(names);
    }

    /// Whether it is time to free them.
    pub fn is_full(&self) -> bool {
        self.files.len() >= FILES_MAX || self.bytes >= BYTES_MAX
    }
}

/// One brick's copy of a file, or of a shard.
struct Copy<'a> {
    brick: &'a Brick,
    file: Candidate,
    paths: Vec<PathBuf>,
}

/// Compares and removes.
pub struct Freeing<'a> {
    pub bricks: &'a Bricks,
    pub target: &'a Destination<'a>,
    pub summary: &'a mut Summary,
    pub listener: &'a mut dyn Listener,
}

impl<'a> Freeing<'a> {
    /// Frees all that is equal in the target.
    pub fn free(&mut self, imported: &mut Imported) -> io::Result<()> {
        imported.bytes = 0;
        let files = std::mem::take(&mut imported.files);
        if files.is_empty() {
            return Ok(());
        }
        self.bricks.check_unused().map_err(io::Error::other)?;
        (self.target.flush)()?;
        for names in files {
            self.free_file(&names)?;
            self.listener.progress(self.summary);
        }
        Ok(())
    }

    fn keep(&mut self, name: &Path, what: &str) {
        self.summary.freed.kept += 1;
        self.listener.kept(&format!("/{}: {what}", name.display()));
    }

    fn free_file(&mut self, names: &[PathBuf]) -> io::Result<()> {
        let bricks = self.bricks;
        let (mut equal, mut is_kept) = (Vec::new(), false);
        for brick in bricks.with_content() {
            match self.copy_on(brick, names) {
                Ok(None) => {}
                Ok(Some(copy)) => equal.push(copy),
                Err(what) => {
                    is_kept = true;
                    self.keep(&names[0], &format!("on {}: {what}", brick.path.display()));
                }
            }
        }
        let Some(first) = equal.first() else { return Ok(()) };
        let place = match self.target.place(&names[0]) {
            Ok(place) => place,
            Err(error) => {
                self.keep(&names[0], &error.to_string());
                return Ok(());
            }
        };
        let path = place.path();
        if first.file.stat.is_file() {
            forget_pages(&path);
            self.summary.verified += 1;
        }
        match sharded(&first.file) {
            Ok(Some(cut)) if cut.size > cut.shard_bytes => match self.shards(&equal, cut, &path) {
                Ok(shards) if !is_kept => self.remove_shards(&equal, shards),
                // A part of the file could not be told from a file with holes afterwards.
                Ok(_) => Ok(()),
                Err(error) => {
                    self.keep(&names[0], &error.to_string());
                    Ok(())
                }
            },
            _ => {
                for copy in equal {
                    let is_file = copy.file.stat.is_file();
                    let compare = || Content::of(bricks, &copy.file)?.is_in(path.clone());
                    let what = match if is_file { compare() } else { Ok(true) } {
                        Ok(true) => {
                            self.remove(&copy)?;
                            continue;
                        }
                        Ok(false) => "its content is another one".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    self.keep(&names[0], &format!("on {}: {what}", copy.brick.path.display()));
                }
                Ok(())
            }
        }
    }

    /// A brick's copy of a file, without its content compared; an error says what differs.
    fn copy_on(&self, brick: &'a Brick, names: &[PathBuf]) -> Result<Option<Copy<'a>>, String> {
        let mut copies = Vec::new();
        for name in names {
            let found = Candidate::read(brick.set, brick.path.join(name), false);
            let found = found.map_err(|error| error.to_string())?;
            copies.extend(found.filter(|file| !file.is_link_to()).map(|file| (name, file)));
        }
        let Some((_, file)) = copies.first() else { return Ok(None) };
        if copies.iter().any(|(_, other)| other.stat.ino() != file.stat.ino()) {
            return Err("its names are different files there".into());
        }
        let all = names_of(self.bricks, file);
        if copies.len() as u64 != all {
            return Err(format!("{} of its {all} names were imported", copies.len()));
        }
        let names: Vec<&Path> = copies.iter().map(|(name, _)| name.as_path()).collect();
        if let Some(what) = self.difference(file, &names).map_err(|error| error.to_string())? {
            return Err(what);
        }
        let paths = names.iter().map(|name| brick.path.join(name)).collect();
        Ok(Some(Copy { brick, file: file.clone(), paths }))
    }

    /// What differs between a copy and the target, beside the content.
    fn difference(&self, file: &Candidate, names: &[&Path]) -> io::Result<Option<String>> {
        let mut stats = Vec::new();
        for name in names {
            match self.target.place(name).and_then(|place| place.metadata()) {
                Ok(stat) => stats.push(stat),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Some("the target has no such file".into()));
                }
                Err(error) => return Err(error),
            }
        }
        if stats.iter().any(|stat| stat.ino() != stats[0].ino()) {
            return Ok(Some("its names are different files in the target".into()));
        }
        let place = self.target.place(names[0])?;
        let path = place.path();
        if !is_as(file, &stats[0], &path)? {
            return Ok(Some("type, owner, mode, size or time are not the target's".into()));
        }
        if let Some(name) = file.left_out() {
            return Ok(Some(format!("its attribute {} is not imported", name.to_string_lossy())));
        }
        Ok(differing(file, &path)?.into_iter().next())
    }

    /// All shards on all bricks, if each is equal in the target; an error says what differs.
    fn shards(&self, bases: &[Copy<'a>], cut: Sharded, path: &Path) -> io::Result<Vec<Copy<'a>>> {
        let mut shards = Vec::new();
        let whole = bases.iter().find(|base| !base.file.has_internal(FREED));
        if let Some(whole) = whole
            && !Content::of(self.bricks, &whole.file)?.is_in(path.to_owned())?
        {
            return Err(io::Error::other("its content is another one"));
        }
        let check = |shard: &Path, range: Range<u64>| match shard_is_in(shard, range, path.to_owned())? {
            true => Ok(()),
            false => Err(io::Error::other(format!("{}: another content", shard.display()))),
        };
        for base in bases {
            if sharded(&base.file)? != Some(cut) || base.file.gfid != bases[0].file.gfid {
                return Err(io::Error::other("its copies are cut into different shards"));
            }
            check(&base.file.path, 0..cut.shard_bytes)?;
        }
        let gfid = bases[0].file.gfid.ok_or_else(|| io::Error::other("it has no trusted.gfid"))?;
        for number in 1..cut.size.div_ceil(cut.shard_bytes) {
            let range = number * cut.shard_bytes..cut.size.min((number + 1) * cut.shard_bytes);
            for brick in self.bricks.with_content() {
                let place = brick.path.join(shard_name(gfid, number));
                let found = Candidate::read(brick.set, place.clone(), false)?;
                if let Some(file) = found.filter(|file| !file.is_link_to()) {
                    check(&place, range.clone())?;
                    shards.push(Copy { brick, file, paths: vec![place] });
                }
            }
        }
        Ok(shards)
    }

    fn remove_shards(&mut self, bases: &[Copy<'a>], shards: Vec<Copy<'a>>) -> io::Result<()> {
        for path in bases.iter().map(|base| &base.file.path) {
            let mark = || {
                xattr::set(path, FREED, b"1")?;
                File::open(path)?.sync_all()
            };
            mark().map_err(|error| at(path, error))?;
        }
        for shard in shards {
            self.remove(&shard)?;
        }
        // Its size and the mark are needed until the last shard is gone.
        bases.iter().try_for_each(|base| self.remove(base))
    }

    fn remove(&mut self, copy: &Copy) -> io::Result<()> {
        if let Some(handle) = handle_of(copy.brick, &copy.file) {
            remove_file(&handle)?;
        }
        for path in &copy.paths {
            path.parent().map_or(Ok(()), keep_times)?;
            remove_file(path)?;
        }
        self.summary.freed.files += 1;
        self.summary.freed.bytes += copy.file.stat.blocks() * BLOCK_BYTES;
        Ok(())
    }

    /// Frees the last files, and counts what is left on the bricks. If nothing was kept, directories without
    /// files are removed, and so are link-to files.
    pub fn finish(&mut self, mut imported: Imported) -> io::Result<()> {
        self.free(&mut imported)?;
        for names in imported.partial.into_values() {
            self.keep(&names[0], &format!("only {} of its names were imported", names.len()));
        }
        self.bricks.check_unused().map_err(io::Error::other)?;
        (self.target.flush)()?;
        let removes = self.summary.problems == 0 && self.summary.freed.kept == 0;
        let bricks = self.bricks;
        for brick in bricks.with_content() {
            self.sweep_directory(brick, Path::new(""), removes)?;
            let shards = brick.path.join(".shard");
            if shards.is_dir() {
                self.sweep_directory(brick, Path::new(".shard"), false)?;
            }
        }
        Ok(())
    }

    /// Whether the directory is empty then.
    fn sweep_directory(&mut self, brick: &Brick, relative: &Path, removes: bool) -> io::Result<bool> {
        let directory = brick.path.join(relative);
        let mut is_empty = true;
        for entry in fs::read_dir(&directory).map_err(|error| at(&directory, error))? {
            let name = entry.map_err(|error| at(&directory, error))?.file_name();
            if relative.as_os_str().is_empty() && is_internal(&name) {
                continue;
            }
            let below = relative.join(&name);
            let path = brick.path.join(&below);
            let Some(file) = Candidate::read(brick.set, path.clone(), false)? else { continue };
            let is_in_target = || self.target.place(&below).and_then(|place| place.metadata()).is_ok();
            if file.stat.is_dir() {
                let goes = is_in_target() && removes;
                if self.sweep_directory(brick, &below, removes)? && goes {
                    keep_times(&directory)?;
                    if let Some(handle) = file.gfid.map(|gfid| brick.path.join(handle_name(gfid))) {
                        let _ = fs::remove_file(handle);
                    }
                    fs::remove_dir(&path).map_err(|error| at(&path, error))?;
                    continue;
                }
            } else if file.is_link_to() {
                if removes && is_in_target() {
                    self.remove(&Copy { brick, file, paths: vec![path] })?;
                    self.summary.freed.files -= 1;
                    continue;
                }
            } else {
                self.summary.freed.left_files += 1;
                self.summary.freed.left_bytes += file.stat.blocks() * BLOCK_BYTES;
            }
            is_empty = false;
        }
        Ok(is_empty)
    }
}

/// What all bricks' copies of a file occupy, in bytes.
pub fn occupied(bricks: &Bricks, file: &Candidate, name: &Path) -> io::Result<u64> {
    let mut paths: Vec<PathBuf> = vec![name.to_owned()];
    if let (Some(cut), Some(gfid)) = (sharded(file)?, file.gfid) {
        paths.extend((1..cut.size.div_ceil(cut.shard_bytes)).map(|number| shard_name(gfid, number)));
    }
    let all = bricks.with_content().flat_map(|brick| paths.iter().map(move |path| brick.path.join(path)));
    let stats = all.filter_map(|path| fs::symlink_metadata(path).ok());
    Ok(stats.map(|stat| stat.blocks() * BLOCK_BYTES).sum())
}

/// GlusterFS's own name of a file, if it has it.
fn handle_of(brick: &Brick, file: &Candidate) -> Option<PathBuf> {
    let handle = brick.path.join(handle_name(file.gfid?));
    let is_file = |stat: Metadata| (stat.dev(), stat.ino()) == (file.stat.dev(), file.stat.ino());
    fs::symlink_metadata(&handle).is_ok_and(is_file).then_some(handle)
}

/// How many names a file has, without GlusterFS's own.
pub fn names_of(bricks: &Bricks, file: &Candidate) -> u64 {
    let brick = bricks.bricks.iter().find(|brick| !bricks.is_plain && file.path.starts_with(&brick.path));
    let handle = brick.filter(|_| file.stat.nlink() > 1).and_then(|brick| handle_of(brick, file));
    file.stat.nlink() - u64::from(handle.is_some())
}

/// The comparison shall not read what the kernel has kept of the file's writing. If that fails, so does the
/// comparison.
fn forget_pages(path: &Path) {
    if let Ok(file) = open_regular(path) {
        let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    }
}

/// Writes a directory's times down, before they change.
fn keep_times(directory: &Path) -> io::Result<()> {
    let keep = || match xattr::get(directory, TIMES)? {
        Some(_) => Ok(()),
        None => xattr::set(directory, TIMES, &written_times(&fs::symlink_metadata(directory)?)),
    };
    keep().map_err(|error| at(directory, error))
}

fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path).map_err(|error| at(path, error))
}
