use crate::common::*;
use shoal_namespace::check::Finding;
use shoal_namespace::kv::{KvRead, KvStore, WriteBatch};
use shoal_namespace::limits::{END_HOLDS_MAX, HOLD_INODES_MAX};
use shoal_namespace::records::{self, InodeRecord, Life};
use shoal_namespace::{Command, Op, Outcome, RenameFlags, keys, query};
use shoal_types::{Errno, FileKind, InodeId, SessionId};

/// A volume with three sessions, of which the first acts.
fn three() -> (Volume, [SessionId; 3]) {
    let mut v = Volume::new();
    let sessions = [v.session, v.open_session(), v.open_session()];
    v.act_as(sessions[0]);
    (v, sessions)
}

fn put(v: &Volume, key: Vec<u8>, value: Option<bytes::Bytes>) {
    let mut batch = WriteBatch::default();
    batch.changes.insert(key, value);
    v.store.write(&batch).unwrap();
}

fn set_life(v: &Volume, ino: InodeId, life: Life) {
    let key = keys::inode(ino);
    let record: InodeRecord = records::decode(&v.store.get(&key).unwrap().unwrap()).unwrap();
    put(v, key, Some(records::encode(&InodeRecord { life, ..record })));
}

#[test]
fn an_unlinked_file_lives_until_the_last_session_lets_go() {
    let (mut v, [a, b, c]) = three();
    let file = v.file(ROOT, "a");
    v.write(file, 0, b"hello").unwrap();
    let block = v.write_block(file, 1 << 20, 4096);
    v.hold(b, &[file]);
    v.hold(c, &[file]);
    v.unlink(ROOT, "a", true).unwrap();
    assert_eq!((v.stat(file).nlink, v.holders(file)), (0, vec![a, b, c]));
    v.close_session(a);
    v.assert_clean();
    v.act_as(b);
    v.write(file, 5, b" world").unwrap();
    assert_eq!(v.read(file)[..11], *b"hello world");
    v.forget(file);
    assert_eq!(v.holders(file), [c]);
    v.assert_clean();
    assert_eq!(v.refs(block), Some(1));
    v.close_session(c);
    assert_eq!((v.record(file), v.refs(block)), (None, Some(0)));
    v.assert_clean();
}

#[test]
fn a_file_outlives_its_name_for_others_when_the_session_that_takes_it_does_not_refer_to_it() {
    let (mut v, [a, b, _]) = three();
    let file = v.file(ROOT, "a");
    v.hold(a, &[file]);
    v.hold(b, &[file]);
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!(
        (v.stat(file).nlink, v.holders(file)),
        (0, vec![b]),
        "what a session held before, it has let go"
    );
    v.assert_clean();
    v.act_as(b);
    v.forget(file);
    assert_eq!(v.record(file), None);
    v.assert_clean();
}

#[test]
fn a_session_that_no_longer_refers_to_a_file_takes_it_along_with_the_last_name() {
    let (mut v, [a, ..]) = three();
    let file = v.file(ROOT, "a");
    v.hold(a, &[file]);
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!((v.record(file), query::holds(&v.store, a, 9).unwrap()), (None, vec![]));
    v.assert_clean();
}

#[test]
fn what_is_held_and_has_another_name_just_loses_one() {
    let (mut v, [_, b, _]) = three();
    let file = v.file(ROOT, "a");
    v.link(file, ROOT, "b").unwrap();
    v.hold(b, &[file]);
    v.unlink(ROOT, "a", true).unwrap();
    assert_eq!((v.stat(file).nlink, v.holders(file)), (1, vec![b]));
    v.close_session(b);
    assert_eq!((v.stat(file).nlink, v.holders(file)), (1, vec![]));
    v.assert_clean();
}

#[test]
fn a_removed_directory_lives_for_those_who_hold_it_and_takes_no_names() {
    let (mut v, [_, b, _]) = three();
    let dir = v.dir(ROOT, "d");
    v.hold(b, &[dir]);
    v.rmdir(ROOT, "d").unwrap();
    assert_eq!((v.stat(dir).nlink, v.holders(dir)), (0, vec![b]));
    v.act_as(b);
    assert_eq!(v.try_make(FileKind::Regular, dir, "x"), Err(Errno::ENOENT));
    v.assert_clean();
    v.forget(dir);
    assert_eq!(v.record(dir), None);
    v.assert_clean();
}

#[test]
fn what_a_rename_replaces_lives_for_those_who_hold_it() {
    let (mut v, [_, b, _]) = three();
    for (kind, keep) in [(FileKind::Regular, false), (FileKind::Regular, true), (FileKind::Directory, false)]
    {
        let moved = v.try_make(kind, ROOT, "new").unwrap();
        let replaced = v.try_make(kind, ROOT, "old").unwrap();
        v.hold(b, &[moved, replaced]);
        let time = v.now();
        let (from_name, to_name) = (name("new"), name("old"));
        let flags = RenameFlags::default();
        v.run(Op::Rename { from: ROOT, from_name, to: ROOT, to_name, flags, time, keep }).unwrap();
        assert_eq!((v.stat(replaced).nlink, v.stat(replaced).ctime), (0, time));
        assert_eq!(v.find(ROOT, "old").unwrap().ino, moved);
        v.assert_clean();
        let holders = if keep { vec![v.session, b] } else { vec![b] };
        assert_eq!((v.holders(replaced), v.holders(moved)), (holders, vec![b]));
        let a = v.session;
        v.act_as(b);
        v.forget(replaced);
        v.forget(moved);
        v.act_as(a);
        v.forget(replaced);
        assert_eq!((v.record(replaced), v.stat(moved).nlink > 0), (None, true));
        match kind {
            FileKind::Directory => v.rmdir(ROOT, "old").unwrap(),
            _ => v.unlink(ROOT, "old", false).unwrap(),
        }
        v.assert_clean();
    }
}

#[test]
fn moving_and_exchanging_changes_nothing_about_who_holds_what() {
    let (mut v, [a, b, c]) = three();
    let (dir, one) = (v.dir(ROOT, "d"), v.file(ROOT, "one"));
    let two = v.file(dir, "two");
    v.hold(b, &[one]);
    v.hold(c, &[two]);
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    v.rename_with((ROOT, "one"), (dir, "two"), exchange).unwrap();
    v.rename((dir, "two"), (ROOT, "x")).unwrap();
    assert_eq!((v.holders(one), v.holders(two)), (vec![b], vec![c]));
    assert_eq!((v.stat(one).cover(one), v.stat(two).cover(two)), (ROOT, ROOT));
    v.close_session(b);
    v.close_session(c);
    assert_eq!((v.stat(one).nlink, v.stat(two).nlink), (1, 1));
    v.assert_clean();
    v.close_session(a);
    v.assert_clean();
}

#[test]
fn to_hold_something_twice_or_what_is_gone_changes_nothing() {
    let (mut v, [_, b, _]) = three();
    let (kept, dying, gone) = (v.file(ROOT, "a"), v.file(ROOT, "b"), v.file(ROOT, "c"));
    for n in 0..300 {
        v.write_block(dying, n * 8192, 4096);
    }
    v.unlink(ROOT, "b", false).unwrap();
    v.unlink(ROOT, "c", false).unwrap();
    assert_eq!(query::reap_queue(&v.store, 9).unwrap(), [dying]);
    v.hold(b, &[kept, dying, gone, kept, InodeId(1 << 40)]);
    assert_eq!(query::holds(&v.store, b, 9).unwrap(), [kept]);
    let before = dump(&v.store);
    v.hold(b, &[kept, dying]);
    v.hold(b, &[]);
    assert!(dump(&v.store) == before);
    v.assert_clean();
    v.clean_up();
    v.assert_clean();
}

#[test]
fn one_command_holds_a_bounded_number_for_a_session_that_lives() {
    let (mut v, [a, b, _]) = three();
    let file = v.file(ROOT, "a");
    let inodes = vec![file; HOLD_INODES_MAX + 1];
    let refused = Outcome::Refused { index: 0, errno: Errno::E2BIG };
    assert_eq!(v.command(Command::Hold { session: a, inodes }), refused);
    v.hold(a, &vec![file; HOLD_INODES_MAX]);
    let fenced = |session| Outcome::Fenced { session };
    let hold = |session| Command::Hold { session, inodes: vec![file] };
    v.close_session(b);
    for session in [b, SessionId::SERVER, SessionId(1 << 40)] {
        assert_eq!(v.command(hold(session)), fenced(session));
    }
    assert_eq!(v.holders(file), [a]);
    v.assert_clean();
}

#[test]
fn a_session_that_is_ending_holds_nothing_new_and_what_it_shares_lives_on() {
    let (mut v, [a, b, _]) = three();
    let count = END_HOLDS_MAX + 10;
    let files: Vec<InodeId> = (0..count).map(|n| v.file(ROOT, &format!("f{n}"))).collect();
    v.hold(b, &files);
    for n in 0..count {
        v.unlink(ROOT, &format!("f{n}"), n % 2 == 0).unwrap();
    }
    assert_eq!(v.command(Command::CloseSession { session: b }), Outcome::Closed { more: true });
    v.assert_clean();
    let hold = Command::Hold { session: b, inodes: vec![ROOT] };
    assert_eq!(v.command(hold), Outcome::Fenced { session: b });
    v.close_session(b);
    let alive: Vec<InodeId> = files.iter().step_by(2).copied().collect();
    assert_eq!(query::holds(&v.store, a, usize::MAX).unwrap(), alive);
    assert_eq!(query::counters(&v.store).unwrap().inodes, 1 + alive.len() as u64);
    v.assert_clean();
}

#[test]
fn a_held_file_of_many_extents_is_taken_apart_in_steps_when_the_last_session_ends() {
    let (mut v, [a, b, _]) = three();
    let file = v.file(ROOT, "a");
    for n in 0..300 {
        v.write_block(file, n * 8192, 4096);
    }
    v.hold(b, &[file]);
    v.unlink(ROOT, "a", true).unwrap();
    v.close_session(a);
    assert_eq!(query::reap_queue(&v.store, 9).unwrap(), []);
    v.close_session(b);
    assert_eq!(query::reap_queue(&v.store, 9).unwrap(), [file]);
    v.assert_clean();
    v.clean_up();
    v.assert_clean();
}

#[test]
fn an_inode_without_holders_has_the_record_it_had_before_it_was_held() {
    let (mut v, [_, b, c]) = three();
    let file = v.file(ROOT, "a");
    let before = v.store.get(&keys::inode(file)).unwrap();
    v.hold(b, &[file]);
    v.hold(c, &[file]);
    assert!(v.store.get(&keys::inode(file)).unwrap() != before);
    v.close_session(b);
    v.close_session(c);
    assert_eq!(v.store.get(&keys::inode(file)).unwrap(), before);
}

/// Stores of the time when only the session that took the last name could hold an inode, by its key alone.
#[test]
fn a_hold_of_an_old_store_is_read_as_one() {
    for way in 0..4 {
        let (mut v, [a, b, c]) = three();
        let file = v.file(ROOT, "a");
        v.unlink(ROOT, "a", true).unwrap();
        set_life(&v, file, Life::Unheld);
        v.assert_clean();
        // To others it is not there to be held, forgotten, or destroyed; the group may work on it.
        v.hold(b, &[file]);
        v.act_as(c);
        v.forget(file);
        v.close_session(b);
        v.close_session(c);
        v.command(Command::RestFromCompaction { ino: file });
        assert_eq!((v.stat(file).nlink, v.holders(file)), (0, vec![]));
        v.assert_clean();
        v.act_as(a);
        match way {
            0 => v.forget(file),
            1 => v.close_session(a),
            2 => {
                v.write(file, 0, b"hello").unwrap();
                assert_eq!(v.holders(file), [a], "its record tells once it is written again");
                v.assert_clean();
                v.forget(file);
            }
            _ => {
                v.hold(a, &[file]);
                v.assert_clean();
                v.close_session(a);
            }
        }
        assert_eq!((v.record(file), query::holds(&v.store, a, 9).unwrap()), (None, vec![]));
        v.assert_clean();
    }
}

#[test]
fn a_check_finds_holds_that_do_not_fit() {
    let find = |damage: fn(&mut Volume, InodeId, [SessionId; 3])| {
        let (mut v, sessions) = three();
        let file = v.file(ROOT, "a");
        v.hold(sessions[1], &[file]);
        v.unlink(ROOT, "a", true).unwrap();
        v.assert_clean();
        damage(&mut v, file, sessions);
        let mut kinds: Vec<String> = v
            .findings()
            .into_iter()
            .map(|finding| match finding {
                Finding::Hold { what, .. } => what.into(),
                Finding::Lost { .. } => "lost".into(),
                Finding::Inode { .. } => "inode".into(),
                other => panic!("{other}"),
            })
            .collect();
        kinds.sort_unstable();
        kinds
    };
    let present = || Some(records::present());
    let lost_key = find(|v, file, [a, ..]| put(v, keys::hold(a, file), None));
    assert_eq!(lost_key, ["it is not on the session's list"]);
    let foreign_key = find(|v, file, [.., c]| put(v, keys::hold(c, file), Some(records::present())));
    assert_eq!(foreign_key, ["the inode's record does not say so"]);
    let unheld = find(|v, file, [a, b, _]| {
        set_life(v, file, Life::Unheld);
        put(v, keys::hold(a, file), None);
        put(v, keys::hold(b, file), None);
    });
    assert_eq!(unheld, ["lost"]);
    let two_keys_alone = find(|v, file, _| set_life(v, file, Life::Unheld));
    assert_eq!(two_keys_alone, ["the inode's record does not say so"]);
    let out_of_order = find(|v, file, [a, b, _]| set_life(v, file, Life::Held(vec![b, a])));
    assert_eq!(out_of_order, ["inode"]);
    let no_session = find(|v, _, [a, ..]| put(v, keys::session(a), None));
    assert_eq!(no_session, ["the session has ended"]);
    let (v, [a, ..]) = three();
    put(&v, keys::hold(a, InodeId(1 << 40)), present());
    let findings = v.findings();
    assert!(matches!(findings[..], [Finding::Hold { what: "the inode is not there", .. }]), "{findings:?}");
}

#[test]
fn a_session_ends_even_if_what_it_holds_is_not_there() {
    let (mut v, [a, b, _]) = three();
    let file = v.file(ROOT, "a");
    put(&v, keys::hold(b, InodeId(1 << 40)), Some(records::present()));
    put(&v, keys::hold(b, file), Some(records::present()));
    v.close_session(b);
    assert_eq!(v.holders(file), []);
    v.assert_clean();
    v.close_session(a);
    v.assert_clean();
}
