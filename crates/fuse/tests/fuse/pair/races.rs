//! Calls on both mounts at the same time.

use super::snapshot::snapshot;
use super::{Pair, Side, pair};
use crate::sys::errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn names(side: &Side, dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(side.path(dir)).expect("read");
    entries.map(|entry| entry.expect("read").file_name().into_string().expect("text")).collect()
}

/// Runs the action on each mount, on a thread of its own.
fn on_each(pair: &Pair, work: impl Fn(&str, &Side) + Sync) {
    std::thread::scope(|scope| {
        for (name, side) in [("a", &pair.a), ("b", &pair.b)] {
            let work = &work;
            scope.spawn(move || work(name, side));
        }
    });
}

#[test]
fn of_all_who_make_a_name_exclusively_one_wins() {
    const NAMES: usize = 100;
    pair(|pair| {
        let sides = [&pair.a, &pair.b, &pair.a, &pair.b];
        let won: Vec<Vec<bool>> = std::thread::scope(|scope| {
            let make = |side: &Side, n: usize| match File::create_new(side.path(&format!("name{n}"))) {
                Ok(_) => true,
                outcome => {
                    assert_eq!(errno(outcome), libc::EEXIST);
                    false
                }
            };
            let threads: Vec<_> = sides
                .map(|side| scope.spawn(move || (0..NAMES).map(|n| make(side, n)).collect()))
                .into_iter()
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        for n in 0..NAMES {
            assert_eq!(won.iter().filter(|won| won[n]).count(), 1, "name{n}");
        }
        assert_eq!(snapshot(pair.a.root()), snapshot(pair.b.root()));
    });
}

#[test]
fn file_just_created_by_the_other_mount_is_opened_by_a_creating_open() {
    pair(|pair| {
        for n in 0..50 {
            let (one, other) = pair.both_ways()[n % 2];
            let name = format!("file{n}");
            pair.step(name.clone());
            // With and without a lookup before.
            assert!(n % 3 == 0 || !other.path(&name).exists());
            let mut made = File::create_new(one.path(&name)).expect("new");
            made.write_all(b"first").expect("written");
            let mut options = OpenOptions::new();
            let file = options.create(true).truncate(false).read(true).write(true);
            let mut file = file.open(other.path(&name)).expect("opens");
            let mut content = String::new();
            file.read_to_string(&mut content).expect("read");
            assert_eq!(content, "first");
            assert_eq!(errno(File::create_new(other.path(&name))), libc::EEXIST);
        }
    });
}

#[test]
fn both_open_the_same_new_names_at_the_same_time_and_get_the_same_files() {
    pair(|pair| {
        pair.step("open");
        on_each(pair, |name, side| {
            for n in 0..100 {
                let mut options = OpenOptions::new();
                let mut file =
                    options.create(true).append(true).open(side.path(&format!("name{n}"))).expect("opens");
                file.write_all(name.as_bytes()).expect("written");
            }
        });
        pair.step("compare");
        for n in 0..100 {
            let mut content = fs::read(pair.a.path(&format!("name{n}"))).expect("there");
            assert_eq!(fs::read(pair.b.path(&format!("name{n}"))).expect("there"), content);
            content.sort();
            assert_eq!(content, b"ab", "name{n}");
        }
    });
}

#[test]
fn both_unpack_and_remove_trees_in_directories_of_their_own() {
    pair(|pair| {
        pair.step("unpack");
        on_each(pair, |name, side| {
            for round in 0..3 {
                let top = format!("{name}{round}");
                for dir in 0..8 {
                    let dir = format!("{top}/{dir}");
                    fs::create_dir_all(side.path(&dir)).expect("new");
                    for file in 0..20 {
                        let path = side.path(&format!("{dir}/{file}"));
                        fs::write(path, format!("{dir}/{file}").repeat(300)).expect("written");
                    }
                }
                if round != 1 {
                    fs::remove_dir_all(side.path(&top)).expect("removed");
                }
            }
        });
        pair.step("list");
        let (a, b) = (snapshot(pair.a.root()), snapshot(pair.b.root()));
        assert_eq!(a, b);
        assert_eq!(a.len(), 1 + 2 * (1 + 8 + 8 * 20));
    });
}

#[test]
fn both_append_more_than_a_page_at_once_to_one_file_without_a_pause() {
    const WRITES: usize = 100;
    /// Bytes of a write. Each write crosses a page boundary, and that page stays locked in the kernel while
    /// the rest waits.
    const BYTES: usize = 5000;
    /// For how long a client waits for another one's write in flight.
    const SLOW: Duration = Duration::from_millis(90);
    pair(|pair| {
        fs::write(pair.a.path("log"), "").expect("written");
        pair.step("append");
        let slow = AtomicUsize::new(0);
        on_each(pair, |name, side| {
            let mut file = OpenOptions::new().append(true).open(side.path("log")).expect("opens");
            for _ in 0..WRITES {
                let begun = Instant::now();
                file.write_all(name.repeat(BYTES).as_bytes()).expect("appended");
                slow.fetch_add(usize::from(begun.elapsed() > SLOW), SeqCst);
            }
        });
        pair.step("read");
        let [one, other] = [&pair.a, &pair.b].map(|side| fs::read(side.path("log")).expect("read"));
        for letter in [b'a', b'b'] {
            assert_eq!(one.iter().filter(|byte| **byte == letter).count(), WRITES * BYTES);
        }
        assert!(one.len() == 2 * WRITES * BYTES && one == other);
        let runs = one.chunk_by(|left, right| left == right);
        let torn = runs.filter(|run| !run.len().is_multiple_of(BYTES)).count();
        let slow = slow.load(SeqCst);
        // A torn write has at least two parts, with another write in between.
        assert!(torn <= 4 * slow, "{torn} parts of writes, {slow} of which took long");
    });
}

#[test]
fn both_make_and_remove_names_in_one_directory() {
    const NAMES: usize = 200;
    pair(|pair| {
        fs::create_dir(pair.a.path("dir")).expect("new");
        pair.step("make and remove");
        on_each(pair, |name, side| {
            for n in 0..NAMES {
                fs::write(side.path(&format!("dir/{name}{n}")), name).expect("written");
                if n % 2 == 1 {
                    fs::remove_file(side.path(&format!("dir/{name}{}", n - 1))).expect("removed");
                }
            }
        });
        pair.step("list");
        let expected: BTreeSet<String> = ["a", "b"]
            .iter()
            .flat_map(|name| (1..NAMES).step_by(2).map(move |n| format!("{name}{n}")))
            .collect();
        assert_eq!(names(&pair.b, "dir"), expected);
        assert_eq!(names(&pair.a, "dir"), expected);
        assert_eq!(snapshot(pair.a.root()), snapshot(pair.b.root()));
        pair.step("remove the other's");
        on_each(pair, |name, side| {
            let other = if name == "a" { "b" } else { "a" };
            for n in (1..NAMES).step_by(2) {
                fs::remove_file(side.path(&format!("dir/{other}{n}"))).expect("removed");
            }
        });
        fs::remove_dir(pair.b.path("dir")).expect("it is empty");
        assert!(!pair.a.path("dir").exists());
    });
}

#[test]
fn both_move_directories_about_and_no_ring_comes_of_it() {
    pair(|pair| {
        for dir in ["x", "y", "x/a", "y/b"] {
            fs::create_dir(pair.a.path(dir)).expect("new");
        }
        on_each(pair, |name, side| {
            let (from, to) = if name == "a" { ("x", "y/b/x") } else { ("y", "x/a/y") };
            for _ in 0..30 {
                match fs::rename(side.path(from), side.path(to)) {
                    Ok(()) => fs::rename(side.path(to), side.path(from)).expect("moved back"),
                    // The other mount has moved it away, or has it at this moment.
                    outcome => assert!([libc::ENOENT, libc::EINVAL].contains(&errno(outcome))),
                }
            }
        });
        let (a, b) = (snapshot(pair.a.root()), snapshot(pair.b.root()));
        assert_eq!(a, b);
        assert_eq!(a.keys().map(String::as_str).collect::<Vec<_>>(), ["", "x", "x/a", "y", "y/b"]);
    });
}

/// Threads on both mounts append words to a file. Threads that read it must find at least the words whose
/// append had ended before the read began. `disturb` runs repeatedly meanwhile, on the first mount.
fn appended_words_are_there(disturb: impl Fn(&Pair) + Send + Sync + 'static) {
    const WORDS: usize = 300;
    const WORD: &[u8; 8] = b"appended";
    pair(move |pair| {
        fs::write(pair.a.path("file"), "").expect("written");
        let (appended, working) = (AtomicUsize::new(0), AtomicUsize::new(2));
        std::thread::scope(|scope| {
            for side in [&pair.a, &pair.b] {
                let (appended, working) = (&appended, &working);
                scope.spawn(move || {
                    let mut file = OpenOptions::new().append(true).open(side.path("file")).expect("opens");
                    for n in 0..WORDS {
                        pair.step(format!("append {n}"));
                        file.write_all(WORD).expect("written");
                        appended.fetch_add(1, SeqCst);
                    }
                    working.fetch_sub(1, SeqCst);
                });
                scope.spawn(move || {
                    let file = File::open(side.path("file")).expect("opens");
                    let mut content = vec![0; WORD.len() * (WORDS * 2 + 1)];
                    while working.load(SeqCst) > 0 {
                        let before = appended.load(SeqCst);
                        let len = file.read_at(&mut content, 0).expect("read");
                        assert!(len >= before * WORD.len(), "{len} bytes after {before} words");
                        assert!(content[..len].chunks(WORD.len()).all(|word| word == WORD));
                    }
                });
            }
            while working.load(SeqCst) > 0 {
                disturb(pair);
            }
        });
        assert_eq!(fs::metadata(pair.b.path("file")).expect("there").len(), (WORD.len() * WORDS * 2) as u64);
    });
}

#[test]
fn what_was_appended_elsewhere_is_read_while_something_is_appended_here() {
    appended_words_are_there(|_| std::thread::sleep(Duration::from_millis(1)));
}

#[test]
fn what_was_appended_elsewhere_is_read_while_names_of_the_file_come_and_go_here() {
    appended_words_are_there(|pair| {
        let (file, other) = (pair.a.path("file"), pair.a.path("other"));
        match fs::hard_link(file, &other) {
            Ok(()) => fs::remove_file(other).expect("removed"),
            // The kernel adjusts `i_nlink` itself. If it gets the new count before it handles the reply
            // to an unlink, it counts one too few, until it asks again.
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
    });
}

/// For how long a rare outcome is searched for.
const RACE_TIME: Duration = Duration::from_secs(3);

/// One of so many attempts has to show no error. On a machine where a thread gets no processor for 100 ms,
/// other clients do not wait for its writes.
const RACE_ATTEMPTS: usize = 3;

/// Asserts that one attempt shows no error: errors occur only where the machine is overloaded, and so not
/// each time. Prints the errors.
fn goes_well(what: impl Fn() -> Result<(), String>) {
    let wrong: Vec<String> = (0..RACE_ATTEMPTS).map_while(|_| what().err()).collect();
    println!("{wrong:?}");
    assert!(wrong.len() < RACE_ATTEMPTS, "{wrong:?}");
}

/// The first error.
#[derive(Default)]
struct Wrong(Mutex<Option<String>>);

impl Wrong {
    fn unless(&self, is_right: bool, why: impl FnOnce() -> String) {
        if !is_right {
            self.0.lock().expect("whole").get_or_insert_with(why);
        }
    }

    fn outcome(self) -> Result<(), String> {
        self.0.into_inner().expect("whole").map_or(Ok(()), Err)
    }
}

#[test]
fn no_read_is_older_than_a_read_that_was_complete_before() {
    pair(|pair| {
        fs::write(pair.a.path("file"), [0; 8]).expect("written");
        let (written, seen) = (Mutex::new(0u64), AtomicU64::new(0));
        goes_well(|| {
            let (end, wrong) = (Instant::now() + RACE_TIME, Wrong::default());
            std::thread::scope(|scope| {
                for side in [&pair.a, &pair.b] {
                    let (written, seen, wrong) = (&written, &seen, &wrong);
                    scope.spawn(move || {
                        let file = OpenOptions::new().write(true).open(side.path("file")).expect("opens");
                        while Instant::now() < end {
                            {
                                let mut number = written.lock().expect("whole");
                                *number += 1;
                                pair.step(format!("write {number}"));
                                file.write_all_at(&number.to_ne_bytes(), 0).expect("written");
                            }
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    });
                    scope.spawn(move || {
                        let file = File::open(side.path("file")).expect("opens");
                        let mut number = [0; 8];
                        while Instant::now() < end {
                            let before = seen.load(SeqCst);
                            file.read_exact_at(&mut number, 0).expect("read");
                            let number = u64::from_ne_bytes(number);
                            wrong.unless(number >= before, || format!("{number} after {before}"));
                            seen.fetch_max(number, SeqCst);
                        }
                    });
                }
            });
            wrong.outcome()
        });
        assert!(seen.load(SeqCst) > 0);
    });
}

#[test]
fn who_reads_a_file_to_which_both_append_finds_what_was_there_and_more() {
    pair(|pair| {
        fs::write(pair.a.path("file"), "begins").expect("written");
        let written = AtomicUsize::new("begins".len());
        goes_well(|| {
            let (end, wrong) = (Instant::now() + RACE_TIME, Wrong::default());
            std::thread::scope(|scope| {
                for (side, word) in [(&pair.a, "one"), (&pair.b, "other")] {
                    let (written, wrong) = (&written, &wrong);
                    scope.spawn(move || {
                        let mut file =
                            OpenOptions::new().append(true).open(side.path("file")).expect("opens");
                        for n in 0.. {
                            if Instant::now() > end {
                                break;
                            }
                            pair.step(format!("append {word} {n}"));
                            file.write_all(word.as_bytes()).expect("appended");
                            written.fetch_add(word.len(), SeqCst);
                            std::thread::sleep(Duration::from_millis(3));
                        }
                    });
                    for _ in 0..2 {
                        scope.spawn(move || {
                            let mut known = Vec::new();
                            while Instant::now() < end {
                                let content = fs::read(side.path("file")).expect("read");
                                let zero = content.iter().position(|byte| *byte == 0);
                                wrong.unless(zero.is_none(), || format!("{zero:?} of {}", content.len()));
                                let same =
                                    known.iter().zip(&content).take_while(|(old, new)| old == new).count();
                                wrong.unless(same == known.len(), || format!("{same} of {}", content.len()));
                                known = content;
                            }
                        });
                    }
                }
            });
            wrong.outcome()
        });
        for side in [&pair.a, &pair.b] {
            assert_eq!(fs::read(side.path("file")).expect("read").len(), written.load(SeqCst));
        }
    });
}

#[test]
fn directory_found_at_its_new_name_is_not_found_at_its_old_one_by_any_mount() {
    pair(|pair| {
        const NAMES: [&str; 2] = ["here", "there"];
        fs::create_dir(pair.a.path(NAMES[0])).expect("made");
        // The current round; the last round seen by the other mount; and the last one found on this mount.
        let [moves, seen, found] = [const { AtomicUsize::new(0) }; 3];
        let end = Instant::now() + RACE_TIME;
        let until = |counter: &AtomicUsize, round| {
            while counter.load(SeqCst) < round {
                if Instant::now() > end {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1.. {
                    pair.step(format!("move {round}"));
                    let [from, to] = [round - 1, round].map(|n| pair.b.path(NAMES[n % 2]));
                    moves.store(round, SeqCst);
                    fs::rename(from, to).expect("moved");
                    if !until(&found, round) {
                        break;
                    }
                }
            });
            scope.spawn(|| {
                for round in 1.. {
                    if !until(&moves, round) {
                        break;
                    }
                    while pair.a.path(NAMES[(round - 1) % 2]).symlink_metadata().is_ok() {}
                    seen.store(round, SeqCst);
                }
            });
            scope.spawn(|| {
                for round in 1.. {
                    if !until(&seen, round) {
                        break;
                    }
                    let was = pair.b.path(NAMES[(round - 1) % 2]).symlink_metadata();
                    assert_eq!(was.map_err(|error| error.kind()).err(), Some(ErrorKind::NotFound), "{round}");
                    found.store(round, SeqCst);
                }
            });
            // So that the moving thread does not always get a processor at once.
            scope.spawn(|| {
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            });
        });
        assert!(found.load(SeqCst) > 0);
    });
}
