//! Files that are open for reading and writing on two mounts: one of them may map it shared and writable, and
//! the other reads and writes past its page cache.

use super::cut::with_cut_mounted;
use super::{Pair, Side, eventually, pair_mounted};
use crate::sys::{Map, errno};
use shoal_fuse::{LockScope, MountOptions};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

const LEN: usize = 3 * 4096;

fn cluster() -> MountOptions {
    MountOptions { locks: LockScope::Cluster, ..MountOptions::default() }
}

fn open(side: &Side, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(side.path(name)).expect("opens")
}

fn map(file: &File) -> io::Result<Map> {
    Map::new(file, LEN, libc::MAP_SHARED)
}

/// Whether a file can be opened for reading and writing, and mapped.
fn is_mappable(side: &Side, name: &str) -> bool {
    map(&open(side, name)).is_ok()
}

fn read(file: &File, at: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).expect("read");
    bytes
}

#[test]
fn a_file_open_for_writing_on_two_mounts_is_mapped_on_one_and_right_on_both() {
    pair_mounted(cluster(), |pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let name = format!("file{n}");
            let file = open(one, &name);
            file.set_len(LEN as u64).expect("grown");
            let mut mapping = map(&file).expect("it is open here only");
            pair.step("the other mount opens it");
            let direct = open(other, &name);
            assert_eq!(errno(map(&direct)), libc::ENODEV);
            assert!(Map::new(&direct, LEN, libc::MAP_PRIVATE).is_ok());
            assert!(is_mappable(one, &name), "once more");
            for round in 0..40u64 {
                pair.step(format!("{n}: round {round}"));
                let at = round * 200;
                direct.write_all_at(&round.to_le_bytes(), at).expect("written");
                assert_eq!(read(&file, at), round.to_le_bytes());
                assert_eq!(mapping.bytes()[at as usize..][..8], round.to_le_bytes());
                file.write_all_at(&(round + 1).to_le_bytes(), at).expect("written");
                assert_eq!(read(&direct, at), (round + 1).to_le_bytes());
                mapping.bytes()[at as usize..][..8].copy_from_slice(&(round + 2).to_le_bytes());
                mapping.sync().expect("synced");
                assert_eq!(read(&direct, at), (round + 2).to_le_bytes());
            }
            drop((file, mapping));
            pair.step("it is closed where it was mapped");
            assert_eq!(errno(map(&direct)), libc::ENODEV, "as it was opened");
            // The kernel tells of the close after it.
            eventually("it can be mapped", || is_mappable(other, &name));
            eventually("it can be mapped here again", || is_mappable(one, &name));
        }
    });
}

/// Inserts rows into a database with a write-ahead log, each with a connection of its own or all with one,
/// and prints what was committed.
const INSERTS: &str = "
import sqlite3, sys, time
root, who, keeps = sys.argv[1], sys.argv[2], sys.argv[3] == 'keeps'
def connect():
    base = sqlite3.connect(root + '/base.db', timeout=20, isolation_level=None)
    assert base.execute('PRAGMA journal_mode=WAL').fetchone()[0] == 'wal'
    base.execute('CREATE TABLE IF NOT EXISTS t (who TEXT, n INTEGER)')
    return base
base = None
for n in range(60):
    try:
        base = base or connect()
        base.execute('INSERT INTO t VALUES (?, ?)', (who, n))
        print(who, n)
    except (sqlite3.OperationalError, AssertionError) as error:
        print('refused', error, file=sys.stderr)
        time.sleep(0.01)
    if base and not keeps:
        base.close()
        base = None";

fn inserts(side: &Side, who: &str, how: &str) -> Child {
    let mut command = Command::new("timeout");
    command.args(["80", "python3", "-c", INSERTS, side.root().to_str().expect("text"), who, how]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3")
}

/// What programs printed: committed rows, and errors.
fn said(programs: [Child; 2]) -> (Vec<String>, String) {
    let (mut rows, mut errors) = (Vec::new(), String::new());
    for program in programs {
        let output = program.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        rows.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
        errors.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    rows.sort();
    (rows, errors)
}

fn rows(side: &Side) -> Vec<String> {
    let script = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1] + '/base.db', timeout=20)
assert base.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'
for row in base.execute('SELECT who, n FROM t'): print(*row)";
    let output = Command::new("python3").args(["-c", script]).arg(side.root()).output().expect("python3");
    assert!(output.status.success(), "{output:?}");
    let mut rows: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

#[test]
fn sqlite_with_a_write_ahead_log_loses_nothing_between_two_mounts() {
    pair_mounted(cluster(), |pair| {
        for how in ["keeps", "closes"] {
            pair.step(how);
            let before = if how == "keeps" { Vec::new() } else { rows(&pair.a) };
            let (mut committed, errors) = said([inserts(&pair.a, "a", how), inserts(&pair.b, "b", how)]);
            assert!(!committed.is_empty(), "one of them works: {errors}");
            committed.extend(before);
            committed.sort();
            // A mount learns of the last close on the other one shortly after it.
            eventually("the file can be mapped", || is_mappable_or_gone(&pair.b, "base.db-shm"));
            assert_eq!(rows(&pair.b), committed, "{errors}");
        }
    });
}

fn is_mappable_or_gone(side: &Side, name: &str) -> bool {
    let opened = OpenOptions::new().read(true).write(true).open(side.path(name));
    opened.map_or(true, |file| map(&file).is_ok())
}

#[test]
fn a_mount_that_is_cut_off_loses_its_mapping_to_the_other_one() {
    with_cut_mounted(cluster(), |pair: &Pair, cut| {
        let file = open(&pair.b, "file");
        file.set_len(LEN as u64).expect("grown");
        let mapping = map(&file).expect("it is open here only");
        let kept = open(&pair.b, "kept");
        kept.write_all_at(b"kept", 0).expect("written");
        kept.sync_all().expect("synced");
        assert!(!is_mappable(&pair.a, "file"));
        cut.set(true);
        pair.step("the other mount wants it");
        let ended = pair.b.client.session();
        let its = std::cell::RefCell::new(None);
        eventually("the silent mount's session is ended", || {
            let file = open(&pair.a, "file");
            let mapping = map(&file).ok();
            *its.borrow_mut() = Some(file);
            mapping.is_some()
        });
        cut.set(false);
        eventually("another session", || pair.b.client.session() != ended);
        pair.step("the mapping is over, for good");
        let mut byte = [0];
        assert_eq!(errno(file.read_at(&mut byte, 0)), libc::EIO);
        assert_eq!(errno(file.write_at(&byte, 0)), libc::EIO);
        pair.step("a file that only this mount had open goes on");
        kept.write_all_at(b"KEPT", 0).expect("written");
        assert_eq!(&read_four(&kept), b"KEPT");
        assert!(is_mappable(&pair.b, "kept"));
        drop((mapping, file));
        let again = open(&pair.b, "file");
        assert_eq!(again.read_at(&mut byte, 0).expect("read"), 1);
        drop((its, again, kept));
    });
}

fn read_four(file: &File) -> [u8; 4] {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}
