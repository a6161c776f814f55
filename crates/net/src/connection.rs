//! The common part of both ends of a connection: read frames, write frames, and notice when the peer is gone.

use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::limits::*;
use bytes::{Bytes, BytesMut};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// A frame to be sent.
pub(crate) struct Outgoing {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) id: u64,
    pub(crate) parts: Vec<Bytes>,
}

impl Outgoing {
    pub(crate) fn bare(kind: Kind) -> Outgoing {
        Outgoing { kind, flags: 0, id: 0, parts: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        // Longer ones are refused where they are made.
        Header { len: self.len() as u32, kind: self.kind, flags: self.flags, id: self.id }.encode()
    }
}

/// When the connection last received something, and how much went over it.
pub(crate) struct Activity {
    begun: Instant,
    received_ms: AtomicU64,
    /// This end does not read at the moment, so it cannot tell whether the peer is silent.
    is_paused: AtomicBool,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Arc<Activity> {
        Arc::new(Activity {
            begun: Instant::now(),
            received_ms: AtomicU64::new(0),
            is_paused: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
        })
    }

    fn record_received(&self, bytes: usize) {
        self.received_ms.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Waits for something while this end does not read. The peer's silence is measured from the end of the
    /// wait.
    pub(crate) async fn pause<T>(&self, wait: impl Future<Output = T>) -> T {
        self.is_paused.store(true, Ordering::Relaxed);
        let outcome = wait.await;
        self.record_received(0);
        self.is_paused.store(false, Ordering::Relaxed);
        outcome
    }

    fn silence(&self) -> Duration {
        if self.is_paused.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let heard = Duration::from_millis(self.received_ms.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(heard)
    }
}

/// Reads the next frame, of at most `bytes_max` bytes.
pub(crate) async fn read_frame<R: AsyncRead + Unpin>(
    stream: &mut R,
    activity: &Activity,
    bytes_max: u32,
) -> io::Result<(Header, Bytes)> {
    let malformed = |error: crate::frame::FrameError| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).await?;
    activity.record_received(HEADER_BYTES);
    let header = Header::decode(&head, bytes_max).map_err(malformed)?;
    let len = header.len as usize;
    // A header alone allocates little. Grows once: each time, what has arrived is copied.
    let mut body = BytesMut::with_capacity(len.min(FIRST_READ_BYTES));
    while body.len() < len {
        if body.capacity() == body.len() {
            body.reserve(len - body.len());
        }
        let mut rest = (&mut *stream).take((len - body.len()) as u64);
        let got = rest.read_buf(&mut body).await?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        activity.record_received(got);
    }
    Ok((header, body.freeze()))
}

/// Writes what is queued, several small frames at once. Fails if the peer takes no byte for `stall_max`.
pub(crate) async fn write_frames<W: AsyncWrite + Unpin>(
    stream: &mut W,
    activity: &Activity,
    queue: &mut mpsc::Receiver<Outgoing>,
    stall_max: Duration,
) -> io::Result<()> {
    let mut gathered = BytesMut::with_capacity(4 * GATHER_BYTES);
    while let Some(first) = queue.recv().await {
        let mut next = Some(first);
        while let Some(frame) = next {
            gathered.extend_from_slice(&frame.header());
            for part in &frame.parts {
                if part.len() >= GATHER_BYTES {
                    write_all(stream, activity, &gathered, stall_max).await?;
                    gathered.clear();
                    write_all(stream, activity, part, stall_max).await?;
                } else {
                    gathered.extend_from_slice(part);
                }
            }
            if gathered.len() >= 2 * GATHER_BYTES {
                write_all(stream, activity, &gathered, stall_max).await?;
                gathered.clear();
            }
            next = queue.try_recv().ok();
        }
        write_all(stream, activity, &gathered, stall_max).await?;
        gathered.clear();
        within(stall_max, stream.flush()).await?;
    }
    stream.shutdown().await
}

async fn write_all<W: AsyncWrite + Unpin>(
    stream: &mut W,
    activity: &Activity,
    mut bytes: &[u8],
    stall_max: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = within(stall_max, stream.write(bytes)).await?;
        bytes = bytes.get(written..).filter(|_| written > 0).ok_or(io::ErrorKind::WriteZero)?;
        activity.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
    }
    Ok(())
}

async fn within<T>(longest: Duration, writing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let stalled =
        |_| io::Error::new(io::ErrorKind::TimedOut, "the other end does not read what is sent to it");
    tokio::time::timeout(longest, writing).await.map_err(stalled)?
}

/// Sends pings, and returns when the peer has been silent for too long.
pub(crate) async fn watch(activity: &Activity, queue: &mpsc::Sender<Outgoing>) -> io::Error {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(PING_EVERY).await;
        // If this process itself was stopped for a while, the peer gets another chance to be heard.
        let slept = last.elapsed();
        last = Instant::now();
        // A full queue either drains soon, or ends with the timeout of the silence.
        let _ = queue.try_send(Outgoing::bare(Kind::Ping));
        if slept < 2 * PING_EVERY && activity.silence() > SILENCE_MAX {
            return io::Error::new(io::ErrorKind::TimedOut, "the other end has fallen silent");
        }
    }
}
