//! Blocks on bricks with all kinds of failures.

mod faults;
mod fetch;
mod mend;
mod shards;
mod store;
mod support;
mod tiers;
