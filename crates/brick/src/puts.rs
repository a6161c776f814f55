//! The order of puts, so that a late removal spares what has been put since.

use crate::limits::PUTS_REMEMBERED_MAX;
use shoal_types::BlockId;
use shoal_wire::Moment;
use std::collections::{HashMap, VecDeque};

/// The latest puts of a brick's process.
pub(crate) struct Puts {
    now: Moment,
    /// When each block was put last.
    last: HashMap<BlockId, u64>,
    /// All of them, the oldest first. A block that was put again is in the queue once more.
    order: VecDeque<(u64, BlockId)>,
    /// The last one that has left the queue.
    forgotten: u64,
}

impl Puts {
    /// An empty record, in a life with a unique number.
    pub fn new(life: u128) -> Puts {
        let now = Moment { life, puts: 0 };
        Puts { now, last: HashMap::new(), order: VecDeque::new(), forgotten: 0 }
    }

    pub fn now(&self) -> Moment {
        self.now
    }

    /// A put begins.
    pub fn note(&mut self, id: BlockId) {
        self.now.puts += 1;
        self.last.insert(id, self.now.puts);
        self.order.push_back((self.now.puts, id));
        if self.order.len() > PUTS_REMEMBERED_MAX
            && let Some((put, id)) = self.order.pop_front()
        {
            self.forgotten = put;
            if self.last.get(&id) == Some(&put) {
                self.last.remove(&id);
            }
        }
    }

    /// Whether a block was put after a moment, or may have been.
    pub fn is_later(&self, id: BlockId, than: Moment) -> bool {
        than.life != self.now.life
            || than.puts < self.forgotten
            || self.last.get(&id).is_some_and(|put| *put > than.puts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    fn id(seq: u64) -> BlockId {
        BlockId { session: SessionId(1), seq }
    }

    #[test]
    fn what_was_put_after_a_moment_is_later() {
        let mut puts = Puts::new(7);
        let first = puts.now();
        puts.note(id(1));
        puts.note(id(2));
        let second = puts.now();
        assert!(puts.is_later(id(1), first) && puts.is_later(id(2), first) && !puts.is_later(id(3), first));
        assert!(!puts.is_later(id(1), second) && !puts.is_later(id(2), second));
        puts.note(id(1));
        assert!(puts.is_later(id(1), second) && !puts.is_later(id(2), second));
    }

    #[test]
    fn moments_of_another_life_are_before_everything() {
        let (old, new) = (Puts::new(7), Puts::new(8));
        assert!(new.is_later(id(1), old.now()));
        assert!(!new.is_later(id(1), new.now()));
    }

    #[test]
    fn who_comes_after_all_too_many_puts_is_too_late_for_everything() {
        let mut puts = Puts::new(7);
        let first = puts.now();
        for seq in 0..=PUTS_REMEMBERED_MAX as u64 {
            puts.note(id(seq % 100));
        }
        assert!(puts.is_later(id(1000), first));
        assert!(!puts.is_later(id(1000), puts.now()));
        assert_eq!((puts.order.len(), puts.last.len()), (PUTS_REMEMBERED_MAX, 100));
    }
}
