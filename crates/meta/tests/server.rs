//! A single server: sessions, batches, reads, restarts.

mod support;

use shoal_meta::{OpenError, Options, Server};
use shoal_types::limits::INLINE_BYTES_MAX;
use shoal_types::{BatchSeq, Cookie, Errno, FileKind, InodeId, SessionId};
use shoal_wire::*;
use std::sync::Arc;
use std::time::Duration;
use support::*;

#[test]
fn commits_are_readable_at_once_and_after_every_kind_of_stop() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks = Arc::new(MemBricks::default());
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let (sub, op) = session.create(InodeId::ROOT, "dir", FileKind::Directory);
    let (file, op2) = session.create(sub, "file", FileKind::Regular);
    session.commit(&[op, op2, inline_op(file, 0, b"hello")]);
    let before = {
        let found = server.lookup(session.id, sub, &name("file")).expect("lookup").found.expect("there");
        assert_eq!((found.0.ino, found.1.inode.size), (file, 5));
        assert_eq!(read_file(&session, &bricks, file), b"hello");
        let list = server
            .list(session.id, InodeId::ROOT, Cookie::START, Prefetch::Attributes, 1 << 20)
            .expect("list");
        assert_eq!(list.entries.len(), 1);
        server.inode(session.id, file).expect("inode")
    };
    let mut stop: Vec<Arc<Server>> = vec![server];
    for clean in [false, true, false] {
        drop(session);
        let server = stop.pop().expect("server");
        if clean {
            server.shutdown();
            assert!(matches!(Session::try_open(&server), Err(MetaError::Unavailable(_))));
        }
        drop(server);
        let server = open(dir.path(), &bricks);
        session = Session::open(&server);
        assert_eq!(server.inode(session.id, file).expect("inode"), before);
        stop.push(server);
    }
}

#[test]
fn batch_of_too_many_operations_is_refused_and_the_next_one_committed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = open(dir.path(), &Arc::default());
    let mut session = Session::open(&server);
    let next = session.seq.next();
    let most = shoal_meta::limits::BATCH_OPS_MAX as usize;
    let mut ops = vec![shoal_namespace::Op::Forget { ino: InodeId(7) }; most + 1];
    assert!(matches!(session.try_commit(&ops), Err(MetaError::Malformed(_))));
    ops.pop();
    let answer = session.send_as(next, &ops).recv().expect("an answer");
    assert!(answer.is_ok(), "{answer:?}");
}

#[test]
fn batch_too_large_for_a_message_is_refused_and_the_next_one_committed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = open(dir.path(), &Arc::default());
    let mut session = Session::open(&server);
    let (file, op) = session.create(InodeId::ROOT, "file", FileKind::Regular);
    session.commit(&[op]);
    let part = vec![7; INLINE_BYTES_MAX as usize];
    let many = shoal_meta::limits::PROPOSAL_BYTES_MAX / part.len() + 1;
    let ops: Vec<_> = (0..many).map(|at| inline_op(file, (at * part.len()) as u64, &part)).collect();
    let next = session.seq.next();
    assert!(matches!(session.try_commit(&ops), Err(MetaError::Malformed(_))));
    let answer = session.send_as(next, &[inline_op(file, 0, b"x")]).recv().expect("an answer");
    assert_eq!(answer.expect("this one is short").seq, next);
}

#[test]
fn path_of_an_inode_is_found_while_it_has_a_name() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = open(dir.path(), &Arc::default());
    let mut session = Session::open(&server);
    let (sub, op) = session.create(InodeId::ROOT, "dir", FileKind::Directory);
    let (other, op2) = session.create(sub, "other", FileKind::Regular);
    let (file, op3) = session.create(sub, "file", FileKind::Regular);
    session.commit(&[op, op2, op3]);
    let top = session.touch("top");
    let asked = [file, top, InodeId::ROOT, sub, other, InodeId(99_999)];
    let path = |text: &str| Some(text.to_owned());
    let all = [path("/dir/file"), path("/top"), path("/"), path("/dir"), path("/dir/other"), None];
    assert_eq!(server.paths(&asked).expect("led"), all);
    session.commit(&[unlink_op("top", true)]);
    assert_eq!(server.paths(&[top, file]).expect("led"), [None, path("/dir/file")]);
}

#[test]
fn a_new_session_gets_numbers_room_and_the_right_to_everything() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = open(dir.path(), &Arc::default());
    let session = Session::open(&server);
    assert_eq!(session.opened.volume, VOLUME);
    assert!(session.opened.grant.inodes > 0);
    assert!(session.opened.lease_ms > 0);
    let more = session.grant(100, 0, 0).expect("grant");
    assert!(
        more.inodes == 100
            && more.first_inode >= session.opened.grant.first_inode + session.opened.grant.inodes
    );
}

#[test]
fn a_client_that_speaks_another_protocol_is_told_so() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = open(dir.path(), &Arc::default());
    let request = SessionRequest { protocol: 99, client: String::new(), instance: 0, origin: None };
    assert!(matches!(server.open_session(request), Err(MetaError::Version { client: 99, .. })));
}

#[test]
fn silent_session_that_holds_a_recalled_lease_is_ended() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let patience = Options { session_dead_after: Some(Duration::from_millis(300)), ..options() };
    let server = Server::open(dir.path(), bricks, patience).expect("open");
    let mut first = Session::open(&server);
    let file = first.touch("f");
    let wants = vec![Want { ino: InodeId::ROOT, names: Vec::new(), hold: false }];
    let acquire = |session, token| {
        let (token, below) = (Token(token), Token(token));
        wait_for(|done| server.acquire(Acquire { session, token, below, wants: wants.clone() }, done))
    };
    assert_eq!(acquire(first.id, 1).expect("granted").rights, [Right::Cover(InodeId::ROOT)]);
    let second = Session::open(&server);
    assert!(first.grant(0, 0, 0).is_ok(), "no session waits for it yet");
    assert_eq!(acquire(second.id, 1).expect("granted").rights, [Right::Cover(InodeId::ROOT)]);
    // Later requests of the first are refused with the reason.
    let fenced = |result: Result<(), MetaError>| {
        assert!(matches!(result, Err(MetaError::Fenced(id)) if id == first.id))
    };
    fenced(first.grant(0, 0, 0).map(drop));
    fenced(acquire(first.id, 2).map(drop));
    fenced(first.send_as(BatchSeq(2), &[inline_op(file, 0, b"late")]).recv().expect("answer").map(drop));
    server.close_session(second.id).expect("close");
}

#[test]
fn a_batch_that_is_sent_again_is_applied_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let (file, op) = session.create(InodeId::ROOT, "f", FileKind::Regular);
    let ops = [op];
    let pending: Vec<_> = (0..3).map(|_| session.send_as(BatchSeq(1), &ops)).collect();
    for outcome in pending {
        assert_eq!(outcome.recv().expect("answer").expect("success").seq, BatchSeq(1));
    }
    session.seq = BatchSeq(1);
    session.commit(&[unlink_op("f", false)]);
    assert!(session.send_as(BatchSeq(1), &ops).recv().expect("answer").is_ok(), "known, not done again");
    assert!(matches!(server.inode(session.id, file), Err(MetaError::Errno(Errno::ENOENT))));
}

#[test]
fn a_batch_with_an_operation_that_fails_changes_nothing_and_names_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = open(dir.path(), &Arc::default());
    let mut session = Session::open(&server);
    let before = server.digest().expect("digest").1;
    let (_, good) = session.create(InodeId::ROOT, "a", FileKind::Regular);
    let refused = session.try_commit(&[good, unlink_op("missing", false)]);
    assert!(
        matches!(refused, Err(MetaError::Refused { index: 1, errno: Errno::ENOENT, seq: BatchSeq(1), .. })),
        "{refused:?}"
    );
    assert_eq!(server.lookup(session.id, InodeId::ROOT, &name("a")).expect("lookup").found, None);
    // Only the index of the log has moved on.
    assert_ne!(server.digest().expect("digest").1, before);
    let early = session.send_as(BatchSeq(5), &[]).recv().expect("answer");
    assert_eq!(early.err(), Some(MetaError::OutOfOrder { expected: BatchSeq(1) }));
}

#[test]
fn many_batches_under_way_are_applied_in_order() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let file = session.touch("f");
    let mut expected = Vec::new();
    let outcomes: Vec<_> = (0..500u32)
        .map(|number| {
            let bytes = number.to_be_bytes();
            let at = expected.len() as u64;
            expected.extend_from_slice(&bytes);
            session.send(&[inline_op(file, at, &bytes)])
        })
        .collect();
    for outcome in outcomes {
        outcome.recv().expect("answer").expect("success");
    }
    assert_eq!(read_file(&session, &bricks, file), expected);
    assert!(stat(&server, "raft_log_flushes_total") < 400, "proposals that wait share a flush");
}

#[test]
fn directories_that_are_not_this_volume_are_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    for path in [dir.path().join("none"), dir.path().to_owned()] {
        assert!(matches!(
            Server::open(&path, bricks.clone(), Options::default()),
            Err(OpenError::Missing(_))
        ));
    }
    drop(open(dir.path(), &bricks));
    let other = Server::open(dir.path(), bricks.clone(), Options { create: Some(1), ..Options::default() });
    assert!(matches!(other, Err(OpenError::Mismatch(_))));
    assert!(Server::open(dir.path(), bricks.clone(), Options::default()).is_ok());
    std::fs::remove_dir_all(dir.path().join("log")).expect("remove");
    assert!(matches!(Server::open(dir.path(), bricks, options()), Err(OpenError::Mismatch(_))));
}

#[test]
fn lost_store_is_rebuilt_from_a_complete_log_and_refused_otherwise() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let file = session.touch("f");
    drop((session, server));
    std::fs::remove_dir_all(dir.path().join("store")).expect("remove");
    let server = Server::open(dir.path(), bricks.clone(), Options { log_bytes: Some(1 << 20), ..options() });
    let server = server.expect("replayed from the first entry");
    let mut session = Session::open(&server);
    assert!(server.inode(session.id, file).is_ok());
    for round in 0..200u8 {
        session.commit(&[inline_op(file, 0, &vec![round; 60_000])]);
    }
    server.shutdown();
    drop((session, server));
    std::fs::remove_dir_all(dir.path().join("store")).expect("remove");
    let lost = Server::open(dir.path(), bricks, options());
    assert!(matches!(lost, Err(OpenError::Mismatch(_))), "{:?}", lost.err());
}

#[test]
fn sessions_of_an_earlier_process_are_ended_when_a_server_opens() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let old = Session::open(&server).id;
    drop(server);
    let server = open(dir.path(), &bricks);
    assert!(matches!(server.inode(old, InodeId::ROOT), Err(MetaError::Fenced(id)) if id == old));
    assert_ne!(Session::open(&server).id, old);
    assert!(matches!(server.inode(SessionId(77), InodeId::ROOT), Err(MetaError::Fenced(_))));
}
