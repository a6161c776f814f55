//! An old brick and the new one share disk space on a disk that can do that.

use crate::harness::volume::{self, shoal};
use crate::harness::{Volume, sh, sys, tree};
use std::fs;
use std::path::{Path, PathBuf};

/// Size of the disk: large enough for the files twice, and for a volume.
const DISK: &str = "600M";
/// Bytes of each large file.
const LARGE_BYTES: u64 = 20 << 20;

/// An XFS in a file. Unmounted when dropped, which ends its loop device, too.
struct Disk(PathBuf);

impl Disk {
    fn new(dir: &Path) -> Disk {
        sh(dir, &format!("truncate -s {DISK} image && mkfs.xfs -q -m reflink=1 image && mkdir disk")).ok();
        sh(dir, "mount -o loop image disk").ok();
        Disk(dir.join("disk"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        volume::detach(&self.0);
    }
}

fn random_file(path: &Path, bytes: u64) {
    sh(path.parent().expect("a directory"), &format!("head -c {bytes} /dev/urandom >{}", path.display()))
        .ok();
}

#[test]
fn import_and_its_source_share_disk_space() {
    let place = volume::scratch("reflink-disk");
    let disk = Disk::new(place.path());
    let (old, data) = (disk.0.join("old"), disk.0.join("data"));
    fs::create_dir_all(old.join("sub/.glusterfs")).expect("mkdir");
    fs::create_dir(old.join(".glusterfs")).expect("mkdir");
    random_file(&old.join("one"), LARGE_BYTES);
    random_file(&old.join("sub/.glusterfs/two"), LARGE_BYTES + 1234);
    random_file(&old.join("changed"), LARGE_BYTES);
    random_file(&old.join("absent"), 100_000);
    // Not a name of the volume: files below it have other names, too.
    fs::hard_link(old.join("one"), old.join(".glusterfs/one")).expect("link");
    fs::write(old.join("small"), "in the metadata").expect("write");

    let mut volume = Volume::start_with(volume::scratch("reflink"), data, &[]);
    let mounted = volume.path().to_owned();
    sh(&old, &format!("cp -r one sub changed small {}", mounted.display())).ok();
    let new = volume.data().join("brick");
    let changed = sys::open(&mounted.join("changed"), libc::O_RDWR, 0).expect("open");
    // On the heap, where all of it is mapped: otherwise the kernel may split the write into short ones.
    sys::pwrite(&changed, &vec![7; 128 << 10], 5 << 20).expect("write");
    drop(changed);
    let told = shoal().arg("fileinfo").arg(mounted.join("one")).arg(mounted.join("small")).ok();
    assert!(told.matches("  block ").count() >= 5, "{told}");
    assert!(told.contains("on this machine's disk") && told.contains("in the metadata"), "{told}");

    let before = tree::read(&mounted);
    sh(&disk.0, "sync -f .").ok();
    let used = sys::used_bytes(&disk.0);
    let reflink = || {
        let words = [old.as_path(), Path::new("--with"), &new, Path::new("--to"), &mounted];
        words.iter().fold(shoal().arg("import").arg("reflink"), |run, word| run.arg(word)).ok()
    };
    let told = reflink();
    sh(&disk.0, "sync -f .").ok();
    let freed = used.saturating_sub(sys::used_bytes(&disk.0));
    assert!(freed > 50 << 20, "{freed} bytes were freed\n{told}");
    assert!(told.contains("of 3 files share disk space"), "{told}");
    assert!(told.contains("Not the same bytes as in the volume: "), "{told}");
    assert!(told.contains("1 files are not in the volume"), "{told}");
    // Once more finds them shared.
    assert_eq!(reflink(), told);

    // From now on each side may change without the other.
    let one = sys::open(&old.join("one"), libc::O_RDWR, 0).expect("open");
    sys::pwrite(&one, &[0x5a; 1 << 20], 1 << 20).expect("write");
    drop(one);
    fs::remove_file(old.join("sub/.glusterfs/two")).expect("unlink");
    volume.remount();
    let differences = tree::differences(&tree::read(&mounted), &before);
    assert!(differences.is_empty(), "{differences}");
    volume.stop();
    volume.fsck();
}

#[test]
fn file_systems_that_cannot_share_are_told() {
    let volume = Volume::start("reflink-none");
    let old = volume.local();
    random_file(&old.join("one"), 1 << 20);
    fs::copy(old.join("one"), volume.path().join("one")).expect("copy");
    let outcome = shoal()
        .arg("import")
        .arg("reflink")
        .arg(&old)
        .arg("--with")
        .arg(volume.data().join("brick"))
        .arg("--to")
        .arg(volume.path())
        .outcome();
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    // Wherever the tests run on XFS or Btrfs, it is shared.
    assert!(said.contains("XFS with reflink=1 and Btrfs can") || said.contains("share disk space"), "{said}");
}
