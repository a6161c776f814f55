//! The applier: a thread that applies committed entries to the store, in order, and answers their waiters.

use crate::applied::apply_entry;
use crate::core::{Committed, Core, Input, applying_bytes};
use crate::machine::Machine;
use raft::prelude::EntryType;
use shoal_runtime::channel::{Receiver, Sender};
use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, Instant};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Delay of a store in a planted defect of the simulator.
const SLOW_STORE: Duration = Duration::from_millis(5);

/// Runs until the driver's channel is closed.
pub(crate) fn run<M: Machine>(
    core: &Arc<Core<M>>,
    groups: &Receiver<Vec<Committed>>,
    driver: &Sender<Input>,
) -> Result<(), String> {
    for group in groups {
        let mut last = 0;
        for Committed { entry, members } in group {
            last = entry.index;
            let known = [EntryType::EntryNormal as i32, EntryType::EntryConfChange as i32];
            if !known.contains(&entry.entry_type) {
                return Err(format!("log entry {last}: its kind is unknown to this program"));
            }
            let bytes = applying_bytes(&entry);
            let begun = Instant::now();
            let at = (entry.index, entry.term);
            if mistake("report commands as applied too early") {
                core.set_applied(entry.index);
                shoal_runtime::thread::sleep(SLOW_STORE);
            }
            let (outcome, batch) =
                apply_entry(&*core.machine, &core.store, at, &entry.data, members.as_ref())?;
            core.apply.record(begun.elapsed());
            core.applying_bytes.fetch_sub(bytes, Ordering::Relaxed);
            core.set_applied(entry.index);
            let removed = batch.changes.values().filter(|value| value.is_none()).count();
            core.removed.fetch_add(removed as u64, Ordering::Relaxed);
            core.machine.applied(&batch);
            if let Some(outcome) = outcome {
                core.proposals.complete(&entry.context, outcome);
            }
        }
        // The driver only stops after this thread's channel is closed.
        let _ = driver.send(Input::Applied(last));
    }
    Ok(())
}
