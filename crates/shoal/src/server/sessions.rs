//! The sessions of volumes, as their leaders have them, with the addresses of the clients.

use super::calls::{NodeReply, Session};
use super::context::ServerContext;
use crate::limits::HEARD_SESSIONS_MAX;
use parking_lot::Mutex;
use shoal_cluster::Outcome;
use shoal_meta::ClearLocks;
use shoal_net::{Peer, Role};
use shoal_types::{Errno, GroupId, SessionId};
use shoal_wire::MetaError;
use std::collections::HashMap;
use std::net::IpAddr;

/// Address of a session, and whose credentials it shows.
type From = (IpAddr, String);

/// The last address of each session. Only shown to administrators.
#[derive(Default)]
pub struct SessionAddresses(Mutex<HashMap<(GroupId, SessionId), From>>);

impl SessionAddresses {
    /// A request of a session has arrived.
    pub fn note(&self, volume: GroupId, session: SessionId, peer: &Peer) {
        let mut addresses = self.0.lock();
        let address = peer.address.ip().to_canonical();
        if addresses.get(&(volume, session)).is_some_and(|(known, _)| *known == address) {
            return;
        }
        // Living sessions are recorded again within seconds.
        if addresses.len() >= HEARD_SESSIONS_MAX {
            addresses.clear();
        }
        let credentials = peer.role.as_ref().map_or_else(|| "none".into(), Role::to_string);
        addresses.insert((volume, session), (address, credentials));
    }

    fn of(&self, volume: GroupId, session: SessionId) -> Option<From> {
        self.0.lock().get(&(volume, session)).cloned()
    }

    /// Forgets the sessions of a volume but these.
    fn keep(&self, volume: GroupId, sessions: &[Session]) {
        let lives = |session: &SessionId| sessions.iter().any(|one| one.info.session == *session);
        self.0.lock().retain(|(of, session), _| *of != volume || lives(session));
    }
}

impl ServerContext {
    /// The sessions of a volume that this node leads.
    pub(super) fn sessions(&self, volume: GroupId) -> NodeReply {
        self.led(volume, |group| {
            let infos = group.server().session_infos()?;
            let from = |info: shoal_meta::SessionInfo| Session {
                from: self.session_addresses.of(volume, info.session),
                info,
            };
            let sessions: Vec<Session> = infos.into_iter().map(from).collect();
            self.session_addresses.keep(volume, &sessions);
            Ok(NodeReply::Sessions(sessions))
        })
    }

    /// Clears locks of a file, on a volume that this node leads.
    pub(super) fn clear_locks(&self, volume: GroupId, path: &str, what: ClearLocks) -> NodeReply {
        self.led(volume, |group| {
            let server = group.server();
            let ino = match server.inode_at(path) {
                Err(MetaError::Errno(Errno::ENOENT)) => {
                    return Ok(NodeReply::Done(Outcome::Refused(format!(
                        "there is no {path} in the volume: say the path from the volume's root, as in /dir/file"
                    ))));
                }
                found => found?,
            };
            server.clear_locks(ino, what).map(NodeReply::Cleared)
        })
    }
}
