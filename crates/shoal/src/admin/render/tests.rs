use super::*;
use crate::admin::*;
use std::collections::BTreeMap;

fn peer(node: u32, name: &str, connected: bool) -> PeerReport {
    PeerReport {
        node,
        name: name.into(),
        address: format!("10.9.0.{node}:7470"),
        connected,
        local: node == 1,
        version: connected.then(|| "0.1.0".into()),
        pid: connected.then_some(100 + node),
        uptime_s: connected.then_some(3700),
        epoch: connected.then_some(12),
    }
}

fn replica(number: u64, node: &str, digest: Option<(u64, &str)>) -> ReplicaStatus {
    let online = digest.is_some();
    ReplicaStatus {
        replica: number,
        node: node.into(),
        online,
        role: if number == 1 { "leader".into() } else { "follower".into() },
        term: online.then_some(3),
        applied: online.then_some(41),
        lag: online.then_some(0),
        digest: digest.map(|(index, digest)| DigestReport { index, digest: digest.into() }),
    }
}

fn brick(id: u16, name: &str, online: bool) -> BrickStatus {
    BrickStatus {
        id,
        brick: name.parse().unwrap(),
        online,
        trouble: (!online).then(|| "node2 does not answer".into()),
        draining: false,
        port: 7470,
        pid: online.then_some(101),
        total_bytes: online.then_some(100 << 30),
        free_bytes: online.then_some(64 << 30),
    }
}

fn status(replicas: Vec<ReplicaStatus>) -> VolumeStatus {
    let bricks = vec![brick(1, "node1:/srv/web", true), brick(2, "node2:/srv/web", false)];
    VolumeStatus { name: "web".into(), state: VolumeState::Started, bricks, replicas }
}

fn volume() -> VolumeReport {
    let place =
        |id, name: &str, draining, hot| BrickPlace { id, brick: name.parse().unwrap(), draining, hot };
    VolumeReport {
        name: "web".into(),
        id: "00ff".repeat(8),
        state: VolumeState::Started,
        replica: 3,
        shards: None,
        created: 951_782_400,
        bricks: vec![
            place(1, "node1:/srv/web", false, false),
            place(2, "node2:/srv/web", false, false),
            place(3, "node3:/srv/web", false, false),
            place(4, "node1:/srv/old", true, false),
            place(5, "node1:/fast", false, true),
        ],
        metadata: vec!["node1".into(), "node2".into(), "node3".into()],
        arbiters: Vec::new(),
        data_nodes_may_be_down: 1,
        metadata_nodes_may_be_down: 1,
        options: BTreeMap::from([("auth.allow".into(), "10.9.0.0/16".into())]),
    }
}

/// Compares texts line by line, so that a difference is easy to see.
fn same(text: &str, expected: &str) {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(text), lines(expected.trim_start_matches('\n')), "\n{text}");
}

#[test]
fn peers_look_as_an_administrator_knows_them() {
    let nodes = [peer(1, "node1", true), peer(2, "node2", true), peer(3, "node3", false)];
    same(
        &peers(&nodes),
        "
Number of Peers: 2

Hostname: node2
Address: 10.9.0.2:7470
Node: 2
State: Peer in Cluster (Connected)

Hostname: node3
Address: 10.9.0.3:7470
Node: 3
State: Peer in Cluster (Disconnected)",
    );
    same(
        &pool(&nodes),
        "
Node  Hostname   Address        State
1     localhost  10.9.0.1:7470  Connected
2     node2      10.9.0.2:7470  Connected
3     node3      10.9.0.3:7470  Disconnected",
    );
}

#[test]
fn a_cluster_shows_its_nodes_and_volumes_at_a_glance() {
    let health = VolumeHealth {
        name: "web".into(),
        state: VolumeState::Started,
        bricks_online: 2,
        bricks: 3,
        replicas_online: 2,
        replicas: 3,
        has_leader: true,
        degraded: None,
        full_bricks: Vec::new(),
    };
    let report = ClusterReport {
        cluster: "ab".repeat(16),
        epoch: 12,
        node: "node1".into(),
        nodes: vec![peer(1, "node1", true), peer(2, "node2", false)],
        map: vec![replica(1, "node1", Some((1, ""))), replica(2, "node2", None)],
        volumes: vec![health],
        deleting: vec![DeletingReport {
            brick: "node2:/srv/old".parse().unwrap(),
            deleted_blocks: 12,
            trouble: None,
        }],
        attention: Vec::new(),
    };
    let report = report.with_attention();
    same(
        &cluster(&report),
        "
Cluster ID: abababababababababababababababab
Cluster map: change 12, led by node1, kept by node1, node2

Node          Address        State         Version  Pid  Up for  Map
node1 (this)  10.9.0.1:7470  Connected     0.1.0    101  1h 01m   12
node2         10.9.0.2:7470  Disconnected  -          -       -    -

Being deleted, in the background:
  node2:/srv/old (12 blocks so far)

Volume  State    Bricks  Metadata  Leader  To heal
web     Started  2 of 3  2 of 3    Y             -

Needs attention:
  node node2 (10.9.0.2:7470) does not answer
  the cluster map's replica on node2 does not run: follower
  volume web: 2 of 3 metadata replicas run; a replica catches up within seconds of its node's return
  volume web: 2 of 3 bricks are online; `shoal volume status web` says what the others lack, and `shoal volume replace-brick` replaces one that is lost
  volume web: its leader has not looked yet which blocks lack copies; it does within seconds of its election or of a change",
    );
    let fresh = ClusterReport { volumes: vec![], attention: vec![], ..report };
    assert!(cluster(&fresh).ends_with("No volumes: `shoal volume create` makes one.\n"));
}

#[test]
fn a_volume_is_described_with_its_bricks_and_what_was_set() {
    same(
        &volumes(&[volume()]),
        "
Volume Name: web
Type: Replicate
Volume ID: 00ff00ff00ff00ff00ff00ff00ff00ff
Status: Started
Created: 2000-02-29 00:00:00 UTC
Copies of each block: 3
Number of Bricks: 5
Transport-type: tcp, mutual TLS
Metadata replicas: node1, node2, node3
Nodes that may be down: 1 (of those with bricks 1, of those with metadata 1)
Bricks:
Brick1: node1:/srv/web
Brick2: node2:/srv/web
Brick3: node3:/srv/web
Brick4: node1:/srv/old (being removed)
Brick5: node1:/fast (hot)
Options Reconfigured:
auth.allow: 10.9.0.0/16",
    );
    assert_eq!(volumes(&[]), "No volumes present\n");
    let all = options(&volume(), None);
    assert!(all.contains("auth.allow") && all.contains("10.9.0.0/16") && all.contains("(DEFAULT)"), "{all}");
    same(
        &options(&volume(), Some("cluster.metadata-replicas")),
        "
Option                     Value
--------------------------------------
cluster.metadata-replicas  3 (DEFAULT)",
    );
}

#[test]
fn a_status_shows_bricks_and_replicas_and_what_is_wrong_with_them() {
    same(
        &statuses(&[status(vec![replica(1, "node1", Some((41, "aa"))), replica(2, "node2", None)])], false),
        "
Status of volume: web (Started)
Shoal process         TCP Port  Online  Pid       Free        Size
------------------------------------------------------------------
Brick node1:/srv/web      7470  Y       101  64.00 GiB  100.00 GiB
Brick node2:/srv/web      7470  N         -          -           -
  node2:/srv/web: node2 does not answer

Metadata replica    Online  Role      Term  Index  Lag
------------------------------------------------------
Replica 1 on node1  Y       leader       3     41    0
Replica 2 on node2  N       follower     -      -    -",
    );
}

#[test]
fn digests_are_compared_only_at_the_same_index() {
    let group = |digests: &[Option<(u64, &str)>]| {
        digests.iter().enumerate().map(|(n, digest)| replica(n as u64 + 1, "n", *digest)).collect::<Vec<_>>()
    };
    let (same, later, other) = (Some((41, "aa")), Some((42, "bb")), Some((41, "cc")));
    for (digests, expected) in [
        (&[same, same, same][..], Agreement::Identical),
        (&[same], Agreement::Identical),
        (&[same, same, later], Agreement::Undecided),
        (&[same, same, None], Agreement::Undecided),
        (&[None], Agreement::Undecided),
        (&[], Agreement::Undecided),
        (&[same, later, other], Agreement::Different),
    ] {
        assert_eq!(agreement(&group(digests)), expected, "{digests:?}");
    }
    let text = super::digests(&status(group(&[same, same])));
    assert!(
        text.contains("Digest at") && text.ends_with("\nIdentical: 2 replicas of 2, byte for byte.\n"),
        "{text}"
    );
    let text = super::digests(&status(group(&[same, None])));
    assert!(text.ends_with("\nOnly 1 of 2 replicas answered; among those nothing differs.\n"), "{text}");
}

#[test]
fn healing_and_moving_show_how_far_they_are() {
    let report = HealReport {
        name: "web".into(),
        leader: "node1".into(),
        degraded: 7,
        scanning: true,
        examined: 120,
        left: 0,
        copied_blocks: 1,
        copied_bytes: 4 << 20,
        waiting: 0,
        failures: 0,
        last_error: Some("of long ago".into()),
        bricks: status(vec![]).bricks,
        losses: None,
    };
    same(
        &heal(&report),
        "
Brick node1:/srv/web
Status: Connected

Brick node2:/srv/web
Status: Transport endpoint is not connected

Number of blocks to heal: 7
Under way: 120 blocks done, the number may grow
Copied so far by the server of node1, which leads: 1 block, 4.00 MiB",
    );
    let text =
        heal(&HealReport { waiting: 2, failures: 1, last_error: Some("node2 is full".into()), ..report });
    for line in ["have room: 2 blocks\n", "BE READ of 1 block\n", "Last trouble: node2 is full\n"] {
        assert!(text.contains(line), "{text}");
    }
    let report = RemovalReport {
        brick: "node1:/srv/old".parse().unwrap(),
        state: RemovalState::InProgress,
        blocks_left: Some(12),
    };
    same(
        &removal(&[report]),
        "
Brick           Status       Blocks left
----------------------------------------
node1:/srv/old  in progress           12",
    );
    let report = RebalanceReport {
        name: "web".into(),
        state: RebalanceState::Completed,
        examined: 900,
        moved: 300,
        copied_bytes: 1 << 30,
        failures: 0,
    };
    same(
        &rebalance(&report),
        "
Volume  Moved      Size  Scanned  Failures  Status
-----------------------------------------------------
web       300  1.00 GiB      900         0  completed",
    );
}

#[test]
fn conversion_shows_what_is_stored_in_which_way_and_what_is_left() {
    let scheme =
        |shards, copies, blocks, left| SchemeReport { shards, copies, blocks, bytes: blocks << 20, left };
    let schemes = vec![scheme(None, 3, 40, 30), scheme(Some((4, 2)), 0, 9, 0)];
    let of = |path: Option<&str>, inode, scheme: &str| DirectoryScheme {
        path: path.map(str::to_owned),
        inode,
        scheme: scheme.into(),
    };
    let directories = vec![of(Some("/old"), 7, "disperse 6 redundancy 2"), of(None, 8, "replica 3")];
    same(
        &conversion(&ConversionReport { name: "web".into(), schemes, directories }),
        "
Volume: web
Conversion: in progress
/old: disperse 6 redundancy 2
inode 8, which was removed, or was not found: replica 3

Blocks in     Number       Size  To convert
-------------------------------------------
3 copies          40  40.00 MiB          30
4 + 2 shards       9   9.00 MiB           0",
    );
}

#[test]
fn every_answer_reads_back_as_it_was_said() {
    for answer in [
        AdminAnswer::Done,
        AdminAnswer::Note { text: "a".into() },
        AdminAnswer::Peers { peers: vec![peer(1, "node1", true)] },
        AdminAnswer::Volumes { volumes: vec![volume()] },
        AdminAnswer::Statuses { volumes: vec![status(vec![replica(1, "node1", Some((1, "aa")))])] },
        AdminAnswer::Token(TokenReport { token: "t".into(), expires: 5 }),
    ] {
        let line = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<AdminAnswer>(&line).unwrap(), answer, "{line}");
    }
    let request = crate::control::Request::Admin {
        request: AdminRequest::CreateVolume {
            name: "web".into(),
            replica: 3,
            bricks: vec!["node1:/srv/web".parse().unwrap()],
            arbiters: vec!["node3".into()],
            shards: None,
            force: false,
        },
    };
    let line = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<crate::control::Request>(&line).unwrap(), request, "{line}");
}

#[test]
fn heal_info_shows_what_blocks_survive_and_names_those_that_cannot_be_read() {
    let class = |shards, survives, whole, blocks| LossClassReport {
        hot: shards == Some((2, 1)),
        shards,
        copies: if shards.is_some() { 0 } else { 3 },
        survives,
        whole,
        blocks,
        bytes: blocks << 20,
    };
    let losses = LossesReport {
        classes: vec![
            class(None, Some(2), true, 7),
            class(Some((4, 2)), None, false, 1),
            class(Some((4, 2)), Some(0), false, 30),
            class(Some((4, 2)), Some(2), true, 400),
            class(Some((2, 1)), Some(1), true, 5),
        ],
        unreadable: vec!["7:12".into()],
    };
    let report = HealReport {
        name: "web".into(),
        leader: "node1".into(),
        degraded: 31,
        scanning: false,
        examined: 0,
        left: 0,
        copied_blocks: 0,
        copied_bytes: 0,
        waiting: 0,
        failures: 0,
        last_error: None,
        bricks: Vec::new(),
        losses: Some(losses),
    };
    same(
        &heal(&report),
        "
Number of blocks to heal: 31

Blocks in          Survive further losses  Number        Size
-------------------------------------------------------------
3 copies           2 (whole)                    7    7.00 MiB
4 + 2 shards       UNREADABLE NOW               1    1.00 MiB
4 + 2 shards       0                           30   30.00 MiB
4 + 2 shards       2 (whole)                  400  400.00 MiB
2 + 1 shards, hot  1 (whole)                    5    5.00 MiB

Unreadable while so many bricks are lost or down: 7:12
Copied so far by the server of node1, which leads: 0 blocks, 0 B",
    );
}
