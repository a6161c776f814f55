//! A whole cluster in one deterministic process: servers, clients, their clocks, disks and network, driven by a seed.
//!
//! **Model.** A [`story`] is one world: three replicas of a volume's metadata group, four bricks, two or three clients with [`programs`] on them, and
//! [`faults`]. It runs the code of production ([`shoal_meta`], [`shoal_client`], [`shoal_cluster`] and all below them) on a [`scheduler`] of its
//! own; only time, chance, threads, [`network`] and [`disk`]s are replaced.
//!
//! **Promises.** Two runs of one seed are the same to the last turn ([`story::Report::digest`]).

pub mod after;
pub mod bounds;
pub mod brick;
pub mod cluster;
pub mod disk;
pub mod faults;
pub mod hands;
pub mod journal;
pub mod judge;
pub mod mistakes;
pub mod network;
pub mod plan;
pub mod programs;
pub mod remote;
pub mod scheduler;
pub mod shrink;
pub mod story;
