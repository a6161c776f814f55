//! PostgreSQL on a replicated volume: servers die, the database is killed and moves to another host.

use crate::harness::Cluster;
use shoal_suites::postgres::Postgres;
use std::time::Duration;

#[test]
fn postgres_loses_no_transaction_when_servers_die_and_it_moves_to_another_host() {
    let mut cluster = Cluster::with_volume(3);
    let [first, second] = [cluster.mount_on(0), cluster.mount_on(1)];
    let server = Postgres::at(&first.path().join("base"), &cluster.local()).expect("PostgreSQL is there");
    server.create().expect("a database can be created");
    server.start().expect("it starts");
    server.pgbench(&["-i", "-q", "-s", "2"]).expect("tables can be filled");
    let leader = cluster.leader(1);
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| server.pgbench(&["-n", "-c", "4", "-j", "2", "-T", "12"]));
        std::thread::sleep(Duration::from_secs(4));
        cluster.kill(leader);
        load.join().expect("pgbench ends")
    });
    let load = load.expect("no transaction fails");
    assert!(load.count > 0, "{load:?}");
    // Its host is lost: the database is started on another one from what it made durable.
    server.kill();
    first.kill();
    let moved = Postgres::at(&second.path().join("base"), &cluster.local()).expect("PostgreSQL is there");
    moved.start().expect("it starts on the other host");
    let history = moved.check().expect("tables and indexes agree");
    assert!(history >= load.count, "{history} transactions of {}", load.count);
    moved.pgbench(&["-n", "-c", "4", "-t", "50"]).expect("it goes on");
    moved.stop().expect("it stops");
    cluster.start(leader);
    cluster.wait_healed(1, 120);
    moved.start().expect("it starts once more");
    assert!(moved.check().expect("tables and indexes agree") >= history + 200);
    moved.stop().expect("it stops");
    second.unmount();
}
