//! The POSIX test suite `pjdfstest`, the Rust one.

use crate::harness::{Volume, plain, run, tool, volume};
use std::fs;
use std::path::Path;

/// The suite divides paths into parts of this length and trips over a remainder of 0, when it makes one of `PATH_MAX` bytes.
const PATH_PART: usize = 127;
/// What the suite adds to the directory it is given: two times `/.tmpXXXXXX`.
const PATH_ADDED: usize = 22;

#[test]
fn the_posix_test_suite_passes() {
    let volume = Volume::start("pjdfstest");
    let elsewhere = volume::scratch("pjdfstest-elsewhere");
    // A scratch directory and the volume may be on the same disk when the tests run on a plain directory.
    let second = if plain() { Path::new("/dev/shm") } else { elsewhere.path() };

    let mut place = volume.path().join("posix");
    while (libc::PATH_MAX as usize - 1 - PATH_ADDED - place.as_os_str().len()).is_multiple_of(PATH_PART) {
        place = volume.path().join("posix-suite");
    }
    fs::create_dir(&place).expect("a directory can be made");

    let mut config = include_str!("pjdfstest.toml").to_owned();
    if plain() {
        // Nobody wants the machine's disk read-only.
        config = config.replace("allow_remount = true", "allow_remount = false");
    }
    let config_path = elsewhere.path().join("pjdfstest.toml");
    fs::write(&config_path, config).expect("a configuration can be written");

    let suite =
        run(tool("pjdfstest")).arg("-c").arg(&config_path).arg("-p").arg(&place).arg("-s").arg(second);
    let outcome = suite.limit(600).outcome();
    let passed = outcome.status.is_some_and(|status| status.success());
    let faults: Vec<&str> = outcome.stdout.lines().filter(|line| is_fault(line)).collect();
    assert!(passed && faults.is_empty(), "{}\n{outcome}", faults.join("\n"));
    assert!(outcome.stdout.contains("Summary"), "{outcome}");
}

fn is_fault(line: &str) -> bool {
    line.contains("FAILED") || line.contains("PASSED UNEXPECTEDLY") || line.contains("requires root")
}
