//! The calls of a program on a mount with a model [`Kernel`](crate::kernel::Kernel).

use super::{Syscalls, Words, kind_of_mode, target};
use crate::kernel::{Kernel, Pin};
use shoal_channel::abi::Attr;
use shoal_witness::limits::READ_BYTES;
use shoal_witness::ops::{How, Listed, Op, Outcome};
use std::sync::Arc;

/// How often a program repeats a call that [`may_be_wrong`].
const TRIES: u32 = 32;

/// Whether a call failed because a directory was moved during it. The front end cannot always prevent that.
/// `ESTALE` comes after the kernel's second walk, if a directory on the path is moved once more. And if a
/// directory is renamed into itself, or replaced by what is in it, while it is moved, the kernel may know it
/// by two node ids. It then compares the types of both names before the server can answer `EINVAL` or
/// `ENOTEMPTY`.
fn may_be_wrong(op: &Op, errno: i32) -> bool {
    match (op, errno) {
        (_, libc::ESTALE) => true,
        (Op::Rename { from, to, .. }, libc::ENOTDIR) => to.names().starts_with(from.names()),
        (Op::Rename { from, to, .. }, libc::EISDIR) => from.names().starts_with(to.names()),
        _ => false,
    }
}

/// An open file.
pub(super) struct OpenFile {
    pin: Pin,
    append: bool,
}

/// A mount's kernel, and the open files of one program.
pub(super) struct Cached {
    kernel: Arc<Kernel>,
    slots: Vec<Option<OpenFile>>,
}

impl Cached {
    pub(super) fn new(kernel: Arc<Kernel>, slots: usize) -> Cached {
        Cached { kernel, slots: (0..slots).map(|_| None).collect() }
    }

    pub(super) fn holds(&self, slot: u8) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(Option::is_some)
    }

    fn file(&self, slot: u8) -> Result<(u64, bool), i32> {
        let open = self.slots.get(usize::from(slot)).and_then(Option::as_ref);
        open.map(|open| (open.pin.node(), open.append)).ok_or(libc::EBADF)
    }
}

impl Words {
    fn shown(self, attr: &Attr) -> Outcome {
        self.attributes(attr.mode, attr.ino, attr.nlink, attr.size)
    }
}

impl Syscalls {
    /// Makes a call on a mount with a kernel.
    pub(super) fn perform_cached(&mut self, op: &Op) -> Option<Outcome> {
        let (tid, words) = (self.thread, self.words);
        let cached = self.cached.as_mut()?;
        let mut outcome = attempt(cached, tid, words, op);
        for _ in 0..TRIES {
            if !outcome.as_ref().is_err_and(|errno| may_be_wrong(op, *errno)) {
                break;
            }
            outcome = attempt(cached, tid, words, op);
        }
        // `vfs_link` refuses a file whose cached link count is 0, which may be wrong until its attributes are
        // requested (hazard 9 of `docs/KERNEL_CACHE.md`).
        if let (Op::Link { from, .. }, Err(libc::ENOENT)) = (op, &outcome)
            && cached.kernel.lstat(tid, from.names()).is_ok()
        {
            outcome = attempt(cached, tid, words, op);
        }
        Some(outcome.unwrap_or_else(Outcome::failed))
    }
}

fn attempt(cached: &mut Cached, tid: u32, words: Words, op: &Op) -> Result<Outcome, i32> {
    let kernel = cached.kernel.clone();
    match op {
        Op::Open { path, create, exclusive, append, slot } => {
            let pin = kernel.open(tid, path.names(), *create, *exclusive)?;
            let ino = kernel.number(pin.node());
            if let Some(place) = cached.slots.get_mut(usize::from(*slot)) {
                let before = place.replace(OpenFile { pin, append: *append });
                drop(before);
            }
            return Ok(Outcome::Opened { ino: Some(ino) });
        }
        Op::Mkdir { path } => kernel.mkdir(tid, path.names())?,
        Op::Rmdir { path } => kernel.rmdir(tid, path.names())?,
        Op::Unlink { path } => kernel.unlink(tid, path.names())?,
        Op::Rename { from, to, how } => {
            let flags = match how {
                How::Replace => 0,
                How::NoReplace => libc::RENAME_NOREPLACE,
                How::Exchange => libc::RENAME_EXCHANGE,
            };
            kernel.rename(tid, from.names(), to.names(), flags)?;
        }
        Op::Link { from, to } => kernel.link(tid, from.names(), to.names())?,
        Op::Symlink { path, target } => {
            kernel.symlink(tid, path.names(), target.0.to_string().as_bytes())?;
        }
        Op::Readlink { path } => return Ok(target(&kernel.readlink(tid, path.names())?)),
        Op::Lstat { path } => return Ok(words.shown(&kernel.lstat(tid, path.names())?)),
        Op::List { path } => {
            let listed = kernel.list(tid, path.names())?;
            let shown = |(_, name, ino, kind): (u64, u8, u64, u32)| Listed {
                name: char::from(name).to_string(),
                kind: kind_of_mode(kind << 12),
                ino,
            };
            return Ok(Outcome::Names { listed: listed.into_iter().map(shown).collect() });
        }
        Op::Truncate { path, words: size } => kernel.truncate(tid, path.names(), words.bytes(*size))?,
        Op::Read { slot } => {
            let bytes = kernel.read(tid, cached.file(*slot)?.0, READ_BYTES as u64 * words.repeats)?;
            return Ok(words.content(&bytes));
        }
        Op::Write { slot, at, word } => {
            let (node, append) = cached.file(*slot)?;
            let at = (!append).then(|| words.bytes(*at));
            kernel.write(tid, node, at, &words.write(*word))?;
        }
        Op::Ftruncate { slot, words: size } => {
            kernel.resize(tid, cached.file(*slot)?.0, words.bytes(*size))?
        }
        Op::Fstat { slot } => return Ok(words.shown(&kernel.stat(tid, cached.file(*slot)?.0)?)),
        Op::Fsync { slot } => kernel.fsync(tid, cached.file(*slot)?.0)?,
    }
    Ok(Outcome::Done)
}
