//! An open file stays, whichever client removes its name.

use super::{eventually, pair};
use crate::ends::Ends;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Kept in blocks.
const LARGE: usize = 1 << 20;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opens")
}

#[test]
fn a_file_unlinked_elsewhere_stays_readable_and_writable_while_it_is_open() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let name = format!("file{n}");
            fs::write(one.path(&name), vec![b'o'; LARGE]).expect("written");
            one.client.fsync(shoal_types::InodeId::ROOT).expect("durable");
            let file = open(&other.path(&name));
            pair.step(format!("{n}: unlink"));
            fs::remove_file(one.path(&name)).expect("removed");
            pair.step(format!("{n}: use"));
            assert!(!other.path(&name).exists());
            assert_eq!(file.metadata().expect("open").nlink(), 0);
            file.write_all_at(b"still here", 5).expect("writable");
            let mut content = Vec::new();
            (&file).read_to_end(&mut content).expect("readable");
            assert_eq!(content.len(), LARGE);
            assert_eq!(&content[..16], b"ooooostill hereo");
            file.sync_all().expect("durable");
            assert!(!pair.bricks.blocks.lock().is_empty());
            pair.step(format!("{n}: give back"));
            drop(file);
            eventually("its room is given back", || pair.bricks.blocks.lock().is_empty());
        }
    });
}

#[test]
fn an_open_file_outlives_its_name_and_the_mount_that_removed_it() {
    pair(|pair| {
        fs::write(pair.a.path("file"), vec![b'o'; LARGE]).expect("written");
        fs::write(pair.a.path("victim"), vec![b'v'; LARGE]).expect("written");
        fs::write(pair.a.path("winner"), "w").expect("written");
        let (file, victim) = (open(&pair.b.path("file")), open(&pair.b.path("victim")));
        fs::remove_file(pair.a.path("file")).expect("removed");
        fs::rename(pair.a.path("winner"), pair.a.path("victim")).expect("renamed");
        pair.step("the first mount ends");
        pair.a.end();
        pair.step("use");
        for (file, byte) in [(&file, b'o'), (&victim, b'v')] {
            let mut bytes = vec![0; LARGE];
            file.read_exact_at(&mut bytes, 0).expect("readable");
            assert!(bytes.iter().all(|found| *found == byte));
            file.write_all_at(b"more", LARGE as u64).expect("writable");
            file.sync_all().expect("durable");
            assert_eq!(file.metadata().expect("open").len(), LARGE as u64 + 4);
        }
        assert_eq!(fs::read_to_string(pair.b.path("victim")).expect("there"), "w");
        drop((file, victim));
        pair.step("give back");
        eventually("its room is given back", || pair.bricks.blocks.lock().is_empty());
    });
}

#[test]
fn file_open_on_the_other_mount_is_removed_and_created_again() {
    pair(|pair| {
        for n in 0..20u8 {
            let (one, other) = pair.both_ways()[usize::from(n) % 2];
            pair.step(format!("{n}"));
            fs::write(one.path("file"), [n; 10]).expect("written");
            let old = open(&other.path("file"));
            fs::remove_file(one.path("file")).expect("removed");
            fs::write(one.path("file"), [n + 100; 20]).expect("written");
            assert_eq!(fs::read(other.path("file")).expect("there"), [n + 100; 20]);
            let mut bytes = [0; 10];
            old.read_exact_at(&mut bytes, 0).expect("readable");
            assert_eq!(bytes, [n; 10]);
            fs::remove_file(other.path("file")).expect("removed");
        }
    });
}

#[test]
fn open_of_a_replaced_name_gets_all_of_the_old_or_all_of_the_new() {
    const ROUNDS: u8 = 60;
    let content = |n: u8| vec![n; 50_000 + usize::from(n) * 100];
    pair(move |pair| {
        fs::write(pair.a.path("file"), content(0)).expect("written");
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Ends(&ended);
            let reader = scope.spawn(|| {
                let (mut last, mut reads) = (0, 0);
                while last < ROUNDS && !ended.load(SeqCst) || reads == 0 {
                    let found = fs::read(pair.b.path("file")).expect("always there");
                    let n = found[0];
                    assert!(found == content(n), "{} bytes of {n}", found.len());
                    assert!(n >= last, "{n} after {last}");
                    (last, reads) = (n, reads + 1);
                }
            });
            for n in 1..=ROUNDS {
                pair.step(format!("{n}"));
                fs::write(pair.a.path("temp"), content(n)).expect("written");
                fs::rename(pair.a.path("temp"), pair.a.path("file")).expect("renamed");
            }
            // The last one is seen at once.
            assert!(fs::read(pair.b.path("file")).expect("there") == content(ROUNDS));
            drop(ends);
            reader.join().expect("whole contents only");
        });
        assert!(fs::metadata(pair.b.path("temp")).is_err());
    });
}

#[test]
fn working_directory_can_be_removed_by_the_other_mount() {
    pair(|pair| {
        fs::create_dir(pair.a.path("dir")).expect("new");
        let dir = File::open(pair.b.path("dir")).expect("opens");
        fs::remove_dir(pair.a.path("dir")).expect("removed");
        assert!(!pair.b.path("dir").exists());
        assert_eq!(dir.metadata().expect("open").nlink(), 0);
        let below = format!("/proc/self/fd/{}/file", std::os::fd::AsRawFd::as_raw_fd(&dir));
        assert_eq!(crate::sys::errno(File::create(below)), libc::ENOENT);
    });
}
