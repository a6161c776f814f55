//! Requests whose replies are lost, and that are made again.

#[path = "support/relay.rs"]
mod relay;
mod support;

use parking_lot::Mutex;
use relay::{Relay, Transport};
use shoal_client::{Caller, Client, Options, Replicas, Wait};
use shoal_meta::Server;
use shoal_types::{InodeId, NodeId};
use shoal_wire::{Done, MetaError, MetaService, ReadReply, ReadRequest, Token};
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// The first reply is lost, together with its connection. The server has registered what it granted.
struct Lossy {
    server: Arc<Server>,
    /// Tokens of the requests.
    tokens: Mutex<Vec<Token>>,
}

impl Transport for Lossy {
    fn server(&self) -> &Arc<Server> {
        &self.server
    }

    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let mut tokens = self.tokens.lock();
        tokens.push(request.token);
        let lost = tokens.len() == 1;
        drop(tokens);
        let back = move |answer| done(if lost { Err(lost_connection()) } else { answer });
        self.server.read(request, Box::new(back));
    }
}

fn lost_connection() -> MetaError {
    MetaError::Unavailable("the connection is lost".into())
}

/// The only replica.
struct Only(Arc<Relay<Lossy>>);

impl Replicas for Only {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        vec![(NodeId(1), self.0.clone())]
    }
    fn refresh(&self) {}
}

#[test]
fn retried_request_has_a_new_token_so_that_no_recall_waits_for_a_lost_reply() {
    let (_dir, bricks, server) = relay::server();
    let transport = Arc::new(Relay(Lossy { server: server.clone(), tokens: Mutex::default() }));
    let client = Client::open_replicated(Arc::new(Only(transport.clone())), bricks, Options::default());
    let client = client.expect("a session");
    assert_eq!(client.lookup(Wait::Allowed, InodeId::ROOT, b"missing"), Ok(None));
    let tokens = transport.0.tokens.lock().clone();
    assert!(tokens.len() >= 2, "the request was sent again: {tokens:?}");
    assert_ne!(tokens[0], tokens[1]);
    client.create(Wait::Allowed, &CALLER, InodeId::ROOT, b"made", 0o100644, 0).expect("made");
    client.close().expect("closed");
    server.shutdown();
}
