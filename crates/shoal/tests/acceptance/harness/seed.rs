//! What random choices come from.

/// The seed of this run: `SHOAL_TEST_SEED`, or a fixed one, so that a merge is not refused by bad luck.
/// The long runs choose a new one each time.
pub fn seed() -> u64 {
    match std::env::var("SHOAL_TEST_SEED") {
        Ok(text) => text.parse().expect("SHOAL_TEST_SEED is a number"),
        Err(_) if super::long() => rand::random::<u64>() % 1_000_000,
        Err(_) => 1,
    }
}
