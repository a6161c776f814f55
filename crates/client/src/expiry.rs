//! Expiry of the lease: invalidates the whole kernel cache.
//!
//! Without a renewal the client answers nothing from its caches and invalidates the kernel's. This happens
//! before the servers let other clients change what it caches. Calls wait until the servers answer again, or
//! have ended the session.

use crate::context::Context;
use crate::limits::CLOCK_LOOK_EVERY;
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::Duration;
use std::sync::Arc;

/// Starts the thread that watches the lease.
pub(crate) fn start(context: &Arc<Context>) -> JoinHandle<()> {
    let context = context.clone();
    let run = move || watch(&context);
    Builder::new().name("shoal-lease".into()).spawn(run).expect("the system has room for a thread")
}

fn watch(context: &Context) {
    let mut state = context.state.lock();
    loop {
        if state.stopping || state.core.alive().is_err() {
            break;
        }
        let left = context.lease.left();
        if left > Duration::ZERO {
            // Bounded, because the wait's clock does not advance while the machine is suspended.
            context.ending.wait_for(&mut state, left.min(CLOCK_LOOK_EVERY));
            continue;
        }
        tracing::warn!(
            session = context.id.0,
            "the servers have not answered for {} seconds: nothing is answered from caches until they do",
            context.lease.length.as_secs()
        );
        drop(state);
        context.invalidate_kernel();
        state = context.state.lock();
        while !context.lease.holds() && !state.stopping && state.core.alive().is_ok() {
            context.changed.wait(&mut state);
        }
        if context.lease.holds() {
            tracing::info!(session = context.id.0, "the servers answer again");
        }
    }
    // Recalls do not reach this session any more, so the kernel must not answer from its cache. If the
    // servers have ended the session, `Mount` invalidates the cache before it opens the next one.
    let lost = !state.stopping && !state.ended;
    drop(state);
    if lost {
        context.invalidate_kernel();
    }
}
