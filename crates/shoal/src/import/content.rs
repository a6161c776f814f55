//! The content of a file on a brick, also of one that GlusterFS has cut into shards.

use super::bricks::Bricks;
use super::candidates::{Candidate, Found, Gfid, ONLY_WITNESSED, look_up};
use super::{at, xattr};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::ffi::CStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes read and written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// On a file in shards whose shards are being freed, because the target has it: one that is missing is no
/// hole.
pub const FREED: &CStr = c"trusted.shoal.freed";

/// How a file is cut into shards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sharded {
    /// Bytes of each shard but the last.
    pub shard_bytes: u64,
    pub size: u64,
}

/// The shards of a file, if it has any.
pub fn sharded(file: &Candidate) -> io::Result<Option<Sharded>> {
    if !file.has_internal(c"trusted.glusterfs.shard.block-size") {
        return Ok(None);
    }
    let number = |name| -> io::Result<u64> {
        let value = xattr::get(&file.path, name)?.unwrap_or_default();
        let bytes = value.get(..8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_be_bytes).ok_or_else(|| io::Error::other("its shard attributes are damaged"))
    };
    let read = Sharded {
        shard_bytes: number(c"trusted.glusterfs.shard.block-size")?,
        size: number(c"trusted.glusterfs.shard.file-size")?,
    };
    if read.shard_bytes == 0 {
        return Err(io::Error::other("its shards have a length of 0"));
    }
    Ok(Some(read))
}

/// A local file that is a part of the content.
struct Piece {
    start: u64,
    len: u64,
    path: PathBuf,
    /// Device and inode. In a live volume another file may have the name when it is opened.
    identity: (u64, u64),
}

impl Piece {
    fn new(start: u64, len: u64, path: PathBuf, stat: &Metadata) -> Piece {
        Piece { start, len, path, identity: (stat.dev(), stat.ino()) }
    }

    fn open(&self) -> io::Result<(File, u64)> {
        let open = || {
            let file = open_regular(&self.path)?;
            let stat = file.metadata()?;
            match (stat.dev(), stat.ino()) == self.identity {
                true => Ok((file, stat.len())),
                false => Err(io::Error::other("another file has this name meanwhile")),
            }
        };
        open().map_err(|error| at(&self.path, error))
    }
}

/// Opens a file for reading. It follows no symbolic link, and does not wait for the writer of a pipe.
pub fn open_regular(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Where a file's bytes are. What no piece covers is a hole.
pub struct Content {
    pub size: u64,
    pieces: Vec<Piece>,
}

impl Content {
    pub fn of(bricks: &Bricks, file: &Candidate) -> io::Result<Content> {
        let Some(Sharded { shard_bytes, size }) = sharded(file)? else {
            let size = file.stat.len();
            let piece = Piece::new(0, size, file.path.clone(), &file.stat);
            return Ok(Content { size, pieces: vec![piece] });
        };
        if file.has_internal(FREED) {
            return Err(io::Error::other(
                "some of its shards were freed, because the target had it: it is not whole",
            ));
        }
        // A shard that is missing here would be taken for a hole.
        if bricks.is_part && size > shard_bytes {
            return Err(io::Error::other(
                "it is in shards, which may be on bricks that were not given: give all bricks",
            ));
        }
        let base = Piece::new(0, size.min(shard_bytes), file.path.clone(), &file.stat);
        let mut pieces = vec![base];
        let gfid = file.gfid.ok_or_else(|| io::Error::other("it is in shards, and has no trusted.gfid"))?;
        let listed: Vec<usize> = (0..bricks.bricks.len()).collect();
        for number in 1..size.div_ceil(shard_bytes) {
            let relative = shard_name(gfid, number);
            match look_up(bricks, &relative, &listed)? {
                Found::Absent => {}
                Found::One(shard, _) => {
                    let start = number * shard_bytes;
                    let len = shard_bytes.min(size - start);
                    pieces.push(Piece::new(start, len, shard.path, &shard.stat));
                }
                Found::Directory(_) => return Err(io::Error::other("a shard is a directory")),
                Found::Witnessed => {
                    return Err(io::Error::other(format!("{}: {ONLY_WITNESSED}", relative.display())));
                }
                Found::Problem(what) => {
                    return Err(io::Error::other(format!("{}: {what}", relative.display())));
                }
            }
        }
        Ok(Content { size, pieces })
    }

    /// Calls for each run of bytes that is no hole.
    fn runs(&self, mut each: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        for piece in &self.pieces {
            let (file, len) = piece.open()?;
            let end = piece.len.min(len);
            let mut next = 0;
            while next < end {
                let data = match lseek(&file, next as i64, Whence::SeekData) {
                    Ok(data) => data as u64,
                    Err(Errno::ENXIO) => break,
                    Err(Errno::EINVAL) => next,
                    Err(errno) => return Err(at(&piece.path, errno)),
                };
                let hole =
                    lseek(&file, data as i64, Whence::SeekHole).map_or(end, |hole| hole as u64).min(end);
                next = data;
                while next < hole {
                    let wanted = (CHUNK_BYTES as u64).min(hole - next) as usize;
                    file.read_exact_at(&mut buffer[..wanted], next)
                        .map_err(|error| at(&piece.path, error))?;
                    each(piece.start + next, &buffer[..wanted])?;
                    next += wanted as u64;
                }
            }
        }
        Ok(())
    }

    /// Fills an empty file; returns how many bytes were written.
    pub fn copy_to(&self, target: &File) -> io::Result<u64> {
        let mut written = 0;
        self.runs(|offset, bytes| {
            written += bytes.len() as u64;
            target.write_all_at(bytes, offset)
        })?;
        target.set_len(self.size)?;
        Ok(written)
    }

    /// Fills a buffer from an offset on, with zeros for holes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        let end = offset + buffer.len() as u64;
        for piece in &self.pieces {
            let (from, to) = (offset.max(piece.start), end.min(piece.start + piece.len));
            if from >= to {
                continue;
            }
            let (file, len) = piece.open()?;
            let to = to.min(piece.start + len);
            if from < to {
                let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
                file.read_exact_at(part, from - piece.start).map_err(|error| at(&piece.path, error))?;
            }
        }
        Ok(())
    }

    /// Whether another content has the same bytes.
    fn is_equal(&self, other: &Content) -> io::Result<bool> {
        Ok(self.size == other.size && self.is_equal_in(other, 0..self.size)?)
    }

    /// Whether another content has the same bytes in a range.
    fn is_equal_in(&self, other: &Content, range: Range<u64>) -> io::Result<bool> {
        let (mut mine, mut theirs) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        let mut offset = range.start;
        while offset < range.end {
            let wanted = (CHUNK_BYTES as u64).min(range.end - offset) as usize;
            self.read_at(&mut mine[..wanted], offset)?;
            other.read_at(&mut theirs[..wanted], offset)?;
            if mine[..wanted] != theirs[..wanted] {
                return Ok(false);
            }
            offset += wanted as u64;
        }
        Ok(true)
    }

    /// A plain file.
    fn plain(path: PathBuf) -> io::Result<Content> {
        let stat = fs::symlink_metadata(&path).map_err(|error| at(&path, error))?;
        Ok(Content { size: stat.len(), pieces: vec![Piece::new(0, stat.len(), path, &stat)] })
    }

    /// Whether a plain file has these bytes.
    pub fn is_in(&self, path: PathBuf) -> io::Result<bool> {
        self.is_equal(&Content::plain(path)?)
    }
}

/// Whether two copies of a file have the same bytes.
pub fn equal(bricks: &Bricks, one: &Candidate, other: &Candidate) -> io::Result<bool> {
    Content::of(bricks, one)?.is_equal(&Content::of(bricks, other)?)
}

/// Whether one shard has what a plain file has in a range. A shard may end early, with a hole.
pub fn shard_is_in(shard: &Path, range: Range<u64>, path: PathBuf) -> io::Result<bool> {
    let stat = fs::symlink_metadata(shard).map_err(|error| at(shard, error))?;
    let piece = Piece::new(range.start, range.end - range.start, shard.to_owned(), &stat);
    let whole = Content { size: range.end, pieces: vec![piece] };
    whole.is_equal_in(&Content::plain(path)?, range)
}

/// The name of a shard, of those after the first, which is the file itself.
pub fn shard_name(gfid: Gfid, number: u64) -> PathBuf {
    PathBuf::from(format!(".shard/{}.{number}", uuid(gfid)))
}

/// The name that GlusterFS gives each file beside its own.
pub fn handle_name(gfid: Gfid) -> PathBuf {
    let uuid = uuid(gfid);
    PathBuf::from(format!(".glusterfs/{}/{}/{uuid}", &uuid[..2], &uuid[2..4]))
}

fn uuid(gfid: Gfid) -> String {
    let mut text = String::new();
    for (at, byte) in gfid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
