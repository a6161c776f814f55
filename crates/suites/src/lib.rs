//! Benchmarks of any directories, by name: what `shoal bench DIR...` runs, and parts of `make bench`.
//!
//! **Model.** A *system* is a directory, or several mounts of one file system. A *suite* is a workload; it
//! runs on every system in each *round*, and the system that goes first rotates. The median of the rounds
//! counts, and the slowest and fastest round are shown beside it. Work that writes ends when it is on disk.
//!
//! **Assumes** nothing about a system but POSIX. Requests are counted by a closure of the caller.
//!
//! **Promises.** All work is done in a subdirectory of each mount that is this process's own. It is removed
//! at the end, after a failure, and after SIGINT, SIGTERM and SIGHUP.
//!
//! **Refuses** a directory that is not there, is not writable or has too little space, before it starts.

pub mod interrupt;
pub mod limits;
pub mod machine;
pub mod outcome;
pub mod page;
pub mod plan;
pub mod postgres;
pub mod programs;
pub mod rounds;
pub mod sandbox;
pub mod statistics;
pub mod suites;
pub mod table;
mod turn;
