use crate::common::*;
use shoal_namespace::codec::encode;
use shoal_namespace::keys::{self, LAYOUT_FLAGS, LAYOUT_OLDEST, Singleton};
use shoal_namespace::kv::{KvRead, KvStore, WriteBatch};
use shoal_namespace::{Command, Op, Outcome, RenameFlags, SetAttr, XattrSet, records};
use shoal_types::{Errno, FileKind, InodeFlags, InodeId, Timestamp};

const NONE: InodeFlags = InodeFlags(0);

/// Everything that changes an inode or takes a name off it, with the outcome.
fn changes(v: &mut Volume, dir: InodeId, file: InodeId) -> Vec<(&'static str, Result<(), Errno>)> {
    let now = v.now();
    let set = |set: SetAttr| SetAttr { ctime: Some(now), ..set };
    let size = v.stat(file).size;
    vec![
        ("chmod", v.setattr(file, set(SetAttr { perm: Some(0o600), ..SetAttr::default() }))),
        ("chown", v.setattr(file, set(SetAttr { uid: Some(5), ..SetAttr::default() }))),
        ("utimes", v.setattr(file, set(SetAttr { mtime: Some(at(0)), ..SetAttr::default() }))),
        ("truncate", v.truncate(file, 1)),
        ("write", v.write(file, 0, b"x")),
        ("punch", v.punch(file, 0, 1)),
        ("clone", v.clone_range((file, 0), (file, 1), 1)),
        ("setxattr", v.setxattr(file, "user.a", b"1", XattrSet::Any)),
        ("removexattr", v.run(Op::RemoveXattr { ino: file, name: attribute("user.b"), time: now })),
        ("link", v.link(file, ROOT, "another")),
        ("rename", v.rename((dir, "file"), (dir, "renamed"))),
        ("replace", v.rename((dir, "other"), (dir, "file"))),
        ("exchange", {
            let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
            v.rename_with((dir, "other"), (dir, "file"), exchange)
        }),
        ("unlink", v.unlink(dir, "file", false)),
        ("touch", v.setattr(file, set(SetAttr { mtime: Some(now), ..SetAttr::default() }))),
        ("append", v.write(file, size, b"more")),
        ("reserve", v.reserve(file, 0, 100)),
    ]
}

/// A file and another one in a directory.
fn volume() -> (Volume, InodeId, InodeId) {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "dir");
    let file = v.file(dir, "file");
    v.file(dir, "other");
    v.write(file, 0, b"content").unwrap();
    v.setxattr(file, "user.b", b"1", XattrSet::Any).unwrap();
    (v, dir, file)
}

#[test]
fn immutable_file_refuses_every_change_until_the_flag_is_cleared() {
    let (mut v, dir, file) = volume();
    v.set_flags(file, InodeFlags::IMMUTABLE).unwrap();
    let before = (v.stat(file), v.read(file), v.names(dir));
    for (what, outcome) in changes(&mut v, dir, file) {
        assert_eq!(outcome, Err(Errno::EPERM), "{what}");
    }
    assert_eq!((v.stat(file), v.read(file), v.names(dir)), before);
    v.assert_clean();
    v.set_flags(file, NONE).unwrap();
    v.unlink(dir, "file", false).expect("nothing forbids it any more");
    v.assert_clean();
}

#[test]
fn append_only_file_takes_what_is_written_at_its_end_and_a_touch() {
    let (mut v, dir, file) = volume();
    v.set_flags(file, InodeFlags::APPEND).unwrap();
    for (what, outcome) in changes(&mut v, dir, file) {
        let expected =
            if ["touch", "append", "reserve"].contains(&what) { Ok(()) } else { Err(Errno::EPERM) };
        assert_eq!(outcome, expected, "{what}");
    }
    assert_eq!(v.read(file), b"contentmore");
    v.assert_clean();
}

#[test]
fn immutable_directory_keeps_its_names_and_append_only_one_gains_some() {
    for (flags, gains) in [(InodeFlags::IMMUTABLE, Err(Errno::EPERM)), (InodeFlags::APPEND, Ok(()))] {
        let (mut v, dir, file) = volume();
        let elsewhere = v.file(ROOT, "elsewhere");
        let empty = v.dir(dir, "empty");
        v.set_flags(dir, flags).unwrap();
        assert_eq!(v.unlink(dir, "file", false), Err(Errno::EPERM));
        assert_eq!(v.rmdir(dir, "empty"), Err(Errno::EPERM));
        assert_eq!(v.rename((dir, "file"), (ROOT, "out")), Err(Errno::EPERM));
        assert_eq!(v.rename((dir, "file"), (dir, "renamed")), Err(Errno::EPERM));
        assert_eq!(v.rename((ROOT, "elsewhere"), (dir, "file")), Err(Errno::EPERM), "it would be replaced");
        assert_eq!(v.rmdir(ROOT, "dir"), Err(Errno::EPERM));
        assert_eq!(v.rename((ROOT, "dir"), (ROOT, "moved")), Err(Errno::EPERM));
        assert_eq!(v.try_make(FileKind::Regular, dir, "new").map(drop), gains);
        assert_eq!(v.link(elsewhere, dir, "linked"), gains);
        assert_eq!(v.rename((ROOT, "elsewhere"), (dir, "in")), gains);
        v.write(file, 0, b"what is in it").expect("files of the directory are not protected");
        v.file(empty, "deeper");
        v.assert_clean();
    }
}

#[test]
fn flags_are_for_files_with_content_and_directories() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "file");
    let link = v.try_make(FileKind::Symlink, ROOT, "link").unwrap();
    assert_eq!(v.set_flags(link, InodeFlags::IMMUTABLE), Err(Errno::EOPNOTSUPP));
    assert_eq!(v.set_flags(file, InodeFlags(1 << 9)), Err(Errno::EOPNOTSUPP));
    assert_eq!(v.set_flags(InodeId(4711), NONE), Err(Errno::ENOENT));
    v.set_flags(file, InodeFlags(InodeFlags::NODUMP.0 | InodeFlags::NOATIME.0)).unwrap();
    assert_eq!(v.stat(file).ctime, at(v.clock));
    v.write(file, 0, b"x").expect("these flags forbid nothing");
    v.assert_clean();
}

#[test]
fn unlinked_file_with_flags_dies_with_its_last_reference() {
    let (mut v, dir, file) = volume();
    v.unlink(dir, "file", true).unwrap();
    v.set_flags(file, InodeFlags::IMMUTABLE).unwrap();
    v.forget(file);
    assert_eq!(v.record(file), None);
    v.assert_clean();
}

fn layout(v: &Volume) -> u32 {
    let layout = v.store.get(&keys::singleton(Singleton::Layout)).unwrap().unwrap();
    records::decode(&layout).unwrap()
}

#[test]
fn store_changes_its_layout_with_the_first_flags_and_not_before() {
    let (mut v, _, file) = volume();
    assert_eq!(layout(&v), LAYOUT_OLDEST);
    assert_eq!(v.set_flags(InodeId(4711), NONE), Err(Errno::ENOENT));
    assert_eq!(layout(&v), LAYOUT_OLDEST);
    v.set_flags(file, InodeFlags::APPEND).unwrap();
    assert_eq!(layout(&v), LAYOUT_FLAGS);
    v.assert_clean();
    let old = records::encode(&LAYOUT_OLDEST);
    let changes = [(keys::singleton(Singleton::Layout), Some(old))].into();
    v.store.write(&WriteBatch { changes }).unwrap();
    assert_eq!(v.findings().len(), 1, "the layout lacks flags");
}

#[test]
fn batch_with_flags_is_a_command_that_older_programs_stop_at() {
    let (mut v, _, file) = volume();
    let op = Op::SetFlags { ino: file, flags: InodeFlags::IMMUTABLE, time: Timestamp::default() };
    let (session, seq) = (v.session, v.seq.next());
    // Older programs refuse these batches and go on: so does this one.
    for version in [1, 2] {
        let ops = encode(version, &vec![&op]).into();
        let outcome = v.command(Command::Batch { session, seq, ops });
        assert!(matches!(outcome, Outcome::Malformed { .. }), "{outcome:?}");
    }
    assert_eq!((v.stat(file).flags, layout(&v)), (NONE, LAYOUT_OLDEST));
    // They do not know this command.
    let command = Command::batch(session, seq, encode(2, &vec![&op]).into());
    assert!(matches!(command, Command::BatchV2 { .. }));
    assert_eq!(v.command(command), Outcome::Applied { seq });
    assert_eq!(v.stat(file).flags, InodeFlags::IMMUTABLE);
}
