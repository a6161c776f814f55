//! Requests that wait for other clients. They hold no thread.

use shoal_lease::{RequestId, Target};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{InodeId, SessionId};
use shoal_wire::{Acquire, AcquireReply, Done, MetaError, ReadReply, ReadRequest};
use std::fmt;

/// A request that waits for other clients.
pub(crate) enum Parked {
    Read(ReadRequest, Done<ReadReply>),
    Acquire(Box<Acquiring>, Done<AcquireReply>),
}

/// A parked request, and since when it is parked.
pub(super) struct Place {
    pub(super) parked: Parked,
    pub(super) since: Instant,
    /// It has been logged that it waits for long.
    pub(super) is_logged: bool,
}

/// A description of a parked request.
pub(crate) struct Waiter {
    /// What it is: session, number and subject.
    pub(super) what: String,
    pub(super) waited: Duration,
    /// The sessions that it waits for.
    pub(crate) waits_for: Vec<SessionId>,
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {:.1} s", self.what, self.waited.as_secs_f64())
    }
}

/// A request for rights, and its progress.
pub(crate) struct Acquiring {
    pub(crate) acquire: Acquire,
    /// Its number in the table, once it is queued.
    pub(crate) id: Option<RequestId>,
    /// The inodes and names that it is known to be about.
    pub(crate) targets: Vec<Target>,
}

impl Acquiring {
    pub(crate) fn new(acquire: Acquire) -> Acquiring {
        Acquiring { acquire, id: None, targets: Vec::new() }
    }
}

impl Parked {
    /// A description: session, number and subject.
    pub(super) fn name(&self) -> String {
        match self {
            Parked::Read(request, _) => {
                request.token.request_name(request.session, &format!("{:?}", request.query))
            }
            Parked::Acquire(acquiring, _) => {
                let Acquire { session, token, wants, .. } = &acquiring.acquire;
                let inodes: Vec<InodeId> = wants.iter().map(|want| want.ino).collect();
                token.request_name(*session, &format!("rights to {inodes:?}"))
            }
        }
    }

    pub(super) fn session(&self) -> SessionId {
        match self {
            Parked::Read(request, _) => request.session,
            Parked::Acquire(acquiring, _) => acquiring.acquire.session,
        }
    }

    pub(super) fn fail(self, error: MetaError) {
        match self {
            Parked::Read(_, done) => done(Err(error)),
            Parked::Acquire(_, done) => done(Err(error)),
        }
    }
}
