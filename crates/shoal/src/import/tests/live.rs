//! Imports into a target in which users work meanwhile.

use super::*;
use crate::import::candidates::Candidate;
use crate::import::content::Content;
use crate::import::directories::mark;
use std::os::unix::fs::chown;

/// Does something when the first names have been imported, as a user may at that time.
struct Meanwhile<F: FnMut()> {
    heard: Heard,
    /// How many names are to be imported before.
    after: u64,
    act: F,
}

impl<F: FnMut()> Listener for Meanwhile<F> {
    fn progress(&mut self, _: &Summary) {
        if self.after == 1 {
            (self.act)();
        }
        self.after = self.after.saturating_sub(1);
    }
    fn problem(&mut self, what: &str) {
        self.heard.problem(what);
    }
    fn kept(&mut self, what: &str) {
        self.heard.kept(what);
    }
    fn note(&mut self, what: &str) {
        self.heard.note(what);
    }
}

impl World {
    /// Imports from one brick; `act` is called after so many names.
    fn import_while(&self, brick: &PathBuf, mode: Mode, after: u64, act: impl FnMut()) -> (Summary, Heard) {
        let bricks = Bricks::open(std::slice::from_ref(brick), &[], false).unwrap();
        self.copy_while(&bricks, mode, after, act)
    }

    fn copy_while(&self, bricks: &Bricks, mode: Mode, after: u64, act: impl FnMut()) -> (Summary, Heard) {
        let path = self.target();
        let target = Destination::open(&path, &|| Ok(())).unwrap();
        let mut listener = Meanwhile { heard: Heard::default(), after, act };
        let summary = import(bricks, &target, mode, &mut listener).unwrap();
        assert_eq!(listener.after, 0, "it was not called");
        (summary, listener.heard)
    }
}

/// A brick with a directory of another owner and mode, which has a directory and two files.
fn fill(world: &World) -> PathBuf {
    let brick = world.brick("b1", (0, u32::MAX));
    for (name, gfid) in [("d", 2), ("d/sub", 3)] {
        let path = brick.join(name);
        fs::create_dir(&path).unwrap();
        set(&path, c"trusted.gfid", &[gfid; 16]);
        set(&path, c"user.mine", b"value");
        chown(&path, Some(1234), Some(5678)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2775)).unwrap();
    }
    file(&brick, "d/a", b"first", 4);
    file(&brick, "d/b", b"second", 5);
    brick
}

#[test]
fn symbolic_link_in_place_of_a_directory_is_not_followed() {
    let world = World::new();
    let brick = fill(&world);
    let outside = world.dir.path().join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    let state = |path: &Path| {
        let stat = fs::metadata(path).unwrap();
        (stat.mode(), stat.uid(), stat.gid(), stat.mtime(), stat.mtime_nsec())
    };
    let before = [state(&outside), state(&outside.join("sub"))];
    let target = world.target();
    let (_, heard) = world.import_while(&brick, Mode::Copy, 1, || {
        fs::rename(target.join("d"), target.join("mine")).unwrap();
        symlink(&outside, target.join("d")).unwrap();
    });
    assert_eq!([state(&outside), state(&outside.join("sub"))], before);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing is written there");
    for name in ["d/b: ", "d/sub: ", "d: "] {
        assert!(
            heard.problems.iter().any(|what| what.starts_with(&format!("/{name}"))),
            "{:?}",
            heard.problems
        );
    }
    // It is there before the next run.
    let (_, heard) = world.import(&[&brick], Mode::Copy, false);
    assert_eq!([state(&outside), state(&outside.join("sub"))], before);
    assert!(heard.problems[0].contains("something else has its name"), "{:?}", heard.problems);
}

#[test]
fn move_frees_nothing_that_is_found_through_a_symbolic_link_only() {
    let world = World::new();
    let brick = fill(&world);
    world.import(&[&brick], Mode::Copy, false);
    fs::rename(world.target().join("d"), world.target().join("mine")).unwrap();
    symlink("mine", world.target().join("d")).unwrap();
    world.import(&[&brick], Mode::Free, false);
    assert!(brick.join("d/a").exists() && brick.join("d/b").exists());
}

#[test]
fn directory_that_is_unfinished_or_differs_in_the_target_is_not_freed() {
    let world = World::new();
    let brick = fill(&world);
    world.import(&[&brick], Mode::Copy, false);
    let d = world.target().join("d");
    let mode = fs::metadata(&d).unwrap().permissions();
    for (change, why) in [(true, "/d: its owner or mode"), (false, "/d: an import has not finished it")] {
        match change {
            true => fs::set_permissions(&d, fs::Permissions::from_mode(0o700)).unwrap(),
            false => set(&d, mark(), b"source"),
        }
        let (_, heard) = world.import(&[&brick], Mode::Free, false);
        assert!(heard.problems.iter().any(|what| what.starts_with(why)), "{:?}", heard.problems);
        assert!(brick.join("d").exists());
        fs::set_permissions(&d, mode.clone()).unwrap();
    }
}

#[test]
fn directory_that_took_the_place_of_another_keeps_its_attributes() {
    let world = World::new();
    let brick = fill(&world);
    let target = world.target();
    fs::create_dir(target.join("other")).unwrap();
    let (_, heard) = world.import_while(&brick, Mode::Copy, 1, || {
        fs::rename(target.join("d"), target.join("mine")).unwrap();
        fs::rename(target.join("other"), target.join("d")).unwrap();
    });
    assert!(
        heard.problems.iter().any(|what| what.starts_with("/d: another directory")),
        "{:?}",
        heard.problems
    );
    assert_eq!(fs::metadata(target.join("d")).unwrap().uid(), 0);
}

#[test]
fn source_that_was_replaced_after_it_was_looked_at_is_not_read() {
    let world = World::new();
    let source = world.dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let secret = world.dir.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let bricks = Bricks::plain(source.clone()).unwrap();
    let out = fs::File::create(world.dir.path().join("out")).unwrap();
    for name in ["link", "pipe", "file"] {
        let path = source.join(name);
        fs::write(&path, "public").unwrap();
        let found = Candidate::read(0, path.clone(), true).unwrap().unwrap();
        let content = Content::of(&bricks, &found).unwrap();
        fs::rename(&path, source.join("away")).unwrap();
        match name {
            "link" => symlink(&secret, &path).unwrap(),
            "pipe" => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            _ => fs::write(&path, "another").unwrap(),
        }
        assert!(content.copy_to(&out).is_err(), "{name}");
        assert!(content.is_in(secret.clone()).is_err(), "{name}");
        assert_eq!(out.metadata().unwrap().len(), 0);
    }
}

#[test]
fn second_run_of_an_import_is_refused_while_the_first_one_copies() {
    let world = World::new();
    let brick = fill(&world);
    let path = world.target();
    let again = || {
        let bricks = Bricks::open(std::slice::from_ref(&brick), &[], false).unwrap();
        let target = Destination::open(&path, &|| Ok(())).unwrap();
        import(&bricks, &target, Mode::Copy, &mut Heard::default())
    };
    let (summary, heard) = world.import_while(&brick, Mode::Copy, 1, || {
        let error = again().expect_err("refused").to_string();
        assert!(error.contains("another run copies the same files"), "{error}");
    });
    assert_eq!((summary.problems, summary.found.files), (0, 2), "{:?}", heard.problems);
    assert_eq!(again().unwrap().present, 2);
}

#[test]
fn work_directory_of_a_user_is_refused() {
    let world = World::new();
    let brick = fill(&world);
    let path = world.target();
    let mut name = None;
    world.import_while(&brick, Mode::Copy, 1, || {
        name = fs::read_dir(&path)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| work::is_work(path.file_name().unwrap()));
    });
    let name = name.expect("there is one while files are copied");
    fs::create_dir(&name).unwrap();
    chown(&name, Some(1234), Some(5678)).unwrap();
    let bricks = Bricks::open(std::slice::from_ref(&brick), &[], false).unwrap();
    let target = Destination::open(&path, &|| Ok(())).unwrap();
    let refused = import(&bricks, &target, Mode::Copy, &mut Heard::default()).expect_err("refused");
    assert!(refused.to_string().contains("remove it"), "{refused}");
}

fn attributes_of(path: &Path) -> (u32, u32, u32, (i64, i64), Option<Vec<u8>>) {
    let stat = fs::metadata(path).unwrap();
    let mine = xattr::get(path, c"user.mine").unwrap();
    (stat.mode() & 0o7777, stat.uid(), stat.gid(), (stat.mtime(), stat.mtime_nsec()), mine)
}

#[test]
fn directory_that_a_user_has_changed_after_an_import_stays_as_it_is_and_is_reported() {
    let world = World::new();
    let brick = fill(&world);
    let [d, sub] = ["d", "d/sub"].map(|name| world.target().join(name));
    let (summary, heard) = world.import(&[&brick], Mode::Copy, false);
    assert_eq!(summary.problems, 0, "{:?}", heard.problems);
    assert_eq!(attributes_of(&d), attributes_of(&brick.join("d")));
    assert_eq!(attributes_of(&sub), attributes_of(&brick.join("d/sub")));
    assert_eq!(xattr::get(&d, directories::mark()).unwrap(), None);
    let root = attributes_of(&world.target());
    assert_eq!(world.import(&[&brick], Mode::Copy, false).0.problems, 0);
    assert_eq!(attributes_of(&world.target()), root, "nor do times change by a run that finds all");
    fs::set_permissions(&d, fs::Permissions::from_mode(0o700)).unwrap();
    set(&sub, c"user.mine", b"changed");
    fs::write(d.join("of the user"), "").unwrap();
    let before = [attributes_of(&d), attributes_of(&sub)];
    let (summary, heard) = world.import(&[&brick], Mode::Copy, false);
    assert_eq!([attributes_of(&d), attributes_of(&sub)], before);
    assert_eq!(summary.problems, 2, "{:?}", heard.problems);
    for start in ["/d: its owner or mode", "/d/sub: its attribute user.mine"] {
        assert!(heard.problems.iter().any(|what| what.starts_with(start)), "{:?}", heard.problems);
    }
}

#[test]
fn directory_of_an_earlier_part_keeps_the_latest_time_when_names_are_added() {
    let world = World::new();
    let (one, two) = (world.brick("b1", (0, HALF - 1)), world.brick("b2", (HALF, u32::MAX)));
    directory_on_both(&one, &two, "dir");
    for (brick, name, mtime) in [(&one, "dir/one", 2000), (&two, "dir/two", 1000)] {
        file(brick, name, b"content", mtime as u8);
        set(&brick.join("dir"), c"trusted.glusterfs.mdata", &mdata(mtime, mtime));
        let (summary, heard) = world.import(&[brick], Mode::Copy, true);
        assert_eq!(summary.problems, 0, "{:?}", heard.problems);
        assert_eq!(fs::metadata(world.target().join("dir")).unwrap().mtime(), 2000);
    }
}

#[test]
fn directory_of_an_unfinished_import_is_finished_by_the_next_one() {
    let world = World::new();
    let brick = fill(&world);
    let path = world.target();
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.import_while(&brick, Mode::Copy, 1, || panic!("killed"));
    }));
    assert!(killed.is_err());
    assert!(xattr::get(&path.join("d"), directories::mark()).unwrap().is_some());
    assert_eq!(fs::metadata(path.join("d")).unwrap().mode() & 0o7777, 0o700);
    let (summary, heard) = world.import(&[&brick], Mode::Copy, false);
    assert_eq!((summary.problems, summary.present), (0, 1), "{:?}", heard.problems);
    assert_eq!(attributes_of(&path.join("d")), attributes_of(&brick.join("d")));
    assert_eq!(xattr::get(&path.join("d"), directories::mark()).unwrap(), None);
}

#[test]
fn symbolic_link_in_place_of_a_directory_of_the_source_is_not_followed() {
    let world = World::new();
    let (source, outside) = (world.dir.path().join("source"), world.dir.path().join("outside"));
    for directory in [&source.join("d/below"), &outside.join("below")] {
        fs::create_dir_all(directory).unwrap();
    }
    for name in ["a", "b", "below/c"] {
        fs::write(source.join("d").join(name), "public").unwrap();
        fs::write(outside.join(name), "secret").unwrap();
    }
    let bricks = Bricks::plain(source.clone()).unwrap();
    let (_, heard) = world.copy_while(&bricks, Mode::Copy, 1, || {
        fs::rename(source.join("d"), source.join("mine")).unwrap();
        symlink(&outside, source.join("d")).unwrap();
    });
    assert_eq!(world.text("d/a"), "public");
    assert!(!world.target().join("d/b").exists() && !world.target().join("d/below").exists());
    for name in ["/d/b: ", "/d/below: "] {
        assert!(heard.problems.iter().any(|what| what.starts_with(name)), "{:?}", heard.problems);
    }
}
