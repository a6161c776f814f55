//! The cluster map as a replicated state machine: the whole map under one key.

use shoal_cluster::{ClusterMap, Command, Outcome, apply};
use shoal_meta::Machine;
use shoal_namespace::keys::{Singleton, singleton};
use shoal_namespace::kv::{KvRead, WriteBatch};
use shoal_store::RocksStore;

/// Called with every committed map.
type OnMap = Box<dyn Fn(ClusterMap) + Send + Sync>;

/// The cluster map as a state machine.
pub struct MapMachine {
    on_map: OnMap,
}

impl MapMachine {
    /// A machine that calls this for every new map.
    pub fn new(on_map: impl Fn(ClusterMap) + Send + Sync + 'static) -> MapMachine {
        MapMachine { on_map: Box::new(on_map) }
    }
}

/// The map in a store; the empty one if there is none yet.
pub fn read(store: &impl KvRead) -> Result<ClusterMap, String> {
    match store.get(&singleton(Singleton::ClusterMap)).map_err(|error| error.to_string())? {
        Some(bytes) => ClusterMap::decode(&bytes).map_err(|error| format!("the cluster map: {error}")),
        None => Ok(ClusterMap::default()),
    }
}

impl Machine for MapMachine {
    type Outcome = Outcome;

    fn apply(&self, store: &RocksStore, data: &[u8]) -> Result<(WriteBatch, Outcome), String> {
        let map = read(store)?;
        let command = Command::decode(data).map_err(|error| format!("a command: {error}"))?;
        let (next, outcome) = apply(&map, &command);
        let mut batch = WriteBatch::default();
        if next.epoch != map.epoch {
            batch.changes.insert(singleton(Singleton::ClusterMap), Some(next.encode().into()));
        }
        Ok((batch, outcome))
    }

    fn applied(&self, changes: &WriteBatch) {
        let Some(Some(bytes)) = changes.changes.get(&singleton(Singleton::ClusterMap)) else { return };
        match ClusterMap::decode(bytes) {
            Ok(map) => (self.on_map)(map),
            Err(error) => tracing::error!(%error, "the cluster map cannot be read back"),
        }
    }
}
