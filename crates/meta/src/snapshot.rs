//! Whole states: what replicas say to each other besides Raft's own words, and how a replica gets the state
//! of another.
//!
//! **Model.** The state of a replica is its store, which knows the log index that it belongs to. A
//! *checkpoint* of it is a directory of files; another replica fetches them in pages, puts them where its own
//! store was when it is opened the next time, and goes on from there. Nothing is taken apart or put together,
//! so the states are the same to the byte.
//!
//! **Promises.** Until all files are there, durably, nothing of the old replica is touched. From then on,
//! however often the exchange is interrupted, it is finished by the next start. The promises that the replica
//! has made as a voter are kept.

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

/// What another replica has said.
pub(crate) enum Said {
    /// Something of Raft's.
    Raft(Box<Message>),
    /// What this replica lacks is not in the log any more: it should fetch the state.
    FetchState,
    /// Nothing that this program understands.
    Nothing,
}

pub(crate) fn raft_message(message: &Message) -> Bytes {
    let mut out = Vec::with_capacity(1 + message.encoded_len());
    out.push(RAFT);
    message.encode(&mut out).expect("memory does not fail");
    out.into()
}

pub(crate) fn hint() -> Bytes {
    Bytes::from_static(&[FETCH_STATE])
}

pub(crate) fn understand(message: &[u8]) -> Said {
    match message.split_first() {
        Some((&RAFT, body)) => match Message::decode(body) {
            Ok(message) => Said::Raft(Box::new(message)),
            Err(_) => Said::Nothing,
        },
        Some((&FETCH_STATE, [])) => Said::FetchState,
        _ => Said::Nothing,
    }
}

/// Version of the messages below.
const VERSION: u8 = 1;

/// What is asked about a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// Make one: [`Manifest`].
    Begin,
    /// Part of a file: the bytes.
    Page { checkpoint: u64, file: u32, offset: u64, len: u32 },
    /// It is not needed any more: nothing.
    End { checkpoint: u64 },
}

/// A checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Manifest {
    checkpoint: u64,
    /// The log entry that the state belongs to.
    index: u64,
    term: u64,
    /// Who is in the group as of then: voters, learners.
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

/// Files on their way here.
fn incoming(dir: &Path) -> PathBuf {
    dir.join("incoming")
}

/// Files that are all here, to be put in place.
fn install(dir: &Path) -> PathBuf {
    dir.join("install")
}

fn said(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn sync_dir(path: &Path) -> Result<(), String> {
    std::fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(said(path))
}

fn remove(path: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(said(path)(error)),
        _ => Ok(()),
    }
}
