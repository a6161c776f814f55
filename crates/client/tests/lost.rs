//! The log of a mount about a session that has ended. This test is a program of its own, since a program
//! has one log.

#[path = "support/cut.rs"]
mod cut;
#[path = "support/relay.rs"]
mod relay;
mod support;

use cut::{Cut, Only};
use parking_lot::Mutex;
use shoal_client::{Caller, Client, Options, Wait};
use shoal_types::{Errno, InodeId};
use shoal_wire::MetaService;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
/// Nothing here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lines(&self, with: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock()).into_owned();
        text.lines().filter(|line| line.contains(with)).map(str::to_owned).collect()
    }
}

#[test]
fn the_log_says_in_one_line_how_much_was_lost_and_then_that_the_mount_works_again() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
    let (_dir, bricks, server) = relay::server();
    let transport = Cut::new(server.clone());
    let client = Client::open_replicated(Arc::new(Only(transport.clone())), bricks, Options::default());
    let client = client.expect("a session");
    let create = |name: &[u8]| {
        client.create(Wait::Allowed, &CALLER, InodeId::ROOT, name, 0o100644, 0).expect("made").ino
    };
    create(b"kept");
    client.fsync(InodeId::ROOT).expect("durable");
    transport.swallow(true);
    for name in [b"one", b"two"] {
        let ino = create(name);
        client.write(Wait::Allowed, ino, 0, b"bytes", false).expect("written");
    }
    let ended = client.session();
    server.close_session(ended).expect("ended");
    let begun = Instant::now();
    while log.lines("the mount works again").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "it does not come back");
        std::thread::sleep(Duration::from_millis(5));
    }
    transport.swallow(false);
    let lost = log.lines("lost");
    assert_eq!(lost.len(), 1, "{lost:?}");
    // The two files and the directory that they were in.
    for word in
        ["ERROR", "lost_operations=4", "lost_inodes=3", "lost_seconds=", &format!("session={}", ended.0)]
    {
        assert!(lost[0].contains(word), "no {word}: {lost:?}");
    }
    assert_eq!(log.lines("ERROR").len(), 1);
    assert_eq!(client.fsync(InodeId::ROOT), Err(Errno::EIO));
    client.close().expect("what was lost has been said");
    server.shutdown();
}
