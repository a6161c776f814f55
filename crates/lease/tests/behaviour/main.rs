//! What the table of rights promises, one test per promise.

mod batches;
mod changing;
mod common;
mod covers;
mod leaders;
mod names;
mod order;
mod reading;
mod sessions;
