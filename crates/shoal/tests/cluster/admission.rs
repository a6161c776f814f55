//! Peers that the cluster does not admit are refused and logged, and the cluster serves all others
//! undisturbed.

use crate::harness::cluster::CLIENT;
use crate::harness::{Cluster, run};
use std::fs;

#[test]
fn unauthorised_peers_of_all_kinds_are_refused_and_logged_and_disturb_no_mount() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    fs::write(mount.path().join("file"), "content").expect("write");
    let other = cluster.local().join("mnt2");

    // A token that was not issued: the right authority, a wrong secret.
    let good = cluster.shoal(1).arg("cluster").arg("token").ok();
    let good = good.split_whitespace().find(|word| word.starts_with("shoal1/")).expect("a token").to_owned();
    let mut parts: Vec<&str> = good.split('/').collect();
    let secret = parts.pop().expect("a secret");
    let flipped: String = secret.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
    let wrong = format!("{}/{flipped}", parts.join("/"));
    let stranger = cluster.local().join("stranger");
    let join = |token: &str| {
        let command = cluster.shoal(CLIENT).env("SHOAL_DATA", &stranger).arg("peer").arg("join").arg(token);
        command.arg("--name").arg("stranger").arg("--no-start").outcome()
    };
    let refused = join(&wrong);
    assert!(refused.status.is_some_and(|status| !status.success()), "{refused}");

    // Credentials of another cluster.
    let foreign = Cluster::new(1);
    let theirs = foreign.credentials("tester");
    let refused = cluster.mount_command(&theirs, &other).outcome();
    assert!(refused.status.is_some_and(|status| !status.success()), "{refused}");

    // A client whose credentials were revoked.
    let revoked = cluster.credentials("former");
    cluster.shoal(1).arg("client").arg("revoke").arg("former").arg("-y").ok();
    let refused = cluster.mount_command(&revoked, &other).outcome();
    assert!(refused.status.is_some_and(|status| !status.success()), "{refused}");

    // Garbage on the port, and a silent connection.
    let address = format!("/dev/tcp/{}/7470", cluster.network.address(1));
    for script in [
        format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' >{address}"),
        format!("head -c 100000 /dev/urandom >{address}"),
        format!("exec 3<>{address}; sleep 1"),
    ] {
        let [enter, net] = cluster.network.on(CLIENT);
        // The server may close the connection first.
        let _ = run(enter).arg(net).arg("bash").arg("-c").arg(script).limit(20).outcome();
    }
    assert_eq!(fs::read_to_string(mount.path().join("file")).expect("read"), "content");
    let log = cluster.whole_log(1);
    assert!(log.contains("refused"), "nothing of it is in the log:\n{log}");

    // A client whose address is not allowed.
    mount.unmount();
    cluster.shoal(1).arg("volume").arg("set").arg("v").arg("auth.allow").arg("10.71.0.200").ok();
    let refused = cluster.mount_command(&cluster.credentials("tester"), &other).outcome();
    assert!(refused.status.is_some_and(|status| !status.success()), "{refused}");
    cluster.shoal(1).arg("volume").arg("reset").arg("v").arg("auth.allow").ok();
    let mount = cluster.mount();
    assert_eq!(fs::read_to_string(mount.path().join("file")).expect("read"), "content");
    mount.unmount();
    cluster.stop(1);
}
