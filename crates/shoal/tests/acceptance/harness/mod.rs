//! Shared by the tests: volumes that clean up after themselves, programs under a time limit, comparison of
//! trees.

pub mod command;
pub mod meanwhile;
pub mod random;
mod seed;
pub mod shared;
pub mod sys;
pub mod tree;
pub mod volume;

pub use command::{Run, run, sh};
pub use meanwhile::Meanwhile;
pub use random::Random;
pub use seed::seed;
pub use shared::Shared;
pub use volume::Volume;

use std::path::PathBuf;

/// Whether the full lengths were asked for.
pub fn long() -> bool {
    std::env::var_os("SHOAL_TEST_LONG").is_some_and(|value| value != "0")
}

/// Whether the tests run on a plain local directory, to test the tests.
pub fn plain() -> bool {
    std::env::var_os("SHOAL_TEST_PLAIN").is_some_and(|value| value != "0")
}

/// Where `scripts/setup` keeps the sources and tools that it fetched.
pub fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("shoal")
}

/// A tool that `scripts/setup test` installs.
pub fn tool(name: &str) -> PathBuf {
    let tools = std::env::var_os("SHOAL_TOOLS").map_or_else(|| cache().join("tools"), PathBuf::from);
    let path = tools.join("bin").join(name);
    assert!(path.exists(), "{} is missing: run scripts/setup test", path.display());
    path
}

/// The source of lua, a small C program that builds in seconds.
pub fn lua_source() -> PathBuf {
    let path = cache().join("sources/lua5.4.orig.tar.gz");
    assert!(path.exists(), "{} is missing: run scripts/setup test", path.display());
    path
}
