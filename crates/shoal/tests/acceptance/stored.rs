//! What earlier versions have stored is read.
//!
//! `stored/volume-VERSION.tar.xz` is the data directory of a volume of that version. Its server was stopped
//! once, so that there is a store, and was killed later, so that the end of its log is not in the store.
//! `SHOAL_TEST_WRITE_STORED=1` writes the file of the present version, when that is released; the files of
//! earlier versions stay.

use crate::harness::{self, Volume, run, sys, tree};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Says that the file of this version is to be written.
const WRITE: &str = "SHOAL_TEST_WRITE_STORED";

fn stored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acceptance/stored")
}

/// Deterministic content. It is in the stored files, so this function must never change.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(7) ^ (at >> 8) ^ seed) as u8).collect()
}

fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("written");
}

/// What was in the store when the server was stopped.
fn fill_first(top: &Path) {
    let dir = top.join("directory");
    fs::create_dir(&dir).expect("made");
    for n in 0..40 {
        write(&dir.join(format!("inline-{n}")), &bytes(n * 50, n));
    }
    write(&top.join("block"), &bytes(300_000, 1));
    write(&top.join("two blocks"), &bytes((4 << 20) + 5000, 2));
    let hole = File::create(top.join("hole")).expect("created");
    hole.set_len(64 << 20).expect("a hole");
    let hole = std::os::fd::OwnedFd::from(hole);
    sys::pwrite(&hole, &bytes(9000, 3), 50_000_000).expect("written");
    fs::hard_link(top.join("block"), dir.join("second name")).expect("linked");
    symlink("directory/inline-3", top.join("symlink")).expect("linked");
    sys::mknod(&top.join("fifo"), libc::S_IFIFO | 0o640, 0).expect("made");
    sys::mknod(&top.join("device"), libc::S_IFCHR | 0o600, libc::makedev(1, 3)).expect("made");
    sys::setxattr(&dir, OsStr::new("user.long"), &bytes(3000, 4), 0).expect("set");
    run("setfacl").arg("-m").arg("u:1234:rwx,d:g:4321:r").arg(&dir).ok();
    sys::lchown(&top.join("block"), 1000, 1001).expect("owned");
    sys::chmod(&top.join("block"), 0o4755).expect("changed");
}

/// What was in the log alone when the server was killed.
fn fill_second(top: &Path) {
    let dir = top.join("directory");
    fs::rename(dir.join("inline-7"), top.join("renamed")).expect("renamed");
    fs::remove_file(dir.join("inline-8")).expect("removed");
    fs::create_dir(top.join("a".repeat(255))).expect("a long name");
    write(&top.join("later"), &bytes(200_000, 5));
    let block =
        std::os::fd::OwnedFd::from(File::options().write(true).open(top.join("block")).expect("open"));
    sys::pwrite(&block, &bytes(70_000, 6), 100_000).expect("written over");
    sys::ftruncate(&block, 250_000).expect("cut");
    sys::removexattr(&dir, OsStr::new("user.long")).expect("removed");
    for entry in tree::read(top).keys() {
        sys::utimens(&top.join(entry), (1_600_000_000, 5), (150_000_000, 123_456_789))
            .expect("times are set");
    }
}

fn pack(data: &Path, file: &Path) {
    run("tar").arg("-C").arg(data).arg("--exclude=*.sock").arg("-cJf").arg(file).arg(".").ok();
}

#[test]
fn volume_that_an_earlier_version_was_killed_on_is_read_changed_and_clean() {
    if harness::plain() {
        return;
    }
    if std::env::var_os(WRITE).is_some() {
        let mut volume = Volume::start("stored-write");
        fill_first(volume.path());
        volume.remount();
        fill_second(volume.path());
        volume.sync();
        volume.kill();
        let file = stored().join(format!("volume-{}.tar.xz", env!("CARGO_PKG_VERSION")));
        pack(volume.data(), &file);
    }
    let files: Vec<PathBuf> = fs::read_dir(stored())
        .expect("there are some")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!files.is_empty());
    for file in files {
        let dir: TempDir = harness::volume::scratch("stored");
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("made");
        run("tar").arg("-C").arg(&data).arg("-xJf").arg(&file).ok();
        let mut volume = Volume::start_with(dir, data, &[]);
        let local = volume.local();
        fill_first(&local);
        fill_second(&local);
        tree::assert_same(volume.path(), &local, true);
        write(&volume.path().join("renamed"), b"by this version");
        write(&local.join("renamed"), b"by this version");
        volume.remount();
        assert_eq!(fs::read(volume.path().join("renamed")).expect("read"), b"by this version");
        volume.stop();
        volume.fsck();
    }
}
