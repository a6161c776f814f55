//! The ways to answer a request.

use crate::encode::{attributes, node};
use crate::kernel::{attr_lifetime, name_lifetime};
use bytes::Bytes;
use shoal_channel::{
    Canceller, FileHandle, NodeId, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr,
};
use shoal_client::{Entry, LookupResult};
use shoal_runtime::planted::mistake;
use shoal_types::{Errno, Inode, InodeId};
use std::io::IoSlice;
use std::time::Duration;

/// A reply of any kind can be an error.
pub(crate) trait ErrorReply {
    fn fail(self, why: Errno);
    /// See [`Canceller`].
    fn canceller(&mut self) -> Canceller;
}

macro_rules! fail {
    ($($reply:ident)*) => { $(
        impl ErrorReply for $reply {
            fn fail(self, why: Errno) {
                self.error(why.0);
            }

            fn canceller(&mut self) -> Canceller {
                $reply::canceller(self)
            }
        }
    )* };
}

fail! {
    ReplyAttr ReplyCreate ReplyData ReplyDirectory ReplyDirectoryPlus ReplyEmpty ReplyEntry ReplyIoctl ReplyLock
    ReplyLseek ReplyOpen ReplyStatfs ReplyWrite ReplyXattr
}

/// The entry part of a reply: an inode, and for how long the kernel may cache its attributes.
fn shown(Entry { ino, inode }: &Entry, attr_lifetime: Duration) -> shoal_channel::Entry {
    shoal_channel::Entry {
        node: node(*ino),
        generation: inode.generation,
        name_lifetime: name_lifetime(),
        attr_lifetime,
        attr: attributes(*ino, inode),
    }
}

pub(crate) fn entry(reply: ReplyEntry, found: Result<Entry, Errno>) {
    match found {
        Ok(found) => reply.entry(&shown(&found, attr_lifetime())),
        Err(why) => reply.fail(why),
    }
}

/// A reply with a name, whose attributes the kernel must not cache. Also for link(2): the kernel accepts
/// attributes from that reply even if they were invalidated meanwhile.
pub(crate) fn entry_once(reply: ReplyEntry, made: Result<Entry, Errno>) {
    match made {
        Ok(made) => {
            let is_kept = mistake("keep the attributes of a new link");
            reply.entry(&shown(&made, if is_kept { attr_lifetime() } else { Duration::ZERO }));
        }
        Err(why) => reply.fail(why),
    }
}

/// A reply to LOOKUP; the kernel caches negative results too. `may_keep` says whether it may cache the
/// attributes, `node` gives the node id.
pub(crate) fn found(
    reply: ReplyEntry,
    found: Result<Option<LookupResult>, Errno>,
    may_keep: impl FnOnce(&Entry) -> bool,
    node: impl FnOnce(&LookupResult) -> NodeId,
) {
    match found {
        Ok(Some(found)) => {
            let lifetime = if may_keep(&found.entry) { attr_lifetime() } else { Duration::ZERO };
            let (node, shown) = (node(&found), shown(&found.entry, lifetime));
            // The kernel creates its root without asking, with this generation.
            let generation = if node == NodeId::ROOT { 0 } else { shown.generation };
            reply.entry(&shoal_channel::Entry { node, generation, ..shown });
        }
        Ok(None) => reply.entry(&shoal_channel::absent(name_lifetime())),
        Err(why) => reply.fail(why),
    }
}

/// A file created by open(2). It is open from now on, and what was written to it stays in the page cache when
/// it is opened again.
pub(crate) fn created(reply: ReplyCreate, handle: FileHandle, made: Result<Entry, Errno>) {
    match made {
        Ok(made) => reply.created(&shown(&made, attr_lifetime()), handle, OpenFlags::KEEP_CACHE),
        Err(why) => reply.fail(why),
    }
}

/// A reply with attributes. `may_keep` says whether the kernel may cache them; otherwise it asks again at the
/// next use.
pub(crate) fn attr(
    reply: ReplyAttr,
    ino: InodeId,
    inode: Result<Inode, Errno>,
    may_keep: impl FnOnce(&Inode) -> bool,
) {
    match inode {
        Ok(inode) => {
            let lifetime = if may_keep(&inode) { attr_lifetime() } else { Duration::ZERO };
            reply.attr(&lifetime, &attributes(ino, &inode));
        }
        Err(why) => reply.fail(why),
    }
}

/// A reply to ioctl(2).
pub(crate) fn ioctl(reply: ReplyIoctl, data: Result<Vec<u8>, Errno>) {
    match data {
        Ok(data) => reply.data(&data),
        Err(why) => reply.fail(why),
    }
}

pub(crate) fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(why) => reply.fail(why),
    }
}

/// A reply to a write of all bytes or none.
pub(crate) fn written(reply: ReplyWrite, len: u32, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.written(len),
        Err(why) => reply.fail(why),
    }
}

/// A reply to a copy of this many bytes.
pub(crate) fn copied(reply: ReplyWrite, copied: Result<u64, Errno>) {
    match copied {
        Ok(copied) => reply.written(copied as u32),
        Err(why) => reply.fail(why),
    }
}

/// Content in parts, which go to the kernel without being joined.
pub(crate) fn parts(reply: ReplyData, parts: Result<Vec<Bytes>, Errno>) {
    match parts {
        // Most replies have one part.
        Ok(parts) => match parts.as_slice() {
            [part] => reply.parts(&[IoSlice::new(part)]),
            parts => reply.parts(&parts.iter().map(|part| IoSlice::new(part)).collect::<Vec<_>>()),
        },
        Err(why) => reply.fail(why),
    }
}

/// A value for which the caller has `room` bytes; with 0 the reply is its size.
pub(crate) fn sized(reply: ReplyXattr, room: u32, value: Result<Bytes, Errno>) {
    match value {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > room as usize => reply.fail(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(why) => reply.fail(why),
    }
}
