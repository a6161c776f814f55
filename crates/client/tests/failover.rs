//! A metadata group whose leader changes, dies, and loses or repeats replies: callers only wait.

#[path = "support/replicas.rs"]
mod replicas;
mod support;

use bytes::Bytes;
use replicas::Cluster;
use shoal_client::{Caller, Client, Failover, FailoverOptions, Failure, Options, Wait};
use shoal_namespace::{Op, SetAttr};
use shoal_types::{BatchSeq, Errno, InodeId, SessionId, Timestamp};
use shoal_wire::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use support::{Bricks, Spread};

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
const WAIT: Wait = Wait::Allowed;
/// Longer than any step takes unless it hangs.
const LONG: Duration = Duration::from_secs(60);
/// Far shorter than any call would wait for a cluster.
const PROMPT: Duration = Duration::from_secs(3);

fn open(failover: &Failover) -> SessionId {
    let request = SessionRequest {
        protocol: PROTOCOL_VERSION,
        client: "test".into(),
        instance: rand::random(),
        origin: None,
    };
    failover.open_session(request).expect("a session").session
}

fn batch(session: SessionId, seq: u64) -> Commit {
    let time = Some(Timestamp { secs: seq as i64, nanos: 0 });
    let set = SetAttr { mtime: time, ctime: time, ..SetAttr::default() };
    let ops = Bytes::from(encode_ops(&[Op::SetAttr { ino: InodeId::ROOT, set }]));
    Commit { session, seq: BatchSeq(seq), ops, born: Vec::new(), gone: Vec::new() }
}

type Outcomes = Receiver<(u64, Result<BatchSeq, MetaError>)>;

/// Submits batches; their outcomes arrive in the order in which they are reported.
fn submit(failover: &Arc<Failover>, session: SessionId, count: u64) -> Outcomes {
    let (tell, outcomes) = channel();
    for seq in 1..=count {
        let (tell, again) = (tell.clone(), Arc::downgrade(failover));
        let done = move |outcome: Result<CommitReply, MetaError>| {
            // Deadlocks if a lock is held.
            drop(again.upgrade().map(|failover| failover.stats()));
            // The test may have ended.
            let _ = tell.send((seq, outcome.map(|reply| reply.seq)));
        };
        failover.submit(batch(session, seq), Box::new(done));
    }
    outcomes
}

fn stat(stats: &[shoal_client::Stat], name: &str) -> u64 {
    stats.iter().find(|stat| stat.name == name).map_or_else(|| panic!("no {name}"), |stat| stat.value)
}

#[test]
fn every_batch_is_applied_once_and_reported_once_in_order_across_leaders() {
    for seed in 0..5 {
        let cluster = Cluster::new(seed);
        let failover = Arc::new(Failover::new(cluster.clone(), FailoverOptions::default()));
        let unrest = cluster.unrest();
        let session = open(&failover);
        let outcomes = submit(&failover, session, 300);
        for _ in 0..20 {
            let root = failover.inode(session, InodeId::ROOT).expect("a read waits");
            assert_eq!(root.ino, InodeId::ROOT);
        }
        for seq in 1..=150 {
            let told = outcomes.recv_timeout(LONG);
            assert_eq!(told, Ok((seq, Ok(BatchSeq(seq)))), "seed {seed}");
        }
        drop(unrest);
        for seq in 151..=300 {
            let told = outcomes.recv_timeout(LONG);
            assert_eq!(told, Ok((seq, Ok(BatchSeq(seq)))), "seed {seed}");
        }
        assert_eq!(cluster.applied(), (1..=300).map(BatchSeq).collect::<Vec<_>>(), "seed {seed}");
        let root = failover.inode(session, InodeId::ROOT).expect("a leader");
        assert_eq!(root.inode.mtime.secs, 300);
        failover.close_session(session).expect("closed");
        assert!(outcomes.try_recv().is_err(), "told twice");
    }
}

#[test]
fn silent_leader_is_left_for_a_replica_that_answers_as_leader() {
    let cluster = Cluster::new(0);
    let failover = Arc::new(Failover::new(cluster.clone(), FailoverOptions::default()));
    let session = open(&failover);
    cluster.replica(0).mute.store(true, std::sync::atomic::Ordering::SeqCst);
    let outcomes = submit(&failover, session, 10);
    assert!(outcomes.recv_timeout(Duration::from_millis(100)).is_err());
    // The old leader's connection stays silent, and no call reads meanwhile.
    cluster.lead_quietly(2);
    for seq in 1..=10 {
        assert_eq!(outcomes.recv_timeout(LONG), Ok((seq, Ok(BatchSeq(seq)))));
    }
    assert_eq!(stat(&failover.stats(), "meta_failovers_total"), 1);
    assert_eq!(stat(&failover.stats(), "meta_batches_resent_total"), 10);
    // Late replies of the old leader change nothing.
    cluster.lead(Some(2));
    assert!(outcomes.recv_timeout(Duration::from_millis(100)).is_err());
}

#[test]
fn reads_wait_for_a_leader_and_the_wait_is_counted() {
    let cluster = Cluster::new(0);
    let failover = Arc::new(Failover::new(cluster.clone(), FailoverOptions::default()));
    let session = open(&failover);
    cluster.lead(None);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| failover.inode(session, InodeId::ROOT));
        while cluster.refreshed.load(std::sync::atomic::Ordering::SeqCst) < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!reads.is_finished());
        cluster.lead(Some(1));
        assert!(reads.join().expect("no panic").is_ok());
    });
    let stats = failover.stats();
    assert_eq!(stat(&stats, "meta_failovers_total"), 1);
    assert!(stat(&stats, "meta_stall_ms_max") >= 100, "{stats:?}");
}

#[test]
fn open_fails_when_there_is_no_leader() {
    let cluster = Cluster::new(0);
    cluster.lead(None);
    let options = Options { open_wait: Duration::from_millis(200), ..Options::default() };
    let refused = Client::open_replicated(cluster.clone(), Arc::new(Bricks::default()), options).err();
    assert!(matches!(refused, Some(MetaError::NotLeader { .. } | MetaError::Unavailable(_))), "{refused:?}");
}

#[test]
fn stop_ends_every_wait_and_fails_every_batch() {
    let cluster = Cluster::new(0);
    let failover = Arc::new(Failover::new(cluster.clone(), FailoverOptions::default()));
    let session = open(&failover);
    cluster.lead(None);
    let outcomes = submit(&failover, session, 20);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| failover.inode(session, InodeId::ROOT));
        std::thread::sleep(Duration::from_millis(20));
        failover.stop();
        assert!(matches!(reads.join().expect("no panic"), Err(MetaError::Unavailable(_))));
    });
    for seq in 1..=20 {
        let (told, outcome) = outcomes.recv_timeout(LONG).expect("told");
        assert_eq!(told, seq);
        assert!(matches!(outcome, Err(MetaError::Unavailable(_))));
    }
    assert!(outcomes.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn a_session_that_was_ended_meanwhile_stays_dead() {
    let cluster = Cluster::new(0);
    let failover = Arc::new(Failover::new(cluster.clone(), FailoverOptions::default()));
    let session = open(&failover);
    cluster.group.close_session(session).expect("ended");
    let outcomes = submit(&failover, session, 3);
    for seq in 1..=3 {
        assert_eq!(outcomes.recv_timeout(LONG), Ok((seq, Err(MetaError::Fenced(session)))));
    }
}

/// A client of a cluster with files in memory and on bricks.
fn mount(cluster: &Arc<Cluster>, options: Options) -> (Arc<Client>, Arc<Spread>) {
    let spread = Spread::new(3, 2);
    let client = Client::open_replicated(cluster.clone(), spread.clone(), options).expect("a session");
    (client, spread)
}

#[test]
fn fsync_waits_for_the_next_leader() {
    let cluster = Cluster::new(0);
    let (client, _) = mount(&cluster, Options::default());
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).expect("made");
    client.fsync(file.ino).expect("durable");
    cluster.lead(None);
    std::thread::scope(|scope| {
        client.write(WAIT, file.ino, 0, b"bytes", false).expect("in memory");
        let syncs = scope.spawn(|| client.fsync(file.ino));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!syncs.is_finished());
        cluster.lead(Some(2));
        assert_eq!(syncs.join().expect("no panic"), Ok(()));
    });
    let size = cluster.group.inode(client.session(), file.ino).expect("there").inode.size;
    assert_eq!(size, 5);
}

#[test]
fn interrupted_calls_fail_and_the_journal_still_goes_out() {
    let cluster = Cluster::new(0);
    let (client, _) = mount(&cluster, Options::default());
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).expect("made");
    client.fsync(file.ino).expect("durable");
    cluster.lead(None);
    client.write(WAIT, file.ino, 0, b"written in memory", false).expect("in memory");
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| client.fsync(file.ino));
        let looks = scope.spawn(|| client.statfs(WAIT).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!syncs.is_finished() && !looks.is_finished());
        let began = Instant::now();
        client.interrupt();
        assert_eq!(syncs.join().expect("no panic"), Err(Errno::EIO));
        assert_eq!(looks.join().expect("no panic"), Err(Failure::Errno(Errno::EIO)));
        assert!(began.elapsed() < PROMPT);
    });
    cluster.lead(Some(2));
    client.close().expect("everything went out");
    let (next, _) = mount(&cluster, Options::default());
    assert_eq!(next.read(WAIT, file.ino, 0, 100).expect("a read").concat(), b"written in memory");
}

#[test]
fn closing_gives_up_on_servers_that_do_not_answer() {
    let cluster = Cluster::new(0);
    let options = Options { close_wait: Duration::from_millis(200), ..Options::default() };
    let (client, spread) = mount(&cluster, options);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).expect("made");
    client.fsync(file.ino).expect("durable");
    cluster.lead(None);
    (1..=3).for_each(|brick| spread.set_down(brick, true));
    client.write(WAIT, file.ino, 0, &vec![1; 200_000], false).expect("in memory");
    let began = Instant::now();
    assert_eq!(client.close(), Err(Errno::EIO));
    assert!(began.elapsed() < PROMPT);
}

#[test]
fn calls_fail_after_the_time_that_the_mount_allows() {
    let cluster = Cluster::new(0);
    let options = Options { fail_after: Some(Duration::from_secs(1)), ..Options::default() };
    let (client, spread) = mount(&cluster, options);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).expect("made");
    client.write(WAIT, file.ino, 0, &vec![1; 200_000], false).expect("in memory");
    client.fsync(file.ino).expect("durable");
    (1..=3).for_each(|brick| spread.set_down(brick, true));
    assert_eq!(client.read(WAIT, file.ino, 0, 10), Err(Failure::Errno(Errno::EIO)));
    client.write(WAIT, file.ino, 0, b"x", false).expect("in memory");
    cluster.lead(None);
    assert_eq!(client.fsync(file.ino), Err(Errno::EIO));
    assert_eq!(client.statfs(WAIT).map(drop), Err(Failure::Errno(Errno::EIO)));
    // The calls failed, not the mount.
    cluster.lead(Some(1));
    (1..=3).for_each(|brick| spread.set_down(brick, false));
    client.fsync(file.ino).expect("durable");
    assert_eq!(client.read(WAIT, file.ino, 0, 2).expect("a read").concat(), [b'x', 1]);
    client.close().expect("closed");
}
