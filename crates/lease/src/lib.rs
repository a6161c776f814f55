//! Who may do what with a volume's files while several clients use it: state machines that take events and give the actions
//! that follow, with no clock, no I/O and no chance.
//!
//! [`locks`] are those that programs ask for (fcntl(2), flock(2)).

pub mod limits;
pub mod locks;
