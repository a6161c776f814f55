//! Deleting a brick that nothing refers to any more, and looking at one before that.
//!
//! **Promises.** Only files that a brick makes are deleted; what else is in its directories stays. The marker
//! goes last, so that a deletion that was cut off is taken up again.

use crate::error::BrickError;
use crate::format;
use crate::layout::{Layout, Run, block_of, run_of, session_of};
use crate::limits::CONTENTS_COUNTED_MAX;
use crate::list::entries;
use shoal_runtime::durable;
use shoal_wire::BlockError;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// What became of a deletion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retirement {
    /// The brick is gone.
    Done,
    /// It was told to stop.
    Stopped,
    /// There is another brick, which is left alone.
    AnotherBrick,
}

fn listing(path: &Path) -> impl FnOnce(BlockError) -> BrickError {
    let path = path.to_owned();
    move |error| BrickError::Io { path, cause: std::io::Error::other(error.to_string()) }
}

fn runs(layout: &Layout) -> Result<Vec<Run>, BrickError> {
    let sessions = entries(&layout.blocks, session_of).map_err(listing(&layout.blocks))?;
    let mut all = Vec::new();
    for session in sessions {
        let path = layout.session(session);
        all.extend(entries(&path, |entry| run_of(session, entry)).map_err(listing(&path))?);
    }
    Ok(all)
}

/// The identity of the brick in a directory, and how many blocks it holds; counting ends at
/// [`CONTENTS_COUNTED_MAX`].
pub fn contents(dir: &Path) -> Result<(u128, u64), BrickError> {
    let layout = Layout::new(dir);
    let (_lock, id) = format::recognise(&layout)?;
    let mut blocks = 0;
    for run in runs(&layout)? {
        let path = layout.run(run);
        blocks += entries(&path, |entry| block_of(run, entry)).map_err(listing(&path))?.len() as u64;
        if blocks >= CONTENTS_COUNTED_MAX {
            break;
        }
    }
    Ok((id, blocks))
}

/// Deletes a brick if it has this identity. `go_on` hears after each directory how many blocks were deleted
/// so far and how long that directory took; it may wait, and ends the deletion by answering false.
pub fn retire(
    dir: &Path,
    id: u128,
    go_on: &mut dyn FnMut(u64, Duration) -> bool,
) -> Result<Retirement, BrickError> {
    let layout = Layout::new(dir);
    // Before the lock: the brick that took the place of this one is in use.
    if format::identity(&layout)? != id {
        return Ok(Retirement::AnotherBrick);
    }
    let (_lock, found) = format::recognise(&layout)?;
    if found != id {
        return Ok(Retirement::AnotherBrick);
    }
    let mut blocks = 0;
    for run in runs(&layout)? {
        let (begun, path) = (Instant::now(), layout.run(run));
        for block in entries(&path, |entry| block_of(run, entry)).map_err(listing(&path))? {
            let file = layout.block(block);
            std::fs::remove_file(&file).map_err(BrickError::io(&file))?;
            blocks += 1;
        }
        remove_empty(&path)?;
        if !go_on(blocks, begun.elapsed()) {
            return Ok(Retirement::Stopped);
        }
    }
    for session in entries(&layout.blocks, session_of).map_err(listing(&layout.blocks))? {
        remove_empty(&layout.session(session))?;
    }
    remove_empty(&layout.blocks)?;
    let marker = layout.marker();
    std::fs::remove_file(&marker).map_err(BrickError::io(&marker))?;
    durable::sync_dir(dir).map(|()| Retirement::Done).map_err(BrickError::io(dir))
}

/// Removes a directory unless something else is in it.
fn remove_empty(dir: &Path) -> Result<(), BrickError> {
    match std::fs::remove_dir(dir) {
        Err(cause) if !matches!(cause.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {
            Err(BrickError::Io { path: dir.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Brick;
    use bytes::Bytes;
    use shoal_types::{BlockId, SessionId};
    use shoal_wire::BlockService;

    fn filled(dir: &Path) -> u128 {
        Brick::format(dir).unwrap();
        let brick = Brick::open(dir).unwrap();
        for seq in [1, 2, 300, 301, 900] {
            let block = BlockId { session: SessionId(seq % 2 + 1), seq };
            brick.put(block, &[Bytes::from_static(b"content")]).unwrap();
        }
        brick.id()
    }

    #[test]
    fn brick_in_use_that_took_the_place_of_a_retired_one_is_recognised() {
        let temp = tempfile::tempdir().unwrap();
        Brick::format(temp.path()).unwrap();
        let brick = Brick::open(temp.path()).unwrap();
        let another = brick.id() + 1;
        assert_eq!(retire(temp.path(), another, &mut |_, _| true).unwrap(), Retirement::AnotherBrick);
        assert!(matches!(retire(temp.path(), brick.id(), &mut |_, _| true), Err(BrickError::InUse(_))));
    }

    #[test]
    fn retired_brick_is_deleted_and_its_directory_can_be_a_brick_again() {
        let temp = tempfile::tempdir().unwrap();
        let id = filled(temp.path());
        assert_eq!(contents(temp.path()).unwrap(), (id, 5));
        assert_eq!(retire(temp.path(), id + 1, &mut |_, _| true).unwrap(), Retirement::AnotherBrick);
        let mut steps = 0;
        let mut once = |_, _| {
            steps += 1;
            steps < 2
        };
        assert_eq!(retire(temp.path(), id, &mut once).unwrap(), Retirement::Stopped);
        let (same, left) = contents(temp.path()).unwrap();
        assert!(same == id && (1..5).contains(&left), "{left}");
        assert_eq!(retire(temp.path(), id, &mut |_, _| true).unwrap(), Retirement::Done);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
        Brick::format(temp.path()).unwrap();
        assert!(contents(temp.path()).unwrap().0 != id);
    }

    #[test]
    fn files_of_something_else_stay_and_a_brick_in_use_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let id = filled(temp.path());
        let foreign = temp.path().join("blocks/1/letter.txt");
        std::fs::write(&foreign, "").unwrap();
        let open = Brick::open(temp.path()).unwrap();
        assert!(matches!(retire(temp.path(), id, &mut |_, _| true), Err(BrickError::InUse(_))));
        drop(open);
        assert_eq!(retire(temp.path(), id, &mut |_, _| true).unwrap(), Retirement::Done);
        assert!(foreign.exists() && !temp.path().join("shoal-brick").exists());
    }
}
