//! A whole cluster in one deterministic process: servers, clients, their clocks, disks and network, driven by
//! a seed.
//!
//! **Model.** A [`world`] has three replicas of a volume's metadata group, bricks in some [`layout`], two or
//! three clients with [`programs`] on them, and [`faults`]. It runs the production code ([`shoal_meta`],
//! [`shoal_client`], [`shoal_cluster`] and all below them) on a [`scheduler`] of its own. Only time,
//! randomness, threads, the [`network`] and the [`disk`]s are replaced.
//!
//! **Promises.** Two runs of one seed are identical to the last turn ([`world::Report::digest`]).

pub mod admin;
pub mod bounds;
pub mod brick;
pub mod cluster;
pub mod disk;
pub mod faults;
pub mod final_checks;
pub mod findings;
pub mod focus;
pub mod judge;
pub mod kernel;
pub mod layout;
pub mod mistakes;
pub mod network;
pub mod plan;
pub mod programs;
pub mod remote;
pub mod scheduler;
pub mod shrink;
pub mod syscalls;
pub mod trace;
pub mod world;
