//! What the bricks have under one name, and what of it is taken.

use super::bricks::Bricks;
use super::changelog::{self, Changelog};
use super::{at, content, directories, xattr};
use std::ffi::{CStr, CString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub type Gfid = [u8; 16];
/// Seconds and nanoseconds.
pub type Time = (i64, i64);

/// GlusterFS keeps attributes with these beginnings for itself; one is XFS's, one is of an import that frees
/// bricks.
const INTERNAL: [&str; 13] = [
    "trusted.SGI_ACL",
    "trusted.afr.",
    "trusted.bit-rot.",
    "trusted.dht.",
    "trusted.gfid",
    "trusted.glusterfs.",
    "trusted.pgfid.",
    "trusted.quota.",
    "trusted.shoal.",
    "trusted.syncop.",
    "trusted.tier.",
    "trusted.tier-gfid.",
    "trusted.trash.",
];
/// Where GlusterFS keeps times since version 6.
pub const TIMES: &CStr = c"trusted.glusterfs.mdata";
/// Where the identity of a file of a plain tree has the inode's number, behind the device's.
const INODE_AT: usize = 8;
const STICKY: u32 = 0o1000;
const SETGID: u32 = 0o2000;

/// One brick's file.
#[derive(Clone)]
pub struct Candidate {
    pub set: usize,
    pub path: PathBuf,
    pub stat: Metadata,
    pub gfid: Option<Gfid>,
    pub changelog: Changelog,
    /// Names of all attributes.
    pub xattrs: Vec<CString>,
    /// Access and change of content, as GlusterFS shows them.
    pub atime: Time,
    pub mtime: Time,
    /// It has the attribute that names the file's other place.
    has_linkto: bool,
    /// It is of a plain tree: its attributes mean nothing here, and are all copied.
    is_plain: bool,
}

impl Candidate {
    /// What is there, if anything is.
    pub fn read(set: usize, path: PathBuf, is_plain: bool) -> io::Result<Option<Candidate>> {
        let stat = match fs::symlink_metadata(&path) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path, error)),
        };
        if is_plain {
            return Candidate::plain(set, path, stat).map(Some);
        }
        let read = || -> io::Result<Candidate> {
            let xattrs = xattr::names(&path)?;
            let has = |name: &str| xattrs.iter().any(|found| found.as_bytes() == name.as_bytes());
            if xattrs.iter().any(|name| name.as_bytes().starts_with(b"trusted.ec.")) {
                return Err(io::Error::other("it is a fragment of a dispersed volume"));
            }
            let value = |name: &str, c_name| if has(name) { xattr::get(&path, c_name) } else { Ok(None) };
            let gfid = value("trusted.gfid", c"trusted.gfid")?.and_then(|gfid| gfid.try_into().ok());
            let times = value("trusted.glusterfs.mdata", TIMES)?.and_then(|v| times(&v));
            let own = ((stat.atime(), stat.atime_nsec()), (stat.mtime(), stat.mtime_nsec()));
            let (atime, mtime) = times.unwrap_or(own);
            Ok(Candidate {
                set,
                gfid,
                changelog: Changelog::read(&path, &xattrs)?,
                has_linkto: has("trusted.glusterfs.dht.linkto"),
                is_plain,
                atime,
                mtime,
                stat: stat.clone(),
                xattrs: xattrs.clone(),
                path: path.clone(),
            })
        };
        read().map(Some).map_err(|error| at(&path, error))
    }

    /// A file of any file system. Its identity is its inode's number.
    fn plain(set: usize, path: PathBuf, stat: Metadata) -> io::Result<Candidate> {
        let mut gfid = [0; 16];
        gfid[..INODE_AT].copy_from_slice(&stat.dev().to_be_bytes());
        gfid[INODE_AT..].copy_from_slice(&stat.ino().to_be_bytes());
        Ok(Candidate {
            set,
            xattrs: xattr::names(&path).map_err(|error| at(&path, error))?,
            path,
            gfid: Some(gfid),
            changelog: Changelog::default(),
            atime: (stat.atime(), stat.atime_nsec()),
            mtime: (stat.mtime(), stat.mtime_nsec()),
            stat,
            has_linkto: false,
            is_plain: true,
        })
    }

    /// The names of the attributes that are copied: not those that GlusterFS keeps for itself.
    pub fn copied_xattrs(&self) -> impl Iterator<Item = &CString> {
        let is_copied = |name: &&CString| match self.is_plain {
            true => name.as_c_str() != directories::mark(),
            false => !name.as_bytes().starts_with(b"trusted."),
        };
        self.xattrs.iter().filter(is_copied)
    }

    /// What stays the same when it is read again, also on another machine or after a mount.
    pub fn identity(&self) -> &[u8] {
        let gfid = self.gfid.as_ref().map_or(&[][..], |gfid| gfid);
        // The number of the device is another one after a mount.
        if self.is_plain { &gfid[INODE_AT..] } else { gfid }
    }

    /// Whether GlusterFS keeps an attribute of this name for itself.
    pub fn has_internal(&self, name: &CStr) -> bool {
        !self.is_plain && self.xattrs.iter().any(|found| found.as_c_str() == name)
    }

    /// The attribute of a program that is not copied, because it has a name like GlusterFS's own.
    pub fn left_out(&self) -> Option<&CString> {
        let is_known =
            |name: &CString| INTERNAL.iter().any(|known| name.as_bytes().starts_with(known.as_bytes()));
        self.xattrs.iter().find(|name| name.as_bytes().starts_with(b"trusted.") && !is_known(name))
    }

    /// Whether it only says that the file is on another replica set.
    pub fn is_link_to(&self) -> bool {
        self.stat.is_file() && self.has_linkto && self.stat.mode() & 0o7777 == STICKY
    }

    /// The permissions, without the marks of a file that a rebalance was moving.
    pub fn mode(&self) -> u32 {
        let mode = self.stat.mode() & 0o7777;
        let is_moving = self.stat.is_file() && self.has_linkto && mode & (STICKY | SETGID) == STICKY | SETGID;
        if is_moving { mode & !(STICKY | SETGID) } else { mode }
    }

    /// The length of a file, also of one in shards.
    pub fn size(&self) -> io::Result<u64> {
        Ok(content::sharded(self)?.map_or(self.stat.len(), |sharded| sharded.size))
    }

    fn kind(&self) -> u32 {
        self.stat.mode() & libc::S_IFMT
    }

    pub fn is_special(&self) -> bool {
        let kind = self.stat.file_type();
        kind.is_block_device() || kind.is_char_device() || kind.is_fifo() || kind.is_socket()
    }
}

/// Since GlusterFS 6 times are kept in an attribute: a version, flags, then the times of change, modification
/// and access, as seconds and nanoseconds of 64 bits each.
fn times(mdata: &[u8]) -> Option<(Time, Time)> {
    let number = |at: usize| Some(i64::from_be_bytes(mdata.get(at..at + 8)?.try_into().ok()?));
    if mdata.first() != Some(&1) {
        return None;
    }
    Some(((number(41)?, number(49)?), (number(25)?, number(33)?)))
}

/// A file's times as GlusterFS keeps them in that attribute.
pub fn written_times(stat: &Metadata) -> Vec<u8> {
    let mut value = vec![1];
    let times =
        [stat.ctime(), stat.ctime_nsec(), stat.mtime(), stat.mtime_nsec(), stat.atime(), stat.atime_nsec()];
    for number in [0].into_iter().chain(times) {
        value.extend(number.to_be_bytes());
    }
    value
}

/// What is wrong with a file that is [`Found::Witnessed`].
pub const ONLY_WITNESSED: &str =
    "only an arbiter's brick has it, which has no content: give all data bricks of its replica set";

/// What is done about a name.
pub enum Found {
    /// One copy; with a note if the replicas differ without harm.
    One(Box<Candidate>, Option<String>),
    /// A directory, from all bricks that have it.
    Directory(Vec<Candidate>),
    /// A file that only arbiters' bricks have: nothing is there of its content.
    Witnessed,
    /// Nothing, because of this.
    Problem(String),
    /// It is on no brick.
    Absent,
}

/// Looks a name up on all bricks. `listed` are the sets' bricks whose directories are up to date.
pub fn look_up(bricks: &Bricks, relative: &Path, listed: &[usize]) -> io::Result<Found> {
    let mut all = Vec::new();
    for (number, brick) in bricks.bricks.iter().enumerate() {
        let found = Candidate::read(brick.set, brick.path.join(relative), bricks.is_plain)?;
        if let Some(candidate) = found {
            bricks.check_found(relative, &candidate.stat)?;
            all.push((number, candidate));
        }
    }
    if all.is_empty() {
        return Ok(Found::Absent);
    }
    let links = all.len();
    all.retain(|(_, candidate)| !candidate.is_link_to());
    if all.is_empty() && bricks.is_part {
        return Ok(Found::Absent);
    }
    if all.is_empty() {
        return Ok(Found::Problem(format!("{links} link-to files, and no brick has the file")));
    }
    let agree = |all: &[(usize, Candidate)]| {
        let (_, first) = &all[0];
        all.iter().all(|(_, one)| one.kind() == first.kind() && one.gfid == first.gfid)
    };
    // A file that was deleted and made anew while a brick was away: the directory's changelog decides.
    if !agree(&all) {
        let current: Vec<_> = all.iter().filter(|(number, _)| listed.contains(number)).cloned().collect();
        if current.is_empty() || !agree(&current) {
            let mut places: Vec<String> = all.iter().map(|(_, one)| one.path.display().to_string()).collect();
            places.sort();
            return Ok(Found::Problem(format!(
                "split-brain: different files have this name: {}",
                places.join(", ")
            )));
        }
        all = current;
    }
    if all[0].1.stat.is_dir() {
        return Ok(Found::Directory(all.into_iter().map(|(_, candidate)| candidate).collect()));
    }
    one_of(bricks, all)
}

/// Takes one of the copies of a file that is no directory; each is with the number of its brick.
fn one_of(bricks: &Bricks, all: Vec<(usize, Candidate)>) -> io::Result<Found> {
    let (numbers, all): (Vec<usize>, Vec<Candidate>) = all.into_iter().unzip();
    let set = all[0].set;
    if all.iter().any(|one| one.set != set) {
        return Ok(Found::Problem(format!(
            "it is in several replica sets: finish or stop the rebalance first: {}",
            all.iter().map(|one| one.path.display().to_string()).collect::<Vec<_>>().join(", ")
        )));
    }
    if all[0].stat.is_file() && numbers.iter().all(|number| bricks.bricks[*number].is_arbiter) {
        return Ok(Found::Witnessed);
    }
    let total = all.len();
    let accused: Vec<_> = all.iter().map(|one| &one.changelog.content).collect();
    let Some(good) = changelog::good(&accused) else {
        return Ok(Found::Problem("split-brain: its copies accuse each other".into()));
    };
    let dirty = all.iter().any(|one| one.changelog.dirty) && good.len() == total;
    // An arbiter's copy counts as a witness above, and has no content.
    let has_content = |at: &usize| !all[*at].stat.is_file() || !bricks.bricks[numbers[*at]].is_arbiter;
    let good: Vec<Candidate> = good.into_iter().filter(has_content).map(|at| all[at].clone()).collect();
    let Some(first) = good.first() else {
        return Ok(Found::Problem(format!(
            "the only good copy is an arbiter's, which has no content: give all data bricks of the replica \
             set of {}",
            all[0].path.display()
        )));
    };
    for other in &good[1..] {
        // The first shard of a copy may be shorter, although the size is the same.
        if other.size()? != first.size()? || other.stat.len() != first.stat.len() {
            let hint = match other.stat.len().min(first.stat.len()) {
                0 => " (if one is an arbiter's, leave that brick out)",
                _ => "",
            };
            return Ok(Found::Problem(format!(
                "split-brain: {} and {} have different sizes{hint}",
                first.path.display(),
                other.path.display()
            )));
        }
        if dirty && first.stat.is_file() && !content::equal(bricks, first, other)? {
            return Ok(Found::Problem(format!(
                "split-brain: {} and {} differ, and a write was in progress",
                first.path.display(),
                other.path.display()
            )));
        }
    }
    let members = bricks.bricks.iter().filter(|brick| brick.set == set).count();
    let note = (total < members).then(|| format!("on {total} of {members} bricks only"));
    Ok(Found::One(Box::new(first.clone()), note))
}

/// The bricks on which a directory's entries are up to date; an error is its split-brain.
pub fn up_to_date(bricks: &Bricks, directory: &[Candidate], relative: &Path) -> Result<Vec<usize>, String> {
    let mut numbers = Vec::new();
    for set in 0..bricks.sets() {
        let members: Vec<&Candidate> = directory.iter().filter(|one| one.set == set).collect();
        let accused: Vec<_> = members.iter().map(|one| &one.changelog.entries).collect();
        let good = changelog::good(&accused).ok_or(
            "split-brain: its copies accuse each other of missing entries: nothing in it is imported",
        )?;
        numbers.extend((0..bricks.bricks.len()).filter(|number| {
            let path = bricks.bricks[*number].path.join(relative);
            good.iter().any(|at| members[*at].path == path)
        }));
    }
    Ok(numbers)
}
