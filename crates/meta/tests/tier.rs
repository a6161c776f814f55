//! The mover between tiers, on bricks in memory.

mod support;

use bytes::Bytes;
use shoal_meta::{Reason, Server, TierSettings, offline};
use shoal_namespace::{heat, query};
use shoal_types::{
    BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, Extent, FileKind, InodeId, Pins, Policies,
    SessionId, Statfs, Tier, Timestamp,
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
    pins: Mutex<Pins>,
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
    fn heal(&self, _id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        Ok(info.group)
    }
    fn move_to(
        &self,
        id: BlockId,
        info: BlockInfo,
        tier: Tier,
        _: Option<BlockScheme>,
    ) -> Result<BlockGroup, BlockError> {
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
    fn policies(&self) -> Policies {
        Policies { pins: self.pins.lock().expect("lock").clone(), ..Policies::default() }
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
    file_in(bricks, session, InodeId::ROOT, name, group)
}

fn file_in(
    bricks: &Tiers,
    session: &mut Session,
    dir: InodeId,
    name: &str,
    group: BlockGroup,
) -> (InodeId, BlockId) {
    let (ino, create) = session.create(dir, name, FileKind::Regular);
    session.commit(&[create]);
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

fn directory(session: &mut Session, parent: InodeId, name: &str) -> InodeId {
    let (ino, create) = session.create(parent, name, FileKind::Directory);
    session.commit(&[create]);
    ino
}

#[test]
fn pinned_content_moves_to_its_tier_and_stays_there_whatever_its_age_is() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let hot_dir = directory(&mut session, InodeId::ROOT, "hot");
    let inner = directory(&mut session, hot_dir, "inner");
    let cold_dir = directory(&mut session, hot_dir, "cold");
    let (_, promoted) = file_in(&bricks, &mut session, inner, "promoted", cold());
    let (_, kept) = file_in(&bricks, &mut session, hot_dir, "kept", hot());
    let (_, nearest) = file_in(&bricks, &mut session, cold_dir, "nearest pin wins", hot());
    let (single, alone) = file_in(&bricks, &mut session, cold_dir, "a file of its own", cold());
    let (_, other) = file(&bricks, &mut session, "other", hot());
    let pins = [(hot_dir, Tier::Hot), (cold_dir, Tier::Cold), (single, Tier::Hot)];
    *bricks.pins.lock().expect("lock") = pins.into();

    server.set_tiers(Some(TierSettings { paused: true, ..SETTINGS }));
    let plan = server.tier_plan().expect("plan");
    let of = |id| plan.iter().find(|one| one.id == id && one.reason == Reason::Pinned).map(|one| one.to);
    assert_eq!((of(promoted), of(alone)), (Some(Tier::Hot), Some(Tier::Hot)), "{plan:?}");
    assert_eq!((of(nearest), of(kept), of(other)), (Some(Tier::Cold), None, None), "{plan:?}");
    assert!(plan.iter().all(|one| one.id != kept), "it was not used for long, and stays: {plan:?}");

    server.set_tiers(Some(SETTINGS));
    eventually("each is on its tier", || {
        [promoted, kept, alone].iter().all(|id| group_of(&session, *id) == hot())
            && [nearest, other].iter().all(|id| group_of(&session, *id) == cold())
    });
    // Even a tier that is too full keeps what is pinned.
    bricks.used_percent.store(95, Ordering::SeqCst);
    eventually("what is pinned is noted", || {
        let since = |id| heat::hot(server.replica().store().as_ref(), id).expect("read").map(|it| it.since);
        let now = heat::seconds(Timestamp::now());
        [promoted, kept, alone].iter().all(|id| since(*id) > Some(now + 3600))
    });
    assert!(server.tier_plan().expect("plan").is_empty());
    let state = server.pin_of(inner).expect("asked");
    assert_eq!((state.exists, state.nearest, state.removed), (true, Some((hot_dir, Tier::Hot)), vec![]));

    // Reads do not bring back what is pinned cold.
    bricks.used_percent.store(10, Ordering::SeqCst);
    bricks.reads.lock().expect("lock").insert(nearest, 100);
    eventually("the reads were taken", || bricks.reads.lock().expect("lock").is_empty());
    assert!(server.tier_plan().expect("plan").is_empty());

    // And when the tier is detached, pins do not hold it.
    server.set_tiers(Some(TierSettings { detaching: true, ..SETTINGS }));
    eventually("all is cold", || bricks.hot.count() == 0);
    drop((session, server));
    assert_consistent(&offline::open(dir.path()).expect("offline"));
}

#[test]
fn pins_of_removed_directories_are_reported_and_pinned_files_are_found_after_the_pin_has_changed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (bricks, server, mut session) = begin(dir.path());
    let parent = directory(&mut session, InodeId::ROOT, "d");
    let (ino, id) = file_in(&bricks, &mut session, parent, "f", cold());
    server.set_tiers(Some(SETTINGS));
    *bricks.pins.lock().expect("lock") = [(parent, Tier::Hot), (InodeId(999_999), Tier::Cold)].into();
    eventually("it is hot", || group_of(&session, id) == hot());
    assert_eq!(server.pin_of(ino).expect("asked").removed, [InodeId(999_999)]);
    *bricks.pins.lock().expect("lock") = [(parent, Tier::Cold)].into();
    eventually("it is cold again", || group_of(&session, id) == cold());
    assert!(!server.pin_of(InodeId(999_999)).expect("asked").exists);
}
