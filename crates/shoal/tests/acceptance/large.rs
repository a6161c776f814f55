//! Files of many TiB, and what is put into them.

use crate::harness::{Volume, sh, sys};
use std::path::Path;
use std::process::Command;

/// A directory in which the image is mounted, and its loop device: taken back however the test ends.
struct Loop {
    mountpoint: tempfile::TempDir,
    device: Option<String>,
}

impl Loop {
    fn new() -> Loop {
        Loop { mountpoint: tempfile::tempdir().expect("a directory"), device: None }
    }

    /// Attaches the image. Returns the device.
    fn attach(&mut self, image: &Path) -> String {
        let device = sh(image.parent().expect("a directory"), "losetup --find --show image").ok();
        let device = device.trim().to_owned();
        self.device = Some(device.clone());
        device
    }

    fn run(&self, script: &str) {
        sh(self.mountpoint.path(), script).ok();
    }

    fn take_back(&mut self) {
        let Some(device) = self.device.take() else { return };
        let quietly = |program: &str, arguments: &[&str]| {
            let _ = Command::new(program).args(arguments).output();
        };
        quietly("umount", &["-l", &device]);
        quietly("losetup", &["-d", &device]);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.take_back();
    }
}

#[test]
fn image_of_100_gib_holds_a_file_system_behind_a_loop_device() {
    let mut volume = Volume::start("loop");
    sh(volume.path(), "truncate -s 100G image").ok();
    let mut image = Loop::new();
    let device = image.attach(&volume.path().join("image"));
    // mke2fs(8) discards the whole device first, which punches a hole of 100 GiB.
    image.run(&format!(
        "mkfs.ext4 -q {device} && mkdir m && mount {device} m && cp -a /etc m/etc && mkdir m/many &&
        seq 2000 | xargs -n 1 sh -c 'echo $0 > m/many/$0' &&
        head -c 50000000 /dev/urandom > m/random && rm -r m/many/*1 && sync -f m && umount m &&
        e2fsck -fn {device} > report || {{ cat report; exit 1; }}"
    ));
    image.run(&format!("mount -o ro {device} m && sha256sum m/random > sum && umount m"));
    image.take_back();
    volume.remount();
    let device = image.attach(&volume.path().join("image"));
    image.run(&format!(
        "e2fsck -fn {device} > report || {{ cat report; exit 1; }}
        mount -o ro {device} m && sha256sum -c --quiet sum && diff -r --no-dereference /etc m/etc &&
        test $(ls m/many | wc -l) = 1800 && umount m"
    ));
    image.take_back();
    volume.stop();
    volume.fsck();
}

#[test]
fn last_byte_that_a_file_can_have_is_written_and_read() {
    const LAST: u64 = i64::MAX as u64 - 1;
    let mut volume = Volume::start("last-byte");
    let path = volume.path().join("file");
    let file = sys::open(&path, libc::O_RDWR | libc::O_CREAT, 0o644).expect("open");
    sys::pwrite(&file, b"x", LAST).expect("write");
    assert_eq!(sys::lseek(&file, 0, libc::SEEK_END), Ok(LAST + 1));
    sys::pwrite(&file, &[7; 8192], LAST - 20_000).expect("write");
    assert_eq!(sys::lseek(&file, 4096, libc::SEEK_DATA), Ok((LAST - 20_000) / 4096 * 4096));
    assert_eq!(sys::lseek(&file, LAST, libc::SEEK_HOLE), Ok(LAST + 1));
    sys::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, LAST - 20_000, 4000)
        .expect("punch");
    drop(file);
    volume.remount();
    let file = sys::open(&path, libc::O_RDWR, 0).expect("open");
    assert_eq!(sys::pread(&file, 1, LAST), Ok(b"x".to_vec()));
    let got = sys::pread(&file, 8192, LAST - 20_000).expect("read");
    assert!(got[..4000].iter().all(|byte| *byte == 0) && got[4000..].iter().all(|byte| *byte == 7));
    drop(file);
    volume.stop();
    volume.fsck();
}
