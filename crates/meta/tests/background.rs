//! The background work of a server.

mod support;

use bytes::Bytes;
use shoal_meta::{Options, Server, offline};
use shoal_namespace::kv::KvStore;
use shoal_namespace::op::Op;
use shoal_namespace::query;
use shoal_namespace::{Command, Outcome, apply_command};
use shoal_types::{BlockGroup, BlockId, BlockInfo, Extent, InodeId, SessionId, Statfs};
use shoal_wire::{BlockError, BlockPage, BlockService, MetaService, VolumeBlocks};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::*;

#[test]
fn dead_inode_with_many_extents_is_reaped_and_its_blocks_deleted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let file = session.touch("f");
    for piece in 0..10u64 {
        // Every second block-sized piece, so that nothing is merged.
        let ops: Vec<Op> = (0..200u64)
            .map(|at| session.block(&bricks, file, (piece * 200 + at) * 8192, vec![at as u8; 4096]).1)
            .collect();
        session.commit(&ops);
    }
    assert_eq!(bricks.count(), 2000);
    session.commit(&[unlink_op("f", false)]);
    eventually("all blocks are deleted", || bricks.count() == 0);
    assert!(stat(&server, "background_reap_steps_total") > 1, "in more than one step");
    eventually("the list is empty", || server.statfs(session.id).expect("statfs").inodes == 1);
    drop((session, server));
    let state = offline::open(dir.path()).expect("offline");
    assert!(query::garbage(&state, None, 10).expect("garbage").is_empty());
    assert_eq!(query::counters(&state).expect("counters").used_bytes, 0);
    assert_consistent(&state);
}

#[test]
fn a_block_lives_as_long_as_anything_refers_to_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let (a, b) = (session.touch("a"), session.touch("b"));
    let (first, op) = session.block(&bricks, a, 0, vec![1; 100_000]);
    let clone = Op::CloneRange {
        src: a,
        src_offset: 0,
        dst: b,
        dst_offset: 0,
        len: 100_000,
        time: time(9),
        clear_setid: false,
    };
    session.commit(&[op, clone, unlink_op("a", false)]);
    // A block that is collected later, which shows that there was time.
    let (second, op) = session.block(&bricks, b, 200_000, vec![2; 100]);
    session.commit(&[op]);
    session.commit(&[inline_op(b, 200_000, &[3; 100])]);
    eventually("the second block is deleted", || bricks.get(second, 0, 1).is_err());
    assert!(bricks.get(first, 0, 1).is_ok());
    session.commit(&[unlink_op("b", false)]);
    eventually("the first block is deleted", || bricks.count() == 0);
}

#[test]
fn many_small_extents_become_few_and_the_bytes_stay() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    // Time enough to write all of it before the first attempt.
    let patient = Options { compact_after: Some(Duration::from_millis(400)), ..options() };
    let server = Server::open(dir.path(), bricks.clone(), patient).expect("open");
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let mut expected = vec![0; 8 << 20];
    // In reverse order, as pieces that are not joined when they are written: some in blocks, one hole, some
    // reserved space.
    let mut ops = Vec::new();
    for at in (0..200usize).rev().filter(|at| *at != 77) {
        let (offset, bytes) = (at * 40_000, vec![at as u8 + 1; 40_000]);
        expected[offset..offset + 40_000].copy_from_slice(&bytes);
        if at % 3 == 0 {
            ops.push(session.block(&bricks, file, offset as u64, bytes).1);
        } else {
            ops.push(inline_op(file, offset as u64, &bytes));
        }
        if ops.len() == 20 {
            session.commit(&std::mem::take(&mut ops));
        }
    }
    let end = 200 * 40_000u64;
    ops.push(write_op(file, end, (8 << 20) - end, Some(Extent::Zero { len: (8 << 20) - end }), None));
    session.commit(&ops);
    let before = server.inode(session.id, file).expect("inode").inode;
    eventually("the file is compacted", || extents(&session, file).len() < 20);
    assert_eq!(read_file(&session, &bricks, file), expected);
    assert_eq!(server.inode(session.id, file).expect("inode").inode, before, "there is no difference");
    eventually("the old blocks are deleted", || {
        let named = extents(&session, file).iter().filter(|(_, one)| matches!(one, Extent::Block(_))).count();
        bricks.count() == named
    });
    drop((session, server));
    assert_consistent(&offline::open(dir.path()).expect("offline"));
}

#[test]
fn file_without_adjacent_extents_is_examined_for_compaction_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let ops: Vec<Op> = (0..100u64).map(|at| inline_op(file, at * 100_000, &[1; 5000])).collect();
    session.commit(&ops);
    let candidates = |server: &shoal_meta::Server| stat(server, "raft_applied_index");
    // `RestFromCompaction` for the file is the last command that is committed.
    let mut last = 0;
    eventually("nothing more is decided", || {
        std::thread::sleep(Duration::from_millis(300));
        std::mem::replace(&mut last, candidates(&server)) == last
    });
    assert_eq!(extents(&session, file).len(), 100);
    assert_eq!(stat(&server, "background_compacted_blocks_total"), 0);
    drop((session, server));
    let state = offline::open(dir.path()).expect("offline");
    assert!(query::compaction_candidates(&state, None, 10).expect("candidates").is_empty());
}

#[test]
fn orphans_die_with_their_session_and_only_then() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    // More inodes than one command of the session's end removes.
    let files: Vec<InodeId> = (0..600).map(|number| session.touch(&format!("f{number}"))).collect();
    let (_, op) = session.block(&bricks, files[0], 0, vec![1; 5000]);
    session.commit(&[op]);
    let unlinks: Vec<Op> = (0..600).map(|number| unlink_op(&format!("f{number}"), true)).collect();
    session.commit(&unlinks);
    assert!(files.iter().all(|file| server.inode(session.id, *file).is_ok()));
    session.commit(&[Op::Forget { ino: files[1] }]);
    assert!(server.inode(session.id, files[1]).is_err());
    server.close_session(session.id).expect("close");
    let next = Session::open(&server);
    assert!(files.iter().all(|file| server.inode(next.id, *file).is_err()));
    assert_eq!(server.statfs(next.id).expect("statfs").inodes, 1);
    eventually("the block is deleted", || bricks.count() == 0);
}

#[test]
fn interrupted_end_of_a_session_is_completed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    for number in 0..600 {
        session.touch(&format!("f{number}"));
    }
    let unlinks: Vec<Op> = (0..600).map(|number| unlink_op(&format!("f{number}"), true)).collect();
    session.commit(&unlinks);
    let old = session.id;
    drop((session, server));
    {
        // The first of several commands, and no further one.
        let state = offline::open(dir.path()).expect("offline");
        let (batch, outcome) = apply_command(&state, &Command::CloseSession { session: old }).expect("apply");
        assert_eq!(outcome, Outcome::Closed { more: true });
        state.write(&batch).expect("write");
        state.flush().expect("flush");
    }
    let server = open(dir.path(), &bricks);
    let session = Session::open(&server);
    assert_eq!(server.statfs(session.id).expect("statfs").inodes, 1);
}

#[test]
fn orphans_die_when_the_process_of_their_session_has_died() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let file = session.touch("f");
    session.commit(&[unlink_op("f", true)]);
    drop((session, server));
    let server = open(dir.path(), &bricks);
    let session = Session::open(&server);
    assert!(server.inode(session.id, file).is_err());
}

#[test]
fn blocks_that_were_stored_and_never_committed_are_deleted_when_their_session_has_ended() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let (kept, op) = session.block(&bricks, file, 0, vec![1; 5000]);
    session.commit(&[op]);
    let (lost, _) = session.block(&bricks, file, 0, vec![2; 5000]);
    let ours = BlockId { session: SessionId::SERVER, seq: 1 << 40 };
    let foreign = BlockId { session: SessionId(1 << 40), seq: 1 };
    for id in [ours, foreign] {
        bricks.put(id, &[vec![1].into()]).expect("put");
    }
    let old = session.id;
    drop(session);
    server.close_session(old).expect("close");
    eventually("the lost block is deleted", || bricks.get(lost, 0, 1).is_err());
    assert!(bricks.get(kept, 0, 1).is_ok());
    drop(server);
    let _server = open(dir.path(), &bricks);
    eventually("what a crash left of a compaction is deleted", || bricks.get(ours, 0, 1).is_err());
    assert!(bricks.get(kept, 0, 1).is_ok());
    assert!(bricks.get(foreign, 0, 1).is_ok(), "a session that never was is not ours to judge");
}

#[test]
fn all_that_a_session_has_left_is_found_however_much_it_has_stored() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let (mut ops, mut kept) = (Vec::new(), Vec::new());
    for at in 0..10 * LIST_BLOCKS_MAX as u64 {
        let (id, op) = session.block(&bricks, file, at * 8192, vec![1; 4096]);
        // Pages with some unknown blocks, one with nothing else, and one with none.
        let page = at / LIST_BLOCKS_MAX as u64;
        if page == 3 || (page != 6 && at % 3 == 0) {
            ops.push(op);
            kept.push(id);
        }
    }
    session.commit(&ops);
    server.close_session(session.id).expect("close");
    eventually("what was not committed is deleted", || bricks.count() == kept.len());
    assert!(kept.iter().all(|id| bricks.length(*id) == Ok(4096)));
    assert!(stat(&server, "background_steps_total") >= 10, "a page at a time");
}

/// Bricks whose first deletion fails.
struct Flaky(MemBricks, AtomicBool);

impl BlockService for Flaky {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.0.put(id, parts)
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.0.get(id, offset, len)
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        if self.1.swap(false, Ordering::SeqCst) {
            return Err(BlockError::Io { what: "brick".into(), cause: "injected".into() });
        }
        self.0.delete(ids)
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        self.0.length(id)
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        self.0.list(from)
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.0.sessions()
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        self.0.statfs()
    }
}

#[test]
fn brick_that_fails_for_a_while_delays_no_client() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks = Arc::new(Flaky(MemBricks::default(), true.into()));
    let server = Server::open(dir.path(), bricks.clone(), options()).expect("open");
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let (_, op) = session.block(&bricks.0, file, 0, vec![1; 5000]);
    session.commit(&[op, unlink_op("f", false)]);
    session.touch("g");
    eventually("the block is deleted on the second try", || bricks.0.count() == 0);
}

/// Bricks that fail in several ways.
#[derive(Default)]
struct Unreliable {
    bricks: MemBricks,
    /// For so many deletions they report that a block may be left, as for a brick that does not answer.
    forgets: AtomicUsize,
    /// Copies are always wanted, and the block to be copied is always gone, as it was deleted meanwhile.
    overtaken: bool,
    was_to_copy: AtomicBool,
    /// Of this session they list only the first page. The number counts the listings.
    keeps_to_itself: Mutex<Option<SessionId>>,
    refusals: AtomicUsize,
}

impl Unreliable {
    fn has_only(&self, session: SessionId) -> bool {
        self.bricks.blocks.lock().expect("lock").keys().all(|id| id.session == session)
    }
}

impl VolumeBlocks for Unreliable {
    fn store(&self, id: BlockId, parts: &[Bytes]) -> Result<BlockGroup, BlockError> {
        self.bricks.store(id, parts)
    }
    fn fetch(&self, id: BlockId, group: BlockGroup, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.bricks.fetch(id, group, offset, len)
    }
    fn discard(&self, blocks: &[(BlockId, BlockGroup)]) -> Result<Vec<BlockId>, BlockError> {
        let fails =
            self.forgets.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        match fails {
            true => Ok(blocks.iter().map(|(id, _)| *id).collect()),
            false => self.bricks.discard(blocks),
        }
    }
    fn copies(&self, from: BlockId) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError> {
        if *self.keeps_to_itself.lock().expect("lock") == Some(from.session) && from.seq > 0 {
            self.refusals.fetch_add(1, Ordering::SeqCst);
            return Err(BlockError::Unreachable("they do not answer".into()));
        }
        self.bricks.copies(from)
    }
    fn stored_sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.bricks.stored_sessions()
    }
    fn room(&self) -> Result<Statfs, BlockError> {
        self.bricks.room()
    }
    fn is_whole(&self, _group: BlockGroup) -> bool {
        !self.overtaken
    }
    fn heal(&self, id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        if !self.overtaken {
            return Ok(info.group);
        }
        self.was_to_copy.store(true, Ordering::SeqCst);
        eventually("the block is deleted meanwhile", || self.bricks.count() == 0);
        Err(BlockError::Missing(id))
    }
}

/// Options with frequent sweeps, without a report that a brick is back.
fn sweeping() -> Options {
    Options { sweep_every: Some(Duration::from_millis(50)), ..options() }
}

#[test]
fn block_that_a_brick_did_not_delete_is_deleted_later_without_a_notice_of_its_return() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks = Arc::new(Unreliable { forgets: 2.into(), ..Unreliable::default() });
    let server = Server::open(dir.path(), bricks.clone(), sweeping()).expect("open");
    let mut session = Session::open(&server);
    let file = session.touch("f");
    // One block of the garbage list, and one that only a sweep can find.
    let (_, op) = session.block(&bricks.bricks, file, 0, vec![1; 5000]);
    session.commit(&[op, unlink_op("f", false)]);
    session.block(&bricks.bricks, file, 0, vec![2; 5000]);
    server.close_session(session.id).expect("close");
    eventually("both are deleted", || bricks.bricks.count() == 0);
    assert_eq!(bricks.forgets.load(Ordering::SeqCst), 0, "neither was deleted at the first attempt");
}

#[test]
fn block_stored_by_a_brick_long_after_its_session_ended_is_deleted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = Server::open(dir.path(), bricks.clone(), sweeping()).expect("open");
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let (kept, op) = session.block(&bricks, file, 0, vec![1; 5000]);
    session.commit(&[op]);
    session.block(&bricks, file, 0, vec![2; 5000]);
    server.close_session(session.id).expect("close");
    eventually("what it left is deleted", || bricks.count() == 1);
    let late = BlockId { session: session.id, seq: 1 << 30 };
    bricks.put(late, &[vec![3].into()]).expect("put");
    eventually("so is what comes later", || bricks.get(late, 0, 1).is_err());
    assert!(bricks.get(kept, 0, 1).is_ok());
    let (steps, decided) = (stat(&server, "background_steps_total"), stat(&server, "raft_applied_index"));
    eventually("it is swept again and again", || stat(&server, "background_steps_total") > steps + 20);
    assert_eq!(
        stat(&server, "raft_applied_index"),
        decided,
        "a sweep that finds nothing leaves nothing in the log"
    );
}

#[test]
fn skipped_block_of_a_living_session_is_deleted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = Server::open(dir.path(), bricks.clone(), sweeping()).expect("open");
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let (passed_over, _) = session.block(&bricks, file, 0, vec![1; 5000]);
    let (named, op) = session.block(&bricks, file, 0, vec![2; 5000]);
    let (pending, _) = session.block(&bricks, file, 0, vec![3; 5000]);
    let steps = stat(&server, "background_steps_total");
    eventually("it was swept", || stat(&server, "background_steps_total") > steps + 20);
    assert_eq!(bricks.count(), 3, "any of them may yet be named");
    session.commit(&[op]);
    eventually("it is deleted", || bricks.get(passed_over, 0, 1).is_err());
    assert!(bricks.get(named, 0, 1).is_ok() && bricks.get(pending, 0, 1).is_ok());
}

#[test]
fn block_deleted_before_it_is_healed_is_not_reported_lost() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks = Arc::new(Unreliable { overtaken: true, ..Unreliable::default() });
    let wants = Options { replica: 2, ..options() };
    let server = Server::open(dir.path(), bricks.clone(), wants).expect("open");
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let (_, op) = session.block(&bricks.bricks, file, 0, vec![1; 5000]);
    session.commit(&[op]);
    eventually("it is copied", || bricks.was_to_copy.load(Ordering::SeqCst));
    session.commit(&[unlink_op("f", false)]);
    eventually("the healer is done", || bricks.bricks.count() == 0 && server.is_healed());
    assert_eq!(server.heal_status().failed_blocks, 0);
    assert_eq!(server.heal_status().last_error, None);
}

/// A session with many uncommitted blocks, on bricks that do not list all of them, and the removal of a file
/// with many.
fn much_to_delete(bricks: &Unreliable, server: &Arc<Server>) -> SessionId {
    let mut abandoned = Session::open(server);
    *bricks.keeps_to_itself.lock().expect("lock") = Some(abandoned.id);
    let file = abandoned.touch("f");
    for _ in 0..3 * LIST_BLOCKS_MAX {
        abandoned.block(&bricks.bricks, file, 0, vec![1; 100]);
    }
    server.close_session(abandoned.id).expect("close");
    eventually("its sweep has failed", || bricks.refusals.load(Ordering::SeqCst) > 0);
    let mut session = Session::open(server);
    let file = session.touch("g");
    for piece in 0..10u64 {
        let block = |at: u64| session.block(&bricks.bricks, file, (piece * 200 + at) * 8192, vec![2; 4096]).1;
        let ops: Vec<Op> = (0..200).map(block).collect();
        session.commit(&ops);
    }
    session.commit(&[unlink_op("g", false)]);
    abandoned.id
}

#[test]
fn garbage_is_deleted_while_the_sweep_of_a_session_fails() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<Unreliable> = Arc::default();
    let server = Server::open(dir.path(), bricks.clone(), options()).expect("open");
    let abandoned = much_to_delete(&bricks, &server);
    eventually("the garbage is deleted", || bricks.has_only(abandoned));
    assert_eq!(bricks.refusals.load(Ordering::SeqCst), 1, "it is not tried again at once");
}

#[test]
fn failed_sweep_is_retried_after_a_pause_and_continues() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<Unreliable> = Arc::default();
    let pause = Duration::from_millis(200);
    let server = Server::open(dir.path(), bricks.clone(), Options { sweep_every: Some(pause), ..options() });
    let server = server.expect("open");
    let begun = Instant::now();
    let abandoned = much_to_delete(&bricks, &server);
    eventually("it is tried again", || bricks.refusals.load(Ordering::SeqCst) > 3);
    let refusals = bricks.refusals.load(Ordering::SeqCst);
    assert!(begun.elapsed() > pause * (refusals as u32 - 1), "{refusals} times in {:?}", begun.elapsed());
    eventually("the garbage is deleted meanwhile", || bricks.has_only(abandoned));
    assert!(bricks.bricks.count() > LIST_BLOCKS_MAX, "what is not listed is not deleted");
    *bricks.keeps_to_itself.lock().expect("lock") = None;
    eventually("the rest is deleted", || bricks.bricks.count() == 0);
}
