//! The POSIX test suite `pjdfstest`, its Rust version.

use crate::harness::{Volume, plain, run, tool, volume};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The suite divides paths into parts of this length, and fails at a remainder of 0 when it makes a path of
/// `PATH_MAX` bytes.
const PATH_PART: usize = 127;
/// What the suite adds to the directory it is given: two times `/.tmpXXXXXX`.
const PATH_ADDED: usize = 22;

#[test]
fn the_posix_test_suite_passes() {
    let volume = Volume::start("pjdfstest");
    let elsewhere = volume::scratch("pjdfstest-elsewhere");
    // On a plain directory, a scratch directory and the volume may be on the same disk.
    let second = if plain() { Path::new("/dev/shm") } else { elsewhere.path() };

    let place = place(volume.path());
    let suite = Suite { place: &place, second, scratch: elsewhere.path() };
    suite.passes(&[], include_str!("pjdfstest.toml"));
    // The cases about read-only file systems run by themselves. Further cases leave files open, and then no
    // file system can be remounted read-only, be it Shoal or ext4. They never run on the machine's own disk.
    if !plain() {
        let config = include_str!("pjdfstest.toml").replace("allow_remount = false", "allow_remount = true");
        suite.passes(&["erofs"], &config);
    }
}

/// Makes a directory for the suite.
pub fn place(mount: &Path) -> PathBuf {
    let mut place = mount.join("posix");
    while (libc::PATH_MAX as usize - 1 - PATH_ADDED - place.as_os_str().len()).is_multiple_of(PATH_PART) {
        place = mount.join("posix-suite");
    }
    fs::create_dir(&place).expect("a directory can be made");
    place
}

/// The directories of the suite.
pub struct Suite<'a> {
    /// The directory under test.
    pub place: &'a Path,
    /// A directory on another file system.
    pub second: &'a Path,
    /// For the suite's own things.
    pub scratch: &'a Path,
}

impl Suite<'_> {
    /// Runs the cases whose names contain one of these words.
    pub fn passes(&self, words: &[&str], config: &str) {
        let config_path = self.scratch.join("pjdfstest.toml");
        fs::write(&config_path, config).expect("a configuration can be written");
        let suite = run(tool("pjdfstest")).env("PATH", self.path_with_mount());
        let suite = suite.arg("-c").arg(&config_path).arg("-p").arg(self.place).arg("-s").arg(self.second);
        let outcome = words.iter().fold(suite, |suite, word| suite.arg(word)).limit(600).outcome();
        let passed = outcome.status.is_some_and(|status| status.success());
        let faults: Vec<&str> = outcome.stdout.lines().filter(|line| is_fault(line)).collect();
        assert!(passed && faults.is_empty(), "{}\n{outcome}", faults.join("\n"));
        assert!(outcome.stdout.contains("Summary"), "{outcome}");
    }

    /// The suite remounts with mount(8), which calls a helper for FUSE file systems; the kernel needs none.
    fn path_with_mount(&self) -> String {
        let bin = self.scratch.join("bin");
        fs::create_dir_all(&bin).expect("a directory can be made");
        let mount = bin.join("mount");
        fs::write(&mount, "#!/bin/sh\nexec /bin/mount -i \"$@\"\n").expect("a script can be written");
        fs::set_permissions(&mount, fs::Permissions::from_mode(0o755)).expect("its mode can be set");
        format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
    }
}

fn is_fault(line: &str) -> bool {
    line.contains("FAILED") || line.contains("PASSED UNEXPECTEDLY") || line.contains("requires root")
}
