//! Calls that change contents.

use super::names::Changed;
use super::{Body, Errno, Id, Inode, State};
use crate::limits;
use crate::ops::{Outcome, Word};

/// Changes the content of a file. Another inode is refused, with an errno that depends on its kind.
fn content(
    state: &State,
    id: Id,
    no_file: impl Fn(&Body) -> Errno,
    change: impl FnOnce(&mut Vec<Word>),
) -> Changed {
    let mut after = state.clone();
    let changed = after.alter(id, |Inode { body, .. }| match body {
        Body::File(words) => {
            change(words);
            Ok(())
        }
        other => Err(no_file(other)),
    });
    changed.unwrap_or(Err(libc::ENOENT)).map(|()| (Outcome::Done, Some(after)))
}

pub(super) fn truncate(state: &State, id: Id, words: u64) -> Changed {
    let no_file = |body: &Body| match body {
        // It is followed, and leads nowhere.
        Body::Symlink(_) => libc::ENOENT,
        _ => libc::EISDIR,
    };
    let length = words.min(limits::MODEL_WORDS_MAX) as usize;
    content(state, id, no_file, |words| words.resize(length, Word::default()))
}

pub(super) fn write(state: &State, worker: u32, slot: u8, at: u64, word: Word) -> Changed {
    let handle = state.handle(worker, slot).ok_or(libc::EBADF)?;
    content(
        state,
        handle.id,
        |_| libc::EBADF,
        |words| {
            let at = if handle.append { words.len() } else { at.min(limits::MODEL_WORDS_MAX) as usize };
            if words.len() <= at {
                words.resize(at + 1, Word::default());
            }
            words[at] = word;
        },
    )
}
