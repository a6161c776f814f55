//! Imports of hand-made bricks, as GlusterFS leaves them. Needs root: attributes `trusted.*`.

mod arbiters;
mod live;
mod moves;

use super::*;
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use tempfile::TempDir;

const ROOT: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const HALF: u32 = 1 << 31;

#[derive(Default)]
struct Heard {
    problems: Vec<String>,
    notes: Vec<String>,
    kept: Vec<String>,
}

impl Listener for Heard {
    fn progress(&mut self, _: &Summary) {}
    fn problem(&mut self, what: &str) {
        self.problems.push(what.into());
    }
    fn kept(&mut self, what: &str) {
        self.kept.push(what.into());
    }
    fn note(&mut self, what: &str) {
        self.notes.push(what.into());
    }
}

struct World {
    dir: TempDir,
}

impl World {
    fn new() -> World {
        World { dir: tempfile::tempdir().unwrap() }
    }

    fn target(&self) -> PathBuf {
        let target = self.dir.path().join("target");
        fs::create_dir_all(&target).unwrap();
        target
    }

    /// A brick whose replica set has the names with these hashes.
    fn brick(&self, name: &str, range: (u32, u32)) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.join(".glusterfs")).unwrap();
        set(&path, c"trusted.gfid", &ROOT);
        set(&path, c"trusted.glusterfs.volume-id", b"0123456789abcdef");
        let mut layout = vec![0; 8];
        layout.extend(range.0.to_be_bytes());
        layout.extend(range.1.to_be_bytes());
        set(&path, c"trusted.glusterfs.dht", &layout);
        path
    }

    fn import(&self, paths: &[&PathBuf], mode: Mode, is_part: bool) -> (Summary, Heard) {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        let bricks = Bricks::open(&paths, &[], is_part).unwrap();
        let mut heard = Heard::default();
        let path = self.target();
        let target = Destination::open(&path, &|| Ok(())).unwrap();
        let summary = import(&bricks, &target, mode, &mut heard).unwrap();
        let left = fs::read_dir(self.target()).unwrap();
        assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with(".shoal")));
        assert_eq!(summary.freed.kept as usize, heard.kept.len());
        assert_eq!(summary.problems as usize, heard.problems.len());
        (summary, heard)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.target().join(name)).unwrap()
    }
}

fn set(path: &Path, name: &CStr, value: &[u8]) {
    xattr::set(path, name, value).expect("root can set attributes of a local file system");
}

/// A file with its gfid, and the hard link that GlusterFS keeps of it.
fn file(brick: &Path, name: &str, content: &[u8], gfid: u8) -> PathBuf {
    let path = brick.join(name);
    fs::write(&path, content).unwrap();
    set(&path, c"trusted.gfid", &[gfid; 16]);
    let handle = brick.join(content::handle_name([gfid; 16]));
    fs::create_dir_all(handle.parent().unwrap()).unwrap();
    fs::hard_link(&path, handle).unwrap();
    path
}

fn directory_on_both(one: &Path, other: &Path, name: &str) {
    for path in [one, other].map(|brick| brick.join(name)) {
        fs::create_dir(&path).unwrap();
        set(&path, c"trusted.gfid", &[2; 16]);
    }
}

fn link_to(brick: &Path, name: &str, gfid: u8) {
    let path = file(brick, name, b"", gfid);
    set(&path, c"trusted.glusterfs.dht.linkto", b"web-client-0\0");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1000)).unwrap();
}

fn mdata(mtime: i64, atime: i64) -> Vec<u8> {
    let mut value = vec![1];
    for number in [0, 1, 2, mtime, 7, atime, 9] {
        value.extend(i64::to_be_bytes(number));
    }
    value
}

#[test]
fn files_of_all_kinds_come_from_whichever_brick_has_them() {
    let world = World::new();
    let (one, two) = (world.brick("b1", (0, HALF - 1)), world.brick("b2", (HALF, u32::MAX)));
    directory_on_both(&one, &two, "dir");
    let text = file(&one, "dir/text", b"content", 3);
    set(&text, c"user.mine", b"value");
    set(&text, c"trusted.glusterfs.mdata", &mdata(1000, 2000));
    fs::set_permissions(&text, fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&text, Some(1234), Some(5678)).unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o4751)).unwrap();
    link_to(&two, "dir/text", 3);
    fs::hard_link(&text, one.join("dir/again")).unwrap();
    let sparse = file(&two, "sparse", b"", 4);
    let open = fs::File::options().write(true).open(&sparse).unwrap();
    open.write_all_at(b"end", 5 << 20).unwrap();
    symlink("../no/where", one.join("dir/symlink")).unwrap();
    set(&one.join("dir/symlink"), c"trusted.gfid", &[5; 16]);
    let dry = world.import(&[&one, &two], Mode::DryRun, false).0;
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0, "nothing is written");
    let (summary, heard) = world.import(&[&one, &two], Mode::CopyAndVerify, false);
    assert_eq!((summary.problems, dry.problems), (0, 0), "{:?}", heard.problems);
    assert_eq!(summary.found, dry.found);
    let Counts { directories, files, hard_links, symlinks, special, bytes } = summary.found;
    assert_eq!((directories, files, hard_links, symlinks, special), (2, 2, 1, 1, 0));
    assert_eq!((bytes, summary.verified), (7 + (5 << 20) + 3, 2));
    assert!(summary.copied_bytes < 1 << 20, "holes stay holes");
    assert_eq!(world.text("dir/text"), "content");
    let stat = fs::metadata(world.target().join("dir/text")).unwrap();
    assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o4751, 1234, 5678));
    assert_eq!((stat.mtime(), stat.mtime_nsec(), stat.nlink()), (1000, 7, 2));
    let got = xattr::names(&world.target().join("dir/text")).unwrap();
    assert_eq!(got, [c"user.mine".to_owned()], "and nothing of GlusterFS");
    let sparse = fs::metadata(world.target().join("sparse")).unwrap();
    assert!(sparse.len() == (5 << 20) + 3 && sparse.blocks() < 2048);
    assert_eq!(fs::read_link(world.target().join("dir/symlink")).unwrap(), Path::new("../no/where"));
    let (again, heard) = world.import(&[&one, &two], Mode::Copy, false);
    assert_eq!((again.problems, again.present, again.copied_bytes), (0, 3, 0), "{:?}", heard.problems);
    // What an earlier import could not set is told again.
    set(&world.target().join("dir/text"), c"user.mine", b"other");
    let time = nix::sys::time::TimeSpec::new(1000, 7);
    let text = world.target().join("dir/text");
    nix::sys::stat::utimensat(
        nix::fcntl::AT_FDCWD,
        &text,
        &time,
        &time,
        nix::sys::stat::UtimensatFlags::NoFollowSymlink,
    )
    .unwrap();
    let heard = world.import(&[&one, &two], Mode::Copy, false).1;
    assert!(heard.problems.iter().any(|what| what.contains("user.mine")), "{:?}", heard.problems);
}

#[test]
fn what_the_volume_has_already_is_left_alone_and_reported() {
    let world = World::new();
    let brick = world.brick("b1", (0, u32::MAX));
    file(&brick, "file", b"of the brick", 3);
    file(&brick, "other", b"other", 4);
    fs::write(world.target().join("file"), "newer").unwrap();
    let (summary, heard) = world.import(&[&brick], Mode::Copy, false);
    assert_eq!(summary.problems, 1, "{:?}", heard.problems);
    assert!(heard.problems[0].starts_with("/file: the target has another file"), "{:?}", heard.problems);
    assert_eq!((world.text("file").as_str(), world.text("other").as_str()), ("newer", "other"));
    // Verifying finds what an earlier import left and another program has changed since, with the same times.
    let target = world.target().join("other");
    let modified = fs::metadata(&target).unwrap().modified().unwrap();
    fs::write(&target, "OTHER").unwrap();
    fs::File::options().write(true).open(&target).unwrap().set_modified(modified).unwrap();
    let heard = world.import(&[&brick], Mode::CopyAndVerify, false).1;
    assert!(heard.problems.iter().any(|what| what.contains("/other: its content")), "{:?}", heard.problems);
}

#[test]
fn of_replicas_the_one_that_missed_nothing_is_taken_and_of_a_split_brain_none() {
    let world = World::new();
    let (one, two) = (world.brick("b1", (0, u32::MAX)), world.brick("b2", (0, u32::MAX)));
    let blame = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let [stale, good] =
        [(&one, "old"), (&two, "new")].map(|(brick, text)| file(brick, "f", text.as_bytes(), 3));
    set(&good, c"trusted.afr.web-client-0", &blame);
    set(&stale, c"trusted.afr.web-client-1", &[0; 12]);
    let [a, b] = [(&one, "a"), (&two, "b")].map(|(brick, text)| file(brick, "split", text.as_bytes(), 4));
    set(&a, c"trusted.afr.web-client-1", &blame);
    set(&b, c"trusted.afr.web-client-0", &blame);
    file(&one, "names", b"x", 5);
    file(&two, "names", b"x", 6);
    let (summary, heard) = world.import(&[&one, &two], Mode::Copy, false);
    assert_eq!(world.text("f"), "new");
    assert_eq!(summary.problems, 2, "{:?}", heard.problems);
    for name in ["names", "split"] {
        assert!(!world.target().join(name).exists());
        assert!(heard.problems.iter().any(|what| what.starts_with(&format!("/{name}: split-brain"))));
    }
}

#[test]
fn shards_are_put_together_and_never_from_a_part_of_the_bricks() {
    let world = World::new();
    let (one, two) = (world.brick("b1", (0, HALF - 1)), world.brick("b2", (HALF, u32::MAX)));
    directory_on_both(&one, &two, ".shard");
    let base = file(&one, "image", b"0123", 9);
    set(&base, c"trusted.glusterfs.shard.block-size", &4u64.to_be_bytes());
    let mut size = 14u64.to_be_bytes().to_vec();
    size.extend([0; 24]);
    set(&base, c"trusted.glusterfs.shard.file-size", &size);
    let uuid = "09090909-0909-0909-0909-090909090909";
    file(&two, &format!(".shard/{uuid}.1"), b"4567", 11);
    file(&one, &format!(".shard/{uuid}.3"), b"cd", 13);
    let (_, heard) = world.import(&[&one], Mode::Copy, true);
    assert!(heard.problems[0].contains("give all bricks"), "{:?}", heard.problems);
    assert!(!world.target().join("image").exists());
    let (summary, heard) = world.import(&[&one, &two], Mode::CopyAndVerify, false);
    assert_eq!(summary.problems, 0, "{:?}", heard.problems);
    assert_eq!(world.text("image"), "01234567\0\0\0\0cd");
    assert!(!world.target().join(".shard").exists());
}

#[test]
fn a_part_of_the_bricks_brings_its_files_and_the_others_bring_theirs() {
    let world = World::new();
    let (one, two) = (world.brick("b1", (0, HALF - 1)), world.brick("b2", (HALF, u32::MAX)));
    directory_on_both(&one, &two, "dir");
    file(&one, "dir/one", b"1", 3);
    file(&two, "dir/two", b"2", 4);
    link_to(&one, "dir/two", 4);
    for brick in [&one, &two] {
        let (summary, heard) = world.import(&[brick], Mode::Copy, true);
        assert_eq!((summary.problems, summary.found.files), (0, 1), "{:?}", heard.problems);
    }
    assert_eq!((world.text("dir/one").as_str(), world.text("dir/two").as_str()), ("1", "2"));
}

#[test]
fn plain_tree_is_copied_with_links_holes_and_attributes_of_any_name() {
    let world = World::new();
    let source = world.dir.path().join("source");
    fs::create_dir_all(source.join(".glusterfs")).unwrap();
    fs::write(source.join(".glusterfs/mine"), "mine").unwrap();
    fs::write(source.join("one"), "content").unwrap();
    fs::hard_link(source.join("one"), source.join("two")).unwrap();
    fs::write(source.join("alone"), "of one name").unwrap();
    set(&source.join("one"), c"trusted.mine", b"value");
    set(&source.join("one"), c"trusted.glusterfs.shard.block-size", &4u64.to_be_bytes());
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 5 << 20).unwrap();
    let bricks = Bricks::plain(source.clone()).unwrap();
    let mut heard = Heard::default();
    let path = world.target();
    let target = Destination::open(&path, &|| Ok(())).unwrap();
    let summary = import(&bricks, &target, Mode::CopyAndVerify, &mut heard).unwrap();
    assert_eq!(
        (summary.problems, summary.found.files, summary.found.hard_links),
        (0, 4, 1),
        "{:?}",
        heard.problems
    );
    assert!(summary.copied_bytes < 1 << 20, "holes stay holes");
    assert_eq!((world.text("two").as_str(), world.text(".glusterfs/mine").as_str()), ("content", "mine"));
    assert_eq!(fs::metadata(world.target().join("two")).unwrap().nlink(), 2);
    assert_eq!(
        xattr::get(&world.target().join("one"), c"trusted.mine").unwrap().as_deref(),
        Some(&b"value"[..])
    );
    let again = import(&bricks, &target, Mode::Copy, &mut heard).unwrap();
    assert_eq!((again.problems, again.present, again.copied_bytes), (0, 4, 0), "{:?}", heard.problems);
}

#[test]
fn bricks_that_cannot_be_read_are_refused_with_the_reason() {
    let world = World::new();
    let refused = |paths: &[&PathBuf]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        Bricks::open(&paths, &[], false).err().map(|why| format!("{why:#}")).expect("refused")
    };
    let half = world.brick("half", (0, HALF - 1));
    assert!(refused(&[&half]).contains("bricks are missing"), "{}", refused(&[&half]));
    assert!(refused(&[&half, &half]).contains("given twice"));
    assert!(refused(&[&world.target()]).contains("no brick of GlusterFS"));
    let dispersed = world.brick("dispersed", (0, u32::MAX));
    set(&dispersed, c"trusted.ec.version", &[0; 16]);
    assert!(refused(&[&dispersed]).contains("copy through the mount"));
    let other = world.brick("other", (HALF, u32::MAX));
    set(&other, c"trusted.glusterfs.volume-id", b"another volume..");
    assert!(refused(&[&half, &other]).contains("different volumes"));
}
