//! The state and the figures of a mount, as its control socket reports them.

use crate::clock::since_1970;
use crate::control::{Number, Statistics, Status};
use crate::limits::{DUMP_LINES_MAX, ROOM_WAIT_MAX, ROOM_WAITS_MAX};
use crate::profile::OpReport;
use crate::show;
use shoal_client::{Client, Reply, Wait};
use shoal_fuse::{Mounted, OpStats};
use shoal_net::Traffic;
use shoal_runtime::semaphore::Semaphore;
use shoal_types::Statfs;
use std::fmt::Write;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// What a mount's report is made from.
pub struct MountReport<'a> {
    /// When it was started.
    pub started: Instant,
    /// The client.
    pub client: &'a Arc<Client>,
    /// The mount.
    pub mounted: &'a Mounted,
}

/// The volume that is mounted.
pub struct Volume<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its identity.
    pub id: &'a str,
    /// The directory of the serving process.
    pub data: &'a Path,
    /// The source of a cluster's mount, `HOST:/VOLUME`.
    pub source: Option<&'a str>,
    /// The mount options.
    pub options: &'a str,
    /// Whether it is mounted read-only.
    pub read_only: bool,
}

impl MountReport<'_> {
    /// The state of the mount.
    pub fn status(&self, volume: Volume<'_>) -> Result<Status, String> {
        let room = self.room();
        let is_waiting = room.is_none();
        let (room, refused) = match (room.unwrap_or_else(|| Ok(Statfs::default())), self.refused()) {
            (Ok(room), _) => (room, None),
            (Err(_), Some(why)) => (Statfs::default(), Some(why)),
            (Err(error), None) => return Err(error.to_string()),
        };
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            volume: volume.name.to_owned(),
            id: volume.id.to_owned(),
            data: volume.data.to_owned(),
            source: volume.source.map(str::to_owned),
            mountpoint: self.mounted.mountpoint().to_owned(),
            options: volume.options.to_owned(),
            read_only_volume: volume.read_only,
            session: self.client.session().0,
            total_bytes: room.total_bytes,
            free_bytes: room.free_bytes,
            inodes: room.inodes,
            refused,
            is_waiting,
        })
    }

    /// The room of the volume; `None`: the servers have not answered in time. Then a thread goes on waiting.
    fn room(&self) -> Option<Reply<Statfs>> {
        static WAITS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(ROOM_WAITS_MAX));
        let permit = WAITS.try_acquire()?;
        let (client, (give, take)) = (self.client.clone(), sync_channel(1));
        let wait = move || {
            let room = client.statfs(Wait::Allowed);
            drop(permit);
            // The receiver is gone if the servers have answered late.
            let _ = give.send(room);
        };
        if let Err(error) = std::thread::Builder::new().name("shoal-room".into()).spawn(wait) {
            tracing::warn!(%error, "no thread to ask for the room of the volume");
            return None;
        }
        take.recv_timeout(ROOM_WAIT_MAX).ok()
    }

    /// What the mount holds, caches and waits for, as text.
    pub fn dump(&self, volume: &str) -> String {
        let point = self.mounted.mountpoint().display();
        let mut text = dump_title(&format!("Mount of volume {volume} at {point}"), self.started);
        let in_flight = self.mounted.in_flight();
        let _ = writeln!(text, "\nRequests of the kernel that wait: {}", in_flight.len());
        text.extend(in_flight.iter().take(DUMP_LINES_MAX).map(|line| format!("  {line}\n")));
        if let Some(rest) = in_flight.len().checked_sub(DUMP_LINES_MAX).filter(|rest| *rest > 0) {
            let _ = writeln!(text, "  and {rest} more");
        }
        text.push_str("\nClient\n");
        text.extend(self.client.dump().iter().map(|line| format!("  {line}\n")));
        text
    }

    /// Why the servers do not serve the mount, if they have said so, and what was lost by it.
    pub fn refused(&self) -> Option<String> {
        let (denial, lost) = self.client.denial()?;
        Some(match lost {
            0 => denial.to_string(),
            1 => format!("{denial}; 1 operation that was not committed is lost"),
            lost => format!("{denial}; {lost} operations that were not committed are lost"),
        })
    }

    /// The counters and latencies of the client and of the kernel's requests.
    pub fn statistics(&self) -> Statistics {
        let kernel = self.mounted.stats();
        Statistics {
            version: env!("CARGO_PKG_VERSION").into(),
            refused: self.client.denial().is_some(),
            mountpoint: self.mounted.mountpoint().to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            resident_bytes: resident_bytes(),
            kernel_requests: kernel.requests(),
            kernel_waiting: kernel.slow_queued as u64,
            kernel_read_bytes: kernel.reads.total,
            kernel_written_bytes: kernel.writes.total,
            kernel: reports(&kernel.ops),
            client: self.client.stats().iter().map(|stat| number(stat.name, stat.value)).collect(),
            ..Statistics::default()
        }
    }
}

/// The first lines of a state dump.
pub fn dump_title(what: &str, started: Instant) -> String {
    let now = since_1970().as_secs();
    let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
    format!(
        "{what}\nprocess {pid}, version {version}, up {}, {} resident; {}\n",
        show::seconds(started.elapsed().as_secs()),
        show::bytes(resident_bytes()),
        show::date(now)
    )
}

/// What was sent to other processes.
pub fn traffic_figures(traffic: Traffic) -> [Number; 3] {
    [
        number("net_requests_total", traffic.requests),
        number("net_sent_bytes_total", traffic.sent_bytes),
        number("net_received_bytes_total", traffic.received_bytes),
    ]
}

/// A named number.
pub fn number(name: &str, value: u64) -> Number {
    Number { name: name.to_owned(), value }
}

/// Latencies, for printing.
pub fn reports(ops: &[OpStats]) -> Vec<OpReport> {
    ops.iter().map(OpReport::from).collect()
}

/// Resident memory of this process, see proc(5); 0 if that cannot be read.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4096
}
