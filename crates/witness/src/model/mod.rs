//! The model: what one local file system may answer.
//!
//! **Models.** A tree of directories, files and symlinks with link counts, inode numbers, contents in words,
//! and the open files of each worker. A [`State`] is a value; [`effect`] says what a call that takes place in
//! it, at one moment, returns and leaves.
//!
//! **Assumes.** All callers are root and there is room: no error comes from permissions, quotas or limits.
//! Symlinks lead nowhere. Where two errors apply, the model checks them in Linux's order.
//!
//! **Does not know** inode numbers beforehand: the first call that shows one fixes it. Nor does it know what
//! `close` does: a removed file is kept while some slot may still hold it.

mod content;
mod names;
mod rename;
mod state;

pub use state::{Body, Handle, Id, Inode, ROOT, State};

use crate::ops::{Kind, Listed, Op, Outcome, WORD_BYTES};

/// An errno.
pub type Errno = i32;

/// The caller, and the id of an inode that the call creates.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    /// The worker whose slots count.
    pub worker: u32,
    /// The id of the inode that this call creates, if it creates one. No other call has the same.
    pub makes: Id,
    /// The inode number that the caller saw, if it did.
    pub ino: Option<u64>,
}

/// What a path stands for in a call: the directory of its last name, or what the last name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathTarget {
    /// The call acts on a name in a directory.
    Parent,
    /// The call acts on the inode that the name led to, whatever becomes of the name meanwhile.
    Inode,
}

/// The paths that a call walks, in order, before it takes place.
pub fn paths(op: &Op) -> [Option<(&crate::ops::Path, PathTarget)>; 2] {
    match op {
        Op::Open { path, .. }
        | Op::Mkdir { path }
        | Op::Rmdir { path }
        | Op::Unlink { path }
        | Op::Symlink { path, .. } => [Some((path, PathTarget::Parent)), None],
        Op::Rename { from, to, .. } => [Some((from, PathTarget::Parent)), Some((to, PathTarget::Parent))],
        Op::Link { from, to } => [Some((from, PathTarget::Inode)), Some((to, PathTarget::Parent))],
        Op::Readlink { path } | Op::Lstat { path } | Op::List { path } | Op::Truncate { path, .. } => {
            [Some((path, PathTarget::Inode)), None]
        }
        Op::Read { .. } | Op::Write { .. } | Op::Ftruncate { .. } | Op::Fstat { .. } | Op::Fsync { .. } => {
            [None, None]
        }
    }
}

/// What `op` returns if it takes place now, and the state it leaves if it changes anything. `first` and
/// `second` are what its paths led to (see [`paths`]); calls on an open file take its inode as `first`.
pub fn effect(state: &State, who: Actor, op: &Op, first: Id, second: Id) -> (Outcome, Option<State>) {
    let result = match op {
        Op::Open { path, .. } | Op::Mkdir { path } | Op::Rmdir { path } | Op::Unlink { path }
            if path.names().is_empty() =>
        {
            Err(libc::EINVAL)
        }
        Op::Open { .. } => names::open(state, who, op, first),
        Op::Mkdir { path } => names::mkdir(state, who, path, first),
        Op::Symlink { path, target } => names::symlink(state, who, path, *target, first),
        Op::Rmdir { path } => names::rmdir(state, path, first),
        Op::Unlink { path } => names::unlink(state, path, first),
        Op::Link { to, .. } => names::link(state, to, first, second),
        Op::Rename { from, to, how } => rename::rename(state, (first, from), (second, to), *how),
        Op::Truncate { words, .. } => content::truncate(state, first, *words),
        Op::Ftruncate { words, .. } => content::truncate(state, first, *words),
        Op::Write { slot, at, word } => content::write(state, who.worker, *slot, *at, *word),
        Op::Fsync { .. } => Ok((Outcome::Done, None)),
        Op::Readlink { .. } | Op::Lstat { .. } | Op::List { .. } | Op::Read { .. } | Op::Fstat { .. } => {
            look(state, op, first).map(|outcome| (outcome, None))
        }
    };
    result.unwrap_or_else(|errno| (Outcome::failed(errno), None))
}

/// The result of a call that changes nothing, if all of it happens now.
fn look(state: &State, op: &Op, id: Id) -> Result<Outcome, Errno> {
    let inode = state.inode(id).ok_or(libc::ENOENT)?;
    match (op, &inode.body) {
        (Op::Readlink { .. }, Body::Symlink(word)) => Ok(Outcome::Target { word: *word }),
        (Op::Readlink { .. }, _) => Err(libc::EINVAL),
        (Op::List { .. }, Body::Dir { names, .. }) => {
            let listed = names.iter().map(|(name, id)| Listed {
                name: char::from(*name).to_string(),
                kind: state.inode(*id).map(|inode| inode.body.kind()),
                ino: state.inode(*id).and_then(|inode| inode.ino).unwrap_or_default(),
            });
            Ok(Outcome::Names { listed: listed.collect() })
        }
        // `opendir` follows it.
        (Op::List { .. }, Body::Symlink(_)) => Err(libc::ENOENT),
        (Op::List { .. }, Body::File(_)) => Err(libc::ENOTDIR),
        (Op::Read { .. }, Body::File(words)) => Ok(Outcome::Content { words: words.clone() }),
        (Op::Lstat { .. } | Op::Fstat { .. }, body) => Ok(Outcome::Attributes {
            kind: body.kind(),
            ino: inode.ino.unwrap_or_default(),
            links: state.links(id),
            bytes: match body {
                Body::File(words) => words.len() as u64 * WORD_BYTES,
                _ => 0,
            },
        }),
        _ => Err(libc::EBADF),
    }
}

/// Whether two results are equal. Where POSIX allows either of two errors, both count as equal. (A file is to
/// replace the directory that it is in: Linux reports that this is not empty, POSIX that it is a directory.)
pub fn same(model: &Outcome, seen: &Outcome) -> bool {
    let plain = |errno: i32| match errno {
        libc::EEXIST => libc::ENOTEMPTY,
        other => other,
    };
    match (model, seen) {
        (Outcome::Failed { errno: libc::ENOTEMPTY }, Outcome::Failed { errno: libc::EISDIR }) => true,
        (Outcome::Failed { errno: a }, Outcome::Failed { errno: b }) => a == b || plain(*a) == plain(*b),
        (Outcome::Opened { ino: a }, Outcome::Opened { ino: b }) => a == b || b.is_none(),
        _ => model == seen,
    }
}

impl Body {
    /// What kind of inode it makes.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Dir { .. } => Kind::Dir,
            Self::File(_) => Kind::File,
            Self::Symlink(_) => Kind::Symlink,
        }
    }
}

#[cfg(test)]
mod tests;
