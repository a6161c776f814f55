//! What an observation tells, taken apart into facts that can each be true at a moment of its own.

use crate::history::Call;
use crate::limits;
use crate::model::{Body, Id, State};
use crate::ops::{Kind, Listed, Name, Outcome, WORD_BYTES, Word};

/// One fact about one inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Atom {
    Kind(Kind),
    Ino(u64),
    Links(u64),
    Bytes(u64),
    Words(u64),
    Word(u64, Word),
    Target(Word),
    Present(Name, Option<Kind>, u64),
    Absent(Name),
    /// What no file system should return.
    Never,
}

/// The facts that a call saw. Empty for a call that failed, changes something or has not returned.
pub(super) fn of(call: &Call) -> Vec<Atom> {
    let mut atoms = match &call.outcome {
        Some(Outcome::Odd { .. }) => vec![Atom::Never],
        _ if call.op.changes() => Vec::new(),
        Some(Outcome::Attributes { kind, ino, links, bytes }) => {
            vec![Atom::Kind(*kind), Atom::Ino(*ino), Atom::Links(*links), Atom::Bytes(*bytes)]
        }
        Some(Outcome::Content { words }) => {
            let each = words.iter().enumerate().map(|(at, word)| Atom::Word(at as u64, *word));
            std::iter::once(Atom::Words(words.len() as u64)).chain(each).collect()
        }
        Some(Outcome::Target { word }) => vec![Atom::Target(*word)],
        Some(Outcome::Names { listed }) => listing(listed),
        Some(Outcome::Opened { .. }) => vec![Atom::Never],
        Some(Outcome::Done | Outcome::Failed { .. }) | None => Vec::new(),
    };
    atoms.truncate(limits::ATOMS_MAX);
    atoms
}

/// Each listed name existed at some moment, each missing name was absent at some moment. A name that is
/// listed twice was gone in between, unless it led to two inodes.
fn listing(listed: &[Listed]) -> Vec<Atom> {
    let mut atoms = Vec::new();
    for one in listed {
        match one.name.as_bytes() {
            [name @ b'a'..=b'z'] => atoms.push(Atom::Present(*name, one.kind, one.ino)),
            _ => atoms.push(Atom::Never),
        }
    }
    for name in b'a'..=b'z' {
        let mut these = listed.iter().filter(|one| one.name.as_bytes() == [name]).map(|one| one.ino);
        let missing = match these.next() {
            None => true,
            Some(first) => these.any(|ino| ino == first),
        };
        if missing {
            atoms.push(Atom::Absent(name));
        }
    }
    atoms
}

impl Atom {
    /// Whether the fact holds for this inode now. `slack` is how far a link count may be off because of calls
    /// in progress.
    pub(super) fn holds(&self, state: &State, id: Id, slack: u64) -> bool {
        let Some(inode) = state.inode(id) else { return false };
        match (self, &inode.body) {
            (Self::Kind(kind), body) => *kind == body.kind(),
            (Self::Ino(ino), _) => inode.ino == Some(*ino),
            // Some file systems do not count subdirectories and say 1.
            (Self::Links(1), Body::Dir { .. }) => true,
            (Self::Links(links), _) => links.abs_diff(state.links(id)) <= slack,
            (Self::Bytes(bytes), Body::File(words)) => *bytes == words.len() as u64 * WORD_BYTES,
            (Self::Bytes(_), _) => true,
            (Self::Words(count), Body::File(words)) => *count == words.len() as u64,
            (Self::Word(at, word), Body::File(words)) => {
                *word == words.get(*at as usize).copied().unwrap_or_default()
            }
            (Self::Target(word), Body::Symlink(target)) => word == target,
            (Self::Present(name, kind, ino), Body::Dir { names, .. }) => {
                names.get(name).and_then(|id| state.inode(*id)).is_some_and(|inode| {
                    kind.is_none_or(|kind| kind == inode.body.kind())
                        && inode.ino.is_none_or(|known| known == *ino)
                })
            }
            (Self::Absent(name), Body::Dir { names, .. }) => !names.contains_key(name),
            _ => false,
        }
    }
}
