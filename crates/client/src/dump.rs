//! The state dump of a mount: what a client holds, caches and waits for, as lines of text.

use crate::client::Client;
use crate::limits::DUMP_LINES_MAX;

impl Client {
    /// The state at this moment. Takes the session's lock for as long as it takes to copy some pages of text.
    pub fn dump(&self) -> Vec<String> {
        let session = self.current();
        let context = &session.context;
        let mut lines = vec![
            format!("session {}, begun {:.1} s ago", context.id.0, session.begun.elapsed().as_secs_f64()),
            match context.lease.left().as_secs_f64() {
                0.0 => "the lease has run out: nothing is answered from the caches".into(),
                left => format!("the lease lasts for {left:.1} s, unless it is renewed"),
            },
        ];
        if let Some((denial, lost)) = self.denial() {
            lines.push(format!("the servers do not serve it: {denial}; {lost} operations are lost"));
        }
        match &context.transport.failover {
            Some(failover) => lines.extend(failover.dump()),
            None => lines.push("one metadata server, in the same process".into()),
        }
        let state = context.state.lock();
        let core = &state.core;
        lines.push(format!(
            "caches: {} inodes, {} bytes; the kernel refers to {} inodes",
            core.cache.len(),
            core.cache.bytes(),
            core.referred_count().inodes
        ));
        lines.push(format!(
            "journal: {} batches are not committed, {} bytes with their blocks; committed up to batch {}.{}",
            core.journal.uncommitted_batches(),
            core.uncommitted_bytes(),
            context.id.0,
            core.cache.acked().0
        ));
        lines.push(self.memory().describe());
        lines.extend(core.rights.describe(DUMP_LINES_MAX));
        drop(state);
        lines.push(format!("locks of programs: {}", session.locks.count()));
        lines.extend(self.stats().iter().map(|stat| format!("{}: {}", stat.name, stat.value)));
        lines
    }
}
