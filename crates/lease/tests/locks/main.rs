//! The behaviour of the lock table, one module per concern, and random operations against a simple model.

mod common;
mod deadlocks;
mod flock;
mod leaders;
mod limits;
mod model;
mod posix;
mod random;
mod waiting;
