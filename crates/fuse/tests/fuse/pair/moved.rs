//! Directories that one mount moves while they are in use on the other.

use super::pair;
use crate::ends::Ends;
use crate::sys::errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn directory_moved_by_the_other_mount_is_moved_on_while_its_files_are_open() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let dir = format!("dir{n}");
            let (here, there) = (one.path(&dir), other.path(&dir));
            fs::create_dir_all(here.join("from/tree/deep")).expect("new");
            fs::create_dir(here.join("to")).expect("new");
            let ino = fs::metadata(here.join("from/tree")).expect("there").ino();
            let old = File::open(here.join("from/tree")).expect("there");
            let mut files = Vec::new();
            for round in 0..4 {
                pair.step(format!("{n}: {round}: open"));
                files.push(File::create(here.join(format!("from/tree/deep/{round}"))).expect("new"));
                pair.step(format!("{n}: {round}: move"));
                fs::rename(there.join("from/tree"), there.join("to/tree")).expect("moved");
                pair.step(format!("{n}: {round}: move on"));
                // The directory was not looked up at its new place.
                fs::rename(here.join("to/tree"), here.join("from/tree")).expect("moved on");
                assert!(!there.join("to/tree").exists() && there.join("from/tree/deep").is_dir());
                assert_eq!(fs::metadata(here.join("from/tree")).expect("there").ino(), ino);
                pair.step(format!("{n}: {round}: change"));
                fs::write(there.join(format!("from/tree/new{round}")), "new").expect("written");
                files.iter_mut().for_each(|file| file.write_all(b"more ").expect("written"));
                let inside = format!("/proc/self/fd/{}/new{round}", old.as_raw_fd());
                assert_eq!(fs::read_to_string(inside).expect("in the old place, too"), "new");
                let names = |dir| fs::read_dir(dir).expect("listed").count();
                assert_eq!(names(here.join("from/tree")), round + 2);
                assert_eq!(names(there.join("from/tree")), round + 2);
                let text = fs::read_to_string(there.join(format!("from/tree/deep/{round}"))).expect("read");
                assert_eq!(text, "more ");
            }
            pair.step(format!("{n}: remove"));
            drop(files);
            fs::remove_dir_all(here.join("from/tree")).expect("removed");
            assert!(!there.join("from/tree").exists());
            assert_eq!(old.metadata().expect("open still").nlink(), 0);
        }
    });
}

#[test]
fn new_name_of_a_directory_moved_by_the_other_mount_is_found_while_a_program_works_at_its_old_one() {
    const ROUNDS: usize = 60;
    pair(|pair| {
        let (here, there) = (&pair.a, &pair.b);
        for dir in ["one", "other", "one/tree"] {
            fs::create_dir(here.path(dir)).expect("new");
        }
        let _used = File::create(here.path("one/tree/file")).expect("new");
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Ends(&ended);
            for (n, side) in pair.both_ways().map(|(side, _)| side).into_iter().enumerate() {
                let ended = &ended;
                // Each change takes the inode lock of the directory, and waits for the other mount.
                scope.spawn(move || {
                    let names = ["one", "other"].map(|dir| side.path(&format!("{dir}/{n}")));
                    while !ended.load(SeqCst) {
                        for name in &names {
                            fs::write(name, "").expect("made");
                            fs::remove_file(name).expect("removed");
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            let mut outcomes = Vec::new();
            for round in 0..ROUNDS {
                let (from, to) = if round % 2 == 0 { ("one", "other") } else { ("other", "one") };
                let [from, to] = [from, to].map(|dir| format!("{dir}/tree"));
                pair.step(format!("{round}: move"));
                fs::rename(there.path(&from), there.path(&to)).expect("moved");
                pair.step(format!("{round}: make"));
                outcomes.push(errno(fs::create_dir(here.path(&to))));
                outcomes.push(errno(std::os::unix::fs::symlink("tree", here.path(&to))));
                assert!(here.path(&to).join("file").exists());
            }
            drop(ends);
            assert_eq!(outcomes, [libc::EEXIST; 2 * ROUNDS]);
        });
    });
}

#[test]
fn directory_moved_by_the_other_mount_survives_a_rename_to_its_own_name() {
    const ROUNDS: usize = 300;
    pair(|pair| {
        let (here, there) = (&pair.a, &pair.b);
        fs::create_dir_all(here.path("dir/tree")).expect("new");
        fs::write(here.path("dir/tree/file"), "").expect("written");
        let _used = File::open(here.path("dir/tree/file")).expect("there");
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Ends(&ended);
            scope.spawn(|| {
                while !ended.load(SeqCst) {
                    for path in ["tree", "dir/tree"] {
                        // The directory is in one of the two places.
                        if let Ok(entries) = fs::read_dir(here.path(path)) {
                            assert_eq!(entries.filter_map(Result::ok).count(), 1, "{path}");
                        }
                        std::thread::sleep(Duration::from_micros(500));
                    }
                }
            });
            for round in 0..ROUNDS {
                let (from, to) = if round % 2 == 0 { ("dir/tree", "tree") } else { ("tree", "dir/tree") };
                pair.step(format!("{round}: move"));
                fs::rename(there.path(from), there.path(to)).expect("moved");
                pair.step(format!("{round}: rename"));
                fs::rename(here.path(to), here.path(to)).expect("nothing is to be done");
            }
            drop(ends);
        });
    });
}

#[test]
fn directory_that_the_other_mount_moved_below_its_own_child_is_found_there() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let (above, below) = (format!("{n}above"), format!("{n}below"));
            fs::create_dir_all(one.path(&above).join("below/deep")).expect("new");
            fs::write(one.path(&above).join("file"), "text").expect("written");
            let inside = File::open(one.path(&above).join("below/deep")).expect("there");
            pair.step(format!("{n}: move"));
            fs::rename(other.path(&above).join("below"), other.path(&below)).expect("moved");
            fs::rename(other.path(&above), other.path(&below).join("deep/above")).expect("moved");
            pair.step(format!("{n}: look"));
            // A process in the directory has not walked the path since.
            let found = format!("/proc/self/fd/{}/above/file", inside.as_raw_fd());
            assert_eq!(fs::read_to_string(found).expect("there"), "text");
            let found = one.path(&below).join("deep/above/file");
            assert_eq!(fs::read_to_string(found).expect("there"), "text");
            assert!(!one.path(&above).exists());
        }
    });
}

/// `d_splice_alias` refuses an entry of READDIRPLUS that would make a directory its own ancestor, and the
/// kernel then gives the entry up with a FORGET of its own (`fuse_force_forget`).
#[test]
fn directory_is_listed_although_its_former_parent_was_moved_into_it() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let (above, below) = (format!("{n}above"), format!("{n}below"));
            fs::create_dir_all(one.path(&above).join("below")).expect("new");
            let inside = File::open(one.path(&above).join("below")).expect("there");
            pair.step(format!("{n}: move"));
            fs::rename(other.path(&above).join("below"), other.path(&below)).expect("moved");
            fs::rename(other.path(&above), other.path(&below).join("above")).expect("moved");
            pair.step(format!("{n}: list"));
            let entries = fs::read_dir(format!("/proc/self/fd/{}", inside.as_raw_fd())).expect("opens");
            let names: Vec<_> = entries.map(|entry| entry.expect("listed").file_name()).collect();
            assert_eq!(names, ["above"]);
        }
    });
}
