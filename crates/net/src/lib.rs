//! The transport: TCP with mutual TLS, frames, requests and answers.
//!
//! **Model.** A [`Network`] has [`Link`]s to addresses, over which requests are sent, and may
//! [listen](Network::listen), which hands requests to a [`Handler`]. A request is for a [`Service`] and
//! carries bytes; only caller and handler know what they mean.
//!
//! **Assumes** nothing of the network but TCP, and nothing of a peer that connects.
//!
//! **Promises.** Both ends are certified by the cluster's authority ([`credentials`]). Frames are bounded.
//! Requests are pipelined: none waits for another's answer. A dead peer is noticed within
//! [`limits::SILENCE_MAX`], closed sockets at once.
//!
//! A node's identity is used by one process at a time ([`Membership`]). The web page of a node has its TLS
//! and its passes from here ([`web`]).
//!
//! **Refuses** peers without a valid certificate, other clusters, other protocol versions, and malformed
//! frames; each with a log line.
//!
//! Inside, and only here, the code is asynchronous; its interface is threads and callbacks.

mod connection;
pub mod credentials;
mod frame;
pub mod limits;
mod link;
mod listener;
mod membership;
mod network;
mod outcome;
pub mod remote;
mod tls;
pub mod web;

pub use credentials::{Authority, Credentials, CredentialsError, Role};
pub use frame::Service;
pub use link::{Done, Link};
pub use listener::{Handler, Listener, Peer, Replier};
pub use membership::{Fence, Membership};
pub use network::{Lane, Network};
pub use outcome::{NetError, Traffic};
