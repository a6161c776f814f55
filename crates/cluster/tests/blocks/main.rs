//! Blocks on bricks with all kinds of failures.

mod delegate;
mod faults;
mod fetch;
mod heal;
mod shards;
mod store;
mod support;
mod tiers;
