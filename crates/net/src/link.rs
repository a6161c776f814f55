//! The calling end: one connection to one address, made on demand and made again when it is lost.
//!
//! **Promises.** Requests are sent in the order of the calls. Each is answered, refused, or fails within a
//! bounded time of the peer's death: no caller waits for a machine that is gone. Nothing is retried here:
//! only the caller can find out whether a failed request was carried out.

use crate::connection::{Activity, Outgoing, read_frame, watch, write_frames};
use crate::credentials::Role;
use crate::frame::*;
use crate::limits::*;
use crate::membership::{Admission, Fence, Membership};
use crate::outcome::{NetError, Traffic};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_wire::Denial;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Called with the outcome of a request, on a thread that must not be blocked.
pub type Done = Box<dyn FnOnce(Result<Bytes, NetError>) + Send>;

struct Job {
    kind: Kind,
    flags: u8,
    parts: Vec<Bytes>,
    done: Option<Done>,
}

/// A connection to one address.
pub struct Link {
    address: String,
    jobs: mpsc::Sender<Job>,
    requests: AtomicU64,
    totals: Arc<Totals>,
}

#[derive(Default)]
struct Totals {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    live: Mutex<Option<Arc<Activity>>>,
}

impl Totals {
    fn change(&self, activity: Option<Arc<Activity>>) {
        let mut live = self.live.lock();
        if let Some(old) = live.take() {
            self.sent_bytes.fetch_add(old.sent_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            self.received_bytes.fetch_add(old.received_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        *live = activity;
    }
}

impl Link {
    pub(crate) fn start(
        runtime: &Handle,
        address: &str,
        config: Arc<ClientConfig>,
        cluster: u128,
        membership: Arc<Membership>,
    ) -> Arc<Link> {
        let (jobs, queue) = mpsc::channel(SEND_QUEUE_MAX);
        let totals = Arc::new(Totals::default());
        let pump = Pump {
            address: address.to_owned(),
            config,
            cluster,
            membership,
            connection: None,
            failed: None,
            totals: totals.clone(),
            next: 1,
        };
        runtime.spawn(pump.run(queue));
        Arc::new(Link { address: address.to_owned(), jobs, requests: AtomicU64::new(0), totals })
    }

    /// The address of the peer.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request and waits for the answer. `ordered`: after all earlier ordered requests of this link.
    pub fn call(
        &self,
        service: Service,
        ordered: bool,
        parts: Vec<Bytes>,
        timeout: Duration,
    ) -> Result<Bytes, NetError> {
        let (tell, answer) = shoal_runtime::channel::bounded(1);
        self.call_then(
            service,
            ordered,
            parts,
            Box::new(move |outcome| {
                // The caller may have given up.
                let _ = tell.send(outcome);
            }),
        );
        match answer.recv_timeout(timeout) {
            Ok(outcome) => outcome,
            Err(_) => Err(NetError::TimedOut(self.address.clone())),
        }
    }

    /// Sends a request; `done` is called with the outcome, exactly once.
    pub fn call_then(&self, service: Service, ordered: bool, parts: Vec<Bytes>, done: Done) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let flags = if ordered { ORDERED } else { 0 };
        self.submit(Job { kind: Kind::Request, flags, parts: addressed(service, parts), done: Some(done) });
    }

    /// Sends a message without an answer; it may get lost.
    pub fn post(&self, service: Service, parts: Vec<Bytes>) {
        self.submit(Job { kind: Kind::Post, flags: ORDERED, parts: addressed(service, parts), done: None });
    }

    fn submit(&self, job: Job) {
        let len: usize = job.parts.iter().map(Bytes::len).sum();
        if len > FRAME_BYTES_MAX as usize {
            let why = format!("a request of {len} bytes is too long");
            return fail(job.done, NetError::Refused { address: self.address.clone(), why });
        }
        if let Err(error) = self.jobs.try_send(job) {
            let (error, job) = match error {
                mpsc::error::TrySendError::Full(job) => (NetError::Busy(self.address.clone()), job),
                mpsc::error::TrySendError::Closed(job) => (NetError::Lost(self.address.clone()), job),
            };
            fail(job.done, error);
        }
    }

    /// Traffic of the link so far.
    pub fn traffic(&self) -> Traffic {
        let live = self.totals.live.lock();
        let add = |total: &AtomicU64, now: Option<u64>| total.load(Ordering::Relaxed) + now.unwrap_or(0);
        let now = |which: fn(&Activity) -> &AtomicU64| {
            live.as_ref().map(|activity| which(activity).load(Ordering::Relaxed))
        };
        Traffic {
            sent_bytes: add(&self.totals.sent_bytes, now(|activity| &activity.sent_bytes)),
            received_bytes: add(&self.totals.received_bytes, now(|activity| &activity.received_bytes)),
            requests: self.requests.load(Ordering::Relaxed),
        }
    }
}

fn addressed(service: Service, mut parts: Vec<Bytes>) -> Vec<Bytes> {
    parts.insert(0, Bytes::copy_from_slice(&service.encode()));
    parts
}

fn fail(done: Option<Done>, error: NetError) {
    if let Some(done) = done {
        done(Err(error));
    }
}

/// Requests in flight. `None` once the connection is lost.
type Waiting = Arc<Mutex<Option<HashMap<u64, Done>>>>;

struct Connection {
    queue: mpsc::Sender<Outgoing>,
    waiting: Waiting,
}

/// Sends queued frames in order, and keeps a connection for them.
struct Pump {
    address: String,
    config: Arc<ClientConfig>,
    cluster: u128,
    membership: Arc<Membership>,
    connection: Option<Connection>,
    /// When and why connecting failed last.
    failed: Option<(Instant, NetError)>,
    totals: Arc<Totals>,
    next: u64,
}

impl Pump {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.recv().await {
            self.send(job).await;
        }
    }

    async fn send(&mut self, mut job: Job) {
        if let Err(error) = self.connect().await {
            return fail(job.done, error);
        }
        let Some(connection) = &self.connection else { return };
        let id = self.next;
        self.next += 1;
        if let Some(done) = job.done.take() {
            match &mut *connection.waiting.lock() {
                Some(waiting) => drop(waiting.insert(id, done)),
                None => {
                    let address = self.address.clone();
                    return fail(Some(done), NetError::Lost(address));
                }
            }
        }
        let frame = Outgoing { kind: job.kind, flags: job.flags, id, parts: job.parts };
        if connection.queue.send(frame).await.is_err() {
            // The connection ends, which fails all requests in flight; perhaps that happened before this one
            // was added.
            if let Some(done) = connection.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id)) {
                fail(Some(done), NetError::Lost(self.address.clone()));
            }
        }
    }

    async fn connect(&mut self) -> Result<(), NetError> {
        if self.connection.as_ref().is_some_and(|one| one.waiting.lock().is_some() && !one.queue.is_closed())
        {
            return Ok(());
        }
        self.connection = None;
        if let Some((when, error)) = &self.failed
            && when.elapsed() < BACK_OFF
        {
            return Err(error.clone());
        }
        let made = tokio::time::timeout(
            CONNECT_TIMEOUT,
            open(&self.address, &self.config, Greeting::of(self.cluster), &self.membership),
        )
        .await;
        match made.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"))) {
            Ok((stream, admission)) => {
                self.failed = None;
                self.connection = Some(self.begin(stream, admission));
                Ok(())
            }
            Err(error) => {
                let error = NetError::Unreachable { address: self.address.clone(), why: error.to_string() };
                self.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn begin(&self, stream: TlsStream<TcpStream>, mut admission: Option<Admission>) -> Connection {
        let activity = Activity::new();
        self.totals.change(Some(activity.clone()));
        let (queue, mut queued) = mpsc::channel(WRITE_QUEUE_MAX);
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (ours, address, sender) = (waiting.clone(), self.address.clone(), queue.downgrade());
        tokio::spawn(async move {
            let (mut reading, mut writing) = tokio::io::split(stream);
            let table = ours.clone();
            let read = async {
                loop {
                    match read_frame(&mut reading, &activity, FRAME_BYTES_MAX).await {
                        Ok((header, body)) => answer(&table, &address, header, body),
                        Err(error) => return Err::<(), io::Error>(error),
                    }
                }
            };
            let pinger = async {
                match sender.upgrade() {
                    Some(queue) => watch(&activity, &queue).await,
                    None => io::ErrorKind::BrokenPipe.into(),
                }
            };
            let fenced = async {
                match &mut admission {
                    Some(admission) => admission.ended().await,
                    None => std::future::pending().await,
                }
            };
            let outcome = tokio::select! {
                outcome = read => outcome,
                () = fenced => Err(io::Error::other("a later run of this server is known, or the node was detached")),
                // A server with too many requests in progress reads none: that is no reason to give them up.
                outcome = write_frames(&mut writing, &activity, &mut queued, Duration::MAX) => outcome,
                error = pinger => Err(error),
            };
            tracing::debug!(%address, ?outcome, "a connection has ended");
            let lost = ours.lock().take().unwrap_or_default();
            for done in lost.into_values() {
                done(Err(NetError::Lost(address.clone())));
            }
        });
        Connection { queue, waiting }
    }
}

fn answer(waiting: &Waiting, address: &str, header: Header, body: Bytes) {
    let outcome = match header.kind {
        Kind::Answer => Ok(body),
        Kind::Refusal => {
            let why = String::from_utf8_lossy(&body).into_owned();
            Err(NetError::Refused { address: address.to_owned(), why })
        }
        Kind::Denial => Err(match Denial::decode(&body) {
            Ok(denial) => NetError::Denied { address: address.to_owned(), denial },
            Err(error) => NetError::Refused { address: address.to_owned(), why: error.to_string() },
        }),
        _ => return,
    };
    let done = waiting.lock().as_mut().and_then(|waiting| waiting.remove(&header.id));
    if let Some(done) = done {
        done(outcome);
    }
}

async fn open(
    address: &str,
    config: &Arc<ClientConfig>,
    greeting: Greeting,
    membership: &Arc<Membership>,
) -> io::Result<(TlsStream<TcpStream>, Option<Admission>)> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(crate::credentials::NODE_NAME).map_err(io::Error::other)?;
    let mut stream = TlsConnector::from(config.clone()).connect(name, stream).await?;
    stream.write_all(&greeting.encode()).await?;
    stream.write_all(&encode_incarnation(membership.own_run())).await?;
    stream.flush().await?;
    let mut verdict = [0; 1];
    stream.read_exact(&mut verdict).await?;
    let mut answer = [0; GREETING_BYTES];
    stream.read_exact(&mut answer).await?;
    let theirs =
        Greeting::decode(&answer).ok_or_else(|| io::Error::other("it does not speak Shoal's protocol"))?;
    match verdict[0] {
        WELCOME => {}
        WRONG_PROTOCOL => {
            return Err(io::Error::other(format!(
                "it speaks protocol version {}, this program {}: use the same release on both",
                theirs.protocol,
                shoal_wire::PROTOCOL_VERSION
            )));
        }
        WRONG_CLUSTER => {
            return Err(io::Error::other(format!("it belongs to another cluster, {:032x}", theirs.cluster)));
        }
        code => {
            let Some(fence) = Fence::of_verdict(code) else {
                return Err(io::Error::other(format!("it refuses, with code {code}")));
            };
            membership.refused(address, fence);
            return Err(io::Error::other(format!("it refuses this node: {fence}")));
        }
    }
    membership.welcomed(address);
    let mut run = [0; INCARNATION_BYTES];
    stream.read_exact(&mut run).await?;
    let run = decode_incarnation(&run);
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let admission = match certificate.and_then(Role::of) {
        Some(Role::Node(node)) if run.is_server() => {
            let admitted = membership.admit(node, run);
            Some(admitted.map_err(|why| io::Error::other(format!("{node} is not talked to: {why}")))?)
        }
        _ => None,
    };
    Ok((stream, admission))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, Handler, Network, Peer, Replier, Role, tls};
    use shoal_types::NodeId;

    struct Refuser;
    impl Handler for Refuser {
        fn handle(&self, _: &Peer, _: Service, _: Bytes, reply: Replier) {
            reply.refuse("this side answers no requests");
        }
    }

    #[test]
    fn another_protocol_version_is_refused_and_both_are_named() {
        let authority = Authority::create(7).unwrap();
        let server = Network::new(7, authority.issue(&Role::Node(NodeId(1))).unwrap()).unwrap();
        let listener = server.listen("127.0.0.1:0".parse().unwrap(), Arc::new(Refuser)).unwrap();
        let config = tls::client(&authority.issue(&Role::Client("old".into())).unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let table = Membership::new(None);
        let greet = |greeting| {
            runtime.block_on(open(&listener.address().to_string(), &config, greeting, &table)).map(drop)
        };
        let ours = Greeting::of(7);
        let old = greet(Greeting { protocol: ours.protocol - 1, ..ours }).unwrap_err().to_string();
        assert!(old.contains(&format!("protocol version {}", ours.protocol)), "{old}");
        greet(ours).unwrap();
    }

    /// Answers with more bytes than fit into the buffers of a connection.
    struct Talker;
    impl Handler for Talker {
        fn handle(&self, _: &Peer, _: Service, body: Bytes, reply: Replier) {
            let len = if body.is_empty() { 1 << 20 } else { 1 };
            reply.answer(vec![Bytes::from(vec![0; len])]);
        }
    }

    #[test]
    fn client_that_reads_no_answers_does_not_keep_the_threads_of_a_server() {
        let authority = Authority::create(7).unwrap();
        let server = Network::new(7, authority.issue(&Role::Node(NodeId(1))).unwrap()).unwrap();
        let listener = server.listen("127.0.0.1:0".parse().unwrap(), Arc::new(Talker)).unwrap();
        let address = listener.address().to_string();
        let config = tls::client(&authority.issue(&Role::Client("deaf".into())).unwrap()).unwrap();
        let deaf = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (mut stream, _) =
                    open(&address, &config, Greeting::of(7), &Membership::new(None)).await.unwrap();
                let body = Service::Cluster.encode();
                for id in 0..2 * WORKERS as u64 + WRITE_QUEUE_MAX as u64 {
                    let head = Header { len: body.len() as u32, kind: Kind::Request, flags: 0, id }.encode();
                    stream.write_all(&head).await.unwrap();
                    stream.write_all(&body).await.unwrap();
                }
                // It says that it is alive until the server closes the connection.
                let ping = Header { len: 0, kind: Kind::Ping, flags: 0, id: 0 }.encode();
                while stream.write_all(&ping).await.is_ok() && stream.flush().await.is_ok() {
                    tokio::time::sleep(PING_EVERY).await;
                }
            });
        });
        std::thread::sleep(PING_EVERY);
        let client = Network::new(7, authority.issue(&Role::Client("other".into())).unwrap()).unwrap();
        let link = client.link(&listener.address().to_string(), crate::Lane::Requests);
        let answer = link.call(Service::Cluster, false, vec!["x".into()], 3 * WRITE_STALL_MAX);
        assert_eq!(answer.map(|body| body.len()), Ok(1));
        deaf.join().unwrap();
    }
}
