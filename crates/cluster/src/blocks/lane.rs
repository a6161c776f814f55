//! The requests to one brick that are in flight, so that a brick that has stopped answering delays only its
//! own.

use crate::limits::{LANE_CALLS_MAX, LANE_IDLE, LANE_QUEUE_MAX};
use shoal_runtime::pool::{Pool, PoolLimits};
use shoal_runtime::semaphore::Semaphore;
use shoal_types::BrickId;
use std::sync::Arc;

/// The lane of one brick.
pub(super) struct Lane {
    /// Threads that wait for the brick, so that callers do not block in a request.
    pub(super) threads: Arc<Pool>,
    /// Requests for which no thread waits.
    pub(super) unattended: Semaphore,
}

impl Lane {
    pub(super) fn new(brick: BrickId) -> Lane {
        let limits =
            PoolLimits { threads_max: LANE_CALLS_MAX, jobs_max: LANE_QUEUE_MAX, idle_max: LANE_IDLE };
        let threads = Pool::new(brick.to_string(), limits);
        Lane { threads, unattended: Semaphore::new(LANE_CALLS_MAX) }
    }
}
