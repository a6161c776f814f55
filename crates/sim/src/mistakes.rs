//! Defects that can be planted in the code under test, to prove that worlds find them.

use crate::plan::Plan;
use crate::world::run;
use std::ops::Range;

/// All defects, by the names that the code passes to `shoal_runtime::planted`.
pub const MISTAKES: &[&str] = &[
    "answer before the log is flushed",
    "lose the end of the log",
    "forget whom it voted for",
    "say that it is applied before it is",
    "leave out a change on one replica",
    "apply a batch again that comes again",
    "accept what an ended session sends",
    "end sessions while their lease lasts",
    "do not wait for what sessions held",
    "do not say what is born",
    "forget one watcher",
    "forget who watches files of several names",
    "give inode numbers twice",
    "tell a new leader nothing",
    "tell a new leader nothing of what is under way",
    "count answers of an earlier leader",
    "acknowledge a recall without carrying it out",
    "let a recall overtake the answer that it takes back",
    "give back what is not committed",
    "answer from caches without a lease",
    "say at once that it is durable",
    "do not say what is open",
    "do not send again what a dead leader was sent",
    "name a block before it is stored",
    "take one copy of a block for enough",
    "count a shard twice",
    "forget the scheme at a change of leader",
    "delete a block before it is in its new place",
    "delete old copies before the new place is committed",
    "take a part of a new place for all of it",
    "give up a copy that is nowhere else",
    "leave blocks in their old scheme",
    "convert blocks whatever their directories say",
    "keep as many copies as the volume was created with",
    "leave what a dead client stored",
    "keep what a session held",
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
