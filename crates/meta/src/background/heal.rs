//! The healer: gives every block the copies it should have, on the bricks it should be on.
//!
//! **Model.** There are four tasks, each a walk over blocks that ends when all have been visited:
//! - *copies* takes the list of blocks that were stored on too few bricks;
//! - *survey* visits all blocks, because a brick is gone or is being drained, or because the volume stores
//!   blocks in another scheme now: as shards instead of copies, or the reverse. If directories have schemes
//!   of their own, a walk over all files follows, which converts blocks ([`schemes`](super::schemes));
//! - *rebalance* moves blocks to where placement would put them today;
//! - *check* asks the bricks whether they store what the namespace says.
//!
//! **The most endangered blocks first.** A walk finds all blocks that have to be healed, and then heals those
//! first that survive the fewest further losses ([`heal_queue`](super::heal_queue)). When bricks were added
//! or have failed since it began, it ends early, so that a new one puts what is endangered now first.
//!
//! **Order** of copying, committing and deleting is that of [`place`]. Blocks are copied by several threads,
//! below a configurable rate. A block that lacks several shards is read and decoded once for all of them.
//!
//! **Runs** on the leader alone. A new leader surveys all blocks once.

use super::heal_queue::{HealQueue, Priority};
use super::schemes::SchemeWalk;
use super::{StepError, place};
use crate::limits::{HEAL_FOUND_MAX, HEAL_GROUPS_MAX, HEAL_PAGE, HEAL_READ_PAGE};
use crate::shared::Shared;
use crate::tasks::{Examined, HealTask};
use shoal_namespace::command::Placed;
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::{Command, TreeError, query};
use shoal_runtime::planted::mistake;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BlockScheme, Schemes};
use shoal_wire::{BlockError, VolumeBlocks};
use std::collections::HashMap;

/// Runs until stopped.
pub(crate) fn run(shared: &Shared) {
    while let Some(task) = shared.heal.next() {
        let outcome = walk(shared, task);
        shared.heal.finished(task, matches!(outcome, Ok(true)));
        let status = shared.heal.status();
        if status.total_blocks > 0 {
            let (moved, waiting, failed) = (status.moved_blocks, status.waiting_blocks, status.failed_blocks);
            tracing::info!(?task, moved, waiting, failed, took_ms = status.took_ms, "healed blocks");
        }
        if let Err(StepError::Server(error)) = outcome {
            tracing::info!(%error, "healing is deferred");
        }
    }
}

/// The scheme that a block should have.
#[derive(Clone, Copy)]
enum Wanted {
    /// The one that it has: its file is not known here.
    Same,
    /// That of its file; `None`: the volume's.
    Scheme(Option<BlockScheme>),
}

impl Wanted {
    /// For tasks that do not know the files of blocks.
    fn of_any_file(bricks: &dyn VolumeBlocks) -> Wanted {
        if bricks.policies().schemes.is_empty() { Wanted::Scheme(None) } else { Wanted::Same }
    }

    fn is_met(self, bricks: &dyn VolumeBlocks, info: BlockInfo) -> bool {
        match self {
            Wanted::Same => true,
            Wanted::Scheme(scheme) => bricks.has_wanted_scheme(info, scheme),
        }
    }

    fn convert(
        self,
        bricks: &dyn VolumeBlocks,
        id: BlockId,
        info: BlockInfo,
    ) -> Result<BlockGroup, BlockError> {
        match self {
            Wanted::Same => Ok(info.group),
            Wanted::Scheme(scheme) => bricks.convert(id, info, scheme),
        }
    }
}

/// Returns whether it has reached the end.
fn walk(shared: &Shared, task: HealTask) -> Result<bool, StepError> {
    let schemes = shared.bricks.policies().schemes;
    let wanted = Wanted::of_any_file(&*shared.bricks);
    let search = |queue: &mut HealQueue, after, least| {
        let found = |examined| {
            shared.heal.note_examined(examined);
            !shared.heal.is_over()
        };
        Ok(find(&shared.store.snapshot(), &*shared.bricks, task, queue, (after, least), found)?)
    };
    let is_complete = in_order(search, |page| {
        if shared.heal.is_over() || shared.heal.should_restart() {
            return Ok(false);
        }
        heal(shared, task, page, |_| wanted).map(|()| true)
    })?;
    let converts = is_complete && task == HealTask::Survey && !schemes.is_empty();
    let is_complete = if converts { convert(shared, schemes)? } else { is_complete };
    Ok(is_complete && !shared.heal.is_over())
}

/// Converts blocks that are not in the scheme of their files. Returns whether it has reached the end.
fn convert(shared: &Shared, schemes: Schemes) -> Result<bool, StepError> {
    let mut walk = SchemeWalk::new(schemes);
    let ends = || shared.heal.is_over() || shared.heal.should_restart();
    let mut is_left = true;
    while is_left {
        let mut found = Vec::new();
        let mut wanted = HashMap::new();
        while is_left && found.len() < HEAL_FOUND_MAX {
            if ends() {
                return Ok(false);
            }
            is_left = walk.step(&shared.store, |id, info, scheme| {
                if !shared.bricks.has_wanted_scheme(info, scheme) {
                    found.push(id);
                    wanted.insert(id, Wanted::Scheme(scheme));
                }
            })?;
        }
        shared.heal.note(|status| status.total_blocks += found.len() as u64);
        for page in found.chunks(HEAL_PAGE) {
            if ends() {
                return Ok(false);
            }
            heal(shared, HealTask::Survey, page, |id| wanted.get(&id).copied().unwrap_or(Wanted::Same))?;
        }
    }
    Ok(true)
}

/// Calls `each` with the blocks that a survey would heal now, the most endangered first. Nothing is healed:
/// this is for measuring.
pub fn healing_order(
    store: &impl KvStore,
    bricks: &dyn VolumeBlocks,
    mut each: impl FnMut(&[BlockId]),
) -> Result<(), TreeError> {
    let search = |queue: &mut HealQueue, after, least| {
        find(&store.snapshot(), bricks, HealTask::Survey, queue, (after, least), |_| true)
    };
    in_order(search, |page| {
        each(page);
        Ok(true)
    })
    .map(drop)
}

/// Searches for blocks, and heals them a page at a time, in the order of their priorities. Returns whether
/// all were healed: `heal` answers whether to go on.
fn in_order<E>(
    search: impl Fn(&mut HealQueue, Option<BlockId>, Priority) -> Result<(), E>,
    mut heal: impl FnMut(&[BlockId]) -> Result<bool, E>,
) -> Result<bool, E> {
    let mut queue = HealQueue::new(HEAL_FOUND_MAX);
    search(&mut queue, None, Priority::misplaced())?;
    while let Some(batch) = queue.next() {
        for page in batch.blocks.chunks(HEAL_PAGE) {
            if !heal(page)? {
                return Ok(false);
            }
        }
        if batch.cut.is_some() {
            search(&mut queue, batch.cut, batch.priority)?;
        }
    }
    Ok(true)
}

/// Finds the blocks behind one that have to be healed and are at least as urgent as `least`. `found` is told
/// how many of a page were examined for the first time and added to the queue, and answers whether to go on.
/// A search that continues ends where the queue has no room for the blocks that it is about.
fn find(
    state: &impl KvRead,
    bricks: &dyn VolumeBlocks,
    task: HealTask,
    queue: &mut HealQueue,
    (mut after, least): (Option<BlockId>, Priority),
    found: impl Fn(Examined) -> bool,
) -> Result<(), TreeError> {
    let continues = after.is_some();
    let wanted = Wanted::of_any_file(bricks);
    let mut known = HashMap::<BlockGroup, (Option<Priority>, bool)>::new();
    loop {
        if known.len() > HEAL_GROUPS_MAX {
            known.clear();
        }
        let page: Vec<(BlockId, BlockInfo, bool)> = match task {
            HealTask::Copies => query::degraded(state, after, HEAL_READ_PAGE)?
                .into_iter()
                .map(|(id, info)| (id, info, true))
                .collect(),
            _ => query::blocks(state, after, HEAL_READ_PAGE)?
                .into_iter()
                .map(|(id, block)| (id, block.info, block.refs > 0))
                .collect(),
        };
        after = page.last().map(|(id, _, _)| *id);
        if after.is_none() {
            return Ok(());
        }
        let mut examined = Examined::default();
        for (id, info, _) in page.into_iter().filter(|(_, _, is_used)| *is_used) {
            let rank = || {
                let is_whole = bricks.is_whole(info.group);
                let priority = || Priority::lacking(bricks.losses_survived(info.group));
                ((!is_whole).then(priority), !is_whole && bricks.lacks_copies(info.group))
            };
            let (rank, is_lacking) = *known.entry(info.group).or_insert_with(rank);
            let is_fine = match task {
                HealTask::Survey if forgets_scheme(&info.group) => false,
                HealTask::Rebalance => bricks.is_balanced(id, info.group),
                HealTask::Check => false,
                _ => rank.is_none() && wanted.is_met(bricks, info),
            };
            let priority = rank.unwrap_or(Priority::misplaced());
            if !continues {
                examined.blocks += 1;
                examined.lacking += u64::from(is_lacking);
                examined.left_lacking += u64::from(is_lacking && is_fine);
            }
            if !is_fine && priority <= least {
                // What has become more urgent since the last walk belongs to the priority that is filled now.
                examined.found +=
                    u64::from(queue.add(if least < Priority::misplaced() { least } else { priority }, id));
            }
        }
        if !found(examined) || (continues && queue.is_cut(least)) {
            return Ok(());
        }
    }
}

/// Copies some blocks, commits their new places to the log, and deletes the copies that are in excess then.
/// Those that are being moved between tiers are left for later.
fn heal(
    shared: &Shared,
    task: HealTask,
    page: &[BlockId],
    wanted: impl Fn(BlockId) -> Wanted + Sync,
) -> Result<(), StepError> {
    let claimed = shared.heal.claim(page);
    let outcome = heal_claimed(shared, task, &claimed, wanted);
    shared.heal.release(&claimed);
    let busy = (page.len() - claimed.len()) as u64;
    shared.heal.note(|status| {
        status.done_blocks += page.len() as u64;
        status.waiting_blocks += busy;
    });
    outcome
}

fn heal_claimed(
    shared: &Shared,
    task: HealTask,
    page: &[BlockId],
    wanted: impl Fn(BlockId) -> Wanted + Sync,
) -> Result<(), StepError> {
    let term = shared.leads()?;
    let blocks =
        place::copy(page, shared.bricks.copying_nodes(), |id| copy_one(shared, task, id, wanted(id)))?;
    place::commit(
        shared,
        term,
        blocks,
        |blocks| Command::Place { blocks },
        |_, bytes| shared.heal.note_moved(bytes),
    )
}

fn copy_one(
    shared: &Shared,
    task: HealTask,
    id: BlockId,
    wanted: Wanted,
) -> Result<Option<Placed>, StepError> {
    let bricks = &*shared.bricks;
    let Some(known) = query::block(&shared.store, id)?.filter(|block| block.refs > 0).map(|block| block.info)
    else {
        return Ok(None);
    };
    let was_lacking = bricks.lacks_copies(known.group);
    let mut is_lacking = was_lacking;
    let outcome = try_one(shared, task, (id, known), wanted, &mut is_lacking);
    if was_lacking || is_lacking {
        shared.heal.note_tried(was_lacking, is_lacking);
    }
    outcome
}

/// [`copy_one`] for a block that is known. `is_lacking`: whether it lacks copies or shards afterwards.
fn try_one(
    shared: &Shared,
    task: HealTask,
    (id, known): (BlockId, BlockInfo),
    wanted: Wanted,
    is_lacking: &mut bool,
) -> Result<Option<Placed>, StepError> {
    let bricks = &*shared.bricks;
    let mut info = known;
    if task == HealTask::Survey && forgets_scheme(&known.group) {
        let to = BlockGroup::new(known.group.bricks()).unwrap_or_default();
        return Ok(Some(Placed { id, from: known.group, to }));
    }
    if task == HealTask::Check {
        info.group = bricks.verify(id, known.group);
        *is_lacking = bricks.lacks_copies(info.group);
        if info.group.is_empty() && !known.group.is_empty() {
            return failed(shared, id, &BlockError::Missing(id)).map(|()| None);
        }
    }
    let is_whole = bricks.is_whole(info.group);
    let has_wanted_scheme = wanted.is_met(bricks, info);
    let is_wanted = !is_whole || !has_wanted_scheme || task == HealTask::Rebalance;
    if !is_wanted || !shared.heal.rate_limiter.wait(u64::from(info.len), || shared.heal.is_over()) {
        return Ok(None);
    }
    let outcome = match (is_whole, has_wanted_scheme) {
        (true, true) => bricks.rebalance(id, info),
        (true, false) => wanted.convert(bricks, id, info),
        (false, true) => bricks.heal(id, info),
        // While it cannot be converted, it gets back what it lacks.
        (false, false) => wanted.convert(bricks, id, info).or_else(|_| bricks.heal(id, info)),
    };
    let to = match outcome {
        Ok(to) => to,
        Err(error) => return failed(shared, id, &error).map(|()| None),
    };
    *is_lacking = bricks.lacks_copies(to);
    let moved = BlockInfo { group: to, ..known };
    let is_fine = bricks.is_whole(to) && wanted.is_met(bricks, moved);
    if !is_fine || (task == HealTask::Rebalance && !bricks.is_balanced(id, to)) {
        shared.heal.note_failed(false);
    }
    if to == known.group && to != info.group {
        // The copy is on its brick again: the recorded group does not change.
        shared.heal.note_moved(u64::from(info.len));
    }
    Ok((to != known.group).then_some(Placed { id, from: known.group, to }))
}

/// A planted defect: a survey takes shards for copies, as if only the map knew the scheme.
fn forgets_scheme(group: &BlockGroup) -> bool {
    group.is_sharded() && mistake("forget the scheme at a change of leader")
}

/// A block could not be read. If nothing refers to it any more, it was deleted meanwhile.
fn failed(shared: &Shared, id: BlockId, error: &BlockError) -> Result<(), StepError> {
    if query::block(&shared.store, id)?.is_none_or(|block| block.refs == 0) {
        return Ok(());
    }
    let lost = matches!(error, BlockError::Missing(_) | BlockError::Corrupt { .. });
    if lost {
        tracing::error!(block = %id, %error, "a block has no good copy");
    } else {
        tracing::debug!(block = %id, %error, "a block cannot be healed now");
    }
    shared.heal.note_failed(lost);
    shared.heal.note(|status| status.last_error = Some(error.to_string()));
    Ok(())
}
