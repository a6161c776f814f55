//! What a request over a link comes to: an error, and the bytes it took.

use shoal_wire::Denial;

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetError {
    /// No connection can be made.
    #[error("{address}: {why}")]
    Unreachable {
        /// The address.
        address: String,
        /// The error of the system or of the peer.
        why: String,
    },
    /// The connection was lost; whether the request was carried out is not known.
    #[error("the connection to {0} was lost")]
    Lost(String),
    /// There was no answer in time.
    #[error("{0} does not answer")]
    TimedOut(String),
    /// Too much is waiting to be sent.
    #[error("too much is waiting to be sent to {0}")]
    Busy(String),
    /// The peer refuses to carry the request out.
    #[error("{address} refuses: {why}")]
    Refused {
        /// The peer.
        address: String,
        /// The reason.
        why: String,
    },
    /// The cluster map forbids to serve this machine.
    #[error("{address} refuses: {denial}")]
    Denied {
        /// The peer.
        address: String,
        /// The reason.
        denial: Denial,
    },
}

/// Traffic of a link, or of all links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes sent, before encryption.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Requests that wanted an answer.
    pub requests: u64,
}
