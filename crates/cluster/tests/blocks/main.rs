//! Blocks on bricks with all kinds of failures.

mod faults;
mod fetch;
mod heal;
mod shards;
mod share;
mod store;
mod support;
mod tiers;
