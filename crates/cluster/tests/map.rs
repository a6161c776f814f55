//! The cluster map under random commands, and the promises of single commands.

use proptest::prelude::*;
use shoal_cluster::map::Shards;
use shoal_cluster::placement::Rules;
use shoal_cluster::{BrickState, ClusterMap, Command, FOUNDERS_MAX, Outcome, Tolerance, apply};
use shoal_types::limits::POLICIES_MAX;
use shoal_types::{BlockScheme, BrickId, GroupId, Incarnation, InodeId, NodeId, Tier, Timestamp};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn time(seconds: i64) -> Timestamp {
    Timestamp { secs: seconds, nanos: 0 }
}

fn init() -> Command {
    Command::Init {
        cluster: 7,
        name: "n0".into(),
        address: "n0:7470".into(),
        authority: "pem".into(),
        time: time(0),
    }
}

fn join(name: &str) -> Command {
    Command::Join { secret: 1, name: name.into(), address: format!("{name}:7470"), time: time(1) }
}

/// A cluster of some nodes, n0, n1, ...
fn cluster(nodes: usize) -> ClusterMap {
    let mut map = done(&ClusterMap::default(), &init());
    map = done(&map, &Command::IssueToken { secret: 1, expires: time(100), time: time(0) });
    for n in 1..nodes {
        map = done(&map, &join(&format!("n{n}")));
    }
    map
}

fn done(map: &ClusterMap, command: &Command) -> ClusterMap {
    match apply(map, command) {
        (_, Outcome::Refused(why)) => panic!("{command:?}: {why}"),
        (next, _) => {
            check(map, &next);
            next
        }
    }
}

fn refused(map: &ClusterMap, command: &Command) -> String {
    match apply(map, command) {
        (next, Outcome::Refused(why)) => {
            assert_eq!(&next, map);
            why
        }
        (_, other) => panic!("{command:?}: {other:?}"),
    }
}

fn volume(map: &ClusterMap, replica: u8) -> Command {
    let bricks = map.nodes.keys().map(|node| (*node, PathBuf::from("/b"))).collect();
    let (id, time) = (GroupId(9), time(2));
    Command::CreateVolume { name: "v".into(), id, replica, bricks, force: false, time }
}

/// Invariants of a map, and of two consecutive ones.
fn check(before: &ClusterMap, map: &ClusterMap) {
    assert_eq!(map.epoch, before.epoch + 1);
    assert!(map.nodes.keys().all(|id| id.0 < map.next.node));
    assert!(
        map.nodes.keys().all(|id| before.nodes.contains_key(id) || id.0 >= before.next.node),
        "a node's number again"
    );
    assert!(
        map.bricks.keys().all(|id| before.bricks.contains_key(id) || id.0 >= before.next.brick),
        "a brick's again"
    );
    let groups = map.volumes.keys().copied().chain([GroupId::CLUSTER]);
    for group in groups {
        let places = map.replicas(group);
        let nodes: BTreeSet<NodeId> = places.iter().map(|place| place.node).collect();
        assert_eq!(nodes.len(), places.len(), "two replicas on one node");
        assert!(nodes.iter().all(|node| map.nodes.contains_key(node)));
        assert!(places.len() % 2 == 1, "{group}: {places:?}");
        assert!(places.iter().filter(|place| place.founder).count() <= FOUNDERS_MAX, "{group}: {places:?}");
        for place in places {
            let old = before.replicas(group).iter().find(|old| old.id == place.id);
            assert!(
                old.map_or(place.id.0 >= before.next.replica, |old| old == place),
                "a replica's number again"
            );
            assert!(
                !place.founder || old.is_some() || before.replicas(group).is_empty(),
                "a founder came late"
            );
        }
    }
    for (id, brick) in &map.bricks {
        let volume = &map.volumes[&brick.volume];
        assert!(volume.bricks.contains(id));
        assert!(brick.state == BrickState::Gone || map.nodes.contains_key(&brick.node));
    }
    for volume in map.volumes.values() {
        assert!(volume.bricks.iter().all(|id| map.bricks.contains_key(id)));
    }
    assert_eq!(ClusterMap::decode(&map.encode()).as_ref(), Ok(map));
}

#[test]
fn older_run_of_a_node_and_a_detached_node_cannot_be_noted() {
    let map = cluster(3);
    let started =
        |starts, instance| Command::NodeStarted { node: NodeId(2), run: Incarnation { starts, instance } };
    let map = done(&map, &started(1, 7));
    let map = done(&map, &started(3, 8));
    let map = done(&map, &started(3, 8));
    for old in [started(3, 9), started(2, 8)] {
        assert!(refused(&map, &old).contains("a later run"), "{old:?}");
    }
    let map = done(&map, &Command::Detach { node: NodeId(2), force: false });
    assert!(map.runs.is_empty());
    assert!(refused(&map, &started(4, 1)).contains("not in the cluster"));
}

fn arbitrated(data: &[u32], arbiters: &[u32]) -> Command {
    Command::CreateArbitrated {
        name: "v".into(),
        id: GroupId(9),
        bricks: data.iter().map(|node| (NodeId(*node), PathBuf::from("/b"))).collect(),
        arbiters: arbiters.iter().copied().map(NodeId).collect(),
        force: false,
        time: time(2),
    }
}

#[test]
fn volume_of_which_no_node_may_die_is_made_with_force_only() {
    let two = cluster(2);
    let why = refused(&two, &volume(&two, 2));
    assert!(why.contains("data: none") && why.contains("metadata: none"), "{why}");
    assert!(why.contains("replica 2 arbiter 1") && why.contains("`force`"), "{why}");
    let three = cluster(3);
    for (replica, data) in [(3, 1), (2, 1), (1, 0)] {
        let map = done(&three, &volume(&three, replica));
        let survives = Tolerance::of(&map, GroupId(9)).unwrap();
        assert_eq!((survives.data, survives.metadata), (data, 1), "replica {replica}");
    }
    let five = cluster(5);
    let map = done(&five, &volume(&five, 3));
    assert_eq!(
        Tolerance::of(&map, GroupId(9)).unwrap().to_string(),
        "data: 2 nodes may be down; metadata: one node may be down"
    );
}

#[test]
fn arbiter_keeps_metadata_and_lets_either_data_node_die() {
    let map = done(&cluster(4), &arbitrated(&[1, 2], &[4]));
    let keepers: Vec<NodeId> = map.replicas(GroupId(9)).iter().map(|place| place.node).collect();
    assert_eq!(keepers, [NodeId(1), NodeId(2), NodeId(4)]);
    assert_eq!(Tolerance::of(&map, GroupId(9)), Some(Tolerance { data: 1, metadata: 1 }));
    assert_eq!(
        Rules::of_long_blocks(&map, GroupId(9), Tier::Cold).map(|rules| (rules.replica, rules.quorum())),
        Some((2, 1))
    );
    assert!(map.bricks.values().all(|brick| brick.node != NodeId(4)));
    // Another node without bricks takes over when the arbiter leaves.
    let map = done(&map, &Command::Detach { node: NodeId(4), force: false });
    assert_eq!(map.arbiters[&GroupId(9)], BTreeSet::from([NodeId(3)]));
    assert!(map.replicas(GroupId(9)).iter().any(|place| place.node == NodeId(3)));
    let map = done(&map, &Command::DeleteVolume { volume: GroupId(9) });
    assert!(map.arbiters.is_empty());
}

#[test]
fn two_pairs_share_arbiters_and_one_of_them_keeps_metadata() {
    let map = done(&cluster(6), &arbitrated(&[1, 2, 4, 5], &[3, 6]));
    let keepers: Vec<NodeId> = map.replicas(GroupId(9)).iter().map(|place| place.node).collect();
    assert_eq!(keepers, [NodeId(1), NodeId(2), NodeId(3)]);
}

#[test]
fn arbiter_is_a_node_without_bricks_of_the_volume() {
    let map = cluster(3);
    assert!(refused(&map, &arbitrated(&[1, 2], &[2])).contains("cannot be its arbiter"));
    assert!(refused(&map, &arbitrated(&[1, 2], &[9])).contains("not a node"));
    assert!(refused(&map, &arbitrated(&[1], &[3])).contains("replica 2 needs 2 bricks"));
}

#[test]
fn map_of_version_1_is_read() {
    let map = cluster(3);
    let mut bytes = map.encode();
    assert_eq!(bytes[bytes.len() - 2..], [0, 0], "the added fields are empty maps");
    bytes.truncate(bytes.len() - 2);
    assert_eq!(std::mem::replace(&mut bytes[0], 1), 2);
    assert_eq!(ClusterMap::decode(&bytes), Ok(map));
}

#[test]
fn volume_of_shards_is_written_while_one_shard_more_than_give_a_block_back_can_be_stored() {
    let survives = |data: u8, parity: u8, nodes: &[u32]| {
        let map = cluster(9);
        let bricks = nodes.iter().zip(1..).map(|(node, at)| (NodeId(*node), format!("/s{at}").into()));
        let create = Command::CreateVolume {
            name: "s".into(),
            id: GroupId(9),
            replica: parity + 1,
            bricks: bricks.collect(),
            force: true,
            time: time(1),
        };
        let mut map = done(&map, &create);
        map.schemes.insert(GroupId(9), Shards { data, parity });
        Tolerance::of(&map, GroupId(9)).unwrap().data
    };
    assert_eq!(
        survives(4, 2, &[1, 2, 3, 4, 5, 6]),
        1,
        "of two dead nodes four shards are left, and five count"
    );
    assert_eq!(survives(4, 2, &[1, 2, 3, 4, 5, 6, 7]), 2);
    assert_eq!(survives(4, 2, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), 2, "a third loss would be one too many");
    assert_eq!(survives(2, 1, &[1, 2, 3]), 0);
    assert_eq!(survives(2, 1, &[1, 2, 3, 4]), 1);
    assert_eq!(
        survives(4, 2, &[1, 1, 2, 2, 3, 3]),
        0,
        "a node has two shards: four are left, and five count"
    );
    assert_eq!(survives(2, 2, &[1, 1, 2, 2]), 0);
}

#[test]
fn map_with_a_scheme_of_shards_is_of_a_version_that_older_nodes_refuse() {
    let map = cluster(3);
    let mut map = done(&map, &volume(&map, 3));
    let copies = map.encode();
    assert_eq!((copies[0], ClusterMap::decode(&copies)), (2, Ok(map.clone())));
    map.schemes.insert(GroupId(9), Shards { data: 4, parity: 2 });
    let shards = map.encode();
    assert_eq!((shards[0], ClusterMap::decode(&shards)), (3, Ok(map.clone())));
    assert!(ClusterMap::decode(&[&[2], &shards[1..]].concat()).is_err(), "it has more than version 2 has");
    let map = done(&map, &Command::DeleteVolume { volume: GroupId(9) });
    assert_eq!(map.encode()[0], 2, "the scheme goes with its volume");
}

fn attach(nodes: &[u32], replica: u8, force: bool) -> Command {
    let bricks = nodes.iter().map(|node| (NodeId(*node), format!("/hot{node}").into())).collect();
    Command::AttachTier { volume: GroupId(9), replica, shards: None, bricks, force }
}

#[test]
fn hot_tier_is_attached_emptied_and_removed_in_this_order() {
    let map = cluster(3);
    let plain = done(&map, &volume(&map, 3));
    let volume = GroupId(9);
    let detach = |start| Command::DetachTier { volume, start };
    assert!(refused(&plain, &detach(true)).contains("no hot tier"));
    assert!(refused(&plain, &attach(&[1], 2, false)).contains("needs 2 bricks"));
    let doubled = Command::AttachTier {
        volume,
        replica: 2,
        shards: None,
        bricks: vec![(NodeId(1), "/h1".into()), (NodeId(1), "/h2".into())],
        force: false,
    };
    assert!(refused(&plain, &doubled).contains("`force`"));
    let tiered = done(&plain, &attach(&[1, 2], 2, false));
    let hot: Vec<BrickId> = tiered.bricks_in(volume, Tier::Hot).map(|(id, _)| id).collect();
    assert_eq!((hot.len(), tiered.bricks_in(volume, Tier::Cold).count()), (2, 3));
    assert_eq!(Rules::of_long_blocks(&tiered, volume, Tier::Hot).map(|rules| rules.replica), Some(2));
    assert_eq!(Rules::of_long_blocks(&tiered, volume, Tier::Cold).map(|rules| rules.replica), Some(3));
    assert!(refused(&tiered, &attach(&[3], 1, false)).contains("already"));
    let drain = Command::Drain { volume, bricks: hot[..1].to_vec() };
    assert!(refused(&tiered, &drain).contains("detach the hot tier"));
    assert!(refused(&tiered, &Command::RemoveTier { volume }).contains("detach start"));
    let leaving = done(&tiered, &detach(true));
    assert!(refused(&leaving, &detach(true)).contains("already"));
    assert_eq!(done(&leaving, &detach(false)).tiers, tiered.tiers);
    let gone = done(&leaving, &Command::RemoveTier { volume });
    assert!(gone.tiers.is_empty() && hot.iter().all(|id| gone.bricks[id].state == BrickState::Gone));
    assert_eq!(gone.bricks_of(volume).count(), 3);
}

#[test]
fn brick_of_the_hot_tier_is_replaced_by_one_of_the_hot_tier() {
    let map = cluster(3);
    let map = done(&map, &volume(&map, 3));
    let map = done(&map, &attach(&[1, 2], 2, false));
    let (volume, old) = (GroupId(9), *map.tiers[&GroupId(9)].bricks.first().unwrap());
    let replace = Command::ReplaceBrick { volume, old, new: (NodeId(3), "/hot3".into()), gone: true };
    let map = done(&map, &replace);
    assert_eq!(map.bricks_in(volume, Tier::Hot).count(), 2);
    assert!(map.bricks_in(volume, Tier::Hot).any(|(_, brick)| brick.node == NodeId(3)));
    let map = done(&map, &Command::Forget { volume, bricks: vec![old] });
    assert!(!map.tiers[&volume].bricks.contains(&old));
}

#[test]
fn map_with_pins_is_of_a_version_that_older_nodes_refuse_and_their_number_is_bounded() {
    let map = cluster(3);
    let plain = done(&map, &volume(&map, 3));
    let volume = GroupId(9);
    let pin = |ino, tier| Command::Pin { volume, ino: InodeId(ino), tier, removed: Vec::new() };
    let pinned = done(&plain, &pin(7, Some(Tier::Hot)));
    let bytes = pinned.encode();
    assert_eq!((bytes[0], ClusterMap::decode(&bytes)), (5, Ok(pinned.clone())));
    assert!(ClusterMap::decode(&[&[4], &bytes[1..]].concat()).is_err(), "it has more than version 4 has");
    let other = done(&pinned, &pin(7, Some(Tier::Cold)));
    assert_eq!(other.pins[&volume].get(&InodeId(7)), Some(&Tier::Cold));
    assert_eq!(done(&other, &pin(7, None)).encode()[0], 2, "the last pin is gone");
    let removed = Command::Pin { volume, ino: InodeId(8), tier: Some(Tier::Hot), removed: vec![InodeId(7)] };
    assert_eq!(done(&other, &removed).pins[&volume].len(), 1);
    let full = (0..POLICIES_MAX as u64).fold(plain, |map, ino| done(&map, &pin(ino, Some(Tier::Hot))));
    assert!(refused(&full, &pin(100_000, Some(Tier::Hot))).contains("pinned already"));
    assert_eq!(done(&full, &pin(0, Some(Tier::Cold))).pins[&volume].len(), POLICIES_MAX);
    assert!(done(&full, &Command::DeleteVolume { volume }).pins.is_empty());
}

#[test]
fn directory_gets_a_scheme_of_its_own_and_only_one_is_in_shards() {
    let map = cluster(8);
    let plain = done(&map, &volume(&map, 3));
    let id = GroupId(9);
    let set = |ino, scheme: Option<BlockScheme>| {
        let (ino, removed) = (InodeId(ino), Vec::new());
        Command::SetDirectoryScheme { volume: id, ino, scheme, removed, force: false }
    };
    let shards = |data, parity| Some(BlockScheme::Shards(Shards { data, parity }));
    let with = done(&plain, &set(7, shards(4, 2)));
    let bytes = with.encode();
    assert_eq!((bytes[0], ClusterMap::decode(&bytes)), (6, Ok(with.clone())));
    assert!(ClusterMap::decode(&[&[5], &bytes[1..]].concat()).is_err(), "it has more than version 5 has");
    assert!(with.has_shards(id) && !plain.has_shards(id));
    assert_eq!(with.scheme_in(id, Tier::Cold), Some(BlockScheme::Copies(3)));
    let without = |ino| done(&with, &set(ino, None));
    assert_eq!((without(7).encode()[0], without(8).directory_schemes.len()), (2, 1));
    assert!(refused(&with, &set(8, shards(5, 2))).contains("two schemes of shards"));
    assert!(done(&with, &set(7, shards(5, 2))).has_shards(id), "nothing else is in shards");
    assert!(refused(&plain, &set(7, shards(4, 1))).contains("too old"));
    let allowed = done(&plain, &Command::AllowCopies { volume: id });
    assert!(
        refused(&allowed, &set(7, shards(4, 1))).contains("would survive 1 with disperse 5 redundancy 1")
    );
    let more = done(&allowed, &set(7, shards(4, 3)));
    assert_eq!(more.scheme_in(id, Tier::Cold), Some(BlockScheme::Copies(3)), "that of other directories");
    assert!(refused(&plain, &set(7, shards(9, 2))).contains("needs 11 bricks"));
    // The volume is converted to the same shards, and then the directory may stay as it was.
    let convert = |data| Command::Convert {
        volume: id,
        replica: 0,
        shards: Some(Shards { data, parity: 2 }),
        force: false,
    };
    assert!(refused(&with, &convert(5)).contains("two schemes of shards"));
    let sharded = done(&done(&with, &convert(4)), &set(8, Some(BlockScheme::Copies(3))));
    assert_eq!(sharded.directory_schemes[&id].len(), 2);
    let drain = |count| Command::Drain { volume: id, bricks: sharded.volumes[&id].bricks[..count].to_vec() };
    assert!(refused(&with, &drain(3)).contains("on 6 bricks"), "the widest scheme decides");
    let full = (0..POLICIES_MAX as u64).fold(plain, |map, ino| done(&map, &set(ino, shards(4, 2))));
    assert!(refused(&full, &set(100_000, shards(4, 2))).contains("have a scheme already"));
    assert!(done(&full, &Command::DeleteVolume { volume: id }).directory_schemes.is_empty());
}

#[test]
fn map_with_a_hot_tier_is_of_a_version_that_older_nodes_refuse() {
    let map = cluster(3);
    let plain = done(&map, &volume(&map, 3));
    let tiered = done(&plain, &attach(&[1, 2], 2, false));
    let bytes = tiered.encode();
    assert_eq!((bytes[0], ClusterMap::decode(&bytes)), (4, Ok(tiered.clone())));
    assert!(ClusterMap::decode(&[&[3], &bytes[1..]].concat()).is_err(), "it has more than version 3 has");
    let mut sharded = tiered.clone();
    sharded.schemes.insert(GroupId(9), Shards { data: 2, parity: 1 });
    assert_eq!(ClusterMap::decode(&sharded.encode()), Ok(sharded));
    let gone = done(&tiered, &Command::StopRebalance { volume: GroupId(9) });
    assert_eq!(done(&gone, &Command::DeleteVolume { volume: GroupId(9) }).encode()[0], 2);
}

#[test]
fn node_with_the_only_replica_of_the_map_is_not_detached() {
    let map = cluster(2);
    let holder = map.replicas[0].node;
    let other = *map.nodes.keys().find(|node| **node != holder).unwrap();
    assert!(refused(&map, &Command::Detach { node: holder, force: true }).contains("the cluster map"));
    done(&map, &Command::Detach { node: other, force: true });
}

#[test]
fn the_group_of_the_map_grows_with_the_cluster_and_stays_odd() {
    let sizes = (1..=6).map(|nodes| cluster(nodes).replicas.len()).collect::<Vec<_>>();
    assert_eq!(sizes, [1, 1, 3, 3, 3, 3]);
}

#[test]
fn a_node_that_joins_again_has_lost_its_disk_and_is_replaced() {
    let map = cluster(4);
    let map = done(&map, &volume(&map, 3));
    let (old, _) = map.node("n1").unwrap();
    assert!(map.replicas.iter().any(|place| place.node == old));
    let next = done(&map, &join("n1"));
    let (new, _) = next.node("n1").unwrap();
    assert_ne!(old, new);
    for group in [GroupId::CLUSTER, GroupId(9)] {
        let kept = map.replicas(group).iter().filter(|place| place.node != old);
        assert!(kept.clone().all(|place| next.replicas(group).contains(place)));
        assert_eq!(next.replicas(group).len(), 3);
    }
    let gone: Vec<_> = next.bricks.values().filter(|brick| brick.state == BrickState::Gone).collect();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].node, old);
}

#[test]
fn a_token_is_needed_and_expires() {
    let map = cluster(1);
    let wrong = Command::Join { secret: 2, name: "x".into(), address: "x:1".into(), time: time(1) };
    assert!(refused(&map, &wrong).contains("shoal cluster token"));
    let late = Command::Join { secret: 1, name: "x".into(), address: "x:1".into(), time: time(100) };
    assert!(refused(&map, &late).contains("expired"));
}

#[test]
fn volumes_that_cannot_keep_their_promise_are_refused() {
    let map = cluster(3);
    assert!(refused(&map, &volume(&map, 4)).contains("needs 4 bricks"));
    let node = *map.nodes.keys().next().unwrap();
    let create = |places: &[&str], force| Command::CreateVolume {
        name: "w".into(),
        id: GroupId(10),
        replica: 2,
        bricks: places.iter().map(|path| (node, PathBuf::from(path))).collect(),
        force,
        time: time(2),
    };
    assert!(refused(&map, &create(&["/a", "/b"], false)).contains("force"));
    assert!(refused(&map, &create(&["/a", "/a/b"], true)).contains("in use"));
    assert!(refused(&map, &create(&["a", "/b"], true)).contains("absolute"));
    assert!(refused(&map, &create(&["/a/../c", "/b"], true)).contains("absolute"));
    let map = done(&map, &create(&["/a", "/b"], true));
    assert!(refused(&map, &create(&["/c", "/d"], true)).contains("already"));
}

#[test]
fn dispersed_volume_is_created_only_where_its_shards_have_room() {
    let map = cluster(5);
    let create = |(data, parity), bricks: usize, force| Command::CreateDispersed {
        name: "v".into(),
        id: GroupId(9),
        shards: Shards { data, parity },
        bricks: (0..bricks).map(|n| (NodeId(1 + n as u32 % 5), PathBuf::from(format!("/b{n}")))).collect(),
        force,
        time: time(2),
    };
    assert!(refused(&map, &create((3, 2), 4, true)).contains("disperse 5 redundancy 2 needs 5 bricks"));
    assert!(refused(&map, &create((4, 2), 6, false)).contains("bricks on 6 nodes"));
    assert!(refused(&map, &create((1, 1), 5, true)).contains("1+1"));
    assert!(refused(&map, &create((13, 1), 20, true)).contains("13+1"));
    assert!(refused(&map, &create((4, 1), 5, false)).contains("no node may die"));
    let made = done(&map, &create((3, 2), 5, false));
    assert_eq!(made.schemes[&GroupId(9)], Shards { data: 3, parity: 2 });
    assert_eq!(made.volumes[&GroupId(9)].replica, 3, "of blocks that are too short for shards");
    assert_eq!(Tolerance::of(&made, GroupId(9)).map(|it| it.data), Some(1));
    assert_eq!(ClusterMap::decode(&made.encode()).as_ref(), Ok(&made));
    // As many bricks as a block has shards must stay.
    let bricks = made.volumes[&GroupId(9)].bricks[..1].to_vec();
    assert!(refused(&made, &Command::Drain { volume: GroupId(9), bricks }).contains("on 5 bricks"));
    let deleted = done(&made, &Command::DeleteVolume { volume: GroupId(9) });
    assert!(deleted.schemes.is_empty());
    assert!(done(&map, &create((4, 2), 6, true)).schemes.contains_key(&GroupId(9)));
}

#[test]
fn volume_is_converted_only_where_it_has_the_bricks_and_to_fewer_losses_by_force() {
    let convert = |replica, shards: Option<(u8, u8)>, force| Command::Convert {
        volume: GroupId(9),
        replica,
        shards: shards.map(|(data, parity)| Shards { data, parity }),
        force,
    };
    let map = cluster(7);
    let bricks = (1..=7).map(|n| (NodeId(n), PathBuf::from("/b"))).collect();
    let (name, id, time) = ("v".into(), GroupId(9), time(2));
    let copies = done(&map, &Command::CreateVolume { name, id, replica: 3, bricks, force: false, time });
    assert!(refused(&copies, &convert(0, Some((6, 2)), true)).contains("needs 8 bricks"));
    assert!(refused(&copies, &convert(2, None, true)).contains("too old"));
    assert!(refused(&copies, &convert(3, None, true)).contains("is replica 3 already"));
    assert!(refused(&copies, &convert(0, Some((1, 2)), true)).contains("1+2"));
    let shards = done(&copies, &convert(0, Some((4, 2)), false));
    assert_eq!(shards.schemes[&GroupId(9)], Shards { data: 4, parity: 2 });
    assert_eq!(shards.volumes[&GroupId(9)].replica, 3, "of blocks that are too short for shards");
    assert!(refused(&shards, &convert(0, Some((5, 2)), true)).contains("to `replica 3` first"));
    let back = done(&shards, &convert(3, None, false));
    assert!(back.schemes.is_empty() && back.encode()[0] == 2);
    // Older nodes refuse the map as soon as groups may have numbers of copies of their own, and for ever.
    let allowed = done(&back, &Command::AllowCopies { volume: GroupId(9) });
    let bytes = allowed.encode();
    assert_eq!((bytes[0], ClusterMap::decode(&bytes)), (7, Ok(allowed.clone())));
    assert!(ClusterMap::decode(&[&[6], &bytes[1..]].concat()).is_err(), "it has more than version 6 has");
    assert_eq!(done(&allowed, &Command::AllowCopies { volume: GroupId(9) }).copies, allowed.copies);
    assert!(refused(&allowed, &convert(2, None, false)).contains("survives 2 losses, and would survive 1"));
    let scheme = |map: &ClusterMap| map.scheme_in(GroupId(9), Tier::Cold);
    let two = done(&allowed, &convert(2, None, true));
    assert_eq!((scheme(&two), two.original_copies(GroupId(9))), (Some(BlockScheme::Copies(2)), 3));
    let survives_three = done(&two, &convert(0, Some((4, 3)), false));
    assert_eq!(scheme(&survives_three).map(BlockScheme::copies), Some(4), "of a block too short for shards");
    assert!(refused(&survives_three, &convert(3, None, false)).contains("say `force`"));
    let five = done(&two, &convert(5, None, false));
    assert_eq!(Rules::of_long_blocks(&five, GroupId(9), Tier::Cold).map(|rules| rules.quorum()), Some(3));
    assert!(done(&five, &Command::DeleteVolume { volume: GroupId(9) }).copies.is_empty());
    let few = done(&back, &Command::Drain { volume: GroupId(9), bricks: vec![BrickId(7)] });
    assert!(refused(&few, &convert(0, Some((5, 2)), true)).contains("has 6"));
}

#[test]
fn bricks_are_drained_only_while_enough_are_left_and_forgotten_only_when_gone() {
    let map = cluster(4);
    let map = done(&map, &volume(&map, 3));
    let (volume, ids) = (GroupId(9), map.volumes[&GroupId(9)].bricks.clone());
    let drain = |bricks: &[BrickId]| Command::Drain { volume, bricks: bricks.to_vec() };
    assert!(refused(&map, &drain(&ids[..2])).contains("add-brick"));
    let map = done(&map, &drain(&ids[..1]));
    assert!(refused(&map, &drain(&ids[1..2])).contains("add-brick"));
    let forget = Command::Forget { volume, bricks: ids[..1].to_vec() };
    assert!(refused(&map, &forget).contains("gone"));
    let map = done(&map, &Command::Lose { volume, bricks: ids[..1].to_vec() });
    let map = done(&map, &forget);
    assert_eq!(map.bricks_of(volume).count(), 3);
    let node = map.nodes.keys().next().copied().unwrap();
    let detach = |force| Command::Detach { node, force };
    let (has, free) = (map.bricks.values().any(|brick| brick.node == node), detach(false));
    assert!(!has, "the drained brick was the first node's");
    assert_eq!(done(&map, &free).nodes.len(), 3);
}

#[test]
fn a_replaced_brick_leaves_without_being_asked_unless_it_is_used_again() {
    let map = cluster(4);
    let map = done(&map, &volume(&map, 3));
    let (volume, old) = (GroupId(9), BrickId(1));
    let new = (NodeId(1), PathBuf::from("/c"));
    let state = |map: &ClusterMap| (map.bricks[&old].state, map.bricks[&old].replaced);
    let replaced = done(&map, &Command::ReplaceBrick { volume, old, new: new.clone(), gone: false });
    assert_eq!(state(&replaced), (BrickState::Draining, true));
    let again = done(&replaced, &Command::Undrain { volume, bricks: vec![old] });
    assert_eq!(state(&again), (BrickState::Active, false));
    let drained = done(&again, &Command::Drain { volume, bricks: vec![old] });
    assert_eq!(state(&drained), (BrickState::Draining, false), "that one waits for its commit");
    let gone = done(&map, &Command::ReplaceBrick { volume, old, new, gone: true });
    assert_eq!(state(&gone), (BrickState::Gone, true));
}

#[test]
fn clients_see_no_secrets() {
    let map = cluster(2);
    assert!(!map.secrets.authority.is_empty() && !map.secrets.tokens.is_empty());
    let view = map.view();
    assert!(view.secrets.authority.is_empty() && view.secrets.tokens.is_empty());
    assert!(!format!("{map:?}").contains("pem"));
}

fn command() -> impl Strategy<Value = Command> {
    let node = (1u32..8).prop_map(NodeId);
    let bricks = proptest::collection::vec((1u16..12).prop_map(BrickId), 1..3);
    let place = (node.clone(), (0..4).prop_map(|n| PathBuf::from(format!("/b{n}"))));
    let group = (9u128..11).prop_map(GroupId);
    prop_oneof![
        (0..8usize).prop_map(|n| join(&format!("n{n}"))),
        (node.clone(), any::<bool>()).prop_map(|(node, force)| Command::Detach { node, force }),
        (group.clone(), 1u8..4, proptest::collection::vec(place.clone(), 1..4)).prop_map(
            |(id, replica, bricks)| {
                Command::CreateVolume {
                    name: format!("v{}", id.0),
                    id,
                    replica,
                    bricks,
                    force: true,
                    time: time(3),
                }
            }
        ),
        (group.clone(), 1u32..8, 1u32..8, 1u32..8).prop_map(|(id, one, other, arbiter)| {
            Command::CreateArbitrated {
                name: format!("v{}", id.0),
                id,
                bricks: [one, other].map(|node| (NodeId(node), PathBuf::from("/b9"))).to_vec(),
                arbiters: vec![NodeId(arbiter)],
                force: false,
                time: time(3),
            }
        }),
        (group.clone(), any::<bool>()).prop_map(|(volume, started)| Command::SetState { volume, started }),
        group.clone().prop_map(|volume| Command::DeleteVolume { volume }),
        (group.clone(), proptest::collection::vec(place.clone(), 1..3))
            .prop_map(|(volume, bricks)| Command::AddBricks { volume, bricks }),
        (group.clone(), bricks.clone()).prop_map(|(volume, bricks)| Command::Drain { volume, bricks }),
        (group.clone(), bricks.clone()).prop_map(|(volume, bricks)| Command::Undrain { volume, bricks }),
        (group.clone(), bricks.clone()).prop_map(|(volume, bricks)| Command::Lose { volume, bricks }),
        (group.clone(), bricks.clone()).prop_map(|(volume, bricks)| Command::Forget { volume, bricks }),
        (group.clone(), (1u16..12).prop_map(BrickId), place, any::<bool>())
            .prop_map(|(volume, old, new, gone)| Command::ReplaceBrick { volume, old, new, gone }),
        (group, prop_oneof![Just("1"), Just("3"), Just("5"), Just("4")]).prop_map(|(volume, value)| {
            let key = "cluster.metadata-replicas".to_string();
            Command::SetOption { volume, key, value: Some(value.into()) }
        }),
    ]
}

proptest! {
    #[test]
    fn random_commands_keep_the_map_sound(commands in proptest::collection::vec(command(), 1..60)) {
        let mut map = cluster(3);
        for command in commands {
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command.clone()));
            let (next, outcome) = apply(&map, &command);
            match outcome {
                Outcome::Refused(why) => {
                    prop_assert!(!why.is_empty());
                    prop_assert_eq!(&next, &map);
                }
                _ => check(&map, &next),
            }
            map = next;
        }
    }
}
