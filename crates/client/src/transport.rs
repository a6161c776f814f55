//! The connection of a session to the metadata servers.

use crate::failover::{Failover, FailoverOptions, Replicas};
use crate::options::Options;
use shoal_wire::MetaService;
use std::sync::Arc;

/// The servers of the volume's metadata.
pub(crate) enum Servers {
    /// A service that is always there.
    One(Arc<dyn MetaService>),
    /// Several replicas, of which one leads.
    Several(Arc<dyn Replicas>),
}

/// The connection of one session to the metadata servers.
pub(crate) struct Transport {
    pub(crate) meta: Arc<dyn MetaService>,
    /// `meta` as several replicas, if it is that.
    pub(crate) failover: Option<Arc<Failover>>,
}

impl Transport {
    /// A connection for one session.
    pub(crate) fn new(servers: &Servers, options: &Options) -> Transport {
        match servers {
            Servers::One(meta) => Transport { meta: meta.clone(), failover: None },
            Servers::Several(replicas) => {
                let Options { open_wait, fail_after, .. } = *options;
                let options = FailoverOptions { open_wait, fail_after };
                let failover = Arc::new(Failover::new(replicas.clone(), options));
                Transport { meta: failover.clone(), failover: Some(failover) }
            }
        }
    }
}
