use crate::common::*;
use shoal_namespace::Op;
use shoal_types::{Errno, FileKind, InodeFlags, InodeId};

fn unnamed(v: &mut Volume, parent: InodeId) -> Result<InodeId, Errno> {
    let ino = v.fresh();
    let new = blank(FileKind::Regular, v.now());
    v.run(Op::CreateUnnamed { parent, ino, new })?;
    Ok(ino)
}

#[test]
fn unnamed_file_lives_for_its_session_and_changes_no_directory() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "dir");
    let before = v.stat(dir);
    let file = unnamed(&mut v, dir).unwrap();
    v.write(file, 0, b"content").unwrap();
    assert_eq!((v.stat(file).nlink, v.holders(file)), (0, vec![v.session]));
    assert_eq!((v.stat(dir), v.names(dir).len()), (before, 0));
    v.assert_clean();
    v.rmdir(ROOT, "dir").expect("it is not in the directory");
    v.forget(file);
    assert_eq!(v.record(file), None);
    let other = unnamed(&mut v, ROOT).unwrap();
    v.close_session(v.session);
    assert_eq!(v.record(other), None);
    v.assert_clean();
}

#[test]
fn unnamed_file_gets_a_name_and_is_then_like_any_other() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "dir");
    let file = unnamed(&mut v, ROOT).unwrap();
    v.write(file, 0, b"content").unwrap();
    v.link(file, dir, "name").expect("it has had no name yet");
    let inode = v.stat(file);
    assert_eq!((inode.nlink, inode.parent, inode.flags), (1, dir, InodeFlags::default()));
    v.forget(file);
    assert_eq!(v.read(file), b"content");
    v.assert_clean();
    v.unlink(dir, "name", true).unwrap();
    assert_eq!(v.link(file, dir, "again"), Err(Errno::ENOENT), "it has lost its last name");
    v.assert_clean();
}

#[test]
fn unnamed_file_is_made_where_a_name_could_be() {
    let mut v = Volume::new();
    let (dir, file) = (v.dir(ROOT, "dir"), v.file(ROOT, "file"));
    assert_eq!(unnamed(&mut v, file), Err(Errno::ENOTDIR));
    assert_eq!(unnamed(&mut v, InodeId(4711)), Err(Errno::ENOENT));
    v.set_flags(dir, InodeFlags::IMMUTABLE).unwrap();
    assert_eq!(unnamed(&mut v, dir), Err(Errno::EPERM));
    let (ino, new) = (v.fresh(), blank(FileKind::Directory, at(1)));
    assert_eq!(v.run(Op::CreateUnnamed { parent: ROOT, ino, new }), Err(Errno::EINVAL));
    v.assert_clean();
}

#[test]
fn unnamed_file_keeps_its_flags_and_its_chance_of_a_name() {
    let mut v = Volume::new();
    let file = unnamed(&mut v, ROOT).unwrap();
    v.set_flags(file, InodeFlags::IMMUTABLE).unwrap();
    assert_eq!(v.link(file, ROOT, "name"), Err(Errno::EPERM));
    v.set_flags(file, InodeFlags::NODUMP).unwrap();
    v.link(file, ROOT, "name").unwrap();
    assert_eq!(v.stat(file).flags, InodeFlags::NODUMP);
    v.assert_clean();
}
