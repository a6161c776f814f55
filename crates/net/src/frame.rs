//! Frames and greetings: how bytes on a connection are cut into messages.
//!
//! ```text
//! greeting   "SHOAL\r\n\0", protocol version u32, cluster u128, then the run of a node's server: starts u64,
//!            instance u64 (zero for a client); the server's answer has a verdict u8 in front
//! frame      length u32 (of what follows the header), kind u8, flags u8, zero u16, id u64, then that many bytes
//! request    service (kind u8, number u128), then the body
//! ```
//! All numbers are little-endian. A malformed greeting or header is refused before memory is allocated for
//! its content.

use bytes::Bytes;
use shoal_types::{BrickId, GroupId, Incarnation};
use shoal_wire::PROTOCOL_VERSION;

pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const SERVICE_BYTES: usize = 17;
pub(crate) const GREETING_BYTES: usize = 28;
/// Follows the greeting, which is the part that all protocol versions have in common.
pub(crate) const INCARNATION_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"SHOAL\r\n\0";

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Expects an answer with the same id.
    Request,
    /// The answer.
    Answer,
    /// The request was refused; the body says why.
    Refusal,
    /// The cluster map says that the caller is not served; the body is a [`Denial`](shoal_wire::Denial).
    Denial,
    /// Expects no answer.
    Post,
    /// Says that this end is alive, and asks whether the other is.
    Ping,
    /// The answer to a ping.
    Pong,
}

/// The request is carried out after earlier ones of the connection with this flag.
pub(crate) const ORDERED: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) len: u32,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) id: u64,
}

/// Why received bytes are not a frame.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {0} bytes; the longest has {1}")]
    TooLong(u32, u32),
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    #[error("a request for an unknown service")]
    Service,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let kind = match self.kind {
            Kind::Request => 1,
            Kind::Answer => 2,
            Kind::Refusal => 3,
            Kind::Post => 4,
            Kind::Ping => 5,
            Kind::Pong => 6,
            Kind::Denial => 7,
        };
        out[..4].copy_from_slice(&self.len.to_le_bytes());
        out[4..6].copy_from_slice(&[kind, self.flags]);
        out[8..].copy_from_slice(&self.id.to_le_bytes());
        out
    }

    /// The header of a frame of at most `bytes_max` bytes.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES], bytes_max: u32) -> Result<Header, FrameError> {
        let [l0, l1, l2, l3, kind, flags, _, _, id @ ..] = *bytes;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Answer,
            3 => Kind::Refusal,
            4 => Kind::Post,
            5 => Kind::Ping,
            6 => Kind::Pong,
            7 => Kind::Denial,
            other => return Err(FrameError::Kind(other)),
        };
        if len > bytes_max {
            return Err(FrameError::TooLong(len, bytes_max));
        }
        Ok(Header { len, kind, flags, id: u64::from_le_bytes(id) })
    }
}

/// The service that a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// The metadata service of a group.
    Meta(GroupId),
    /// A brick.
    Brick(BrickId),
    /// Another replica of a metadata group.
    Replica(GroupId),
    /// The node itself: the cluster map, reports, administration.
    Cluster,
    /// The node itself, for a machine that has no certificate yet.
    Join,
}

impl Service {
    pub(crate) fn encode(self) -> [u8; SERVICE_BYTES] {
        let (kind, number) = match self {
            Service::Meta(group) => (1, group.0),
            Service::Brick(brick) => (2, u128::from(brick.0)),
            Service::Replica(group) => (3, group.0),
            Service::Cluster => (4, 0),
            Service::Join => (5, 0),
        };
        let mut out = [kind; SERVICE_BYTES];
        out[1..].copy_from_slice(&number.to_le_bytes());
        out
    }

    /// Splits the service off the front of a request.
    pub(crate) fn split(body: &Bytes) -> Result<(Service, Bytes), FrameError> {
        let (head, _) = body.split_first_chunk::<SERVICE_BYTES>().ok_or(FrameError::Service)?;
        let [kind, number @ ..] = *head;
        let number = u128::from_le_bytes(number);
        let service = match kind {
            1 => Service::Meta(GroupId(number)),
            2 => Service::Brick(BrickId(u16::try_from(number).map_err(|_| FrameError::Service)?)),
            3 => Service::Replica(GroupId(number)),
            4 => Service::Cluster,
            5 => Service::Join,
            _ => return Err(FrameError::Service),
        };
        Ok((service, body.slice(SERVICE_BYTES..)))
    }
}

/// The first message of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Greeting {
    pub(crate) protocol: u32,
    /// 0: not known yet, by a node that joins.
    pub(crate) cluster: u128,
}

/// The verdict of a server that accepts a greeting.
pub(crate) const WELCOME: u8 = 0;
pub(crate) const WRONG_PROTOCOL: u8 = 1;
pub(crate) const WRONG_CLUSTER: u8 = 2;
pub(crate) const DETACHED: u8 = 3;
pub(crate) const SUPERSEDED: u8 = 4;
pub(crate) const DUPLICATE: u8 = 5;

pub(crate) fn encode_incarnation(run: Incarnation) -> [u8; INCARNATION_BYTES] {
    let mut out = [0; INCARNATION_BYTES];
    out[..8].copy_from_slice(&run.starts.to_le_bytes());
    out[8..].copy_from_slice(&run.instance.to_le_bytes());
    out
}

pub(crate) fn decode_incarnation(bytes: &[u8; INCARNATION_BYTES]) -> Incarnation {
    let [s0, s1, s2, s3, s4, s5, s6, s7, instance @ ..] = *bytes;
    let starts = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    Incarnation { starts, instance: u64::from_le_bytes(instance) }
}

impl Greeting {
    pub(crate) fn of(cluster: u128) -> Greeting {
        Greeting { protocol: PROTOCOL_VERSION, cluster }
    }

    pub(crate) fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut out = [0; GREETING_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&self.protocol.to_le_bytes());
        out[12..].copy_from_slice(&self.cluster.to_le_bytes());
        out
    }

    /// `None` if it is no greeting at all.
    pub(crate) fn decode(bytes: &[u8; GREETING_BYTES]) -> Option<Greeting> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (protocol, rest) = rest.split_first_chunk::<4>()?;
        let cluster = rest.first_chunk::<16>()?;
        (*magic == MAGIC).then(|| Greeting {
            protocol: u32::from_le_bytes(*protocol),
            cluster: u128::from_le_bytes(*cluster),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FRAME_BYTES_MAX;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_header_is_refused_or_comes_back_alike(bytes in any::<[u8; HEADER_BYTES]>()) {
            if let Ok(header) = Header::decode(&bytes, FRAME_BYTES_MAX) {
                prop_assert!(header.len <= FRAME_BYTES_MAX);
                prop_assert_eq!(Header::decode(&header.encode(), FRAME_BYTES_MAX), Ok(header));
            }
        }

        #[test]
        fn any_request_is_refused_or_names_a_service(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((service, rest)) = Service::split(&bytes.clone().into()) {
                let mut again = service.encode().to_vec();
                again.extend_from_slice(&rest);
                prop_assert_eq!(Service::split(&again.into()), Ok((service, rest)));
            }
        }

        #[test]
        fn any_greeting_is_refused_or_comes_back_alike(bytes in any::<[u8; GREETING_BYTES]>()) {
            if let Some(greeting) = Greeting::decode(&bytes) {
                prop_assert_eq!(greeting.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_frame_of_four_gigabytes_is_refused() {
        let mut bytes = Header { len: 0, kind: Kind::Post, flags: 0, id: 1 }.encode();
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let refused = Err(FrameError::TooLong(u32::MAX, FRAME_BYTES_MAX));
        assert_eq!(Header::decode(&bytes, FRAME_BYTES_MAX), refused);
    }
}
