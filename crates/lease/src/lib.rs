//! The leader's table of rights: which sessions may cache what, and which may change it. Pure: events in,
//! recalls out.
//!
//! **Covers and nodes.** Every inode is counted under one *cover*. A directory is its own cover, and so is a
//! file that has had several names; any other file is counted under its directory. A session *watches* a
//! cover as soon as a reply has told it anything under it. The right to change is held for a whole cover, if
//! no other session watches it, or for a single inode (*node*) inside a cover with other watchers. The right
//! to a directory's node comes with *names* that its holder may change; watchers may go on caching all other
//! names.
//!
//! **Reads** ([`Table::read`]) recall conflicting rights, and wait until they are released: the holder
//! commits and is downgraded to a watcher. **Changes** ([`Table::acquire`]) recall the node (and the names)
//! from all other watchers of the cover, which *drop* (invalidate) them and acknowledge. Only then the change
//! goes on. One change at a time has the same node.
//!
//! **Deadlocks.** A read never waits for the acknowledgement of its own session: a kernel that waits for the
//! reply to a read holds locks that an invalidation needs. So a session that has not acknowledged is answered
//! from the state before the change. It may have cached that reply after it had invalidated, so its
//! acknowledgement does not count, and it is recalled once more. A read of a session that has acknowledged
//! waits until the change has been made. A change waits for older reads, which wait for holders only. A read
//! that has waited counts as watching before the next change begins. So neither starves.
//!
//! **Messages in flight.** Whatever a session believes to hold or watch it does hold or watch in this table,
//! which may have more. Therefore an acknowledgement releases only what was held when its recall was sent. A
//! session's report that it no longer caches a cover counts only if it has been told nothing of that cover
//! since the recall.
//!
//! **Time.** The table has no clock: its caller sets the time, and asks which recalls are overdue.
//!
//! **Locks** of programs (fcntl(2), flock(2)) are another table: [`locks`].
//!
//! **Leaders.** A new leader's table is *recovering* until every live session has reclaimed what
//! it holds, or has ended. Until then all requests wait.

pub mod limits;
pub mod locks;
pub mod table;

pub use table::{Answer, Item, ReadItem, Recall, Refusal, RequestId, Right, Rights, Table, Target};
