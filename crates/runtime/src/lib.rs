//! What Shoal's threads need from the system: locks, channels, threads, clocks, chance.
//!
//! **Model.** The types are those of `parking_lot`, `crossbeam-channel` and `std`, with their names and meanings, as far as they are used
//! here. A thread on which a [`simulator::Simulator`] was [entered](simulator::enter) is not given the system's: there locks, channels and
//! conditions wait by letting other tasks of the simulation go on, threads are tasks, time is virtual, chance comes from a seed. So the code of
//! servers and clients runs in a simulation as it is.
//!
//! **Cost.** Outside of a simulation each call adds a look at one flag that never changes; locks are released without any.
//!
//! **Assumes** that what belongs to a simulation is made, used and dropped inside of it.

pub mod channel;
pub mod memory;
pub mod planted;
pub mod random;
pub mod simulator;
pub mod sync;
pub mod thread;
pub mod time;
