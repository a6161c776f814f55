//! Sessions that a machine left behind: a client of its next boot reports them dead, and they are ended at
//! once.

use crate::cluster::{Cluster, eventually};
use shoal_meta::Server;
use shoal_types::{InodeId, Origin, Process, SessionId};
use shoal_wire::{MetaError, MetaService, OpenReply, PROTOCOL_VERSION, SessionRequest};
use std::time::{Duration, Instant};

/// A session that was heard from within this time counts as alive, whatever is reported about it.
const SILENCE: Duration = Duration::from_secs(4);

fn origin(machine: u128, boot: u128, number: u32) -> Origin {
    let process = Process { namespace: 1, number, started: u64::from(number) };
    Origin { certificate: "client tester".into(), machine, boot, process }
}

fn open(server: &Server, origin: Origin) -> OpenReply {
    let client = format!("process {}", origin.process.number);
    let instance = u128::from(origin.process.number);
    let request = SessionRequest { protocol: PROTOCOL_VERSION, client, instance, origin: Some(origin) };
    server.open_session(request).expect("a session")
}

fn lives(server: &Server, session: SessionId) -> bool {
    match server.inode(session, InodeId::ROOT) {
        Ok(_) => true,
        Err(MetaError::Fenced(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn sessions_of_an_earlier_run_of_a_machine_end_when_it_opens_another() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let [one, two] = [1, 2].map(|number| open(&cluster.up[&leader], origin(7, 1, number)).session);
    let other = open(&cluster.up[&leader], origin(8, 1, 3)).session;
    // All servers lose power, and so does the first machine.
    for id in 1..=3 {
        cluster.crash(id);
    }
    for id in 1..=3 {
        cluster.start(id);
    }
    let leader = cluster.await_leader();
    let server = cluster.up[&leader].clone();
    eventually("it serves", || server.statfs(other).is_ok());
    let begun = Instant::now();
    let next = open(&server, origin(7, 2, 4));
    assert!(begun.elapsed() < SILENCE, "it has waited for {:?}", begun.elapsed());
    assert!(!lives(&server, one) && !lives(&server, two));
    assert!(lives(&server, other) && lives(&server, next.session));
    assert!(next.siblings.is_empty(), "{:?}", next.siblings);
}

#[test]
fn a_session_that_was_just_heard_of_is_not_ended_by_the_word_of_a_machine() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    let server = cluster.up[&leader].clone();
    let copy = open(&server, origin(7, 1, 1)).session;
    open(&server, origin(7, 2, 2));
    assert!(lives(&server, copy), "a copy of the virtual machine lives");
    std::thread::sleep(SILENCE + Duration::from_millis(500));
    open(&server, origin(7, 3, 3));
    assert!(!lives(&server, copy));
}

#[test]
fn a_new_session_is_told_which_others_its_machine_can_look_up() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    let server = cluster.up[&leader].clone();
    let first = open(&server, origin(7, 1, 1));
    open(&server, origin(8, 1, 2));
    let hidden = Process { namespace: 2, ..origin(7, 1, 3).process };
    open(&server, Origin { process: hidden, ..origin(7, 1, 3) });
    open(&server, Origin { certificate: "client other".into(), ..origin(7, 1, 4) });
    let next = open(&server, origin(7, 1, 5));
    assert_eq!(next.siblings, [(first.session, origin(7, 1, 1).process)]);
}
