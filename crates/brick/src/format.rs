//! Making a brick, and recognising one.

use crate::error::BrickError;
use crate::layout::{Layout, MARKER};
use crate::limits::ALIGN_BYTES;
use nix::fcntl::{Flock, FlockArg};
use shoal_runtime::durable;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Version of the layout and of everything in it but the block files, which carry their own.
const VERSION: u32 = 1;
const TITLE: &str = "shoal brick";

/// Makes an empty brick. Its marker comes last, so that an interrupted attempt is not taken for a brick and
/// may be repeated.
pub(crate) fn format(root: &Path) -> Result<(), BrickError> {
    let layout = Layout::new(root);
    durable::create_dir_all(root).map_err(BrickError::io(root))?;
    if !is_empty_enough(&layout)? {
        return Err(BrickError::NotEmpty(root.to_owned()));
    }
    match std::fs::create_dir(&layout.blocks) {
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
            return Err(BrickError::Io { path: layout.blocks, cause });
        }
        _ => {}
    }
    sync_dir(&layout.blocks)?;
    let mut text = format!("{TITLE}\nversion {VERSION}\nid {:032x}\n", random_id(root)?).into_bytes();
    // A whole page, so that opening can try direct I/O on it.
    text.resize(ALIGN_BYTES, b'\n');
    durable::replace(root, MARKER, &text, 0o666).map_err(BrickError::io(&layout.marker()))
}

/// Recognises a brick and takes it for this process: answers its lock and its identity.
pub(crate) fn recognise(layout: &Layout) -> Result<(Flock<File>, u128), BrickError> {
    let file = match Flock::lock(open_marker(layout)?, FlockArg::LockExclusiveNonblock) {
        Ok(file) => file,
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Err(BrickError::InUse(layout.root.clone())),
        Err((_, errno)) => return Err(BrickError::Io { path: layout.marker(), cause: errno.into() }),
    };
    let id = read_marker(layout, &file)?;
    Ok((file, id))
}

/// The identity of a brick, which may be in use.
pub(crate) fn identity(layout: &Layout) -> Result<u128, BrickError> {
    read_marker(layout, &open_marker(layout)?)
}

fn open_marker(layout: &Layout) -> Result<File, BrickError> {
    let path = layout.marker();
    File::open(&path).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => BrickError::NotABrick(layout.root.clone()),
        _ => BrickError::Io { path, cause },
    })
}

fn read_marker(layout: &Layout, file: &File) -> Result<u128, BrickError> {
    let path = layout.marker();
    let mut text = String::new();
    file.take(ALIGN_BYTES as u64).read_to_string(&mut text).map_err(BrickError::io(&path))?;
    let damaged = |what| BrickError::Damaged { path: path.clone(), what };
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(damaged("it does not begin with 'shoal brick'"));
    }
    let version = lines.next().and_then(|line| line.strip_prefix("version ")?.parse().ok());
    match version {
        Some(VERSION) => {}
        Some(found) => return Err(BrickError::Version { path, found, known: VERSION }),
        None => return Err(damaged("there is no version in it")),
    }
    let id = lines.next().and_then(|line| u128::from_str_radix(line.strip_prefix("id ")?, 16).ok());
    id.ok_or_else(|| damaged("there is no identity in it"))
}

/// Whether there is nothing in the directory but remains of an interrupted [`format`], and the `lost+found`
/// of a file system's root.
fn is_empty_enough(layout: &Layout) -> Result<bool, BrickError> {
    // Where the marker is written before it gets its name.
    let draft = layout.root.join(format!("{MARKER}.new"));
    for entry in std::fs::read_dir(&layout.root).map_err(BrickError::io(&layout.root))? {
        let path = entry.map_err(BrickError::io(&layout.root))?.path();
        let ours = if path == layout.blocks {
            std::fs::read_dir(&path).map_err(BrickError::io(&path))?.next().is_none()
        } else {
            path == draft || path.ends_with("lost+found")
        };
        if !ours {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sync_dir(path: &Path) -> Result<(), BrickError> {
    durable::sync_dir(path).map_err(BrickError::io(path))
}

pub(crate) fn random_id(root: &Path) -> Result<u128, BrickError> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(BrickError::io(root))?;
    Ok(u128::from_le_bytes(bytes))
}
