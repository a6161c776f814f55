//! Rights of clients at a single server.

mod support;

use shoal_types::InodeId;
use shoal_wire::{
    Ack, Acquire, AcquireReply, Found, Item, MetaError, MetaService, Poll, Query, ReadReply, ReadRequest,
    Recalls, Token, Want, WantName,
};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::*;

const PATIENCE: Duration = Duration::from_secs(20);

type Told<T> = Receiver<Result<T, MetaError>>;

#[track_caller]
fn told<T>(told: &Told<T>) -> Result<T, MetaError> {
    told.recv_timeout(PATIENCE).expect("in time")
}

fn ask(session: &Session, token: u64, query: Query) -> Told<ReadReply> {
    let (tell, told) = channel();
    let request = ReadRequest { session: session.id, token: Token(token), below: Token(token), query };
    session.server.read(request, Box::new(move |answer| drop(tell.send(answer))));
    told
}

/// Requests the right to remove a name from the root directory.
fn acquire_unlink(session: &Session, token: u64, file: &str) -> Told<AcquireReply> {
    let (tell, told) = channel();
    let names = vec![WantName { name: name(file), takes: true }];
    let wants = vec![Want { ino: InodeId::ROOT, names, hold: false }];
    let acquire = Acquire { session: session.id, token: Token(token), below: Token(token), wants };
    session.server.acquire(acquire, Box::new(move |answer| drop(tell.send(answer))));
    told
}

fn poll(session: &Session, term: u64, seen: u64, acks: Vec<Ack>, wait: Duration) -> Recalls {
    let (tell, answer) = channel();
    let wait_ms = wait.as_millis() as u64;
    let poll = Poll { session: session.id, term, seen, acks, below: Token(u64::MAX), wait_ms };
    session.server.recalls(poll, Box::new(move |answer| drop(tell.send(answer))));
    told(&answer).expect("recalls")
}

fn term_of(session: &Session) -> u64 {
    session.opened.term
}

#[test]
fn file_that_a_client_refers_to_survives_the_end_of_the_client_that_unlinks_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = open(dir.path(), &std::sync::Arc::default());
    let [mut first, second, mut third] = [(); 3].map(|()| Session::open(&server));
    let file = first.touch("file");
    told(&ask(&second, 1, Query::Lookup { dir: InodeId::ROOT, name: name("file") })).expect("found");

    let waiting = acquire_unlink(&first, 1, "file");
    let mut recalls = Vec::new();
    while !recalls.iter().any(|recall: &shoal_wire::Recall| {
        recall.items.iter().any(|item| matches!(item, Item::Drop { ino, hold: true, .. } if *ino == file))
    }) {
        let seen = recalls.last().map_or(0, |recall| recall.id);
        recalls.extend(poll(&second, term_of(&second), seen, Vec::new(), PATIENCE).recalls);
    }
    server.close_session(first.id).expect("closed");
    assert_eq!(told(&waiting), Err(MetaError::Fenced(first.id)));
    // From here on it is not recalled again.
    let ack = |recall: &shoal_wire::Recall| Ack {
        id: recall.id,
        refers: vec![file],
        unwatched: vec![InodeId::ROOT],
    };
    let acks = recalls.iter().map(ack).collect();
    poll(&second, term_of(&second), 0, acks, Duration::ZERO);

    told(&acquire_unlink(&third, 1, "file")).expect("no session is in the way");
    third.commit(&[unlink_op("file", false)]);
    server.close_session(third.id).expect("closed");
    let found = told(&ask(&second, 2, Query::Inode(file))).map(|reply| reply.found);
    assert!(matches!(&found, Ok(Found::Inode(record)) if record.inode.nlink == 0), "{found:?}");
    // It is removed with the last session that refers to it.
    server.close_session(second.id).expect("closed");
    let found = told(&ask(&Session::open(&server), 1, Query::Inode(file))).map(|reply| reply.found);
    assert!(found.is_err(), "{found:?}");
}
