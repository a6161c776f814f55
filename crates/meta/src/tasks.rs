//! The work of a leader's background threads, and its progress: the queue of background work, and the tasks
//! of the healer and the mover. `background` carries them out.

mod background;
mod heal;
mod rate_limiter;
mod tier;

pub(crate) use background::{Background, Work};
pub(crate) use heal::{Examined, Heal};
pub use heal::{HealStatus, HealTask, RebalanceStatus};
pub(crate) use tier::Tiering;
pub use tier::{TierSettings, TierState, TierStatus};
