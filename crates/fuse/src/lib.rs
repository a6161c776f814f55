//! The kernel front end: a volume as a directory, through FUSE.
//!
//! **Model.** Requests are read by a few threads and answered on the spot, from the client's memory. What the client cannot
//! answer without waiting is repeated by one of the threads kept for that, so that it holds up nobody else. There is no
//! logic of a file system here: every method decodes a request, makes one call of [`shoal_client::Client`], and
//! encodes the outcome.
//!
//! **The kernel caches.** The session is told before anybody else changes what it has seen, so the kernel may keep names
//! (absent ones too), attributes, listings, link targets and content for as long as it likes, and is made to drop what
//! others change ([`stale`]). `open`, `opendir` and `flush` are refused once with `ENOSYS`; from then on the kernel opens and
//! closes files without a message. Reading what was read before sends nothing at all. (With locks that exclude between mounts
//! opening and closing take a message each: [`LockScope`].)
//!
//! **Assumes.** Linux 6.16 or newer; since 5.12 it works, but the kernel has to ask for every name. Permissions and ACLs are checked by the kernel (`default_permissions`);
//! its own fcntl and flock locks exclude within the mount.
//!
//! **Promises.** A request gets exactly one reply. Queues and threads are bounded (see [`limits`]). When the mount has
//! ended, by whatever hand, every request has been answered before [`Mounted::wait`] returns.
//!
//! **Refuses.** ioctl(2), `RENAME_WHITEOUT`, collapsing and inserting ranges, `O_TMPFILE`.
//!
//! **If it hangs.** A process stuck in a mount whose server does not answer is freed by
//! `echo 1 > /sys/fs/fuse/connections/N/abort` (N: the minor device number, see `stat -c %d`), or `umount -f -l`. Whoever serves a
//! mount has another process call [`release`] should it be killed, and [`StoppedKernel::empty`] should it be stopped.

mod answer;
mod busy;
mod caller;
mod encode;
mod front;
mod kernel;
pub mod limits;
mod listing;
mod locks;
mod mount;
pub mod mountinfo;
mod near;
mod nodes;
mod orphan;
mod places;
mod prime;
mod serve;
mod setattr;
mod slow;
mod stale;
mod stats;
mod statx;
mod stopped;
mod thread;
mod tune;
mod xattr;

pub use locks::LockScope;
pub use mount::{MountError, MountOptions, Mounted, mount};
pub use orphan::release;
pub use stale::Drops;
pub use stats::{OpStats, Stats};
pub use stopped::{StoppedKernel, Watch};

/// The file system's type as `/proc/mounts` shows it.
pub const FSTYPE: &str = "fuse.shoal";
