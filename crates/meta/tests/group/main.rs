//! Several replicas of a metadata server in one process, over a network that fails in every way.

mod cluster;
mod compact;
mod fabric;
mod faults;
mod lead;
mod leases;
mod locks;
mod members;
mod origins;
mod states;
#[path = "../support/mod.rs"]
mod support;
