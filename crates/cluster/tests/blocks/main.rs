//! Blocks on bricks that fail in every way.

mod faults;
mod fetch;
mod mend;
mod store;
mod support;
