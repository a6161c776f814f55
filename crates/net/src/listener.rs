//! The called end: accepts connections, and runs their requests on worker threads.
//!
//! **Promises.** A connection without a valid handshake in time is closed and logged, and disturbs no other.
//! Ordered requests of a connection are carried out one after the other, others at once. Messages between
//! replicas have threads of their own, so that Raft makes progress while all other threads wait for it. Each
//! brick has threads of its own, too: if its disk hangs, only its own requests wait. A connection that sends
//! requests faster than they are answered is read more slowly.

use crate::connection::{Activity, Outgoing, read_frame, watch, write_frames};
use crate::credentials::Role;
use crate::frame::*;
use crate::limits::*;
use crate::membership::{Admission, Fence, Membership};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_runtime::pool::{Job, Pool, PoolLimits};
use shoal_types::{BrickId, Incarnation};
use shoal_wire::Denial;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch as signal};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// The sender of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The role in its certificate; `None`: it has none, and may only join.
    pub role: Option<Role>,
    /// The run of a node's server; `None`: it is no server, but a mount or a command.
    pub run: Option<Incarnation>,
    /// Its address.
    pub address: SocketAddr,
}

/// Handles requests.
pub trait Handler: Send + Sync + 'static {
    /// Handles a request, now or later. May block.
    fn handle(&self, peer: &Peer, service: Service, body: Bytes, reply: Replier);
    /// A connection was refused. Called at a bounded rate.
    fn refused(&self, _address: SocketAddr, _why: &str) {}
}

/// Sends the answer to a request. Dropped without an answer, it refuses.
pub struct Replier {
    queue: Option<mpsc::Sender<Outgoing>>,
    id: u64,
    /// Released when the request is answered.
    permit: Option<OwnedSemaphorePermit>,
}

impl Replier {
    /// Whether the caller still waits for an answer.
    pub fn is_wanted(&self) -> bool {
        self.queue.is_some()
    }

    /// The answer may take for ever: the request does not count against the server's limit of requests in
    /// progress.
    pub fn patient(mut self) -> Replier {
        self.permit = None;
        self
    }

    /// Sends the answer.
    pub fn answer(mut self, parts: Vec<Bytes>) {
        let len: usize = parts.iter().map(Bytes::len).sum();
        if len > FRAME_BYTES_MAX as usize {
            return self.refuse(&format!("the answer of {len} bytes is too long"));
        }
        self.send(Kind::Answer, parts);
    }

    /// Refuses the request.
    pub fn refuse(mut self, why: &str) {
        self.send(Kind::Refusal, vec![Bytes::copy_from_slice(why.as_bytes())]);
    }

    /// Refuses because of the cluster map.
    pub fn deny(mut self, denial: &Denial) {
        self.send(Kind::Denial, vec![denial.encode().into()]);
    }

    fn send(&mut self, kind: Kind, parts: Vec<Bytes>) {
        if let Some(queue) = self.queue.take() {
            // A closed connection needs no answer.
            let frame = Outgoing { kind, flags: 0, id: self.id, parts };
            if let Err(mpsc::error::TrySendError::Full(frame)) = queue.try_send(frame) {
                match Handle::try_current() {
                    // The network's threads must not block. They drop a request if no thread takes it.
                    Ok(network) => drop(network.spawn(async move { queue.send(frame).await })),
                    Err(_) => _ = queue.blocking_send(frame),
                }
            }
        }
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        self.send(Kind::Refusal, vec![Bytes::from_static(b"the request was not answered")]);
    }
}

/// Requests of one connection that are carried out in order.
#[derive(Default)]
struct Ordered {
    waiting: VecDeque<Job>,
    running: bool,
}

/// The threads that carry out requests.
struct Workers {
    requests: Arc<Pool>,
    replicas: Arc<Pool>,
    bricks: Mutex<HashMap<BrickId, Arc<Pool>>>,
}

impl Workers {
    fn new() -> Workers {
        let (requests, replicas) = (pool("shoal-serve", WORKERS), pool("shoal-peer", URGENT_WORKERS));
        Workers { requests, replicas, bricks: Mutex::default() }
    }

    /// The threads for a request, or for a message that is not answered.
    fn of(&self, service: Service, is_answered: bool) -> Arc<Pool> {
        match service {
            Service::Replica(_) if !is_answered => self.replicas.clone(),
            Service::Brick(brick) => {
                let mut bricks = self.bricks.lock();
                bricks.entry(brick).or_insert_with(|| pool("shoal-brick", BRICK_WORKERS)).clone()
            }
            _ => self.requests.clone(),
        }
    }
}

/// Its jobs are bounded by the requests in progress of all connections.
fn pool(name: &str, threads_max: usize) -> Arc<Pool> {
    Pool::new(name, PoolLimits { threads_max, jobs_max: usize::MAX, idle_max: WORKER_IDLE })
}

struct Shared {
    handler: Arc<dyn Handler>,
    cluster: u128,
    membership: Arc<Membership>,
    acceptor: TlsAcceptor,
    workers: Workers,
    connections: Arc<Semaphore>,
    unauthenticated: Arc<Semaphore>,
    refused: AtomicU64,
    refused_since: Mutex<(Instant, u64)>,
}

/// Listens until it is dropped; then its connections end, too.
pub struct Listener {
    address: SocketAddr,
    stop: signal::Sender<bool>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

impl Listener {
    pub(crate) fn start(
        runtime: &Handle,
        address: SocketAddr,
        config: Arc<ServerConfig>,
        cluster: u128,
        membership: Arc<Membership>,
        handler: Arc<dyn Handler>,
    ) -> io::Result<Listener> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let shared = Arc::new(Shared {
            handler,
            cluster,
            membership,
            acceptor: TlsAcceptor::from(config),
            workers: Workers::new(),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            unauthenticated: Arc::new(Semaphore::new(UNAUTHENTICATED_MAX)),
            refused: AtomicU64::new(0),
            refused_since: Mutex::new((Instant::now(), 0)),
        });
        let (stop, stopped) = signal::channel(false);
        let _guard = runtime.enter();
        let listener = TcpListener::from_std(socket)?;
        runtime.spawn(accept(listener, shared, stopped));
        Ok(Listener { address, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: signal::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: an immediate retry would only spin.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = shared.connections.clone().try_acquire_owned() else {
            shared.refuse(address, "there are too many connections");
            continue;
        };
        let (shared, mut stopped) = (shared.clone(), stopped.clone());
        tokio::spawn(async move {
            let greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(&shared, stream, address)).await;
            match greeted.unwrap_or_else(|_| Err(io::Error::other("it did not introduce itself in time"))) {
                Ok((stream, peer, mut admission, unauthenticated)) => {
                    let fenced = async {
                        match &mut admission {
                            Some(admission) => admission.ended().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        outcome = serve(&shared, stream, peer) => {
                            if let Err(error) = outcome
                                && error.kind() == io::ErrorKind::InvalidData
                            {
                                shared.refuse(address, &error.to_string());
                            }
                        }
                        _ = fenced => shared.refuse(address, "a later run of its server is known, or the node was detached"),
                        () = tokio::time::sleep(UNAUTHENTICATED_LIFETIME_MAX), if unauthenticated.is_some() => {}
                        _ = stopped.changed() => {}
                    }
                }
                Err(error) => shared.refuse(address, &error.to_string()),
            }
            drop(place);
        });
    }
}

impl Shared {
    /// Logs a refused connection and the reason, at a bounded rate.
    fn refuse(&self, address: SocketAddr, why: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut since = self.refused_since.lock();
        if since.0.elapsed() > Duration::from_secs(60) {
            *since = (Instant::now(), 0);
        }
        since.1 += 1;
        if since.1 <= REFUSALS_LOGGED_MAX {
            let total = self.refused.load(Ordering::Relaxed);
            tracing::warn!(peer = %address, why, total, "a connection was refused");
            drop(since);
            self.handler.refused(address, why);
        }
    }
}

async fn handshake(
    shared: &Shared,
    stream: TcpStream,
    address: SocketAddr,
) -> io::Result<(TlsStream<TcpStream>, Peer, Option<Admission>, Option<OwnedSemaphorePermit>)> {
    stream.set_nodelay(true)?;
    let mut stream = shared.acceptor.accept(stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let role = match certificate {
        Some(certificate) => Some(
            Role::of(certificate)
                .ok_or_else(|| io::Error::other("its certificate names neither a node nor a client"))?,
        ),
        None => None,
    };
    let unauthenticated = match role {
        Some(_) => None,
        None => Some(
            (shared.unauthenticated.clone().try_acquire_owned())
                .map_err(|_| io::Error::other("there are too many machines without a certificate"))?,
        ),
    };
    let mut bytes = [0; GREETING_BYTES];
    stream.read_exact(&mut bytes).await?;
    let greeting =
        Greeting::decode(&bytes).ok_or_else(|| io::Error::other("it does not speak Shoal's protocol"))?;
    let ours = Greeting::of(shared.cluster);
    let verdict = if greeting.protocol != ours.protocol {
        WRONG_PROTOCOL
    } else if greeting.cluster != ours.cluster && !(role.is_none() && greeting.cluster == 0) {
        WRONG_CLUSTER
    } else {
        WELCOME
    };
    // Only peers of the same protocol version send the run.
    let mut run = Incarnation::default();
    let (mut admission, mut fence): (Option<Admission>, Option<Fence>) = (None, None);
    if verdict == WELCOME {
        let mut bytes = [0; INCARNATION_BYTES];
        stream.read_exact(&mut bytes).await?;
        run = decode_incarnation(&bytes);
        if let (Some(Role::Node(node)), true) = (&role, run.is_server()) {
            match shared.membership.admit(*node, run) {
                Ok(admitted) => admission = Some(admitted),
                Err(why) => fence = Some(why),
            }
        }
    }
    let verdict = fence.map_or(verdict, Fence::verdict);
    stream.write_all(&[verdict]).await?;
    stream.write_all(&ours.encode()).await?;
    if verdict != WRONG_PROTOCOL {
        stream.write_all(&encode_incarnation(shared.membership.own_run())).await?;
    }
    stream.flush().await?;
    if verdict == WELCOME {
        let run = run.is_server().then_some(run);
        return Ok((stream, Peer { role, run, address }, admission, unauthenticated));
    }
    // The peer reads the verdict before it sees that the connection is closed.
    let _ = stream.shutdown().await;
    Err(io::Error::other(match (fence, role) {
        (Some(fence), Some(role)) => format!("{role}, start {}: {fence}", run.starts),
        _ if verdict == WRONG_PROTOCOL => {
            format!("it speaks protocol version {}, not {}", greeting.protocol, ours.protocol)
        }
        _ => format!("it belongs to cluster {:032x}", greeting.cluster),
    }))
}

async fn serve(shared: &Arc<Shared>, stream: TlsStream<TcpStream>, peer: Peer) -> io::Result<()> {
    let activity = Activity::new();
    let (mut reading, mut writing) = tokio::io::split(stream);
    let (queue, mut queued) = mpsc::channel(WRITE_QUEUE_MAX);
    let bytes_max = if peer.role.is_some() { FRAME_BYTES_MAX } else { UNAUTHENTICATED_FRAME_BYTES_MAX };
    let connection = Connection {
        shared: shared.clone(),
        peer: Arc::new(peer),
        queue: queue.clone(),
        in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        ordered: Arc::default(),
    };
    let read = async {
        loop {
            let (header, body) = read_frame(&mut reading, &activity, bytes_max).await?;
            connection.dispatch(header, body, &activity).await?;
        }
    };
    tokio::select! {
        outcome = read => outcome,
        outcome = write_frames(&mut writing, &activity, &mut queued, WRITE_STALL_MAX) => outcome,
        error = watch(&activity, &queue) => Err(error),
    }
}

/// A connection that is being served.
struct Connection {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    queue: mpsc::Sender<Outgoing>,
    in_flight: Arc<Semaphore>,
    ordered: Arc<Mutex<Ordered>>,
}

impl Connection {
    async fn dispatch(&self, header: Header, body: Bytes, activity: &Activity) -> io::Result<()> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let wants = match header.kind {
            Kind::Ping => {
                // If the queue is full, what is in it shows that this end is alive.
                let _ = self.queue.try_send(Outgoing::bare(Kind::Pong));
                return Ok(());
            }
            Kind::Pong => return Ok(()),
            Kind::Answer | Kind::Refusal | Kind::Denial => return Err(invalid("an answer to no request")),
            Kind::Request => true,
            Kind::Post => false,
        };
        let (service, body) = Service::split(&body).map_err(|error| invalid(&error.to_string()))?;
        if self.peer.role.is_none() && service != Service::Join {
            return Err(invalid("a request without a certificate"));
        }
        let permit =
            activity.pause(self.in_flight.clone().acquire_owned()).await.map_err(io::Error::other)?;
        let reply = Replier { queue: wants.then(|| self.queue.clone()), id: header.id, permit: Some(permit) };
        let (handler, peer) = (self.shared.handler.clone(), self.peer.clone());
        let work: Job = Box::new(move || handler.handle(&peer, service, body, reply));
        let pool = self.shared.workers.of(service, wants);
        let submitted = match header.flags & ORDERED {
            0 => pool.submit(work),
            _ => in_order(&self.ordered, work, &pool),
        };
        submitted.map_err(|_| io::Error::other("there is no thread to carry out a request"))
    }
}

/// Queues work behind earlier work; one worker at a time runs the queue.
fn in_order(ordered: &Arc<Mutex<Ordered>>, work: Job, pool: &Arc<Pool>) -> Result<(), Job> {
    let mut queue = ordered.lock();
    queue.waiting.push_back(work);
    if queue.running {
        return Ok(());
    }
    queue.running = true;
    let mine = ordered.clone();
    pool.submit(Box::new(move || {
        loop {
            let mut queue = mine.lock();
            let Some(work) = queue.waiting.pop_front() else {
                queue.running = false;
                return;
            };
            drop(queue);
            work();
        }
    }))
}
