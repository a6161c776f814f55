//! Limits of the transport, each with its reason.

use std::time::Duration;

/// The port that servers listen on unless told otherwise.
pub const PORT_DEFAULT: u16 = 7470;
/// Longest frame without its header, in bytes: the largest block, batch or page of a listing, with its
/// headers.
pub const FRAME_BYTES_MAX: u32 = 8 << 20;
/// Memory allocated for a frame before anything of it has arrived, in bytes.
pub const FIRST_READ_BYTES: usize = 256 << 10;
/// How long connecting may take, TLS and greetings included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long an accepted connection may take for its handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection sends something at least this often.
pub const PING_EVERY: Duration = Duration::from_millis(500);
/// A connection that has been silent for this long is dead: several pings were not answered.
pub const SILENCE_MAX: Duration = Duration::from_millis(2200);
/// A connection whose other end takes none of the answers for this long is closed. Answers are written by the
/// threads that handle requests, so a client that never reads would keep them all.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(5);
/// A server fences itself when a peer has reported for this long that another process uses the node's
/// identity. Many times what it takes to notice a dead connection, also on an overloaded machine.
pub const DUPLICATE_PATIENCE: Duration = Duration::from_secs(10);
/// After a failure to connect, requests fail at once for this long.
pub const BACK_OFF: Duration = Duration::from_millis(150);
/// Requests that may wait at one end of a connection to be sent.
pub const SEND_QUEUE_MAX: usize = 4096;
/// Frames that are handed to the socket and not written yet. Few, as the frames' size bounds the memory.
pub const WRITE_QUEUE_MAX: usize = 32;
/// Requests of one connection in progress at a server; beyond it, the server stops reading.
pub const IN_FLIGHT_MAX: usize = 256;
/// Connections that a server keeps.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections without a certificate that a server keeps: such machines can only join.
pub const UNAUTHENTICATED_MAX: usize = 32;
/// A connection without a certificate is closed after this long.
pub const UNAUTHENTICATED_LIFETIME_MAX: Duration = Duration::from_secs(60);
/// Longest frame of a machine without a certificate, in bytes.
pub const UNAUTHENTICATED_FRAME_BYTES_MAX: u32 = 64 << 10;
/// Threads on which a server handles requests, those to bricks apart; all of them may be waiting.
pub const WORKERS: usize = 48;
/// Threads on which a server handles the requests to one brick: enough to keep a fast disk busy, all of which
/// wait if the disk hangs.
pub const BRICK_WORKERS: usize = 32;
/// A thread that handles requests ends when it has been idle for this long.
pub const WORKER_IDLE: Duration = Duration::from_secs(10);
/// Threads for messages between replicas, which must never wait behind requests.
pub const URGENT_WORKERS: usize = 4;
/// Threads for network I/O, if there are enough cores.
pub const IO_THREADS_MAX: usize = 2;
/// Cores for each of them beyond the first. On a small machine a second one moves no more, and is woken only
/// to find that the first one is at work already.
pub const CORES_PER_IO_THREAD: usize = 2;
/// Pieces shorter than this are gathered into one write, in bytes.
pub const GATHER_BYTES: usize = 16 << 10;
/// Refused connections that are logged in a minute; the rest is only counted.
pub const REFUSALS_LOGGED_MAX: u64 = 30;

/// How long a lookup at a metadata server may take.
pub const META_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a brick may take for one request while it answers pings.
pub const BRICK_TIMEOUT: Duration = Duration::from_secs(30);
