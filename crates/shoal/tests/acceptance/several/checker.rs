//! The checker of what several mounts show (`shoal-witness`), and a build that it has to refuse.

use crate::harness::command::witness;
use crate::harness::shared::PLANTED;
use crate::harness::{Shared, plain, seed};

/// Longer runs only find more.
const SECONDS: &str = "5";
/// A run that meets the defect and shows nothing of it is repeated with another seed.
const ATTEMPTS: u64 = 5;

/// Whether what random programs see on two mounts is explained; and what was said about it.
fn explained(shared: &Shared, seed: u64) -> (bool, String) {
    let outcome = witness([shared.path(0), shared.path(1)], SECONDS, seed).limit(200).outcome();
    let said = outcome.to_string();
    assert!(said.contains("explained") || said.contains("NOT EXPLAINED"), "{said}");
    (outcome.status.is_some_and(|status| status.success()), said)
}

#[test]
fn what_random_programs_see_on_two_mounts_is_explained() {
    if plain() {
        return;
    }
    let shared = Shared::start("checker", 2);
    let (explained, said) = explained(&shared, seed());
    println!("{said}");
    assert!(explained, "{said}");
    shared.finish();
}

#[test]
#[ignore = "needs a build with a defect on purpose: make check-planted"]
fn a_kernel_that_is_not_told_of_every_change_is_found_out() {
    assert!(std::env::var_os(PLANTED).is_some(), "{PLANTED} names no program: make check-planted");
    let shared = Shared::start("planted", 2);
    let found = (0..ATTEMPTS).find(|attempt| !explained(&shared, seed() + attempt).0);
    println!("found in run {found:?} of {ATTEMPTS}");
    assert!(found.is_some(), "the checker has not noticed");
}
