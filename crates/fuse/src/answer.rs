//! The ways to answer a request.

use crate::encode::{absent, errno, file_attr, generation};
use crate::kernel::name_lifetime;
use crate::limits::KERNEL_CACHE;
use bytes::Bytes;
use fuser::{FileHandle, FopenFlags, Generation, INodeNo};
use shoal_client::{Entry, Looked};
use shoal_types::{Errno, Inode, InodeId};
use std::cell::RefCell;
use std::time::Duration;

/// A reply of any kind can be an error.
pub(crate) trait Fail {
    fn fail(self, why: Errno);
}

macro_rules! fail {
    ($($reply:ident)*) => { $(
        impl Fail for fuser::$reply {
            fn fail(self, why: Errno) {
                self.error(errno(why));
            }
        }
    )* };
}

fail! {
    ReplyAttr ReplyBmap ReplyCreate ReplyData ReplyDirectory ReplyDirectoryPlus ReplyEmpty ReplyEntry ReplyIoctl
    ReplyLock ReplyLseek ReplyOpen ReplyPoll ReplyStatfs ReplyWrite ReplyXattr
}

pub(crate) fn entry(reply: fuser::ReplyEntry, found: Result<Entry, Errno>) {
    match found {
        Ok(Entry { ino, inode }) => {
            let (attr, generation) = (file_attr(ino, &inode), generation(&inode));
            reply.entry_with_ttls(&KERNEL_CACHE, &name_lifetime(), &attr, generation);
        }
        Err(why) => reply.fail(why),
    }
}

/// A reply with a name, whose attributes the kernel must not cache. Also for link(2): the kernel accepts
/// attributes from that reply even if they were invalidated meanwhile.
pub(crate) fn entry_once(reply: fuser::ReplyEntry, made: Result<Entry, Errno>) {
    match made {
        Ok(Entry { ino, inode }) => {
            let (attr, generation) = (file_attr(ino, &inode), generation(&inode));
            reply.entry_with_ttls(&Duration::ZERO, &name_lifetime(), &attr, generation);
        }
        Err(why) => reply.fail(why),
    }
}

/// A reply to LOOKUP; the kernel caches negative results too. `may_keep` says whether it may cache the
/// attributes, `node` gives the node id.
pub(crate) fn found(
    reply: fuser::ReplyEntry,
    found: Result<Option<Looked>, Errno>,
    may_keep: impl FnOnce(&Entry) -> bool,
    node: impl FnOnce(&Looked) -> INodeNo,
) {
    match found {
        Ok(Some(found)) => {
            let lifetime = if may_keep(&found.entry) { KERNEL_CACHE } else { Duration::ZERO };
            let (node, Entry { ino, inode }) = (node(&found), found.entry);
            // The kernel creates its root without asking, with this generation.
            let generation = if node == INodeNo::ROOT { Generation(0) } else { generation(&inode) };
            let attr = file_attr(ino, &inode);
            reply.entry_by_node(node, &lifetime, &name_lifetime(), &attr, generation);
        }
        Ok(None) => reply.entry(&name_lifetime(), &absent(), Generation(0)),
        Err(why) => reply.fail(why),
    }
}

/// A file created by open(2). It is open from now on, and what was written to it stays in the page cache when
/// it is opened again.
pub(crate) fn created(reply: fuser::ReplyCreate, handle: FileHandle, made: Result<Entry, Errno>) {
    match made {
        Ok(Entry { ino, inode }) => reply.created(
            &name_lifetime(),
            &file_attr(ino, &inode),
            generation(&inode),
            handle,
            FopenFlags::FOPEN_KEEP_CACHE,
        ),
        Err(why) => reply.fail(why),
    }
}

/// A reply with attributes. `may_keep` says whether the kernel may cache them; otherwise it asks again at the
/// next use.
pub(crate) fn attr(
    reply: fuser::ReplyAttr,
    ino: InodeId,
    inode: Result<Inode, Errno>,
    may_keep: impl FnOnce(&Inode) -> bool,
) {
    match inode {
        Ok(inode) => {
            let lifetime = if may_keep(&inode) { KERNEL_CACHE } else { Duration::ZERO };
            reply.attr(&lifetime, &file_attr(ino, &inode));
        }
        Err(why) => reply.fail(why),
    }
}

pub(crate) fn empty(reply: fuser::ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(why) => reply.fail(why),
    }
}

/// A reply to a write of all bytes or none.
pub(crate) fn written(reply: fuser::ReplyWrite, len: u32, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.written(len),
        Err(why) => reply.fail(why),
    }
}

/// A reply to a copy of this many bytes.
pub(crate) fn copied(reply: fuser::ReplyWrite, copied: Result<u64, Errno>) {
    match copied {
        Ok(copied) => reply.written(copied as u32),
        Err(why) => reply.fail(why),
    }
}

/// Content in parts. One part, the common case, goes to the kernel without a copy.
pub(crate) fn parts(reply: fuser::ReplyData, parts: Result<Vec<Bytes>, Errno>) {
    thread_local! {
        static JOINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    match parts.as_deref() {
        Ok([]) => reply.data(&[]),
        Ok([part]) => reply.data(part),
        Ok(parts) => JOINED.with_borrow_mut(|joined| {
            joined.clear();
            parts.iter().for_each(|part| joined.extend_from_slice(part));
            reply.data(joined);
        }),
        Err(why) => reply.fail(*why),
    }
}

/// A value for which the caller has `room` bytes; with 0 the reply is its size.
pub(crate) fn sized(reply: fuser::ReplyXattr, room: u32, value: Result<Bytes, Errno>) {
    match value {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > room as usize => reply.fail(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(why) => reply.fail(why),
    }
}
