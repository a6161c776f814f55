//! Shared by the tests: hosts, clusters, and a load whose every acknowledged byte is checked.

#[path = "../../acceptance/harness/command.rs"]
pub mod command;
#[path = "../../acceptance/harness/seed.rs"]
mod seed;

pub mod cluster;
pub mod hosts;
pub mod load;
pub mod party;

pub use cluster::{Cluster, Mount};
pub use command::{run, sh};
pub use load::Load;
pub use party::Party;
pub use seed::seed;

/// Whether the tests run for their full time.
pub fn long() -> bool {
    std::env::var_os("SHOAL_TEST_LONG").is_some_and(|value| value != "0")
}

/// Waits until a condition holds. Panics after `seconds`, with `what` and the last reason.
pub fn eventually(what: &str, seconds: u64, mut is_so: impl FnMut() -> Result<(), String>) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    loop {
        match is_so() {
            Ok(()) => return,
            Err(why) => assert!(std::time::Instant::now() < until, "{what}, after {seconds} s: {why}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
