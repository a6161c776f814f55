//! Do several mounts of one volume behave like one local file system?
//!
//! The program works on any directories that show the same files, and knows nothing of Shoal. `run` starts
//! many processes that call into all of them at once, and records each call with its begin, its return and
//! its result. Then it looks for an order of all calls that one POSIX file system could have carried out,
//! each call at one moment between its begin and its return (*linearizability*). A completed change that
//! another mount does not see, a lost update, half of a rename: for these there is no such order. The
//! shortest part of the history that shows it is printed. `hammer`, `visible` and `turns` measure what
//! sharing costs, and fail where it goes wrong.
//!
//! **Layers.** [`ops`] are the calls, [`history`] is a recorded run, [`model`] says what a local file system
//! answers, [`check`] searches for the order. These touch no file system. [`run`] and its like start worker
//! processes ([`pool`]): each needs a kernel's view of its own, and may be killed or hang without affecting
//! the rest.
//!
//! **Promises.** What a local file system does is explained: `run` on one ext4 or tmpfs directory, given
//! twice, passes. Where Linux itself is not atomic, the model is not, and says so in [`check`]. Nothing else
//! is tolerated unless it is named on the command line ([`history::Tolerance`]). The program ends, whatever
//! the mounts do.
//!
//! **Refuses** to judge durability. What a mount loses when it dies, beyond the calls that it failed itself,
//! is not modelled.

pub mod check;
pub mod clock;
pub mod hammer;
pub mod history;
pub mod limits;
pub mod model;
pub mod ops;
pub mod pool;
pub mod probe;
pub mod run;
