//! Defects that can be planted in the code under test, to prove that worlds find them.

use crate::plan::Plan;
use crate::world::run;
use std::ops::Range;

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
];

/// The first seed that finds a defect, and its finding. Seeds that find something without it do not count.
pub fn find(mistake: &str, seeds: Range<u64>) -> Option<(u64, String)> {
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
