//! The walk over all bricks, and what is made of each name.

use super::bricks::Bricks;
use super::candidates::{Candidate, Found, ONLY_WITNESSED, look_up, up_to_date};
use super::content::Content;
use super::directories::{self, Entered};
use super::free::{Freeing, Imported, names_of, occupied};
use super::work::Work;
use super::{Destination, Listener, Summary, arbiter, at, attributes};
use crate::place::{Object, Place};
use nix::sys::stat::SFlag;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What GlusterFS keeps for itself in the root directory of a brick.
const INTERNAL: [&str; 4] = [".glusterfs", ".shard", ".trashcan", ".landfill"];
const INTERNAL_PREFIX: &[u8] = b".glusterfs-anonymous-inode-";

const TAKEN: &str = "the target has another file of this name; it was left as it is";
const ABSENT: &str = "the target has no such file";

/// How much is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing is written.
    DryRun,
    Copy,
    /// Every file is read back and compared with the brick, also those of an earlier run.
    CopyAndVerify,
    /// What was copied, or was there already and is equal, is removed from the bricks.
    Move,
    /// Nothing is copied: what is there already and is equal is removed from the bricks.
    Free,
}

impl Mode {
    fn copies(self) -> bool {
        matches!(self, Mode::Copy | Mode::CopyAndVerify | Mode::Move)
    }

    /// Whether the bricks are changed.
    pub fn frees(self) -> bool {
        matches!(self, Mode::Move | Mode::Free)
    }
}

/// Copies all files of the bricks into a directory. An error ends the import; it can be started again.
pub fn import(
    bricks: &Bricks,
    target: &Destination,
    mode: Mode,
    listener: &mut dyn Listener,
) -> io::Result<Summary> {
    for brick in &bricks.bricks {
        if brick.is_arbiter {
            let what = "is taken for an arbiter's brick: it says which copies are good, and has no content";
            listener.note(&format!("{} {what}", brick.path.display()));
        } else if mode.frees() {
            arbiter::mark_content(&brick.path)?;
        }
    }
    let (links, imported, summary) = (HashMap::new(), Imported::default(), Summary::default());
    let all: Vec<usize> = (0..bricks.bricks.len()).collect();
    let Found::Directory(copies) = look_up(bricks, Path::new(""), &all)? else {
        return Err(io::Error::other("the bricks' root directories contradict each other"));
    };
    let (mut work, mut root) = (None, None);
    if mode.copies() {
        // Before the work directory changes its times.
        root = Some(Entered::root(target, &copies[0]).map_err(|error| at(target.path, error))?);
        work = Some(Work::open(bricks, target)?);
    }
    let has_new_names = false;
    let mut import =
        Import { bricks, target, mode, work, root, has_new_names, links, imported, summary, listener };
    import.directory(Path::new(""), &copies)?;
    if mode.frees() {
        let imported = std::mem::take(&mut import.imported);
        import.freeing().finish(imported)?;
    }
    Ok(import.summary)
}

/// Whether GlusterFS keeps this in the root directory of a brick for itself.
pub fn is_internal(name: &OsStr) -> bool {
    INTERNAL.iter().any(|internal| name == *internal)
        || name.as_encoded_bytes().starts_with(INTERNAL_PREFIX)
        || name == "lost+found"
}

struct Import<'a> {
    bricks: &'a Bricks,
    target: &'a Destination<'a>,
    mode: Mode,
    /// Present while files are copied.
    work: Option<Work>,
    /// The root of the target, until it is entered.
    root: Option<Entered>,
    /// Whether this run has made a name in the directory in which it is.
    has_new_names: bool,
    /// Where a file with several names was imported first, below the target.
    links: HashMap<[u8; 16], PathBuf>,
    /// What can be freed.
    imported: Imported,
    summary: Summary,
    listener: &'a mut dyn Listener,
}

impl Import<'_> {
    fn problem(&mut self, relative: &Path, what: &str) {
        self.summary.problems += 1;
        self.listener.problem(&format!("/{}: {what}", relative.display()));
    }

    fn freeing(&mut self) -> Freeing<'_> {
        Freeing {
            bricks: self.bricks,
            target: self.target,
            summary: &mut self.summary,
            listener: &mut *self.listener,
        }
    }

    fn directory(&mut self, relative: &Path, copies: &[Candidate]) -> io::Result<()> {
        let listed = match up_to_date(self.bricks, copies, relative) {
            Ok(listed) => listed,
            Err(what) => {
                self.problem(relative, &what);
                return Ok(());
            }
        };
        let entered = match self.enter(relative, &copies[0]) {
            Ok(entered) => entered,
            Err(error) if ends(&error) => return Err(at(&self.target.path.join(relative), error)),
            Err(error) => {
                self.problem(relative, &error.to_string());
                return Ok(());
            }
        };
        if self.mode == Mode::Free {
            if self.target.root.beneath(relative).is_err() {
                self.problem(relative, "the target has no such directory");
                return Ok(());
            }
            // The root of a brick stays.
            if !relative.as_os_str().is_empty() {
                for what in directories::check(self.target, relative, copies)? {
                    self.problem(relative, &what);
                }
            }
        }
        let above_has = std::mem::take(&mut self.has_new_names);
        let names = match self.names(relative, &listed) {
            Ok(names) => names,
            // In a live tree it may be gone.
            Err(error) if self.bricks.is_plain && !relative.as_os_str().is_empty() => {
                self.has_new_names = above_has;
                self.problem(relative, &error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for name in names {
            let below = relative.join(&name);
            match look_up(self.bricks, &below, &listed) {
                Ok(Found::Absent) => {}
                Ok(Found::Directory(copies)) => self.directory(&below, &copies)?,
                Ok(Found::Witnessed) if self.is_freed(&below) => {}
                Ok(Found::Witnessed) => self.problem(&below, ONLY_WITNESSED),
                Ok(Found::Problem(what)) => self.problem(&below, &what),
                Ok(Found::One(file, note)) => {
                    if let Some(note) = note {
                        self.listener.note(&format!("/{}: {note}", below.display()));
                    }
                    self.file(&below, &file)?;
                }
                Err(error) => self.problem(&below, &error.to_string()),
            }
            self.listener.progress(&self.summary);
        }
        self.summary.found.directories += 1;
        if relative.as_os_str().is_empty()
            && let Some(work) = self.work.take()
        {
            work.remove(self.target)?;
            self.has_new_names = true;
        }
        let has_new_names = std::mem::replace(&mut self.has_new_names, above_has);
        if let Some(entered) = entered {
            self.leave(relative, copies, entered, has_new_names);
        }
        Ok(())
    }

    /// Makes a directory in the target unless it is there.
    fn enter(&mut self, relative: &Path, source: &Candidate) -> io::Result<Option<Entered>> {
        let Some(work) = &self.work else { return Ok(None) };
        if relative.as_os_str().is_empty() {
            return Ok(self.root.take());
        }
        let (entered, is_new) = Entered::enter(self.target, work, relative, source)?;
        self.has_new_names |= is_new;
        Ok(Some(entered))
    }

    fn leave(&mut self, relative: &Path, copies: &[Candidate], entered: Entered, has_new_names: bool) {
        let left = entered.leave(self.target, relative, copies, has_new_names);
        for what in left.unwrap_or_else(|error| vec![error.to_string()]) {
            self.problem(relative, &what);
        }
    }

    /// All names in a directory, except for GlusterFS's own.
    fn names(&self, relative: &Path, listed: &[usize]) -> io::Result<BTreeSet<OsString>> {
        let is_root = relative.as_os_str().is_empty();
        let mut names = BTreeSet::new();
        for number in listed {
            let brick = &self.bricks.bricks[*number];
            let path = brick.path.join(relative);
            let (opened, _open) = self.bricks.directory(brick, relative).map_err(|error| at(&path, error))?;
            for entry in fs::read_dir(opened).map_err(|error| at(&path, error))? {
                let name = entry.map_err(|error| at(&path, error))?.file_name();
                if !is_root || !is_internal(&name) || self.bricks.is_plain {
                    names.insert(name);
                }
            }
        }
        Ok(names)
    }

    fn file(&mut self, relative: &Path, file: &Candidate) -> io::Result<()> {
        // Before the next file: what follows the last one includes the attributes of the root directory.
        if self.imported.is_full() {
            let mut imported = std::mem::take(&mut self.imported);
            self.freeing().free(&mut imported)?;
            self.imported = imported;
        }
        let several = names_of(self.bricks, file) > 1;
        if let (true, Some(gfid)) = (several, file.gfid)
            && let Some(first) = self.links.get(&gfid).cloned()
        {
            self.summary.found.hard_links += 1;
            let linked = match self.mode {
                Mode::DryRun => Ok(()),
                mode => self.link(&first, relative, mode == Mode::Free),
            };
            match linked {
                Ok(()) => self.is_imported(relative, file),
                Err(what) => self.problem(relative, &what),
            }
            return Ok(());
        }
        match () {
            () if file.stat.is_symlink() => self.summary.found.symlinks += 1,
            () if file.is_special() => self.summary.found.special += 1,
            () => {
                self.summary.found.files += 1;
                self.summary.found.bytes += file.size().unwrap_or(0);
            }
        }
        let outcome = match self.mode {
            Mode::DryRun => self.look(relative, file),
            _ => self.copy_file(relative, file),
        };
        match outcome {
            Ok(true) => {
                self.is_imported(relative, file);
                self.links.extend(file.gfid.filter(|_| several).map(|gfid| (gfid, relative.to_owned())));
            }
            Ok(false) => {}
            // A full volume, or one that is gone, ends the import.
            Err(error) if ends(&error) => return Err(at(&self.target.path.join(relative), error)),
            Err(error) => self.problem(relative, &error.to_string()),
        }
        Ok(())
    }

    /// Whether an earlier run of a move has freed a file of which an arbiter's copy is left.
    fn is_freed(&self, relative: &Path) -> bool {
        let there = || self.target.place(relative)?.metadata();
        self.mode.frees() && there().is_ok_and(|there| there.is_file())
    }

    fn is_imported(&mut self, relative: &Path, file: &Candidate) {
        if self.mode.frees() {
            self.imported.add(self.bricks, file, relative);
        }
    }

    /// Whether a file could be made in the target, and what would be freed then.
    fn look(&mut self, relative: &Path, file: &Candidate) -> io::Result<bool> {
        if file.stat.is_file() {
            Content::of(self.bricks, file)?;
        }
        if let Ok(place) = self.target.place(relative)
            && let Ok(there) = place.metadata()
            && !is_as(file, &there, &place.path())?
        {
            self.problem(relative, TAKEN);
            return Ok(false);
        }
        self.summary.freed.bytes += occupied(self.bricks, file, relative)?;
        Ok(true)
    }

    /// Makes one file in the target, unless it is there; false if another one has its name.
    fn copy_file(&mut self, relative: &Path, file: &Candidate) -> io::Result<bool> {
        let place = self.target.place(relative)?;
        let there = match place.metadata() {
            Ok(there) => Some(there),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if self.mode == Mode::Free => {
                self.problem(relative, ABSENT);
                return Ok(false);
            }
            Err(_) => match self.make(relative, file, &place) {
                Ok(()) => None,
                // Another machine, with another brick of the replica set, was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Some(place.metadata()?),
                Err(error) => return Err(error),
            },
        };
        match there {
            None => {}
            Some(there) if is_as(file, &there, &place.path())? => {
                self.summary.present += 1;
                // The earlier import may not have been able to set them.
                for what in attributes::differing(file, &place.path())? {
                    self.problem(relative, &what);
                }
            }
            Some(_) => {
                self.problem(relative, TAKEN);
                return Ok(false);
            }
        }
        if self.mode == Mode::CopyAndVerify && file.stat.is_file() {
            self.summary.verified += 1;
            if !Content::of(self.bricks, file)?.is_in(place.path())? {
                self.problem(relative, "its content in the target differs from the source's");
            }
        }
        Ok(true)
    }

    fn make(&mut self, relative: &Path, file: &Candidate, place: &Place) -> io::Result<()> {
        let work = self.work.as_ref().ok_or_else(|| io::Error::other("nothing is copied"))?;
        let filled = work.place()?;
        let (parent, name) = (&filled.parent, &*filled.name);
        let object = if file.stat.is_symlink() {
            parent.make_symlink(name, fs::read_link(&file.path)?.as_os_str())?;
            parent.object(name)?
        } else if file.is_special() {
            let kind = SFlag::from_bits_truncate(file.stat.mode() & libc::S_IFMT);
            parent.make_node(name, kind, file.stat.rdev())?;
            parent.object(name)?
        } else {
            let content = Content::of(self.bricks, file)?;
            let open = parent.make_file(name)?;
            self.summary.copied_bytes += content.copy_to(&open)?;
            Object::from(open)
        };
        for what in attributes::set(file, &object, file.mtime) {
            self.problem(relative, &what);
        }
        self.has_new_names = true;
        filled.rename_new(place)
    }

    /// Gives a file that was imported under its first name a further one; if `is_there`, it has to have it.
    fn link(&mut self, first: &Path, further: &Path, is_there: bool) -> Result<(), String> {
        let fails = |error: io::Error| format!("cannot be linked to {}: {error}", first.display());
        let place = |path| self.target.place(path).map_err(fails);
        let (from, to) = (place(first)?, place(further)?);
        if is_there && to.metadata().is_err() {
            return Err(ABSENT.into());
        }
        match from.link_as(&to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let number = |place: &Place| place.metadata().map(|stat| stat.ino()).ok();
                match number(&from) == number(&to) {
                    true => Ok(()),
                    false => Err(TAKEN.into()),
                }
            }
            linked => {
                self.has_new_names |= linked.is_ok();
                linked.map_err(fails)
            }
        }
    }
}

fn ends(error: &io::Error) -> bool {
    use io::ErrorKind::{NotConnected, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem | NotConnected)
}

/// Whether what is in the target is this file, as an earlier run made it.
pub fn is_as(file: &Candidate, there: &fs::Metadata, path: &Path) -> io::Result<bool> {
    let same = there.mode() == (file.stat.mode() & libc::S_IFMT) | file.mode()
        && (there.uid(), there.gid()) == (file.stat.uid(), file.stat.gid());
    if file.stat.is_symlink() {
        return Ok(there.is_symlink() && fs::read_link(path)? == fs::read_link(&file.path)?);
    }
    let size = if file.stat.is_file() { file.size()? } else { 0 };
    Ok(same
        && there.rdev() == file.stat.rdev()
        && (!file.stat.is_file() || there.len() == size)
        && (there.mtime(), there.mtime_nsec()) == file.mtime)
}
