//! Long sequences of arbitrary changes: after each, both mounts show the same.

use super::pair;
use super::snapshot::snapshot;
use crate::sys::{mknod, removexattr, renameat2, setxattr, utimens};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// Changes in each sequence.
const ROUNDS: usize = 60;

/// Pseudo-random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// One of few names in few directories, so that changes meet.
    fn path(&mut self, root: &Path) -> PathBuf {
        let dir = ["", "d0", "d1", "d0/d2"][self.below(4)];
        root.join(dir).join(["f0", "f1", "f2", "d0", "d1", "d2"][self.below(6)])
    }
}

/// Not to be opened: a fifo, where opening waits, or a link that may lead elsewhere.
fn is_special(path: &Path) -> bool {
    let kind = path.symlink_metadata().map(|meta| meta.file_type());
    kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir())
}

/// Makes a random change, which may fail. Returns its description and its outcome.
fn change(chance: &mut Chance, root: &Path) -> (String, io::Result<()>) {
    let (path, other) = (chance.path(root), chance.path(root));
    let size = [1, 3_000, 80_000, 300_000][chance.below(4)];
    let (at, byte) = (chance.below(size), b'a' + chance.below(26) as u8);
    let open = |append: bool| OpenOptions::new().write(!append).append(append).open(&path);
    let kind = chance.below(18);
    let outcome = match kind {
        0 | 1 if is_special(&path) => Ok(()),
        0 | 1 => fs::write(&path, vec![byte; size]),
        2 | 3 => fs::create_dir(&path),
        4 => symlink(&other, &path),
        5 => mknod(&path, libc::S_IFIFO | 0o600, 0),
        6 => fs::hard_link(&other, &path),
        7 => fs::remove_file(&path),
        8 => fs::remove_dir(&path),
        9 | 10 => fs::rename(&other, &path),
        11 => renameat2(&other, &path, libc::RENAME_EXCHANGE),
        12 | 13 if path.is_symlink() => Ok(()),
        12 => fs::set_permissions(&path, Permissions::from_mode(0o700 | at as u32 & 0o77)),
        13 => chown(&path, Some(at as u32), Some(7)),
        14 => utimens(&path, (1, 2), (at as i64, 4)),
        _ if is_special(&path) => Ok(()),
        15 => open(false).and_then(|file| match at % 2 {
            0 => file.write_all_at(&[byte; 10], at as u64),
            _ => file.set_len(at as u64),
        }),
        16 => open(true).and_then(|mut file| file.write_all(&[byte; 10])),
        _ => match at % 3 {
            0 => removexattr(&path, "user.x"),
            _ => setxattr(&path, "user.x", &[byte], 0),
        },
    };
    let below = |path: &Path| path.strip_prefix(root).expect("in there").display().to_string();
    (format!("{kind}: {} {} {size} {at}", below(&path), below(&other)), outcome)
}

fn sequence(seed: u64) {
    pair(move |pair| {
        let mut chance = Chance(seed);
        for dir in ["d0", "d1", "d0/d2"] {
            fs::create_dir(pair.a.path(dir)).expect("new");
            fs::write(pair.b.path(&format!("{dir}/f0")), dir).expect("written");
        }
        let mut done = Vec::new();
        for round in 0..ROUNDS {
            let turn = chance.below(2);
            let (one, other) = pair.both_ways()[turn];
            pair.step(format!("seed {seed}, round {round}, change on {turn}"));
            let (what, outcome) = change(&mut chance, one.root());
            done.push(format!("{round}: on {turn}: {what}: {outcome:?}"));
            pair.step(format!("seed {seed}, round {round}, look after {what} on {turn}"));
            let (observed, own) = (snapshot(other.root()), snapshot(one.root()));
            for (path, line) in &own {
                assert_eq!(observed.get(path), Some(line), "seed {seed}, {path}: {done:#?}");
            }
            assert_eq!(observed.len(), own.len(), "seed {seed}: {done:#?}");
        }
        assert!(done.iter().filter(|line| line.ends_with("Ok(())")).count() > ROUNDS / 5, "{done:#?}");
    });
}

#[test]
fn after_any_change_both_mounts_show_the_same() {
    sequence(1);
}

#[test]
fn after_any_other_change_both_mounts_show_the_same() {
    (2..6).for_each(sequence);
}
