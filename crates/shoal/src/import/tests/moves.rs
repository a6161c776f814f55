//! Moves: what is removed from bricks, and what is not.

use super::*;
use std::cell::Cell;
use std::collections::BTreeSet;

const ALL: (u32, u32) = (0, u32::MAX);

/// What is on a brick beside directories, GlusterFS's own names included.
fn left(brick: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![brick.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => drop(found.insert(entry.path().strip_prefix(brick).unwrap().to_owned())),
            }
        }
    }
    found
}

/// A brick with one file of each kind.
fn fill(world: &World, name: &str) -> PathBuf {
    let brick = world.brick(name, ALL);
    fs::create_dir(brick.join("dir")).unwrap();
    set(&brick.join("dir"), c"trusted.gfid", &[2; 16]);
    for (name, gfid) in [("alone", 3), ("dir/one", 4)] {
        let path = file(&brick, name, b"content", gfid);
        set(&path, TIMES, &mdata(1000, 2000));
    }
    fs::hard_link(brick.join("dir/one"), brick.join("dir/two")).unwrap();
    let sparse = file(&brick, "sparse", b"", 5);
    fs::File::options().write(true).open(&sparse).unwrap().write_all_at(b"end", 5 << 20).unwrap();
    set(&sparse, TIMES, &mdata(1001, 2001));
    symlink("no/where", brick.join("symlink")).unwrap();
    set(&brick.join("symlink"), c"trusted.gfid", &[6; 16]);
    brick
}

const TIMES: &CStr = candidates::TIMES;

/// Cuts a file of 14 bytes into shards of 4, of which the third is a hole.
fn cut(brick: &Path, second: &[u8]) -> PathBuf {
    let base = file(brick, "image", b"0123", 9);
    set(&base, c"trusted.glusterfs.shard.block-size", &4u64.to_be_bytes());
    let mut size = 14u64.to_be_bytes().to_vec();
    size.extend([0; 24]);
    set(&base, c"trusted.glusterfs.shard.file-size", &size);
    set(&base, TIMES, &mdata(1002, 2002));
    fs::create_dir(brick.join(".shard")).unwrap();
    file(brick, content::shard_name([9; 16], 1).to_str().unwrap(), second, 11);
    file(brick, content::shard_name([9; 16], 3).to_str().unwrap(), b"cd", 13);
    base
}

#[test]
fn move_frees_what_is_in_the_volume_and_dry_run_says_so() {
    let world = World::new();
    let brick = fill(&world, "b1");
    let before = left(&brick);
    set(&brick.join("dir"), TIMES, &mdata(500, 600));
    let dry = world.import(&[&brick], Mode::DryRun, false).0;
    assert_eq!(left(&brick), before);
    let (summary, heard) = world.import(&[&brick], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.kept), (0, 0), "{:?} {:?}", heard.problems, heard.kept);
    assert_eq!(
        (summary.freed.files, summary.freed.left_files),
        (4, 0),
        "a file has one copy, and several names"
    );
    assert!(summary.freed.bytes > 0 && summary.freed.bytes == dry.freed.bytes);
    assert_eq!(left(&brick), BTreeSet::new());
    assert!(!brick.join("dir").exists(), "empty directories go");
    assert_eq!((world.text("alone").as_str(), world.text("dir/two").as_str()), ("content", "content"));
    let stat = |name: &str| fs::metadata(world.target().join(name)).unwrap();
    assert_eq!((stat("dir/one").ino(), stat("dir/one").nlink()), (stat("dir/two").ino(), 2));
    assert_eq!((stat("dir").mtime(), stat("sparse").mtime()), (500, 1001));
    assert!(stat("sparse").blocks() < 2048);
    // Once more: there is nothing to do, and nothing is lost.
    let again = world.import(&[&brick], Mode::Move, false).0;
    assert_eq!((again.problems, again.freed.files, again.copied_bytes), (0, 0, 0));
    assert_eq!(world.text("alone"), "content");
}

#[test]
fn without_move_nothing_changes_on_a_brick() {
    let world = World::new();
    let brick = fill(&world, "b1");
    let before = left(&brick);
    for mode in [Mode::DryRun, Mode::Copy, Mode::CopyAndVerify] {
        world.import(&[&brick], mode, false);
        assert_eq!(left(&brick), before, "{mode:?}");
        assert!(xattr::get(&brick, TIMES).unwrap().is_none(), "{mode:?}");
    }
}

#[test]
fn of_another_replica_what_differs_is_kept_and_nothing_is_copied() {
    let world = World::new();
    let (one, two) = (fill(&world, "b1"), fill(&world, "b2"));
    world.import(&[&one], Mode::Move, false);
    file(&two, "dir/more", b"only here", 8);
    // The length and the times are equal.
    fs::write(two.join("alone"), b"CONTENT").unwrap();
    set(&two.join("sparse"), TIMES, &mdata(1003, 2001));
    set(&two.join("dir/one"), c"trusted.mine", b"value");
    let (summary, heard) = world.import(&[&two], Mode::Free, false);
    let expected = [("/alone", "content"), ("/dir/one", "trusted.mine is not imported")];
    assert_eq!(heard.kept.len(), expected.len(), "{:?}", heard.kept);
    for (name, why) in expected {
        let told = |what: &String| what.starts_with(name) && what.contains(why);
        assert!(heard.kept.iter().any(told), "{name}: {:?}", heard.kept);
    }
    assert_eq!(heard.problems.len(), 2, "{:?}", heard.problems);
    assert!(heard.problems.iter().any(|what| what.starts_with("/dir/more: the target has no such file")));
    assert!(heard.problems.iter().any(|what| what.starts_with("/sparse: the target has another file")));
    assert!(!world.target().join("dir/more").exists());
    assert_eq!((summary.freed.files, summary.freed.left_files), (1, 5), "the symbolic link is equal");
    for name in ["alone", "dir/one", "dir/two", "dir/more", "sparse"] {
        assert!(two.join(name).exists(), "{name}");
    }
    assert_eq!(world.text("alone"), "content");
}

#[test]
fn replicas_given_at_once_are_each_compared() {
    let world = World::new();
    let (one, two) = (fill(&world, "b1"), fill(&world, "b2"));
    fs::write(two.join("alone"), b"CONTENT").unwrap();
    let (summary, heard) = world.import(&[&one, &two], Mode::Move, false);
    assert_eq!(
        (summary.problems, summary.freed.files, summary.freed.left_files),
        (0, 7, 1),
        "{:?}",
        heard.kept
    );
    assert_eq!(heard.kept.len(), 1, "{:?}", heard.kept);
    assert!(heard.kept[0].starts_with("/alone: on ") && heard.kept[0].contains("/b2"), "{:?}", heard.kept);
    assert_eq!(world.text("alone"), "content");
    assert!(
        one.join("dir").exists() && two.join("dir").exists(),
        "directories stay where something was kept"
    );
}

#[test]
fn file_that_changes_in_the_volume_before_it_is_freed_is_kept() {
    let world = World::new();
    let brick = fill(&world, "b1");
    let path = world.target();
    let changes = || {
        fs::write(path.join("alone"), "changed")?;
        fs::remove_file(path.join("dir/one"))
    };
    let flushes = Cell::new(0);
    let flush = || {
        flushes.set(flushes.get() + 1);
        if flushes.get() == 1 { changes() } else { Ok(()) }
    };
    let target = Destination::open(&path, &flush).unwrap();
    let mut heard = Heard::default();
    let bricks = Bricks::open(std::slice::from_ref(&brick), &[], false).unwrap();
    let summary = import(&bricks, &target, Mode::Move, &mut heard).unwrap();
    assert_eq!((summary.freed.kept, summary.freed.left_files), (2, 3), "{:?}", heard.kept);
    assert_eq!(fs::read(brick.join("alone")).unwrap(), b"content");
    assert_eq!((world.text("alone").as_str(), world.text("dir/two").as_str()), ("changed", "content"));
}

#[test]
fn nothing_is_removed_if_the_target_cannot_be_made_durable() {
    let world = World::new();
    let brick = fill(&world, "b1");
    let before = left(&brick);
    let path = world.target();
    let flush = || Err(io::Error::other("no quorum"));
    let target = Destination::open(&path, &flush).unwrap();
    let bricks = Bricks::open(std::slice::from_ref(&brick), &[], false).unwrap();
    import(&bricks, &target, Mode::Move, &mut Heard::default()).expect_err("no quorum");
    assert_eq!(left(&brick), before);
    // Started again, it goes on.
    let (summary, heard) = world.import(&[&brick], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.left_files), (0, 0), "{:?}", heard.problems);
    assert_eq!(left(&brick), BTreeSet::new());
}

#[test]
fn killed_between_the_names_of_a_file_a_move_goes_on() {
    let world = World::new();
    let brick = fill(&world, "b1");
    world.import(&[&brick], Mode::Copy, false);
    let handle = |gfid: u8| brick.join(content::handle_name([gfid; 16]));
    fs::remove_file(handle(3)).unwrap();
    fs::remove_file(handle(4)).unwrap();
    fs::remove_file(brick.join("dir/one")).unwrap();
    let (summary, heard) = world.import(&[&brick], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.kept), (0, 0), "{:?} {:?}", heard.problems, heard.kept);
    assert_eq!(left(&brick), BTreeSet::new());
    assert_eq!(fs::metadata(world.target().join("dir/one")).unwrap().nlink(), 2);
}

#[test]
fn hard_link_of_which_a_name_is_in_the_way_stays_whole() {
    let world = World::new();
    let brick = fill(&world, "b1");
    fs::create_dir(world.target().join("dir")).unwrap();
    fs::write(world.target().join("dir/two"), "newer").unwrap();
    let (summary, heard) = world.import(&[&brick], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.kept), (1, 1), "{:?} {:?}", heard.problems, heard.kept);
    assert!(brick.join("dir/one").exists() && brick.join("dir/two").exists());
    assert!(!brick.join("alone").exists());
    assert_eq!(world.text("dir/two"), "newer");
}

#[test]
fn times_of_directories_outlast_a_move_that_is_started_again() {
    let world = World::new();
    let brick = fill(&world, "b1");
    let before = fs::metadata(brick.join("dir")).unwrap();
    file(&brick, "dir/split", b"x", 20);
    fs::create_dir_all(world.target().join("dir/split")).unwrap();
    fs::File::open(brick.join("dir")).unwrap().set_modified(before.modified().unwrap()).unwrap();
    for _ in 0..2 {
        // As of a run that was killed.
        set(&world.target().join("dir"), directories::mark(), &[2; 16]);
        assert_eq!(world.import(&[&brick], Mode::Move, false).0.problems, 1);
        let stat = fs::metadata(world.target().join("dir")).unwrap();
        assert_eq!((stat.mtime(), stat.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
    }
}

#[test]
fn shards_are_freed_together_and_also_after_a_kill() {
    let world = World::new();
    let brick = world.brick("b1", ALL);
    let base = cut(&brick, b"4567");
    let (summary, heard) = world.import(&[&brick], Mode::CopyAndVerify, false);
    assert_eq!(summary.problems, 0, "{:?}", heard.problems);
    // As after a kill between the shards.
    set(&base, content::FREED, b"1");
    fs::remove_file(brick.join(content::shard_name([9; 16], 1))).unwrap();
    fs::remove_file(brick.join(content::handle_name([11; 16]))).unwrap();
    let (summary, heard) = world.import(&[&brick], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.kept), (0, 0), "{:?} {:?}", heard.problems, heard.kept);
    assert_eq!((summary.freed.files, left(&brick)), (2, BTreeSet::new()));
    assert_eq!(world.text("image"), "01234567\0\0\0\0cd");
}

#[test]
fn rest_of_a_file_in_shards_is_not_taken_for_the_file() {
    let world = World::new();
    let brick = world.brick("b1", ALL);
    let base = cut(&brick, b"4567");
    set(&base, content::FREED, b"1");
    fs::remove_file(brick.join(content::shard_name([9; 16], 1))).unwrap();
    let (summary, heard) = world.import(&[&brick], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.files), (1, 0), "{:?}", heard.problems);
    assert!(base.exists() && !world.target().join("image").exists());
}

#[test]
fn file_in_shards_of_which_one_differs_is_kept_whole() {
    let world = World::new();
    let (one, two) = (world.brick("b1", ALL), world.brick("b2", ALL));
    cut(&one, b"4567");
    cut(&two, b"4X67");
    world.import(&[&one], Mode::Move, false);
    assert_eq!(left(&one), BTreeSet::new());
    let before = left(&two);
    let (summary, heard) = world.import(&[&two], Mode::Free, false);
    assert_eq!((summary.freed.files, heard.kept.len()), (0, 1), "{:?}", heard.kept);
    assert_eq!(left(&two), before);
}

#[test]
fn link_to_files_go_with_the_last_file() {
    let world = World::new();
    let (one, two) = (world.brick("b1", (0, HALF - 1)), world.brick("b2", (HALF, u32::MAX)));
    directory_on_both(&one, &two, "dir");
    file(&one, "dir/text", b"content", 3);
    link_to(&two, "dir/text", 3);
    let (summary, heard) = world.import(&[&one, &two], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.files), (0, 1), "{:?} {:?}", heard.problems, heard.kept);
    assert_eq!((left(&one), left(&two)), (BTreeSet::new(), BTreeSet::new()));
    assert!(!one.join("dir").exists() && !two.join("dir").exists());
}

#[test]
fn two_moves_of_one_brick_exclude_each_other() {
    let world = World::new();
    let brick = fill(&world, "b1");
    let open = || Bricks::open(std::slice::from_ref(&brick), &[], false).unwrap();
    let (first, second) = (open(), open());
    let lock = first.lock().unwrap();
    assert!(format!("{:#}", second.lock().expect_err("it is locked")).contains("another import"));
    drop(lock);
    second.lock().unwrap();
}
