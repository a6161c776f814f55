//! The kernel's FUSE protocol (`linux/fuse.h`): requests, replies, and how they travel. Knows nothing of
//! Shoal.
//!
//! **Model.** A [`Session`] answers INIT, then takes requests from `/dev/fuse` on several threads, each with
//! a descriptor of its own ([`clone_device`]), or over io_uring, with a queue and a thread per processor.
//! [`Transport`] says which. Each request is decoded where the kernel has put it, and handed to one method of
//! a [`Filesystem`] together with the reply that is due. The reply may be sent later, from any thread.
//!
//! **Assumes** that the device is mounted already: mount(2) is the caller's.
//!
//! **Promises.** A request gets exactly one reply: one that is dropped is answered with `EIO`. Bytes of the
//! kernel that make no sense end the session with an error, and are never read beyond their end. The session
//! ends with the mount, when all of its threads have.
//!
//! **Leaves out** what Shoal refuses anyway: `FUSE_POLL`, `FUSE_IOCTL`, `FUSE_TMPFILE`, `FUSE_STATX`, DAX.

pub mod abi;
mod device;
mod filesystem;
mod reply;
mod request;
mod ring;
mod session;
mod types;

pub use abi::{InitFlags, OpenFlags, WriteFlags};
pub use device::{clone_device, open_device};
pub use filesystem::{Filesystem, Offer, Refused, Settings};
pub use reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, absent,
};
pub use request::{CopyFileRange, Fallocate, LockRequest, Make, Read, Request, SetAttr, SetXattr, Write};
pub use session::{Session, Transport, allow_uring};
pub use types::{Attr, Entry, FileHandle, Lock, LockOwner, NodeId, SetTime, Statfs, Time, Unique};
