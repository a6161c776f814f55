//! Directories that the other mount moves while they are in use here.

use super::pair;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_directory_that_others_have_moved_is_moved_on_while_its_files_are_open() {
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
                // Nobody has looked at it there.
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
