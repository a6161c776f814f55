//! Defects that can be planted in the code under test, to prove that worlds find them.

use crate::plan::Plan;
use crate::world::run;

/// All defects, by the names that the code passes to `shoal_runtime::planted`.
pub const MISTAKES: &[&str] = &[
    "acknowledge before the log is flushed",
    "lose the tail of the log",
    "forget the vote",
    "report commands as applied too early",
    "skip a change on one replica",
    "apply a retried batch twice",
    "accept requests of an ended session",
    "end sessions before their lease expires",
    "do not wait for reclaims",
    "grant no rights to new inodes",
    "forget one watcher",
    "forget the watchers of hard links",
    "allocate inode numbers twice",
    "reclaim no rights",
    "reclaim no rights of uncommitted changes",
    "cache replies of an earlier leader",
    "acknowledge a recall without invalidating",
    "let a recall overtake the reply that it invalidates",
    "release rights before the commit",
    "serve from caches without a lease",
    "complete fsync at once",
    "do not report open files to a recall",
    "do not resend batches to a new leader",
    "commit a block before it is stored",
    "accept one copy of a block",
    "store new blocks on a sealed brick",
    "take a sealed brick for empty",
    "count a shard twice",
    "forget the scheme at a change of leader",
    "delete a block before it is in its new place",
    "delete old copies before the new place is committed",
    "accept a part of a new group",
    "drop a copy that was not replaced",
    "leave blocks in their old scheme",
    "convert blocks whatever their directories say",
    "keep as many copies as the volume was created with",
    "leave orphan blocks of a dead client",
    "keep the rights of an ended session",
    "wait for the lock of a directory",
    "outdate no names after a late listing",
    "keep the names of an outdated listing",
    "wait in the middle of a listing",
    "complete a listing after a change",
    "give names back before the dcache has them",
    "act on an outdated dentry",
    "give a moved directory no alias",
    "keep aliases of a changed directory",
    "invalidate an unknown inode only once",
    "do not wait for requests for attributes",
    "invalidate again what was invalidated",
    "answer readers before the kernel has the size",
    "keep directory attributes that a change overtakes",
    "keep every reply with attributes",
    "keep the attributes of a late change",
    "keep the attributes of a new link",
    "wait for pages that a write has locked",
    "keep the pages of a write that waited",
    "keep the pages of a write without a permit",
    "let every writer pass",
    "revoke no write permits",
    "append without invalidating the file",
    "append without waiting for readers",
    "keep the pages of a misplaced append",
    "show a size that is changing",
    "give a size back before the kernel has it",
    "keep the kernel's cache without a lease",
];

/// The first seed that finds a defect, and its finding. Seeds that find something without it do not count.
pub fn find(mistake: &str, seeds: impl Iterator<Item = u64>) -> Option<(u64, String)> {
    let level = tracing::Level::ERROR;
    for seed in seeds {
        let plan = Plan { planted: Some(mistake.to_owned()), ..Plan::of(seed) };
        let findings = run(&plan, false, level).findings;
        if let Some(finding) = findings.first()
            && run(&Plan::of(seed), false, level).findings.is_empty()
        {
            return Some((seed, finding.clone()));
        }
    }
    None
}
