//! Rights of clients when leadership changes.

use crate::cluster::{Cluster, PATIENCE, eventually, open_session};
use shoal_meta::Server;
use shoal_types::{InodeId, SessionId};
use shoal_wire::{MetaError, MetaService, Poll, Reclaim, Token, wait_for};
use std::sync::mpsc::channel;

/// Reclaims that a session watches this cover, and nothing else.
fn reclaim(server: &Server, session: SessionId, cover: InodeId) -> Result<(), MetaError> {
    let poll = Poll { session, term: 0, seen: 0, acks: Vec::new(), below: Token(1), wait_ms: 0 };
    let told = wait_for(|done| server.recalls(poll, done))?;
    assert!(told.reclaim);
    let part = Reclaim::part(session, told.term);
    server.reclaim(Reclaim { covers: vec![(cover, false)], last: true, ..part })
}

#[test]
fn retried_batch_grants_no_exclusive_right_to_what_it_created() {
    let mut cluster = Cluster::new(3);
    let [mut maker, other] =
        [1, 2].map(|n| open_session(&mut cluster, &format!("{n}"), n).expect("a session"));
    maker.write(&mut cluster, 1);
    let first = cluster.await_leader();
    cluster.crash(first);
    let next = cluster.await_leader();
    let server = cluster.up[&next].clone();
    eventually("it serves", || server.statfs(other.id).is_ok());
    let made = InodeId(1000);
    let mut again = maker.batch(1);
    again.born = vec![(made, made)];
    let (tell, told) = channel();
    server.submit(again, Box::new(move |answer| drop(tell.send(answer))));
    told.recv_timeout(PATIENCE).expect("in time").expect("an answer");
    reclaim(&server, other.id, made).expect("the other session looks at it");
    reclaim(&server, maker.id, made).expect("its maker as well");
    drop(server);
}
