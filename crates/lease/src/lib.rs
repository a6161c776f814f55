//! Who may cache what, and who may change it: the leader's memory of a volume's rights, pure. Events in,
//! recalls out.
//!
//! **Covers and nodes.** Every inode is counted under one *cover*: a directory and a file that has had
//! several names under themselves, any other file under its directory. A session *watches* a cover as soon as
//! it has been told anything under it. The right to change is held for a whole cover, if nobody else watches
//! it, or for a single inode (*node*) inside a cover that others watch. The node of a directory comes with
//! *names*: those that may be changed; all others stay valid for those who watch.
//!
//! **Reads** ([`Table::read`]) wait until nobody else holds what they are about, which they have recalled:
//! the holder commits and goes down to watching. **Changes** ([`Table::acquire`]) have everybody else
//! recalled who watches the cover: they *drop* the node (and the names) and acknowledge. Only then the change
//! goes on, and only one change at a time has the same node.
//!
//! **Who waits for whom.** A read never waits for the acknowledgement of its own session: a kernel that waits
//! for the answer to a read holds locks that dropping needs. So, as long as a session has not acknowledged,
//! its reads are answered with what still is; and since it may have cached that after having dropped it, its
//! acknowledgement does not count, and it is recalled once more. A session that has acknowledged waits with
//! its reads until the change has been made. A change waits for older reads, which wait for holders only; and
//! a read that has waited counts as watching before the next change begins: so neither starves.
//!
//! **What is on its way.** Whoever holds or watches something according to its own belief does so here, too;
//! here it may be more. Therefore an acknowledgement takes back only what was held when its recall was sent,
//! and what a session says that it does not cache any more counts only if it has been told nothing of it
//! since then.
//!
//! **Time** is not known here. Whoever drives the table says when it is, and asks who has been recalled for
//! too long.
//!
//! **Locks** of programs (fcntl(2), flock(2)) are another table: [`locks`].
//!
//! **Leaders.** A new leader's table is *recovering* until every session that lives has declared what it
//! holds, or has been ended. Until then everything waits.

pub mod limits;
pub mod locks;
pub mod table;

pub use table::{Answer, Item, ReadItem, Recall, Refusal, RequestId, Right, Rights, Table, Target};
