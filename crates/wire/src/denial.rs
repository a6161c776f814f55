//! A server's typed answer that it does not serve the caller, because the cluster map says so.
//!
//! **Model.** Silence, a lost connection and a missing leader may pass: callers wait. A [`Denial`] is a
//! decision of an administrator, read from the map at an [epoch](Denial::epoch). It holds until a newer map
//! says otherwise.
//!
//! **Rule.** A caller that knows a newer epoch ignores a denial: the server that answered has an old map.

use serde::{Deserialize, Serialize};
use shoal_types::Errno;

/// Version of an encoded [`Denial`].
const DENIAL_VERSION: u8 = 1;

/// What the map says against the caller. A new reason gets a new code; old programs read it as
/// [`Reason::Other`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub enum Reason {
    /// The volume is stopped, or was never started.
    VolumeStopped,
    /// The map has no such volume: it was deleted. Its identity is never used again.
    VolumeDeleted,
    /// The client's credentials were revoked. Their name is never issued again.
    ClientRevoked,
    /// The volume's `auth.allow` does not name the client's address.
    AddressNotAllowed,
    /// Only nodes of the cluster may ask for this.
    NodesOnly,
    /// The node was detached from the cluster. Its number is never used again.
    NodeDetached,
    /// A reason that this program does not know.
    Other(u8),
}

impl From<u8> for Reason {
    fn from(code: u8) -> Reason {
        match code {
            1 => Reason::VolumeStopped,
            2 => Reason::VolumeDeleted,
            3 => Reason::ClientRevoked,
            4 => Reason::AddressNotAllowed,
            5 => Reason::NodesOnly,
            6 => Reason::NodeDetached,
            other => Reason::Other(other),
        }
    }
}

impl From<Reason> for u8 {
    fn from(reason: Reason) -> u8 {
        match reason {
            Reason::VolumeStopped => 1,
            Reason::VolumeDeleted => 2,
            Reason::ClientRevoked => 3,
            Reason::AddressNotAllowed => 4,
            Reason::NodesOnly => 5,
            Reason::NodeDetached => 6,
            Reason::Other(code) => code,
        }
    }
}

impl Reason {
    /// Whether no later map can take it back.
    pub fn is_final(self) -> bool {
        matches!(self, Reason::VolumeDeleted | Reason::ClientRevoked | Reason::NodeDetached)
    }

    /// What the system calls of a mount fail with.
    pub fn errno(self) -> Errno {
        match self {
            Reason::ClientRevoked | Reason::AddressNotAllowed | Reason::NodesOnly => Errno::EACCES,
            Reason::VolumeStopped | Reason::VolumeDeleted | Reason::NodeDetached | Reason::Other(_) => {
                Errno::ENOTCONN
            }
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{detail}")]
pub struct Denial {
    /// Why, for programs.
    pub reason: Reason,
    /// Epoch of the map that says so.
    pub epoch: u64,
    /// Why, for people: names the volume, client, address or node.
    pub detail: String,
}

impl Denial {
    /// For a frame.
    pub fn encode(&self) -> Vec<u8> {
        crate::encode(DENIAL_VERSION, self)
    }

    /// From a frame.
    pub fn decode(bytes: &[u8]) -> Result<Denial, crate::CodecError> {
        crate::decode(DENIAL_VERSION, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_comes_back_from_its_code() {
        for code in 0..=u8::MAX {
            assert_eq!(u8::from(Reason::from(code)), code);
        }
        let denial = Denial { reason: Reason::Other(200), epoch: 7, detail: "volume web is stopped".into() };
        assert_eq!(Denial::decode(&denial.encode()), Ok(denial));
        assert!(Denial::decode(b"\x01\x01").is_err());
    }
}
