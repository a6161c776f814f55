//! The services over a link: what a metadata server answers reaches its client as what it is.

use bytes::Bytes;
use shoal_net::limits::FRAME_BYTES_MAX;
use shoal_net::remote::{RemoteMeta, serve_meta};
use shoal_net::{Authority, Handler, Lane, Listener, Network, Peer, Replier, Role, Service};
use shoal_types::{BlockId, BlockInfo, Errno, Extent, GroupId, InodeId, NodeId, SessionId, Statfs};
use shoal_wire::{
    Acquire, AcquireReply, Ask, AskReply, Commit, CommitDone, Declaration, Done, ExtentsReply, Found, Grant,
    GrantReply, LockReply, LockRequest, MetaError, MetaService, OpenReply, Poll, Question, Recalls,
    SessionRequest,
};
use std::sync::Arc;

const GROUP: GroupId = GroupId(5);
const SESSION: SessionId = SessionId(3);

/// Gives extents with as many bytes as it is asked for at most, all of them inline, and does nothing else.
struct Extents;

fn nothing<T>() -> Result<T, MetaError> {
    Err(MetaError::Unavailable("the test does not ask for this".into()))
}

impl MetaService for Extents {
    fn ask(&self, ask: Ask, done: Done<AskReply>) {
        let Question::Extents { count_max, .. } = ask.question else { return done(nothing()) };
        let extents = vec![(0, Extent::Inline(vec![1; count_max as usize].into()))];
        let found = Found::Extents(ExtentsReply { extents, ..ExtentsReply::default() });
        done(Ok(AskReply { term: 1, found, exclusive: Vec::new() }));
    }
    fn open_session(&self, _: SessionRequest) -> Result<OpenReply, MetaError> {
        nothing()
    }
    fn close_session(&self, _: SessionId) -> Result<(), MetaError> {
        nothing()
    }
    fn grant(&self, _: Grant) -> Result<GrantReply, MetaError> {
        nothing()
    }
    fn submit(&self, _: Commit, done: CommitDone) {
        done(nothing());
    }
    fn acquire(&self, _: Acquire, done: Done<AcquireReply>) {
        done(nothing());
    }
    fn recalls(&self, _: Poll, done: Done<Recalls>) {
        done(nothing());
    }
    fn lock(&self, _: LockRequest, done: Done<LockReply>) {
        done(nothing());
    }
    fn declare(&self, _: Declaration) -> Result<(), MetaError> {
        nothing()
    }
    fn blocks(&self, _: SessionId, _: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        nothing()
    }
    fn statfs(&self, _: SessionId) -> Result<Statfs, MetaError> {
        nothing()
    }
}

impl Handler for Extents {
    fn handle(&self, _: &Peer, _: Service, body: Bytes, reply: Replier) {
        serve_meta(self, &body, reply);
    }
}

/// A server of this, and a way to it.
struct World {
    networks: [Arc<Network>; 2],
    listener: Listener,
}

impl World {
    fn new(handler: Arc<dyn Handler>) -> World {
        let authority = Authority::create(7).unwrap();
        let network = |role| Network::new(7, authority.issue(&role).unwrap()).unwrap();
        let networks = [network(Role::Node(NodeId(1))), network(Role::Client("test".into()))];
        let listener = networks[0].listen("127.0.0.1:0".parse().unwrap(), handler).unwrap();
        World { networks, listener }
    }

    fn link(&self, lane: Lane) -> Arc<shoal_net::Link> {
        self.networks[1].link(&self.listener.address().to_string(), lane)
    }
}

/// A client asks again of whoever leads when a server is lost, as long as it takes. It must not do so for ever because of what it asks for.
#[test]
fn an_answer_that_is_too_long_for_a_message_is_an_error_of_the_call_and_the_server_is_not_lost() {
    let world = World::new(Arc::new(Extents));
    let meta = RemoteMeta::new(world.link(Lane::Requests), GROUP);
    let ask = |bytes: u32| meta.extents(SESSION, InodeId(9), 0, u64::MAX, bytes as usize);
    assert_eq!(ask(FRAME_BYTES_MAX), Err(MetaError::Errno(Errno::EIO)));
    let found = ask(FRAME_BYTES_MAX - (64 << 10)).unwrap();
    assert_eq!(found.extents[0].1.len(), u64::from(FRAME_BYTES_MAX) - (64 << 10));
}
