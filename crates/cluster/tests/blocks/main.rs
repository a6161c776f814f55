//! Blocks on bricks with all kinds of failures.

mod faults;
mod fetch;
mod mend;
mod store;
mod support;
