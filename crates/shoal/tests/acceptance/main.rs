//! Acceptance tests: the real binary, real mounts, real programs.
//!
//! Every test starts a volume of its own in a directory on a real disk (`SHOAL_TEST_DIR`, by default
//! /var/tmp), and removes everything, also when it fails. Settings are environment variables:
//!
//! - `SHOAL_TEST_LONG=1`: full lengths (100 crash rounds, the whole kernel source); minutes become half an
//!   hour.
//! - `SHOAL_TEST_SEED=n`: the seed of everything random. A failure prints the one it ran with.
//! - `SHOAL_TEST_PLAIN=1`: a plain local directory in place of the mount. A test that fails there is itself
//!   wrong.

mod bench;
mod compare;
mod crash;
mod directories;
mod files;
mod flags;
mod fsx;
mod full_disk;
mod harness;
mod large;
mod lifecycle;
mod links;
mod memory;
mod mmap;
mod moves;
mod pjdfstest;
mod programs;
mod reflink;
mod several;
mod sparse;
mod sqlite;
mod stored;
mod tune;
mod warm;
mod xattrs;
