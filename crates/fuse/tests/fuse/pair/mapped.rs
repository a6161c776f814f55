//! Programs change pages through shared mappings, while other clients change the same pages.

use super::{Side, pair};
use crate::sys::Map;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// For how long programs repeat their action.
const SECONDS: u64 = 3;
/// Pages of the files that they change.
const PAGES: u64 = 8;
/// Far less than the longest wait for the kernel, even on a busy machine.
const TOOK_MAX: Duration = Duration::from_secs(5);

/// A program that repeats an action on a file for some seconds: `store` through a mapping, into its slot of
/// each page, or `grow` the file. It prints the longest duration in seconds, and the number of repetitions.
const REPEATS: &str = r#"
import mmap, os, struct, sys, time
what, path, (seconds, pages, slot) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
file = os.open(path, os.O_RDWR)
size = os.fstat(file).st_size
mapping = mmap.mmap(file, pages * 4096)
def store(count):
    # What was stored here the last time is there still.
    at, last = count % pages * 4096 + slot * 8, max(count - pages, 0)
    found, = struct.unpack_from('Q', mapping, at)
    assert found == last, f'{count}: {found} instead of {last}'
    struct.pack_into('Q', mapping, at, count)
def grow(count):
    os.ftruncate(file, size + count)
act, longest, count = {'store': store, 'grow': grow}[what], 0, 0
begun = now = time.monotonic()
while now - begun < seconds:
    count += 1
    act(count)
    after = time.monotonic()
    longest, now = max(longest, after - now), after
mapping.flush()
print(longest, count)
"#;

/// A program that reads the number at an offset of a file on request.
const READS: &str = r#"
import os, struct, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for line in sys.stdin:
    print(struct.unpack('Q', os.pread(file, 8, int(line)))[0], flush=True)
"#;

fn repeats(side: &Side, name: &str, what: &str, [seconds, pages, slot]: [u64; 3]) -> Child {
    let mut python = Command::new("python3");
    python.args(["-c", REPEATS, what]).arg(side.path(name));
    python.args([seconds, pages, slot].map(|number| number.to_string()));
    python.stdout(Stdio::piped()).spawn().expect("python3")
}

/// The longest duration, and the number of repetitions.
fn outcome(program: Child) -> (Duration, u64) {
    let said = program.wait_with_output().expect("it ends");
    assert!(said.status.success(), "what was stored is not there");
    let said = String::from_utf8(said.stdout).expect("text");
    let (longest, count) = said.trim().split_once(' ').expect("two numbers");
    (Duration::from_secs_f64(longest.parse().expect("a number")), count.parse().expect("a number"))
}

fn open(side: &Side, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(side.path(name)).expect("opens")
}

fn map(side: &Side, name: &str, len: usize) -> Map {
    Map::new(&open(side, name), len, libc::MAP_SHARED).expect("mapped")
}

#[track_caller]
fn assert_both_read(one: &Side, other: &Side, name: &str, expected: &[u8]) {
    for side in [other, one] {
        let content = fs::read(side.path(name)).expect("read");
        assert_eq!(content.len(), expected.len());
        let wrong = content.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(wrong.map(|at| (at, content[at])), None, "on {}", side.root().display());
    }
}

#[test]
fn remote_write_to_a_page_that_a_mapping_changed_survives() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            // Inline, and in a block.
            for len in [PAGE, 64 * PAGE] {
                let name = format!("file{n}-{len}");
                let mut expected = vec![b'.'; len];
                fs::write(one.path(&name), &expected).expect("written");
                let mut mapping = map(one, &name, len);
                let file = open(other, &name);
                for round in 0..20 {
                    pair.step(format!("{n}: {len} bytes, {round}"));
                    let at = len - PAGE + round * 3;
                    mapping.bytes()[at] = b'm';
                    expected[at] = b'm';
                    file.write_all_at(b"w", at as u64 + 1).expect("written");
                    expected[at + 1] = b'w';
                    if round % 2 == 0 {
                        mapping.sync().expect("synced");
                        assert_both_read(one, other, &name, &expected);
                    }
                }
                mapping.sync().expect("synced");
                assert_both_read(one, other, &name, &expected);
                assert_eq!(mapping.bytes(), expected);
            }
        }
    });
}

#[test]
fn two_mounts_change_one_page_through_mappings_in_turn() {
    pair(|pair| {
        let mut expected = vec![0; PAGE];
        fs::write(pair.a.path("file"), &expected).expect("written");
        let mut mappings = [map(&pair.a, "file", PAGE), map(&pair.b, "file", PAGE)];
        for round in 0..50u8 {
            for (side, mapping) in mappings.iter_mut().enumerate() {
                pair.step(format!("{round}: {side}"));
                // Neither mount waits for the other one's page to be written back.
                let at = usize::from(round) * 2 + side;
                mapping.bytes()[at] = round + 1;
                expected[at] = round + 1;
            }
            for mapping in &mappings {
                mapping.sync().expect("synced");
            }
            assert_both_read(&pair.a, &pair.b, "file", &expected);
        }
    });
}

#[test]
fn mapping_does_not_extend_a_file_that_the_other_mount_truncated() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let name = format!("file{n}");
            fs::write(one.path(&name), vec![b'.'; 3 * PAGE]).expect("written");
            let mut mapping = map(one, &name, 3 * PAGE);
            for at in [10, PAGE + 10, 2 * PAGE + 10] {
                mapping.bytes()[at] = b'm';
            }
            pair.step(format!("{n}: shorten"));
            open(other, &name).set_len(PAGE as u64 + 20).expect("shortened");
            mapping.sync().expect("synced");
            let mut expected = vec![b'.'; PAGE + 20];
            (expected[10], expected[PAGE + 10]) = (b'm', b'm');
            assert_both_read(one, other, &name, &expected);
        }
    });
}

#[test]
fn two_mounts_count_in_one_page_at_the_same_time() {
    const COUNTS: u64 = 400;
    const COUNTS_PER_SYNC: u64 = 7;
    pair(|pair| {
        fs::write(pair.a.path("file"), vec![0; PAGE]).expect("written");
        std::thread::scope(|scope| {
            for (n, side) in [&pair.a, &pair.b].into_iter().enumerate() {
                scope.spawn(move || {
                    let mut mapping = map(side, "file", PAGE);
                    let word: *mut u64 = mapping.bytes()[n * 8..].as_mut_ptr().cast();
                    for count in 1..=COUNTS {
                        pair.step(format!("{n}: {count}"));
                        // SAFETY: a word of the mapping, which only this thread changes; the kernel may have
                        // invalidated its page since the store.
                        unsafe {
                            assert_eq!(word.read_volatile(), count - 1, "{n}: what was stored here is gone");
                            word.write_volatile(count);
                        }
                        if count % COUNTS_PER_SYNC == 0 {
                            mapping.sync().expect("synced");
                        }
                    }
                    mapping.sync().expect("synced");
                });
            }
        });
        let mut expected = COUNTS.to_ne_bytes().repeat(2);
        expected.resize(PAGE, 0);
        assert_both_read(&pair.a, &pair.b, "file", &expected);
    });
}

/// Adds to the expected content the numbers that were stored into a slot of each page.
fn note_stored(expected: &mut [u8], slot: u64, stored: u64) {
    for count in 1..=stored {
        let at = (count % PAGES) as usize * PAGE + slot as usize * 8;
        expected[at..at + 8].copy_from_slice(&count.to_ne_bytes());
    }
}

#[test]
fn mapped_file_grows_while_the_other_mount_writes_to_it() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let name = format!("file{n}");
            let mut expected = vec![0; PAGES as usize * PAGE];
            fs::write(one.path(&name), &expected).expect("written");
            let programs = ["store", "grow"].map(|what| repeats(one, &name, what, [SECONDS, PAGES, 0]));
            let file = open(other, &name);
            let (begun, mut written, mut count) = (Instant::now(), Duration::ZERO, 0u64);
            while begun.elapsed() < Duration::from_secs(SECONDS) {
                count += 1;
                pair.step(format!("{n}: {count}"));
                // Directly after the stored bytes.
                let (at, before) = ((count % PAGES) as usize * PAGE + 8, Instant::now());
                let mut found = [0; 8];
                file.read_exact_at(&mut found, at as u64).expect("read");
                assert_eq!(found, expected[at..at + 8], "{count}: what was written here is gone");
                expected[at..at + 8].copy_from_slice(&count.to_ne_bytes());
                file.write_all_at(&expected[at..at + 8], at as u64).expect("written");
                written = written.max(before.elapsed());
            }
            let [stored, grown] = programs.map(outcome);
            note_stored(&mut expected, 0, stored.1);
            expected.resize(PAGES as usize * PAGE + grown.1 as usize, 0);
            assert_both_read(one, other, &name, &expected);
            let longest = stored.0.max(grown.0).max(written);
            assert!(longest < TOOK_MAX, "a call has waited for {longest:?}");
        }
    });
}

#[test]
fn remote_writes_are_read_outside_of_mapped_changes_while_the_file_grows() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let name = format!("file{n}");
            fs::write(one.path(&name), vec![0; 2 * PAGES as usize * PAGE]).expect("written");
            let programs = ["store", "grow"].map(|what| repeats(one, &name, what, [SECONDS, PAGES, 0]));
            let mut python = Command::new("python3");
            python.args(["-c", READS]).arg(one.path(&name)).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut reader = python.spawn().expect("python3");
            let mut tell = reader.stdin.take().expect("piped");
            let mut said = BufReader::new(reader.stdout.take().expect("piped")).lines();
            let file = open(other, &name);
            let (begun, mut count, mut took) = (Instant::now(), 0u64, Duration::ZERO);
            while begun.elapsed() < Duration::from_secs(SECONDS) {
                count += 1;
                pair.step(format!("{n}: {count}"));
                let at = (PAGES + count % PAGES) * PAGE as u64;
                let before = Instant::now();
                file.write_all_at(&count.to_ne_bytes(), at).expect("written");
                writeln!(tell, "{at}").expect("told");
                let found = said.next().expect("it goes on").expect("text");
                assert_eq!(found, count.to_string());
                took = took.max(before.elapsed());
            }
            drop(tell);
            reader.wait().expect("it ends");
            let [stored, grown] = programs.map(outcome);
            let longest = stored.0.max(grown.0).max(took);
            assert!(longest < TOOK_MAX, "a call has waited for {longest:?}");
        }
    });
}

#[test]
fn two_mounts_grow_a_file_that_both_change_through_mappings() {
    pair(|pair| {
        let mut expected = vec![0; PAGES as usize * PAGE];
        fs::write(pair.a.path("file"), &expected).expect("written");
        let sides = [(&pair.a, 0), (&pair.b, 1)];
        let programs = sides.map(|(side, slot)| {
            ["store", "grow"].map(|what| repeats(side, "file", what, [SECONDS, PAGES, slot]))
        });
        let outcomes = programs.map(|programs| programs.map(outcome));
        for (slot, [stored, _]) in outcomes.iter().enumerate() {
            note_stored(&mut expected, slot as u64, stored.1);
        }
        // The bytes of the last writer.
        let len = fs::metadata(pair.a.path("file")).expect("told").len() as usize;
        expected.resize(len.max(expected.len()), 0);
        assert_both_read(&pair.a, &pair.b, "file", &expected);
        let longest = outcomes.iter().flatten().map(|(longest, _)| *longest).max();
        assert!(longest < Some(TOOK_MAX), "a call has waited for {longest:?}");
    });
}
