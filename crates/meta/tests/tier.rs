//! The mover between tiers, on bricks in memory.

mod support;

use bytes::Bytes;
use shoal_meta::{Reason, Server, TierSettings, offline};
use shoal_namespace::{heat, query};
use shoal_types::{
    BlockGroup, BlockId, BlockInfo, BrickId, Extent, InodeId, SessionId, Statfs, Tier, Timestamp,
};
use shoal_wire::{BlockError, BlockPage, BlockService, Moments, VolumeBlocks};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use support::*;

const SETTINGS: TierSettings = TierSettings {
    detaching: false,
    demote_after_s: 60,
    rest_s: 10,
    promote_reads: 3,
    high_percent: 90,
    low_percent: 70,
    bytes_per_second: 0,
    paused: false,
};

fn cold() -> BlockGroup {
    BlockGroup::new([BrickId(1)]).expect("one")
}

fn hot() -> BlockGroup {
    BlockGroup::new([BrickId(2)]).expect("one").on_hot_tier(1)
}

/// Two tiers of one brick each.
#[derive(Default)]
struct Tiers {
    cold: MemBricks,
    hot: MemBricks,
    /// What the bricks were asked for.
    reads: Mutex<BTreeMap<BlockId, u32>>,
    /// Moves fail.
    fails: AtomicBool,
    /// Moves wait.
    holds: AtomicBool,
    tries: AtomicUsize,
    used_percent: AtomicUsize,
}

impl Tiers {
    fn on(&self, group: &BlockGroup) -> &MemBricks {
        if group.tier() == Tier::Hot { &self.hot } else { &self.cold }
    }
    fn wait(&self) {
        while self.holds.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl VolumeBlocks for Tiers {
    fn store(&self, id: BlockId, parts: &[Bytes]) -> Result<BlockGroup, BlockError> {
        self.cold.put(id, parts).map(|()| cold())
    }
    fn fetch(&self, id: BlockId, group: BlockGroup, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.on(&group).get(id, offset, len)
    }
    fn discard(&self, blocks: &[(BlockId, BlockGroup)]) -> Result<Vec<BlockId>, BlockError> {
        blocks.iter().try_for_each(|(id, group)| self.on(group).delete(&[*id]))?;
        Ok(Vec::new())
    }
    fn discard_older(
        &self,
        blocks: &[(BlockId, BlockGroup)],
        _than: &Moments,
    ) -> Result<Vec<BlockId>, BlockError> {
        self.discard(blocks)
    }
    fn copies(&self, from: BlockId) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError> {
        VolumeBlocks::copies(&self.cold, from)
    }
    fn stored_sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        Ok(Vec::new())
    }
    fn room(&self) -> Result<Statfs, BlockError> {
        VolumeBlocks::room(&self.cold)
    }
    fn is_whole(&self, group: BlockGroup) -> bool {
        group == hot() || group == cold()
    }
    fn mend(&self, _id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        Ok(info.group)
    }
    fn move_to(&self, id: BlockId, info: BlockInfo, tier: Tier) -> Result<BlockGroup, BlockError> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        self.wait();
        if self.fails.load(Ordering::SeqCst) {
            return Err(BlockError::Unreachable("the test wants it so".into()));
        }
        let to = if tier == Tier::Hot { hot() } else { cold() };
        let content = self.on(&info.group).get(id, 0, info.len)?;
        self.on(&to).put(id, &[content])?;
        Ok(to)
    }
    fn room_in(&self, _tier: Tier) -> Result<Statfs, BlockError> {
        let used = self.used_percent.load(Ordering::SeqCst) as u64;
        Ok(Statfs { total_bytes: 1_000_000, free_bytes: (100 - used) * 10_000, ..Statfs::default() })
    }
    fn reads(&self) -> Result<BTreeMap<BlockId, u32>, BlockError> {
        Ok(std::mem::take(&mut *self.reads.lock().expect("lock")))
    }
}

fn begin(dir: &std::path::Path) -> (Arc<Tiers>, Arc<Server>, Session) {
    let bricks: Arc<Tiers> = Arc::default();
    let server = Server::open(dir, bricks.clone(), options()).expect("open");
    let session = Session::open(&server);
    (bricks, server, session)
}

/// A file with one block on a tier, written long ago.
fn file(bricks: &Tiers, session: &mut Session, name: &str, group: BlockGroup) -> (InodeId, BlockId) {
    let ino = session.touch(name);
    let (id, mut op) = session.block(bricks.on(&group), ino, 0, name.as_bytes().repeat(2000));
    place(&mut op, group);
    session.commit(&[op]);
    (ino, id)
}

fn place(op: &mut shoal_namespace::Op, group: BlockGroup) {
    if let shoal_namespace::Op::Write { declare: Some((_, info)), .. } = op {
        info.group = group;
    }
}

fn group_of(session: &Session, id: BlockId) -> BlockGroup {
    let found = shoal_wire::MetaService::blocks(&*session.server, session.id, &[id]).expect("asked");
    found[0].expect("known").group
}

fn content(bricks: &Tiers, session: &Session, ino: InodeId) -> Vec<u8> {
    let extents = extents(session, ino);
    let [(0, Extent::Block(block))] = &extents[..] else { panic!("{extents:?}") };
    bricks.fetch(block.id, group_of(session, block.id), block.offset, block.len).expect("read").to_vec()
}

#[test]
fn blocks_that_are_not_used_leave_the_hot_tier_and_keep_their_bytes() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let files: Vec<_> = (0..100).map(|n| file(&bricks, &mut session, &format!("f{n}"), hot())).collect();
    assert_eq!(server.tier_state().expect("state").hot_blocks, 100);
    server.set_tiers(Some(SETTINGS));
    eventually("all are cold", || bricks.hot.count() == 0 && bricks.cold.count() == 100);
    for (n, (ino, id)) in files.iter().enumerate() {
        assert_eq!(group_of(&session, *id), cold());
        assert_eq!(content(&bricks, &session, *ino), format!("f{n}").as_bytes().repeat(2000));
    }
    let state = server.tier_state().expect("state");
    assert_eq!((state.hot_blocks, state.status.demoted_blocks, state.status.failed), (0, 100, 0));
    drop((session, server));
    assert_consistent(&offline::open(dir.path()).expect("offline"));
}

#[test]
fn block_of_a_file_that_was_just_changed_is_not_moved() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let (_, old) = file(&bricks, &mut session, "old", hot());
    let (busy, in_use) = file(&bricks, &mut session, "busy", hot());
    let mut op = inline_op(busy, 100_000, &[1; 10]);
    if let shoal_namespace::Op::Write { time, .. } = &mut op {
        *time = Timestamp::now();
    }
    session.commit(&[op]);
    server.set_tiers(Some(SETTINGS));
    eventually("the other one is moved", || group_of(&session, old) == cold());
    assert_eq!(group_of(&session, in_use), hot());
    assert!(server.tier_plan().expect("plan").is_empty());
}

#[test]
fn plan_says_what_would_move_and_why_and_moves_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let (ino, id) = file(&bricks, &mut session, "f", hot());
    let (_, often) = file(&bricks, &mut session, "g", cold());
    assert!(server.tier_plan().expect("plan").is_empty(), "there is no hot tier");
    server.set_tiers(Some(TierSettings { paused: true, ..SETTINGS }));
    bricks.reads.lock().expect("lock").insert(often, 3);
    eventually("the reads are known", || server.tier_plan().expect("plan").len() == 2);
    let plan = server.tier_plan().expect("plan");
    assert_eq!((plan[0].id, plan[0].owner, plan[0].to), (id, Some(ino), Tier::Cold));
    assert!(matches!(plan[0].reason, Reason::Unused(seconds) if seconds > 60), "{plan:?}");
    assert_eq!((plan[1].id, plan[1].to, plan[1].reason), (often, Tier::Hot, Reason::Read(3)));
    assert_eq!((bricks.tries.load(Ordering::SeqCst), group_of(&session, id)), (0, hot()));
    server.set_tiers(Some(SETTINGS));
    eventually("both are moved", || group_of(&session, id) == cold() && group_of(&session, often) == hot());
    let promoted = query::block(server.replica().store().as_ref(), often).expect("read").expect("known");
    assert_eq!(promoted.info.group, hot());
    assert!(heat::hot(server.replica().store().as_ref(), often).expect("read").is_some());
}

#[test]
fn block_that_is_read_stays_on_the_hot_tier() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let (_, idle) = file(&bricks, &mut session, "idle", hot());
    let (_, read) = file(&bricks, &mut session, "read", hot());
    // The first look takes the counts before it plans.
    bricks.reads.lock().expect("lock").insert(read, 1);
    server.set_tiers(Some(SETTINGS));
    eventually("the idle one is moved", || group_of(&session, idle) == cold());
    assert_eq!(group_of(&session, read), hot());
}

#[test]
fn tier_that_is_too_full_gives_up_the_longest_unused_blocks_first() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let files: Vec<_> = (0..4).map(|n| file(&bricks, &mut session, &format!("{n:02}"), hot())).collect();
    bricks.used_percent.store(91, Ordering::SeqCst);
    // Down to 70 percent these are 210,000 bytes: more than the blocks have.
    server.set_tiers(Some(TierSettings { demote_after_s: u64::MAX, paused: true, ..SETTINGS }));
    let plan = server.tier_plan().expect("plan");
    assert!(plan.iter().all(|one| one.reason == Reason::Full(91)), "{plan:?}");
    assert_eq!(
        plan.iter().map(|one| one.id).collect::<Vec<_>>(),
        files.iter().map(|it| it.1).collect::<Vec<_>>()
    );
    bricks.used_percent.store(90, Ordering::SeqCst);
    assert!(server.tier_plan().expect("plan").is_empty());
}

#[test]
fn failed_move_leaves_the_block_and_is_retried() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let (ino, id) = file(&bricks, &mut session, "f", hot());
    bricks.fails.store(true, Ordering::SeqCst);
    server.set_tiers(Some(SETTINGS));
    eventually("it was tried", || server.tier_state().expect("state").status.failed > 0);
    assert_eq!((group_of(&session, id), bricks.hot.count()), (hot(), 1));
    bricks.fails.store(false, Ordering::SeqCst);
    eventually("it is moved", || group_of(&session, id) == cold());
    assert_eq!(content(&bricks, &session, ino), b"f".repeat(2000));
}

#[test]
fn block_that_is_deleted_while_it_is_moved_leaves_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    file(&bricks, &mut session, "f", hot());
    bricks.holds.store(true, Ordering::SeqCst);
    server.set_tiers(Some(SETTINGS));
    eventually("the move has begun", || bricks.tries.load(Ordering::SeqCst) == 1);
    session.commit(&[unlink_op("f", false)]);
    bricks.holds.store(false, Ordering::SeqCst);
    eventually("both copies are deleted", || bricks.hot.count() + bricks.cold.count() == 0);
    assert_eq!(server.tier_state().expect("state").hot_blocks, 0);
    drop((session, server));
    assert_consistent(&offline::open(dir.path()).expect("offline"));
}

#[test]
fn next_server_continues_where_the_last_one_was() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let ids: Vec<_> = (0..50).map(|n| file(&bricks, &mut session, &format!("f{n}"), hot()).1).collect();
    server.set_tiers(Some(TierSettings { bytes_per_second: 40_000, ..SETTINGS }));
    eventually("some are tried", || bricks.tries.load(Ordering::SeqCst) > 2);
    server.shutdown();
    drop((session, server));
    let server = Server::open(dir.path(), bricks.clone(), options()).expect("open");
    server.set_tiers(Some(SETTINGS));
    let session = Session::open(&server);
    eventually("all are cold", || ids.iter().all(|id| group_of(&session, *id) == cold()));
    eventually("the hot copies are deleted", || bricks.hot.count() == 0);
}

#[test]
fn detached_hot_tier_is_emptied_and_reports_for_how_long_it_is_empty() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let (_, id) = file(&bricks, &mut session, "f", hot());
    let leaving = TierSettings { detaching: true, demote_after_s: u64::MAX, ..SETTINGS };
    server.set_tiers(Some(leaving));
    eventually("it is moved", || group_of(&session, id) == cold());
    eventually("it is empty", || server.tier_state().expect("state").empty_s > 0);
    server.set_tiers(Some(SETTINGS));
    assert_eq!(server.tier_state().expect("state").empty_s, 0);
}
