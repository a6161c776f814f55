//! The services over a link: the client gets the answers of a metadata server unchanged.

use bytes::Bytes;
use shoal_net::limits::FRAME_BYTES_MAX;
use shoal_net::remote::{RemoteBrick, RemoteMeta, serve_brick, serve_meta};
use shoal_net::{Authority, Handler, Lane, Listener, NetError, Network, Peer, Replier, Role, Service};
use shoal_types::{BlockId, BlockInfo, BrickId, Errno, Extent, GroupId, InodeId, NodeId, SessionId, Statfs};
use shoal_wire::{
    Acquire, AcquireReply, BlockError, BlockPage, BlockService, Commit, CommitDone, Denial, Done,
    ExtentsReply, Found, Grant, GrantReply, LockReply, LockRequest, MetaError, MetaService, OpenReply, Poll,
    Query, ReadReply, ReadRequest, Reason, Recalls, Reclaim, SessionRequest,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GROUP: GroupId = GroupId(5);
const SESSION: SessionId = SessionId(3);

/// Returns inline extents with as many bytes as are requested at most, and does nothing else.
struct Extents;

fn nothing<T>() -> Result<T, MetaError> {
    Err(MetaError::Unavailable("the test does not ask for this".into()))
}

impl MetaService for Extents {
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let Query::Extents { count_max, .. } = request.query else { return done(nothing()) };
        let extents = vec![(0, Extent::Inline(vec![1; count_max as usize].into()))];
        let found = Found::Extents(ExtentsReply { extents, ..ExtentsReply::default() });
        done(Ok(ReadReply { term: 1, found, exclusive: Vec::new() }));
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
    fn reclaim(&self, _: Reclaim) -> Result<(), MetaError> {
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
        serve_meta(self, "client test", &body, reply);
    }
}

/// A brick that lists what it is told to, and does nothing else.
struct Lister(Mutex<BlockPage<BlockId>>);

fn refused<T>() -> Result<T, BlockError> {
    Err(BlockError::Full)
}

impl BlockService for Lister {
    fn list(&self, _: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        Ok(self.0.lock().unwrap().clone())
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        Ok(id.seq as u32)
    }
    fn put(&self, _: BlockId, _: &[Bytes]) -> Result<(), BlockError> {
        refused()
    }
    fn get(&self, _: BlockId, _: u32, _: u32) -> Result<Bytes, BlockError> {
        refused()
    }
    fn delete(&self, _: &[BlockId]) -> Result<(), BlockError> {
        refused()
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        refused()
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        refused()
    }
}

impl Handler for Lister {
    fn handle(&self, _: &Peer, _: Service, body: Bytes, reply: Replier) {
        serve_brick(self, &body, reply);
    }
}

/// A server of this service, and a link to it.
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

/// A client retries at the next leader when a server is lost, as long as it takes. It must not do so for ever
/// because of its own request.
#[test]
fn an_answer_that_is_too_long_for_a_message_is_an_error_of_the_call_and_the_server_is_not_lost() {
    let world = World::new(Arc::new(Extents));
    let meta = RemoteMeta::new(world.link(Lane::Requests), GROUP);
    let ask = |bytes: u32| meta.extents(SESSION, InodeId(9), 0, u64::MAX, bytes as usize);
    assert_eq!(ask(FRAME_BYTES_MAX), Err(MetaError::Errno(Errno::EIO)));
    let found = ask(FRAME_BYTES_MAX - (64 << 10)).unwrap();
    assert_eq!(found.extents[0].1.len(), u64::from(FRAME_BYTES_MAX) - (64 << 10));
}

/// A reader of all pages must come to an end, and takes their content for the session's.
#[test]
fn a_page_of_blocks_that_leads_nowhere_or_holds_what_is_not_the_sessions_is_refused() {
    let lister = Arc::new(Lister(Mutex::new(BlockPage { blocks: Vec::new(), next: None })));
    let world = World::new(lister.clone());
    let brick = RemoteBrick::new(world.link(Lane::Requests), BrickId(1));
    let id = |session: u64, seq: u64| BlockId { session: SessionId(session), seq };
    let list = |blocks: &[BlockId], next: Option<BlockId>| {
        *lister.0.lock().unwrap() = BlockPage { blocks: blocks.to_vec(), next };
        brick.list(id(3, 10))
    };
    let good = [
        (vec![], None),
        (vec![], Some(id(3, 11))),
        (vec![id(3, 10), id(3, 500)], None),
        (vec![id(3, 10), id(3, 500)], Some(id(3, u64::MAX))),
    ];
    for (blocks, next) in good {
        assert_eq!(list(&blocks, next), Ok(BlockPage { blocks: blocks.clone(), next }));
    }
    let bad = [
        (vec![], Some(id(3, 10))),
        (vec![], Some(id(3, 9))),
        (vec![], Some(id(4, 0))),
        (vec![id(3, 9)], None),
        (vec![id(3, 10), id(4, 11)], None),
    ];
    for (blocks, next) in bad {
        let answer = list(&blocks, next);
        assert!(matches!(answer, Err(BlockError::Unreachable(_))), "{blocks:?}, {next:?}: {answer:?}");
    }
    assert_eq!(brick.length(id(3, 77)), Ok(77));
}

/// Refuses every request because of its cluster map.
struct Denier(Denial);

impl Handler for Denier {
    fn handle(&self, _: &Peer, _: Service, _: Bytes, reply: Replier) {
        reply.deny(&self.0);
    }
}

#[test]
fn a_denial_reaches_its_caller_with_its_reason() {
    let detail = "volume web is stopped".to_owned();
    let denial = Denial { reason: Reason::VolumeStopped, epoch: 7, detail };
    let world = World::new(Arc::new(Denier(denial.clone())));
    let link = world.link(Lane::Requests);
    let meta = RemoteMeta::new(link.clone(), GROUP);
    assert_eq!(meta.statfs(SESSION), Err(MetaError::Denied(denial.clone())));
    let brick = RemoteBrick::new(link.clone(), BrickId(1));
    let refused = brick.length(BlockId { session: SESSION, seq: 1 }).unwrap_err().to_string();
    assert!(refused.contains("volume web is stopped"), "{refused}");
    match link.call(Service::Cluster, false, Vec::new(), Duration::from_secs(10)) {
        Err(NetError::Denied { denial: told, .. }) => assert_eq!(told, denial),
        other => panic!("{other:?}"),
    }
}
