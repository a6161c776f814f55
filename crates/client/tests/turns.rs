//! Two clients that work in one directory in turn: what a hand-over costs.

#[path = "support/relay.rs"]
mod relay;
mod support;

use relay::{Listener, Relay};
use shoal_client::{Caller, Client, Options, Wait};
use shoal_types::{FileKind, InodeId};
use shoal_wire::Query;
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const WAIT: Wait = Wait::Allowed;
const ROOT: InodeId = InodeId::ROOT;
const TURNS: usize = 40;

/// Requests that are made while names are created in turn. `looks`: each turn begins with a GETATTR of the
/// directory, as from a kernel whose attributes were invalidated.
fn asked_in_turns(looks: bool) -> Vec<Query> {
    let (_dir, bricks, server) = relay::server();
    let transport = Arc::new(Relay(Listener::new(server.clone())));
    let clients = [0, 1]
        .map(|_| Client::open(transport.clone(), bricks.clone(), Options::default()).expect("a session"));
    let mode = FileKind::Directory.mode_bits() | 0o755;
    let dir = clients[0].create(WAIT, &CALLER, ROOT, b"dir", mode, 0).expect("new").ino;
    let turn = |number: usize| {
        let (client, name) = (&clients[number % 2], format!("file {number}").into_bytes());
        if looks {
            let entries = client.getattr(WAIT, dir).expect("answered").entries;
            assert_eq!(entries, number as u64);
        }
        assert_eq!(client.lookup(WAIT, dir, &name).expect("answered"), None);
        let ino = client.create(WAIT, &CALLER, dir, &name, 0o100644, 0).expect("new").ino;
        client.write(WAIT, ino, 0, b"turn", false).expect("written");
    };
    assert!(clients[1].lookup(WAIT, ROOT, b"dir").expect("answered").is_some());
    (0..4).for_each(turn);
    transport.0.asked.lock().clear();
    (4..TURNS).for_each(turn);
    let asked = std::mem::take(&mut *transport.0.asked.lock());
    for client in &clients {
        for number in 0..TURNS {
            let name = format!("file {number}").into_bytes();
            assert!(client.lookup(WAIT, dir, &name).expect("answered").is_some(), "{number}");
        }
        client.close().expect("closed");
    }
    server.shutdown();
    asked
}

#[test]
fn clients_that_create_in_turn_look_up_names_and_do_not_list() {
    let asked = asked_in_turns(false);
    let names = asked.iter().filter(|query| matches!(query, Query::Lookup { .. })).count();
    assert_eq!(names, asked.len(), "{asked:?}");
    assert!(names <= TURNS, "{names} questions for {TURNS} names");
}

#[test]
fn earlier_use_of_a_directory_does_not_cause_a_listing_for_one_name() {
    let asked = asked_in_turns(true);
    let others = |query: &&Query| !matches!(query, Query::Lookup { .. } | Query::Inode(_));
    let listed: Vec<&Query> = asked.iter().filter(others).collect();
    assert!(listed.is_empty(), "{listed:?}");
    assert!(asked.len() <= 2 * TURNS, "{} questions for {TURNS} names", asked.len());
}
