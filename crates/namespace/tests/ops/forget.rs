use crate::common::*;
use shoal_namespace::{Command, Op, Outcome, query};
use shoal_types::Errno;

#[test]
fn an_orphan_dies_when_it_is_forgotten() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let block = v.write_block(file, 0, 4096);
    v.unlink(ROOT, "a", true).unwrap();
    v.run(Op::Forget { ino: file }).unwrap();
    assert_eq!((v.record(file), v.refs(block)), (None, Some(0)));
    assert_eq!(v.run(Op::Forget { ino: file }), Err(Errno::ENOENT));
    v.assert_clean();
}

#[test]
fn only_orphans_can_be_forgotten() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    assert_eq!(v.run(Op::Forget { ino: file }), Err(Errno::ENOENT));
    v.unlink(ROOT, "a", true).unwrap();
    v.open_session();
    assert_eq!(v.run(Op::Forget { ino: file }), Err(Errno::ENOENT), "another session's orphan");
    v.assert_clean();
}

#[test]
fn orphans_die_with_their_session_however_many_there_are() {
    let mut v = Volume::new();
    let count = shoal_namespace::limits::END_ORPHANS_MAX + 10;
    for n in 0..count {
        let file = v.file(ROOT, &format!("f{n}"));
        v.write(file, 0, b"x").unwrap();
        v.unlink(ROOT, &format!("f{n}"), true).unwrap();
    }
    let session = v.session;
    assert_eq!(v.command(Command::CloseSession { session }), Outcome::Closed { more: true });
    v.assert_clean();
    assert_eq!(v.batch(&[]), Outcome::Fenced { session });
    assert!(query::session(&v.store, session).unwrap().is_none());
    assert_eq!(query::sessions(&v.store).unwrap().len(), 1);
    assert_eq!(v.command(Command::CloseSession { session }), Outcome::Closed { more: false });
    assert_eq!(v.command(Command::CloseSession { session }), Outcome::Closed { more: false });
    assert_eq!(query::counters(&v.store).unwrap().inodes, 1);
    assert_eq!(query::sessions(&v.store).unwrap(), []);
    v.assert_clean();
}
