//! The mover: moves blocks between the tiers of a volume.
//!
//! **Model.** A hot block leaves its tier if it was not used for some time, if the tier is too full and it is
//! among the longest unused, or if the tier is being detached. The index of the hot tier
//! ([`shoal_namespace::heat`]) gives these blocks in order. A cold block moves to the hot tier if it was read
//! often. Bricks count reads, and the mover takes the counts every second: reads of hot blocks go into the
//! index, those of cold blocks are kept in memory.
//!
//! Below a pin ([`pins`](super::pins)) neither age, fill nor reads decide: what is pinned hot stays there, or
//! is moved there as long as the tier has room, and what is pinned cold leaves.
//!
//! **Promises.** A block is not moved while it is being healed, or for some seconds after it was used or its
//! file was changed. All copies or shards are on the other tier, and were read back from disk, before the new
//! place is committed to the log; then the old ones are deleted. A command for a block that has been placed
//! elsewhere meanwhile changes nothing.
//!
//! **Runs** on the leader alone. The index is replicated, so a new leader continues with it. The counts of
//! reads of cold blocks begin at 0 again.

use super::pins::Walk;
use super::policies::Finder;
use super::{StepError, place};
use crate::limits::{
    CLOCK_AHEAD_MAX_S, HEAL_PAGE, HOT_COUNT_MAX, PIN_USED_AHEAD_S, PIN_WALK_EVERY, PIN_WALK_RETRY,
    TIER_EVERY, TIER_LOOK_MAX, TIER_PLAN_MAX, TIER_TOUCH_PART,
};
use crate::shared::Shared;
use crate::tasks::{TierSettings, TierState};
use serde::{Deserialize, Serialize};
use shoal_namespace::command::Placed;
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::limits::PLACE_BLOCKS_MAX;
use shoal_namespace::records::BlockRecord;
use shoal_namespace::{Command, TreeError, heat, query};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BlockId, BlockScheme, InodeId, Pins, Statfs, Tier, Timestamp};
use shoal_wire::{BlockError, MetaError};
use std::collections::{HashMap, HashSet};

/// Why a block is to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reason {
    /// The hot tier is being detached.
    Detach,
    /// It was not used for this many seconds.
    Unused(u64),
    /// This many percent of the hot tier are used.
    Full(u64),
    /// It was read this often.
    Read(u32),
    /// Its file is pinned to the other tier.
    Pinned,
}

/// A block that is to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// The block.
    pub id: BlockId,
    /// The file that wrote it, if that is known.
    pub owner: Option<InodeId>,
    /// Its length in bytes.
    pub bytes: u32,
    /// The tier that it moves to.
    pub to: Tier,
    /// Why.
    pub reason: Reason,
}

/// The inputs of a decision about moves, beside the blocks.
struct Scales {
    settings: TierSettings,
    /// In seconds since 1970.
    now: u64,
    total_bytes: u64,
    used_bytes: u64,
    /// Bytes that are to leave the hot tier because it is too full.
    surplus_bytes: u64,
}

impl Scales {
    /// Without room, the bricks of the hot tier do not answer.
    fn new(settings: TierSettings, now: u64, room: Option<Statfs>) -> Scales {
        let room = room.unwrap_or_default();
        let (total_bytes, used_bytes) = (room.total_bytes, room.total_bytes.saturating_sub(room.free_bytes));
        let part = |percent: u64| (u128::from(total_bytes) * u128::from(percent) / 100) as u64;
        let low = settings.low_percent.min(settings.high_percent);
        let is_full = used_bytes > part(settings.high_percent);
        let surplus_bytes = if is_full { used_bytes - part(low) } else { 0 };
        Scales { settings, now, total_bytes, used_bytes, surplus_bytes }
    }

    /// Whether a hot block that was last used then leaves its tier. Blocks come in the order of that time: if
    /// one stays, so do those behind it.
    fn demotion(&mut self, since: u64, bytes: u32) -> Option<Reason> {
        let unused = self.now.saturating_sub(since);
        // A time far ahead comes from a wrong clock: it must not keep the tier from being detached.
        let is_wrong = self.settings.detaching && since > self.now + CLOCK_AHEAD_MAX_S;
        if unused < self.settings.rest_s && !is_wrong {
            return None;
        }
        let used_percent = u128::from(self.used_bytes) * 100 / u128::from(self.total_bytes.max(1));
        let reason = match () {
            () if self.settings.detaching => Reason::Detach,
            () if unused >= self.settings.demote_after_s => Reason::Unused(unused),
            () if self.surplus_bytes > 0 => Reason::Full(used_percent as u64),
            () => return None,
        };
        self.surplus_bytes = self.surplus_bytes.saturating_sub(u64::from(bytes));
        Some(reason)
    }

    /// Whether a cold block that was read so often moves to the hot tier, which it leaves not too full.
    fn promotion(&mut self, reads: u32, bytes: u32) -> Option<Reason> {
        let wanted = self.settings.promote_reads;
        (wanted > 0 && reads >= wanted && self.takes(bytes)).then_some(Reason::Read(reads))
    }

    /// Whether the hot tier takes a block, which leaves it not too full.
    fn takes(&mut self, bytes: u32) -> bool {
        let used = u128::from(self.used_bytes) + u128::from(bytes);
        let fits = used * 100 <= u128::from(self.total_bytes) * u128::from(self.settings.high_percent);
        if fits && !self.settings.detaching {
            self.used_bytes += u64::from(bytes);
            return true;
        }
        false
    }
}

/// A place in the index of the hot tier.
type At = Option<(u64, BlockId)>;

/// The blocks to move, and where in the index to continue; `None`: at its beginning.
struct Plan {
    moves: Vec<Move>,
    next: At,
    /// There may be more.
    is_cut: bool,
    /// Blocks that would leave if they were not pinned hot.
    pinned: Vec<BlockId>,
}

/// Plans moves. Demotions are looked for in the index behind `after`.
fn plan(
    store: &(impl KvRead + ?Sized),
    scales: &mut Scales,
    pins: &Pins,
    hottest: &[(BlockId, u32)],
    mut after: At,
) -> Result<Plan, TreeError> {
    let (mut moves, mut pinned) = (Vec::new(), Vec::new());
    let mut finder = Finder::default();
    let mut looked = 0;
    let mut next = None;
    let used = |id| Ok::<_, TreeError>(query::block(store, id)?.filter(|block: &BlockRecord| block.refs > 0));
    'index: loop {
        let page = heat::longest_unused(store, after, TIER_PLAN_MAX)?;
        if page.is_empty() {
            break;
        }
        for (since, id) in page {
            if moves.len().max(pinned.len()) >= TIER_PLAN_MAX || looked >= TIER_LOOK_MAX {
                next = after;
                break 'index;
            }
            looked += 1;
            after = Some((since, id));
            let Some(block) = used(id)?.filter(|block| block.info.group.tier() == Tier::Hot) else {
                continue;
            };
            let owner = heat::hot(store, id)?.map(|hot| hot.owner).filter(|owner| *owner != heat::UNKNOWN);
            if let Some(owner) = owner
                && is_in_use(store, owner, scales)?
            {
                continue;
            }
            let bytes = block.info.len;
            let before = scales.surplus_bytes;
            let Some(mut reason) = scales.demotion(since, bytes) else { break 'index };
            if reason != Reason::Detach
                && let Some(owner) = owner
            {
                match finder.nearest(pins, store, owner)? {
                    Some((_, Tier::Hot)) => {
                        scales.surplus_bytes = before;
                        pinned.push(id);
                        continue;
                    }
                    Some((_, Tier::Cold)) => reason = Reason::Pinned,
                    None => {}
                }
            }
            moves.push(Move { id, owner, bytes, to: Tier::Cold, reason });
        }
    }
    let is_cut = next.is_some();
    for (id, reads) in hottest {
        let Some(block) = used(*id)?.filter(|block| block.info.group.tier() == Tier::Cold) else { continue };
        let bytes = block.info.len;
        if moves.len() < TIER_PLAN_MAX
            && let Some(reason) = scales.promotion(*reads, bytes)
        {
            moves.push(Move { id: *id, owner: None, bytes, to: Tier::Hot, reason });
        }
    }
    Ok(Plan { moves, next, is_cut, pinned })
}

/// Whether a file was changed within the last seconds. Its clock may be a little ahead of this one.
fn is_in_use(store: &(impl KvRead + ?Sized), ino: InodeId, scales: &Scales) -> Result<bool, TreeError> {
    let changed = query::record(store, ino)?.map(|inode| heat::seconds(inode.ctime));
    Ok(changed.is_some_and(|changed| changed.abs_diff(scales.now) < scales.settings.rest_s))
}

/// Blocks that were read often enough, the most read first.
fn hottest(shared: &Shared, settings: TierSettings) -> Vec<(BlockId, u32)> {
    match settings.promote_reads {
        0 => Vec::new(),
        wanted => shared.tiering.heat.lock().hottest(wanted, TIER_LOOK_MAX),
    }
}

/// The moves of blocks that a visit of pinned files has found, and whether some have to wait.
fn pinned_moves(
    store: &(impl KvRead + ?Sized),
    scales: &mut Scales,
    misplaced: &[(BlockId, InodeId, Tier)],
) -> Result<(Vec<Move>, bool), TreeError> {
    let (mut moves, mut waits) = (Vec::new(), false);
    for (id, ino, to) in misplaced {
        let Some(block) = query::block(store, *id)? else { continue };
        let bytes = block.info.len;
        let may_move = match to {
            Tier::Hot => scales.takes(bytes),
            Tier::Cold => !is_in_use(store, *ino, scales)?,
        };
        waits |= !may_move;
        if may_move {
            moves.push(Move { id: *id, owner: Some(*ino), bytes, to: *to, reason: Reason::Pinned });
        }
    }
    Ok((moves, waits))
}

fn now() -> u64 {
    heat::seconds(Timestamp::now())
}

impl Shared {
    /// The moves that are due now, and the fill of the tiers.
    pub(crate) fn tier_plan(&self) -> Result<Vec<Move>, MetaError> {
        self.serving()?;
        let Some(settings) = self.tiering.settings() else { return Ok(Vec::new()) };
        let mut scales = Scales::new(settings, now(), self.bricks.room_in(Tier::Hot).ok());
        let hottest = hottest(self, settings);
        let (state, pins) = (self.store.snapshot(), self.bricks.policies().pins);
        let mut moves = self.tree(plan(&state, &mut scales, &pins, &hottest, None))?.moves;
        if !pins.is_empty() && !settings.detaching {
            let found = self.tree(Walk::new(&pins).step(&state, now(), TIER_LOOK_MAX))?;
            let known: HashSet<BlockId> = moves.iter().map(|one| one.id).collect();
            let more = self.tree(pinned_moves(&state, &mut scales, &found.misplaced))?.0;
            moves.extend(more.into_iter().filter(|one| !known.contains(&one.id)));
        }
        Ok(moves)
    }

    /// The fill of the tiers.
    pub(crate) fn tier_state(&self) -> Result<TierState, MetaError> {
        self.catch_up()?;
        let state = self.store.snapshot();
        let (mut hot_blocks, mut after) = (0, None);
        while hot_blocks < HOT_COUNT_MAX {
            let page = self.tree(heat::longest_unused(&state, after, TIER_PLAN_MAX))?;
            let Some(last) = page.last() else { break };
            (hot_blocks, after) = (hot_blocks + page.len() as u64, Some(*last));
        }
        let room = self.tiering.settings().and_then(|_| self.bricks.room_in(Tier::Hot).ok());
        let (status, empty_s) = (self.tiering.status(), self.tiering.empty_s());
        Ok(TierState { status, hot_blocks, room, empty_s })
    }
}

/// The mover's memory between two looks.
#[derive(Default)]
struct Mover {
    after: At,
    /// Blocks that were moved since the counts of reads were last taken: the mover has read them itself.
    moved: HashSet<BlockId>,
    pins: Pins,
    /// The visit of pinned files that is under way.
    walk: Option<Walk>,
    /// When the next one begins.
    walk_at: Option<Instant>,
    /// Some blocks could not be moved in this visit.
    walk_waits: bool,
    /// Blocks that are pinned cold, as the last visit found them; `None` before the first one.
    cold: Option<HashSet<BlockId>>,
}

/// Runs until stopped.
pub(crate) fn run(shared: &Shared) {
    let mut mover = Mover::default();
    let mut pause = TIER_EVERY;
    while let Some(settings) = shared.tiering.next(pause) {
        pause = TIER_EVERY;
        if shared.leads().is_err() {
            mover = Mover::default();
            shared.tiering.note_empty(false);
            continue;
        }
        match mover.look(shared, settings) {
            Ok(true) => pause = Duration::ZERO,
            Ok(false) => {}
            Err(StepError::Brick(error)) => tracing::debug!(%error, "moving between tiers is deferred"),
            Err(StepError::Server(error)) => tracing::info!(%error, "moving between tiers is deferred"),
        }
    }
}

impl Mover {
    /// Takes the counts of reads, and moves the planned blocks. Returns whether to plan again at once.
    fn look(&mut self, shared: &Shared, settings: TierSettings) -> Result<bool, StepError> {
        self.note_pins(shared);
        self.note_reads(shared, settings)?;
        let is_empty = heat::longest_unused(&shared.store, None, 1)?.is_empty();
        shared.tiering.note_empty(settings.detaching && is_empty);
        if settings.paused {
            return Ok(false);
        }
        let room = shared.bricks.room_in(Tier::Hot).ok();
        let mut scales = Scales::new(settings, now(), room);
        let is_full = scales.surplus_bytes > 0;
        let hottest = hottest(shared, settings);
        let plan = plan(&shared.store.snapshot(), &mut scales, &self.pins, &hottest, self.after)?;
        self.after = plan.next;
        keep_hot(shared, &plan.pinned)?;
        let is_walking = self.visit_pinned(shared, settings, &mut scales)?;
        for page in plan.moves.chunks(HEAL_PAGE) {
            if shared.tiering.is_over() || shared.leads().is_err() {
                return Ok(false);
            }
            self.carry_out(shared, page, Timestamp::now())?;
        }
        // Bricks report the use of the tier with a delay.
        Ok((plan.is_cut && !is_full) || is_walking)
    }

    /// Takes the next step of a visit to all pinned files, and moves what it finds on the wrong tier. Returns
    /// whether more of it is to come.
    fn visit_pinned(
        &mut self,
        shared: &Shared,
        settings: TierSettings,
        scales: &mut Scales,
    ) -> Result<bool, StepError> {
        if self.pins.is_empty() || settings.detaching {
            return Ok(false);
        }
        if self.walk.is_none() && self.walk_at.is_none_or(|at| at <= Instant::now()) {
            (self.walk, self.walk_waits) = (Some(Walk::new(&self.pins)), false);
        }
        let Some(walk) = &mut self.walk else { return Ok(false) };
        let state = shared.store.snapshot();
        let found = walk.step(&state, now(), TIER_LOOK_MAX)?;
        if found.is_done {
            self.cold = Some(std::mem::take(&mut walk.cold));
            self.walk = None;
        }
        keep_hot(shared, &found.renewals)?;
        let (moves, waits) = pinned_moves(&state, scales, &found.misplaced)?;
        self.walk_waits |= waits;
        let failed = shared.tiering.status().failed;
        for page in moves.chunks(HEAL_PAGE) {
            if shared.tiering.is_over() || shared.leads().is_err() {
                return Ok(false);
            }
            self.carry_out(shared, page, used_ahead())?;
        }
        self.walk_waits |= shared.tiering.status().failed != failed;
        if found.is_done {
            let pause = if self.walk_waits { PIN_WALK_RETRY } else { PIN_WALK_EVERY };
            self.walk_at = Some(Instant::now() + pause);
        }
        Ok(!found.is_done)
    }

    /// Takes in the pins. If they have changed, all pinned files are visited at once.
    fn note_pins(&mut self, shared: &Shared) {
        let pins = shared.bricks.policies().pins;
        if pins != self.pins {
            (self.walk, self.walk_at) = (None, None);
            self.cold = None;
            self.pins = pins;
        }
    }

    /// Whether reads may bring a block to the hot tier, as far as pins decide.
    fn may_promote(&self, id: BlockId) -> bool {
        match &self.cold {
            Some(cold) => !cold.contains(&id),
            None => !self.pins.values().any(|tier| *tier == Tier::Cold),
        }
    }

    fn note_reads(&mut self, shared: &Shared, settings: TierSettings) -> Result<(), StepError> {
        let (now, reads) = (now(), shared.bricks.reads()?);
        let own = std::mem::take(&mut self.moved);
        let known_before = now.saturating_sub(settings.demote_after_s / TIER_TOUCH_PART);
        let mut touched = Vec::new();
        shared.tiering.heat.lock().expire(now);
        for (id, count) in reads.into_iter().filter(|(id, _)| !own.contains(id)) {
            match query::block(&shared.store, id)?.filter(|block| block.refs > 0) {
                Some(block) if block.info.group.tier() == Tier::Cold && self.may_promote(id) => {
                    shared.tiering.heat.lock().add(id, count);
                }
                Some(_) if heat::hot(&shared.store, id)?.is_some_and(|hot| hot.since < known_before) => {
                    touched.push(id);
                }
                _ => {}
            }
        }
        for blocks in touched.chunks(PLACE_BLOCKS_MAX) {
            shared.propose(&Command::Touch { blocks: blocks.to_vec(), time: Timestamp::now() })?;
        }
        Ok(())
    }

    /// Moves blocks. On the hot tier they count as used at `time`.
    fn carry_out(&mut self, shared: &Shared, page: &[Move], time: Timestamp) -> Result<(), StepError> {
        let term = shared.leads()?;
        let to = places(shared, page)?;
        let claimed = shared.heal.claim(&page.iter().map(|one| one.id).collect::<Vec<_>>());
        self.moved.extend(&claimed);
        let copied = place::copy(&claimed, shared.bricks.copying_nodes(), |id| match to.get(&id) {
            Some(to) => copy_one(shared, id, *to),
            None => Ok(None),
        });
        let moved = |block: &Placed, bytes| {
            shared.tiering.heat.lock().forget(block.id);
            shared.tiering.note(|status| match block.to.tier() {
                Tier::Cold => {
                    (status.demoted_blocks, status.demoted_bytes) =
                        (status.demoted_blocks + 1, status.demoted_bytes + bytes)
                }
                Tier::Hot => {
                    (status.promoted_blocks, status.promoted_bytes) =
                        (status.promoted_blocks + 1, status.promoted_bytes + bytes)
                }
            });
        };
        let outcome = copied.and_then(|blocks| {
            place::commit(shared, term, blocks, |blocks| Command::MoveTier { blocks, time }, moved)
        });
        shared.heal.release(&claimed);
        outcome
    }
}

/// Where blocks are moved to: the tier, and the scheme that the directories of their files have there. If the
/// file is not known, the healer converts the block later.
fn places(
    shared: &Shared,
    page: &[Move],
) -> Result<HashMap<BlockId, (Tier, Option<BlockScheme>)>, TreeError> {
    let (schemes, mut finder) = (shared.bricks.policies().schemes, Finder::default());
    let place = |one: &Move| {
        let nearest = match one.owner {
            Some(owner) => finder.nearest(&schemes, &shared.store, owner)?,
            None => None,
        };
        Ok((one.id, (one.to, nearest.map(|(_, scheme)| scheme))))
    };
    page.iter().map(place).collect()
}

/// Until when blocks that are pinned hot count as used.
fn used_ahead() -> Timestamp {
    let now = Timestamp::now();
    Timestamp { secs: now.secs.saturating_add_unsigned(PIN_USED_AHEAD_S), ..now }
}

/// Notes that blocks are pinned hot: they come behind all that may leave the hot tier.
fn keep_hot(shared: &Shared, blocks: &[BlockId]) -> Result<(), StepError> {
    for blocks in blocks.chunks(PLACE_BLOCKS_MAX) {
        shared.propose(&Command::Touch { blocks: blocks.to_vec(), time: used_ahead() })?;
    }
    Ok(())
}

/// Copies a block to the other tier, unless it is there already or not in use any more.
fn copy_one(
    shared: &Shared,
    id: BlockId,
    (tier, scheme): (Tier, Option<BlockScheme>),
) -> Result<Option<Placed>, StepError> {
    let known = query::block(&shared.store, id)?.filter(|block| block.refs > 0);
    let Some(info) = known.map(|block| block.info).filter(|info| info.group.tier() != tier) else {
        return Ok(None);
    };
    if !shared.tiering.rate_limiter.wait(u64::from(info.len), || shared.tiering.is_over()) {
        return Ok(None);
    }
    let moved =
        shared.bricks.move_to(id, info, tier, scheme).and_then(|to| match shared.bricks.is_whole(to) {
            true => Ok(to),
            false => Err(BlockError::Unreachable(format!("block {id} is not whole on the other tier"))),
        });
    match moved {
        Ok(to) => Ok((to != info.group).then_some(Placed { id, from: info.group, to })),
        Err(error) => {
            tracing::debug!(block = %id, %error, "a block cannot be moved to the other tier now");
            shared.tiering.note(|status| {
                status.failed += 1;
                status.last_error = Some(error.to_string());
            });
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: TierSettings = TierSettings {
        detaching: false,
        demote_after_s: 100,
        rest_s: 10,
        promote_reads: 3,
        high_percent: 90,
        low_percent: 70,
        bytes_per_second: 0,
        paused: false,
    };

    fn scales(settings: TierSettings, free_bytes: u64) -> Scales {
        Scales::new(settings, 1000, Some(Statfs { total_bytes: 1000, free_bytes, ..Statfs::default() }))
    }

    #[test]
    fn block_leaves_the_hot_tier_when_it_was_not_used_for_the_set_time() {
        let mut scales = scales(SETTINGS, 900);
        assert_eq!(scales.demotion(900, 10), Some(Reason::Unused(100)));
        assert_eq!(scales.demotion(901, 10), None);
        assert_eq!(scales.demotion(2000, 10), None, "a clock that was ahead");
    }

    #[test]
    fn hot_tier_that_is_too_full_is_emptied_down_to_the_low_watermark() {
        let mut full = scales(SETTINGS, 50);
        assert_eq!(full.surplus_bytes, 250);
        let left: Vec<u64> = (950..).take_while(|since| full.demotion(*since, 100).is_some()).collect();
        assert_eq!(left, [950, 951, 952]);
        assert_eq!(scales(SETTINGS, 100).surplus_bytes, 0, "at the high watermark");
        assert_eq!(scales(SETTINGS, 50).demotion(991, 100), None, "used a moment ago");
        let inverted = TierSettings { low_percent: 95, ..SETTINGS };
        assert_eq!(scales(inverted, 50).surplus_bytes, 50);
        assert_eq!(Scales::new(SETTINGS, 1000, None).surplus_bytes, 0, "it does not answer");
    }

    #[test]
    fn hot_tier_that_is_being_detached_takes_nothing_and_gives_all() {
        let mut scales = scales(TierSettings { detaching: true, ..SETTINGS }, 900);
        assert_eq!(scales.demotion(980, 10), Some(Reason::Detach));
        assert_eq!(scales.demotion(995, 10), None, "used a moment ago");
        assert_eq!(scales.demotion(1_000_000, 10), Some(Reason::Detach), "a wrong clock");
        assert_eq!(scales.promotion(100, 10), None);
    }

    #[test]
    fn block_moves_to_the_hot_tier_when_it_was_read_often_and_fits() {
        let mut roomy = scales(SETTINGS, 900);
        assert_eq!((roomy.promotion(2, 10), roomy.promotion(3, 10)), (None, Some(Reason::Read(3))));
        let mut tight = scales(SETTINGS, 150);
        assert_eq!((tight.promotion(5, 51), tight.takes(51)), (None, false));
        assert_eq!((tight.promotion(5, 50), tight.promotion(5, 1)), (Some(Reason::Read(5)), None));
        let never = TierSettings { promote_reads: 0, ..SETTINGS };
        assert_eq!(scales(never, 900).promotion(100, 10), None);
    }
}
