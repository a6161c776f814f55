use crate::common::*;
use shoal_namespace::{Command, Outcome, query};
use shoal_types::InodeId;

#[test]
fn a_file_without_a_name_dies_when_it_is_forgotten() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let block = v.write_block(file, 0, 4096);
    v.unlink(ROOT, "a", true).unwrap();
    v.forget(file);
    assert_eq!((v.record(file), v.refs(block)), (None, Some(0)));
    v.assert_clean();
}

#[test]
fn to_forget_what_is_gone_or_was_never_held_changes_nothing() {
    let mut v = Volume::new();
    let (a, file) = (v.session, v.file(ROOT, "a"));
    let before = v.stat(file);
    v.forget(file);
    v.forget(InodeId(1 << 40));
    assert_eq!(v.stat(file), before);
    v.unlink(ROOT, "a", true).unwrap();
    v.open_session();
    v.forget(file);
    assert_eq!(v.holders(file), [a], "another session holds it");
    v.act_as(a);
    v.forget(file);
    v.forget(file);
    assert_eq!(v.record(file), None);
    v.assert_clean();
}

#[test]
fn a_file_with_a_name_lives_on_when_it_is_forgotten() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.hold(v.session, &[file]);
    v.forget(file);
    assert_eq!((v.stat(file).nlink, v.holders(file)), (1, vec![]));
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!(v.record(file), None);
    v.assert_clean();
}

#[test]
fn what_only_a_session_held_dies_with_it_however_much_there_is() {
    let mut v = Volume::new();
    let count = shoal_namespace::limits::END_HOLDS_MAX + 10;
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
