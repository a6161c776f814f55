//! Several replicas of a metadata server in one process, over a network with all kinds of failures.

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
