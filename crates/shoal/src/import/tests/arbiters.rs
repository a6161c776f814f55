//! Bricks of arbiters, which have all of a file but its content.

use super::*;

const LOW: (u32, u32) = (0, HALF - 1);
const HIGH: (u32, u32) = (HALF, u32::MAX);
const BLAME: [u8; 12] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

fn open(paths: &[&PathBuf], empty: &[&PathBuf]) -> Result<Bricks, String> {
    let [paths, empty] =
        [paths, empty].map(|all| all.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>());
    Bricks::open(&paths, &empty, true).map_err(|why| format!("{why:#}"))
}

/// The base of a sharded file of 8 bytes, in shards of 4.
fn base(brick: &Path, content: &[u8]) {
    let base = file(brick, "image", content, 9);
    set(&base, c"trusted.glusterfs.shard.block-size", &4u64.to_be_bytes());
    let mut size = 8u64.to_be_bytes().to_vec();
    size.extend([0; 24]);
    set(&base, c"trusted.glusterfs.shard.file-size", &size);
}

#[test]
fn arbiter_without_a_data_brick_of_its_set_is_refused_unless_its_files_are_said_to_be_empty() {
    let world = World::new();
    let (data, arbiter) = (world.brick("data", LOW), world.brick("arbiter", HIGH));
    file(&data, "one", b"content", 3);
    link_to(&arbiter, "one", 3);
    assert!(open(&[&data, &arbiter], &[]).is_ok(), "it has no files, only a link-to file");
    fs::create_dir(arbiter.join("dir")).unwrap();
    file(&arbiter, "dir/two", b"", 4);
    let refused = open(&[&data, &arbiter], &[]).err().expect("refused");
    assert!(refused.contains("looks like an arbiter's brick"), "{refused}");
    assert!(refused.contains("each of its 1 files") && refused.contains("--empty"), "{refused}");
    let bricks = open(&[&data, &arbiter], &[&arbiter]).unwrap();
    assert!(bricks.bricks.iter().all(|brick| !brick.is_arbiter));
    assert!(open(&[&data], &[&arbiter]).err().expect("refused").contains("none of the bricks"));
    // A brick of empty files whose shards have content is no arbiter's.
    fs::create_dir(arbiter.join(".shard")).unwrap();
    file(&arbiter, ".shard/shard", b"content", 5);
    assert!(open(&[&data, &arbiter], &[]).is_ok());
}

#[test]
fn arbiter_tells_the_good_copy_and_gives_no_content() {
    let world = World::new();
    let all = (0, u32::MAX);
    let (arbiter, data) = (world.brick("arbiter", all), world.brick("data", all));
    for (name, content, gfid) in [("good", "content", 3), ("stale", "old", 4), ("empty", "", 5)] {
        file(&data, name, content.as_bytes(), gfid);
        file(&arbiter, name, b"", gfid);
    }
    set(&arbiter.join("stale"), c"trusted.afr.web-client-0", &BLAME);
    file(&arbiter, "alone", b"", 6);
    base(&data, b"0123");
    base(&arbiter, b"");
    fs::create_dir(arbiter.join(".shard")).unwrap();
    fs::create_dir(data.join(".shard")).unwrap();
    let shard = content::shard_name([9; 16], 1);
    file(&arbiter, shard.to_str().unwrap(), b"", 11);
    let (summary, heard) = world.import(&[&arbiter, &data], Mode::CopyAndVerify, false);
    assert_eq!(summary.problems, 3, "{:?}", heard.problems);
    for name in ["stale", "alone", "image"] {
        let is_it = |what: &&String| what.starts_with(&format!("/{name}: "));
        let problem = heard.problems.iter().find(is_it).expect(name);
        assert!(problem.contains("give all data bricks"), "{problem}");
        assert!(!world.target().join(name).exists());
    }
    assert_eq!((world.text("good").as_str(), world.text("empty").as_str()), ("content", ""));
    assert!(
        heard.notes.iter().any(|note| note.contains("taken for an arbiter's brick")),
        "{:?}",
        heard.notes
    );
    file(&data, shard.to_str().unwrap(), b"4567", 11);
    let heard = world.import(&[&arbiter, &data], Mode::CopyAndVerify, false).1;
    assert_eq!(heard.problems.len(), 2, "{:?}", heard.problems);
    assert_eq!(world.text("image"), "01234567");
}

#[test]
fn copies_of_a_sharded_file_with_first_shards_of_different_length_contradict_each_other() {
    let world = World::new();
    let all = (0, u32::MAX);
    let (one, two) = (world.brick("b1", all), world.brick("b2", all));
    file(&one, "other", b"content", 3);
    file(&two, "other", b"content", 3);
    base(&one, b"");
    base(&two, b"0123");
    let heard = world.import(&[&one, &two], Mode::Copy, false).1;
    assert!(heard.problems[0].contains("different sizes"), "{:?}", heard.problems);
    assert!(!world.target().join("image").exists());
}

#[test]
fn move_leaves_the_arbiter_as_it_is_and_goes_on_where_only_empty_files_are_left() {
    let world = World::new();
    let all = (0, u32::MAX);
    let (data, arbiter) = (world.brick("data", all), world.brick("arbiter", all));
    for (name, content, gfid) in [("full", "content", 3), ("empty", "", 4)] {
        for (brick, content) in [(&data, content), (&arbiter, "")] {
            let path = file(brick, name, content.as_bytes(), gfid);
            set(&path, c"trusted.glusterfs.mdata", &mdata(1000, 2000));
        }
    }
    // The volume has another file instead of the empty one, so that is kept.
    fs::write(world.target().join("empty"), "other").unwrap();
    let (summary, heard) = world.import(&[&data, &arbiter], Mode::Move, false);
    assert_eq!(
        (summary.problems, summary.freed.files, summary.freed.kept),
        (1, 1, 0),
        "{:?}",
        heard.problems
    );
    assert!(!data.join("full").exists() && data.join("empty").exists());
    assert!(arbiter.join("full").exists() && arbiter.join("empty").exists());
    fs::remove_file(world.target().join("empty")).unwrap();
    let (summary, heard) = world.import(&[&data, &arbiter], Mode::Move, false);
    assert_eq!((summary.problems, summary.freed.files), (0, 1), "{:?}", heard.problems);
    // A file that only the arbiter has, and the volume has not.
    fs::remove_file(world.target().join("full")).unwrap();
    let (summary, heard) = world.import(&[&data, &arbiter], Mode::Free, false);
    assert_eq!(summary.problems, 1, "{:?}", heard.problems);
}
