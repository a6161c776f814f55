//! Cached objects cost neither mount a message, until the other one changes them.

use super::{Pair, Side, pair};
use shoal_client::limits::WRITTEN_LATELY_MAX;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

const FILES: usize = 50;
/// The kernel may reclaim cached objects at any time, and asks for them again: it is enough that it kept all
/// of them in one of so many runs.
const TRIES: usize = 3;

/// Asserts that two mounts cost each other no message in one of a few runs.
fn quiet_pair(body: impl FnOnce(&Pair) + Send + Copy + 'static) {
    let fails = |_| catch_unwind(AssertUnwindSafe(|| pair(body))).is_err();
    if (1..TRIES).all(fails) {
        pair(body);
    }
}

/// Looks at some files and reads them.
fn read(side: &Side, files: impl Iterator<Item = usize>) {
    for n in files {
        let path = side.path(&format!("dir/{n}"));
        let content = fs::read(&path).expect("there");
        assert_eq!(fs::metadata(&path).expect("there").len(), content.len() as u64);
    }
}

fn make(side: &Side) {
    fs::create_dir(side.path("dir")).expect("new");
    for n in 0..FILES {
        fs::write(side.path(&format!("dir/{n}")), vec![b'o'; 20_000]).expect("written");
    }
    // A recent writer may be about to write more. When the other client reads the file, the kernel has to ask
    // before the next write, and asks for the name as well.
    std::thread::sleep(WRITTEN_LATELY_MAX);
}

#[test]
fn what_both_have_read_is_read_again_without_any_message() {
    quiet_pair(|pair| {
        make(&pair.a);
        for side in [&pair.b, &pair.a] {
            read(side, 0..FILES);
        }
        for (name, side) in [("a", &pair.a), ("b", &pair.b)] {
            assert_eq!(side.requests(|| read(side, 0..FILES)), [], "{name}");
            let list = || assert_eq!(fs::read_dir(side.path("dir")).expect("read").count(), FILES);
            list();
            assert_eq!(side.requests(|| read(side, 0..FILES)), [], "{name}");
        }
    });
}

#[test]
fn a_change_of_one_file_costs_the_other_mount_that_file_only() {
    quiet_pair(|pair| {
        make(&pair.a);
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            for side in [one, other] {
                read(side, 0..FILES);
                assert_eq!(side.requests(|| read(side, 0..FILES)), [], "{n}");
            }
            let path = one.path("dir/7");
            let file = OpenOptions::new().write(true).open(path).expect("opens");
            file.write_all_at(b"new", 100).expect("written");
            drop(file);
            let others = || (0..FILES).filter(|n| *n != 7);
            assert_eq!(other.requests(|| read(other, others())), [], "{n}");
            let found = other.requests(|| read(other, 7..8));
            let count: u64 = found.iter().map(|(_, count)| count).sum();
            assert!((1..=6).contains(&count), "{n}: {found:?}");
            assert_eq!(fs::read(other.path("dir/7")).expect("there")[100..103], *b"new");
            assert_eq!(other.requests(|| read(other, 0..FILES)), [], "{n}: all is known again");
            assert_eq!(one.requests(|| read(one, others())), [], "{n}: who writes loses nothing either");
        }
    });
}

#[test]
fn a_new_name_costs_the_other_mount_none_of_the_old_ones() {
    quiet_pair(|pair| {
        make(&pair.a);
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            read(other, 0..FILES);
            fs::write(one.path(&format!("dir/new{n}")), "x").expect("written");
            // The directory itself has changed: the kernel asks once whether its files can still be reached.
            let found = other.requests(|| read(other, 0..FILES));
            assert!(found.iter().all(|request| *request == ("getattr", 1)), "{n}: {found:?}");
            assert!(other.path(&format!("dir/new{n}")).exists());
        }
    });
}

#[test]
fn a_directory_that_the_other_mount_has_made_is_changed_without_a_request_for_each_name() {
    quiet_pair(|pair| {
        const NAMES: usize = 400;
        fs::create_dir(pair.a.path("dir")).expect("new");
        for n in 0..NAMES {
            fs::write(pair.a.path(&format!("dir/{n}")), "content").expect("written");
        }
        let before = pair.b.acquires();
        fs::remove_dir_all(pair.b.path("dir")).expect("removed");
        let acquires = pair.b.acquires() - before;
        // The other mount's kernel refers to all of the files, and forgets them when it is asked to.
        assert!(acquires < NAMES as u64 / 2, "{acquires} requests for {NAMES} names");
        assert!(!pair.a.path("dir").exists());
    });
}
