//! Why a metadata server did not carry out a request.

use crate::denial::Denial;
use serde::{Deserialize, Serialize};
use shoal_types::{BatchSeq, Errno, NodeId, SessionId};

/// Why a metadata server did not carry out a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum MetaError {
    /// The operation itself fails: the caller gets this error.
    #[error("{0}")]
    Errno(Errno),
    /// The session has ended (closed, or fenced after missing its renewals). The rest of its journal is
    /// refused.
    #[error("{0} has ended")]
    Fenced(SessionId),
    /// A batch that should have succeeded did not: the client's cache was wrong. None of the batch was
    /// applied.
    #[error("{session}, {seq}: operation {index} was refused with {errno}")]
    Refused {
        /// The session of the batch.
        session: SessionId,
        /// The batch.
        seq: BatchSeq,
        /// The operation in it.
        index: u32,
        /// The error.
        errno: Errno,
    },
    /// This batch is not the next one: an earlier one was lost on its way. Send again from there.
    #[error("batch {expected:?} comes next")]
    OutOfOrder {
        /// The next batch.
        expected: BatchSeq,
    },
    /// Another replica leads the group, or none does: try that one, or any.
    #[error("this replica does not lead its group")]
    NotLeader {
        /// Where the leader is, as far as this replica knows.
        leader: Option<NodeId>,
    },
    /// The server is stopping, or cannot reach its majority: try another or wait. Whether the request has
    /// been or will be carried out is not known.
    #[error("the metadata server is not serving: {0}")]
    Unavailable(String),
    /// The two sides speak different versions.
    #[error("the server speaks protocol version {server}, this client {client}")]
    Version {
        /// The server's version.
        server: u32,
        /// The client's version.
        client: u32,
    },
    /// A message that could not be understood.
    #[error("a message was not understood: {0}")]
    Malformed(String),
    /// The server's disk failed or its state is damaged; it stops.
    #[error("the metadata server failed: {0}")]
    Failed(String),
    /// The cluster map says that this client is not served.
    #[error(transparent)]
    Denied(Denial),
}

impl MetaError {
    /// The reply belongs to another request.
    pub fn other_answer() -> MetaError {
        MetaError::Malformed("the reply does not match the request".into())
    }
}
