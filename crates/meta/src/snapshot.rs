//! Snapshots: how a replica fetches the state of another one, and the messages for that.
//!
//! **Model.** The state of a replica is its store, which knows the log index that it belongs to. A
//! *checkpoint* of it is a directory of files. Another replica fetches them in pages, and puts them in the
//! place of its own store when it is opened the next time. The files are copied as they are, so the states
//! are the same to the byte.
//!
//! **Promises.** Until all files have been fetched and are durable, nothing of the old replica is touched.
//! From then on the next start completes the exchange, however often it is interrupted. The replica keeps its
//! term and vote.

mod fetch;
mod install;
mod serve;

pub(crate) use fetch::fetch;
pub use fetch::fetch_state;
pub(crate) use install::finish_install;
pub(crate) use serve::Checkpoints;

use bytes::Bytes;
use prost::Message as _;
use raft::prelude::{ConfState, Message};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const RAFT: u8 = 0;
const FETCH_STATE: u8 = 1;

/// A message of another replica.
pub(crate) enum PeerMessage {
    /// A message of Raft.
    Raft(Box<Message>),
    /// The entries that the receiver lacks are not in the log any more: it should fetch the state.
    FetchState,
    /// A message that this version does not understand.
    Unknown,
}

pub(crate) fn raft_message(message: &Message) -> Bytes {
    let mut out = Vec::with_capacity(1 + message.encoded_len());
    out.push(RAFT);
    message.encode(&mut out).expect("memory does not fail");
    out.into()
}

pub(crate) fn fetch_state_message() -> Bytes {
    Bytes::from_static(&[FETCH_STATE])
}

pub(crate) fn decode_peer_message(message: &[u8]) -> PeerMessage {
    match message.split_first() {
        Some((&RAFT, body)) => match Message::decode(body) {
            Ok(message) => PeerMessage::Raft(Box::new(message)),
            Err(_) => PeerMessage::Unknown,
        },
        Some((&FETCH_STATE, [])) => PeerMessage::FetchState,
        _ => PeerMessage::Unknown,
    }
}

/// Version of the messages below.
const VERSION: u8 = 1;

/// A request about a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
enum SnapshotRequest {
    /// Make one; answered with a [`Manifest`].
    Begin,
    /// Part of a file; answered with the bytes.
    Page { checkpoint: u64, file: u32, offset: u64, len: u32 },
    /// The checkpoint is not needed any more; the answer is empty.
    End { checkpoint: u64 },
}

/// A checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Manifest {
    checkpoint: u64,
    /// The log entry that the state belongs to.
    index: u64,
    term: u64,
    /// The members of the group as of that entry: voters, learners.
    voters: Vec<u64>,
    learners: Vec<u64>,
    /// Names and lengths.
    files: Vec<(String, u64)>,
}

impl Manifest {
    fn members(&self) -> ConfState {
        ConfState { voters: self.voters.clone(), learners: self.learners.clone(), ..ConfState::default() }
    }
}

fn encode<T: Serialize>(message: &T) -> Bytes {
    shoal_namespace::codec::encode(VERSION, message).into()
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    shoal_namespace::codec::decode(VERSION, bytes).map_err(|error| error.to_string())
}

/// Directory of files that are being fetched.
fn incoming(dir: &Path) -> PathBuf {
    dir.join("incoming")
}

/// Directory of files that are complete, to be put in place.
fn install(dir: &Path) -> PathBuf {
    dir.join("install")
}

fn io_error(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn sync_dir(path: &Path) -> Result<(), String> {
    shoal_runtime::durable::sync_dir(path).map_err(io_error(path))
}

fn remove(path: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(path)(error)),
        _ => Ok(()),
    }
}
