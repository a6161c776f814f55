//! The kernel's FUSE protocol (`linux/fuse.h`): requests, replies, and their transport. Independent of the
//! rest of Shoal.
//!
//! **Model.** A [`Session`] answers INIT, then takes requests from `/dev/fuse` on several threads, each with
//! a descriptor of its own ([`clone_device`]), or over io_uring, with a queue and a thread per processor.
//! [`Transport`] says which. Each request is decoded in place, and passed to one method of a [`Filesystem`]
//! together with its reply object. The reply may be sent later, from any thread.
//!
//! A [`LocalConnection`] takes requests from this process instead, for simulations.
//!
//! **Assumes** that the caller has mounted the device (mount(2)).
//!
//! **Promises.** A request gets exactly one reply: one that is dropped is answered with `EIO`. A malformed
//! message ends the session with an error, and is never read beyond its end. The session ends with the
//! mount, when all of its threads have ended.
//!
//! **Leaves out** what Shoal refuses: `FUSE_POLL`, DAX.

pub mod abi;
mod device;
mod filesystem;
mod local;
mod reply;
mod request;
mod ring;
mod session;
mod types;

pub use abi::{InitFlags, OpenFlags, WriteFlags};
pub use device::{clone_device, open_device};
pub use filesystem::{Filesystem, InitRequest, Refused, Settings};
pub use local::LocalConnection;
pub use reply::{
    Canceller, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPath, ReplyStatfs, ReplyWrite, ReplyXattr, absent,
};
pub use request::{
    CopyFileRange, Fallocate, Ioctl, LockRequest, Make, Read, Request, SetAttr, SetXattr, Write,
};
pub use session::{Session, Transport, abort_connection, allow_uring};
pub use types::{Attr, Entry, FileHandle, Lock, LockOwner, NodeId, SetTime, Statfs, Time, Unique};
