//! Volumes that a call is in flight for.

use crate::status::Status;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The volumes that a call is in flight for.
#[derive(Clone, Default)]
pub struct Inflight(Arc<Mutex<BTreeSet<String>>>);

/// Ends the call when it is dropped.
pub struct Call {
    inflight: Inflight,
    volume: String,
}

impl Inflight {
    /// Begins a call for a volume, which excludes another one.
    pub fn begin(&self, volume: &str) -> Result<Call, Status> {
        let mut volumes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !volumes.insert(volume.to_owned()) {
            return Err(Status::aborted(format!("another call for {volume} is in flight: try again")));
        }
        Ok(Call { inflight: self.clone(), volume: volume.to_owned() })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.inflight.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.volume);
    }
}
