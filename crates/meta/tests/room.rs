//! Room that is granted, used up and returned.

mod support;

use shoal_meta::{Options, Server};
use shoal_wire::MetaService;
use std::sync::Arc;
use support::*;

const MIB: u64 = 1 << 20;

#[test]
fn room_is_never_granted_twice() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = Server::open(dir.path(), bricks.clone(), Options { reserve_bytes: Some(0), ..options() })
        .expect("open");
    let session = Session::open(&server);
    *bricks.free_bytes.lock().expect("lock") = 500 * MIB;
    let first = session.grant(0, 0, 300 * MIB).expect("grant").bytes;
    assert_eq!(first, 300 * MIB);
    let second = session.grant(0, first, 300 * MIB).expect("grant").bytes;
    assert!(second > 0 && first + second <= 500 * MIB, "{second}");
    let third = session.grant(0, first + second, 300 * MIB).expect("grant").bytes;
    assert!(third < MIB, "the volume is full, but for what the store has written out meanwhile");
    // Unused room is returned.
    assert_eq!(session.grant(0, 0, 300 * MIB).expect("grant").bytes, 300 * MIB);
}

#[test]
fn room_of_a_session_is_free_when_it_has_ended() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = Server::open(dir.path(), bricks.clone(), Options { reserve_bytes: Some(0), ..options() })
        .expect("open");
    let session = Session::open(&server);
    *bricks.free_bytes.lock().expect("lock") = 500 * MIB;
    assert_eq!(session.grant(0, 0, 300 * MIB).expect("grant").bytes, 300 * MIB);
    server.close_session(session.id).expect("close");
    let next = Session::open(&server);
    assert_eq!(next.grant(0, 0, 300 * MIB).expect("grant").bytes, 300 * MIB);
}

#[test]
fn the_reserve_is_never_granted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let reserve = Options { reserve_bytes: Some(100 * MIB), ..options() };
    let server = Server::open(dir.path(), bricks.clone(), reserve).expect("open");
    let session = Session::open(&server);
    *bricks.free_bytes.lock().expect("lock") = 110 * MIB;
    assert!(session.grant(0, 0, 100 * MIB).expect("grant").bytes <= 10 * MIB);
    *bricks.free_bytes.lock().expect("lock") = 100 * MIB;
    assert_eq!(session.grant(0, 0, 100 * MIB).expect("grant").bytes, 0);
    assert!(session.grant(10, 0, 0).expect("grant").inodes == 10, "numbers cost nothing");
}

#[test]
fn small_bricks_are_of_use_beside_a_large_disk_of_metadata() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server =
        Server::open(dir.path(), bricks.clone(), Options { reserve_bytes: None, ..options() }).expect("open");
    let session = Session::open(&server);
    // Of a disk of 40 GiB or more, 2 GiB are reserved, which is all that such bricks have.
    *bricks.free_bytes.lock().expect("lock") = 2048 * MIB;
    let size = server.statfs(session.id).expect("statfs").total_bytes;
    assert!(size > 1500 * MIB, "{size} of 2 GiB");
    assert_eq!(session.grant(0, 0, 64 * MIB).expect("grant").bytes, 64 * MIB);
}

#[test]
fn a_volume_is_as_large_as_what_is_in_it_and_what_it_can_take() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = Server::open(dir.path(), bricks.clone(), Options { reserve_bytes: Some(0), ..options() })
        .expect("open");
    let mut session = Session::open(&server);
    *bricks.free_bytes.lock().expect("lock") = 1000 * MIB;
    let file = session.touch("f");
    let (_, op) = session.block(&bricks, file, 0, vec![1; 4 << 20]);
    session.commit(&[op]);
    let before = server.statfs(session.id).expect("statfs");
    assert_eq!(before.total_bytes - before.free_bytes, 4 * MIB);
    assert_eq!(before.inodes, 2);
    session.grant(0, 0, 500 * MIB).expect("grant");
    let after = server.statfs(session.id).expect("statfs");
    assert!(after.free_bytes.abs_diff(before.free_bytes) < MIB, "what is held is there to be written into");
}

#[test]
fn deleting_makes_room_even_where_it_was_inline() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let small = Options { reserve_bytes: Some(0), log_bytes: Some(MIB), ..options() };
    let server = Server::open(dir.path(), bricks.clone(), small).expect("open");
    let mut session = Session::open(&server);
    for number in 0..400 {
        let file = session.touch(&format!("f{number}"));
        session.commit(&[inline_op(file, 0, &vec![number as u8; 60_000])]);
    }
    server.flush().expect("flush");
    let held = || stat(&server, "store_blob_bytes");
    assert!(held() > 20 * MIB);
    for number in 0..400 {
        session.commit(&[unlink_op(&format!("f{number}"), false)]);
    }
    // A full disk: the next request for room has it reclaimed.
    *bricks.free_bytes.lock().expect("lock") = 0;
    session.grant(0, 0, 100 * MIB).expect("grant");
    eventually("the room is given back", || held() < MIB);
}
