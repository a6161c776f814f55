//! What Shoal's threads need from the system: locks, channels, threads, clocks and randomness.
//!
//! **Model.** The types are those of `parking_lot` and `std`, with their names and meanings, as far as they
//! are used here. On a thread that has [entered](simulator::enter) a
//! [`simulator::Simulator`] they use that instead of the system. There, waiting for a lock, channel or
//! condition lets other tasks of the simulation run, threads are tasks, time is virtual, and random numbers
//! come from a seed. So servers and clients run unchanged in a simulation.
//!
//! **Cost.** Outside of a simulation each call adds one read of a flag that never changes. Releasing a lock
//! adds nothing.
//!
//! **Assumes** that what belongs to a simulation is made, used and dropped inside of it.

pub mod budget;
pub mod channel;
pub mod durable;
pub mod histogram;
pub mod log_limit;
pub mod memory;
pub mod planted;
pub mod pool;
pub mod random;
pub mod semaphore;
pub mod simulator;
pub mod sync;
pub mod thread;
pub mod time;
