//! Links and listeners over loopback, with real TLS: normal traffic, refusals, and the death of a peer.

use bytes::Bytes;
use shoal_net::limits::{
    BRICK_WORKERS, IN_FLIGHT_MAX, SILENCE_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX, UNAUTHENTICATED_MAX, WORKERS,
};
use shoal_net::{Authority, Handler, Lane, Listener, NetError, Network, Peer, Replier, Role, Service};
use shoal_types::{BrickId, GroupId, NodeId};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
const META: Service = Service::Meta(GroupId(5));

/// Echoes requests, and records their senders and order.
#[derive(Default)]
struct Echo(Mutex<Vec<(Option<Role>, Bytes)>>);

impl Handler for Echo {
    fn handle(&self, peer: &Peer, service: Service, body: Bytes, reply: Replier) {
        if service == Service::Cluster {
            return reply.refuse("not here");
        }
        if service == Service::Replica(GroupId(1)) {
            // Dropped without an answer.
            return;
        }
        if service == META {
            self.0.lock().unwrap().push((peer.role.clone(), body.clone()));
        }
        reply.answer(vec![body.slice(..body.len() / 2), body.slice(body.len() / 2..)]);
    }
}

struct World {
    authority: Authority,
    echo: Arc<Echo>,
    listener: Listener,
    _server: Arc<Network>,
}

impl World {
    fn new() -> World {
        let authority = Authority::create(7).unwrap();
        let server = Network::new(7, authority.issue(&Role::Node(NodeId(1))).unwrap()).unwrap();
        let echo = Arc::new(Echo::default());
        let listener = server.listen("127.0.0.1:0".parse().unwrap(), echo.clone()).unwrap();
        World { authority, echo, listener, _server: server }
    }
    fn address(&self) -> String {
        self.listener.address().to_string()
    }
    fn client(&self) -> Arc<Network> {
        Network::new(7, self.authority.issue(&Role::Client("test".into())).unwrap()).unwrap()
    }
    /// Asserts that requests are still answered.
    fn works(&self) {
        let client = self.client();
        let answer =
            client.link(&self.address(), Lane::Requests).call(META, false, vec!["x".into()], PATIENCE);
        assert_eq!(answer, Ok("x".into()));
    }
}

#[test]
fn requests_of_all_sizes_are_answered_at_once_and_from_many_threads() {
    let world = World::new();
    let client = world.client();
    let link = client.link(&world.address(), Lane::Blocks);
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let link = &link;
            scope.spawn(move || {
                for size in [0, 1, 100, 70_000, 1 << 20, 5 << 20] {
                    let body = Bytes::from(vec![thread; size]);
                    let service = Service::Brick(BrickId(2));
                    assert_eq!(link.call(service, false, vec![body.clone()], PATIENCE), Ok(body));
                }
            });
        }
    });
    let traffic = client.traffic();
    assert!(traffic.requests == 48 && traffic.sent_bytes > 48 << 20 && traffic.received_bytes > 48 << 20);
    assert_eq!(
        link.call(Service::Cluster, false, vec![], PATIENCE).unwrap_err().to_string(),
        format!("{} refuses: not here", world.address())
    );
    assert!(matches!(
        link.call(Service::Replica(GroupId(1)), false, vec![], PATIENCE),
        Err(NetError::Refused { .. })
    ));
    let long = vec![Bytes::from(vec![0; 9 << 20])];
    assert!(matches!(link.call(META, false, long, PATIENCE), Err(NetError::Refused { .. })));
    world.works();
}

#[test]
fn ordered_requests_are_carried_out_in_order() {
    let world = World::new();
    let client = world.client();
    let link = client.link(&world.address(), Lane::Requests);
    let (tell, told) = shoal_runtime::channel::unbounded();
    for n in 0..2000u32 {
        let tell = tell.clone();
        let body = Bytes::copy_from_slice(&n.to_be_bytes());
        link.call_then(
            META,
            true,
            vec![body],
            Box::new(move |outcome| tell.send(outcome.is_ok()).unwrap_or_default()),
        );
    }
    for _ in 0..2000 {
        assert!(told.recv_timeout(PATIENCE).unwrap());
    }
    let seen = world.echo.0.lock().unwrap();
    assert!(seen.iter().map(|(_, body)| body).is_sorted());
    assert_eq!(seen[0].0, Some(Role::Client("test".into())));
}

#[test]
fn unauthenticated_peer_may_join_and_nothing_else() {
    let world = World::new();
    let unauthenticated = Network::unauthenticated(&world.authority.fingerprint().unwrap()).unwrap();
    let link = unauthenticated.link(&world.address(), Lane::Requests);
    assert_eq!(link.call(Service::Join, false, vec!["me".into()], PATIENCE), Ok("me".into()));
    assert!(matches!(link.call(META, false, vec![], PATIENCE), Err(NetError::Lost(_))));
    assert!(world.echo.0.lock().unwrap().is_empty());
    let other = Authority::create(7).unwrap();
    let wrong = Network::unauthenticated(&other.fingerprint().unwrap()).unwrap();
    let refused = wrong.link(&world.address(), Lane::Requests).call(Service::Join, false, vec![], PATIENCE);
    assert!(matches!(refused, Err(NetError::Unreachable { .. })), "{refused:?}");
    world.works();
}

#[test]
fn unauthenticated_connections_are_few_and_their_frames_are_short() {
    let world = World::new();
    let fingerprint = world.authority.fingerprint().unwrap();
    let join = |network: &Network, len: usize| {
        let body = Bytes::from(vec![1; len]);
        network.link(&world.address(), Lane::Requests).call(Service::Join, false, vec![body], PATIENCE)
    };
    let unauthenticated: Vec<Arc<Network>> =
        (0..=UNAUTHENTICATED_MAX).map(|_| Network::unauthenticated(&fingerprint).unwrap()).collect();
    let (last, first) = unauthenticated.split_last().unwrap();
    for unauthenticated in first {
        assert!(join(unauthenticated, 10).is_ok());
    }
    assert!(matches!(join(last, 10), Err(NetError::Unreachable { .. })));
    world.works();
    assert!(matches!(join(&first[0], UNAUTHENTICATED_FRAME_BYTES_MAX as usize), Err(NetError::Lost(_))));
    let until = Instant::now() + PATIENCE;
    while join(last, 10).is_err() {
        assert!(Instant::now() < until, "there is a place again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn certificates_of_others_and_other_clusters_are_refused() {
    let world = World::new();
    let other = Authority::create(7).unwrap();
    let impostor = Network::new(7, other.issue(&Role::Node(NodeId(1))).unwrap()).unwrap();
    let call = |network: &Network| {
        network.link(&world.address(), Lane::Requests).call(META, false, vec![], PATIENCE)
    };
    assert!(matches!(call(&impostor), Err(NetError::Unreachable { .. })));
    let elsewhere = Network::new(8, world.authority.issue(&Role::Node(NodeId(2))).unwrap()).unwrap();
    let refused = call(&elsewhere).unwrap_err().to_string();
    assert!(refused.contains("another cluster"), "{refused}");
    // A client's certificate is no node's: a listener with such a certificate is not trusted.
    let fake = Network::new(7, world.authority.issue(&Role::Client("fake".into())).unwrap()).unwrap();
    let listener = fake.listen("127.0.0.1:0".parse().unwrap(), Arc::new(Echo::default())).unwrap();
    let client = world.client();
    let refused =
        client.link(&listener.address().to_string(), Lane::Requests).call(META, false, vec![], PATIENCE);
    assert!(matches!(refused, Err(NetError::Unreachable { .. })), "{refused:?}");
    world.works();
}

#[test]
fn malformed_connection_is_closed_and_disturbs_no_other() {
    let world = World::new();
    for rubbish in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0x16, 0x03, 0x01, 0xff, 0xff], b""] {
        let mut stream = TcpStream::connect(world.listener.address()).unwrap();
        let _ = stream.write_all(rubbish);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // It ends, one way or the other.
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it was not closed"),
        }
    }
    let _silent = TcpStream::connect(world.listener.address()).unwrap();
    world.works();
}

/// Forwards bytes until it is told to hold them back.
fn proxy(to: SocketAddr, hold: Arc<std::sync::atomic::AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (one, two) = (stream.unwrap(), TcpStream::connect(to).unwrap());
            for (mut from, mut to) in [(one.try_clone().unwrap(), two.try_clone().unwrap()), (two, one)] {
                let hold = hold.clone();
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(got @ 1..) = from.read(&mut buffer) {
                        while hold.load(std::sync::atomic::Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        if to.write_all(&buffer[..got]).is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    address
}

#[test]
fn an_end_that_falls_silent_is_noticed_and_the_link_works_again_afterwards() {
    let world = World::new();
    let hold = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let client = world.client();
    let link = client.link(&proxy(world.listener.address(), hold.clone()).to_string(), Lane::Requests);
    assert_eq!(link.call(META, false, vec!["a".into()], PATIENCE), Ok("a".into()));
    hold.store(true, std::sync::atomic::Ordering::Relaxed);
    let begun = Instant::now();
    assert!(matches!(link.call(META, false, vec!["b".into()], PATIENCE), Err(NetError::Lost(_))));
    assert!(begun.elapsed() < SILENCE_MAX + Duration::from_secs(2), "{:?}", begun.elapsed());
    hold.store(false, std::sync::atomic::Ordering::Relaxed);
    let until = Instant::now() + PATIENCE;
    while link.call(META, false, vec!["c".into()], PATIENCE).is_err() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_starts_again_is_found_again_and_requests_meanwhile_fail_soon() {
    let world = World::new();
    let address = world.listener.address();
    let client = world.client();
    let link = client.link(&address.to_string(), Lane::Requests);
    assert_eq!(link.call(META, false, vec!["a".into()], PATIENCE), Ok("a".into()));
    let World { listener, authority, echo, _server: server } = world;
    drop((listener, server));
    let begun = Instant::now();
    while link.call(META, false, vec!["b".into()], PATIENCE).is_ok() {
        assert!(begun.elapsed() < PATIENCE);
    }
    let again = Network::new(7, authority.issue(&Role::Node(NodeId(1))).unwrap()).unwrap();
    let _listener = loop {
        match again.listen(address, echo.clone()) {
            Ok(listener) => break listener,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    while link.call(META, false, vec!["c".into()], PATIENCE).is_err() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Keeps requests until it is told to answer.
#[derive(Default)]
struct Holding {
    held: Mutex<Vec<Replier>>,
    is_released: std::sync::atomic::AtomicBool,
}

impl Holding {
    fn release(&self) {
        self.is_released.store(true, std::sync::atomic::Ordering::SeqCst);
        std::mem::take(&mut *self.held.lock().unwrap()).into_iter().for_each(|reply| reply.answer(vec![]));
    }
}

impl Handler for Holding {
    fn handle(&self, _: &Peer, _: Service, _: Bytes, reply: Replier) {
        let mut held = self.held.lock().unwrap();
        if self.is_released.load(std::sync::atomic::Ordering::SeqCst) {
            reply.answer(vec![]);
        } else {
            held.push(reply);
        }
    }
}

#[test]
fn connection_survives_while_more_requests_wait_than_the_server_takes() {
    let authority = Authority::create(7).unwrap();
    let server = Network::new(7, authority.issue(&Role::Node(NodeId(1))).unwrap()).unwrap();
    let holding = Arc::new(Holding::default());
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), holding.clone()).unwrap();
    let client = Network::new(7, authority.issue(&Role::Client("busy".into())).unwrap()).unwrap();
    let link = client.link(&listener.address().to_string(), Lane::Requests);
    let (tell, told) = shoal_runtime::channel::unbounded();
    let requests = 2 * IN_FLIGHT_MAX;
    for _ in 0..requests {
        let tell = tell.clone();
        link.call_then(META, false, vec![], Box::new(move |outcome| tell.send(outcome).unwrap_or_default()));
    }
    std::thread::sleep(2 * SILENCE_MAX);
    assert_eq!(told.try_recv().err(), Some(std::sync::mpsc::TryRecvError::Empty), "no request was lost");
    holding.release();
    for _ in 0..requests {
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Ok(Bytes::new()));
    }
}

/// Hangs in requests to one brick until the gate is opened.
struct HungBrick(Mutex<()>);

impl Handler for HungBrick {
    fn handle(&self, _: &Peer, service: Service, body: Bytes, reply: Replier) {
        if service == Service::Brick(HUNG) {
            drop(self.0.lock().unwrap());
        }
        reply.answer(vec![body]);
    }
}

const HUNG: BrickId = BrickId(1);

#[test]
fn brick_that_hangs_delays_only_its_own_requests() {
    let authority = Authority::create(7).unwrap();
    let server = Network::new(7, authority.issue(&Role::Node(NodeId(1))).unwrap()).unwrap();
    let hung = Arc::new(HungBrick(Mutex::new(())));
    let gate = hung.0.lock().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), hung.clone()).unwrap();
    let client = Network::new(7, authority.issue(&Role::Client("test".into())).unwrap()).unwrap();
    let link = client.link(&listener.address().to_string(), Lane::Blocks);
    let (tell, told) = shoal_runtime::channel::unbounded();
    let requests = 2 * WORKERS.max(BRICK_WORKERS);
    for _ in 0..requests {
        let tell = tell.clone();
        let done = move |outcome: Result<Bytes, NetError>| tell.send(outcome.is_ok()).unwrap_or_default();
        link.call_then(Service::Brick(HUNG), false, vec![], Box::new(done));
    }
    for service in [META, Service::Brick(BrickId(2))] {
        assert_eq!(link.call(service, false, vec!["x".into()], PATIENCE), Ok("x".into()), "{service:?}");
    }
    assert!(told.is_empty());
    drop(gate);
    for _ in 0..requests {
        assert!(told.recv_timeout(PATIENCE).unwrap());
    }
}
