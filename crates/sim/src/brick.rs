//! A brick in memory, which all machines reach: slow now and then, and out of reach when it is told so.

use crate::network::OneThread;
use crate::scheduler::Scheduler;
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_types::{BlockId, SessionId, Statfs};
use shoal_wire::{BlockError, BlockService, BlockStat};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Room that is never short.
const ROOM_BYTES: u64 = 1 << 40;
/// A request takes this long at most, in microseconds ...
const REQUEST_US_MAX: u64 = 2_000;
/// ... but for one of so many ...
const SLOW_ONE_OF: u32 = 30;
/// ... which takes up to this long.
const SLOW_US_MAX: u64 = 300_000;

/// See the module.
pub struct SimBrick {
    world: OneThread<Rc<Scheduler>>,
    blocks: Mutex<BTreeMap<BlockId, Bytes>>,
    away: Mutex<bool>,
}

impl SimBrick {
    /// An empty one.
    pub fn new(world: &Rc<Scheduler>) -> SimBrick {
        SimBrick { world: OneThread(world.clone()), blocks: Mutex::default(), away: Mutex::new(false) }
    }

    /// Whether it is out of reach.
    pub fn set_away(&self, away: bool) {
        *self.away.lock() = away;
    }

    fn pass(&self) -> Result<(), BlockError> {
        let world = &self.world.0;
        let micros = world.below(if world.once_in(SLOW_ONE_OF) { SLOW_US_MAX } else { REQUEST_US_MAX });
        sleep(Duration::from_micros(micros));
        match *self.away.lock() {
            true => Err(BlockError::Unreachable("the brick is away".into())),
            false => Ok(()),
        }
    }
}

impl BlockService for SimBrick {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.pass()?;
        self.blocks.lock().insert(id, parts.concat().into());
        self.pass()
    }

    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.pass()?;
        let blocks = self.blocks.lock();
        let block = blocks.get(&id).ok_or(BlockError::Missing(id))?;
        let (from, to) = (offset as usize, offset as usize + len as usize);
        match to <= block.len() {
            true => Ok(block.slice(from..to)),
            false => Err(BlockError::Invalid { id, what: "a range outside of it".into() }),
        }
    }

    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        self.pass()?;
        let mut blocks = self.blocks.lock();
        ids.iter().for_each(|id| _ = blocks.remove(id));
        Ok(())
    }

    fn list(&self, session: SessionId) -> Result<Vec<BlockStat>, BlockError> {
        self.pass()?;
        let blocks = self.blocks.lock();
        let own = blocks.iter().filter(|(id, _)| id.session == session);
        Ok(own.map(|(id, bytes)| BlockStat { id: *id, len: bytes.len() as u32 }).collect())
    }

    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.pass()?;
        let sessions: BTreeSet<SessionId> = self.blocks.lock().keys().map(|id| id.session).collect();
        Ok(sessions.into_iter().collect())
    }

    fn statfs(&self) -> Result<Statfs, BlockError> {
        Ok(Statfs { total_bytes: ROOM_BYTES, free_bytes: ROOM_BYTES, ..Statfs::default() })
    }
}
