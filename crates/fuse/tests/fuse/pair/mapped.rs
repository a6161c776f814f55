//! What programs change through shared mappings, while others change the same pages.

use super::{Side, pair};
use crate::sys::Map;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

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
fn what_others_write_to_a_page_that_a_mapping_has_changed_stays() {
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
                // Neither waits for the other one's page to be written back.
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
fn a_mapping_does_not_extend_a_file_that_others_have_shortened() {
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
                        // SAFETY: a word of the mapping, which only this thread changes; the kernel may have dropped its page since it was stored to.
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
