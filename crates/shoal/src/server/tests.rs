//! Several servers in one process, over real connections.

use super::calls::{NodeRequest, request_over};
use super::cluster_view::{ClusterView, VolumeReplicas};
use super::polling::Poller;
use super::*;
use crate::admin::{
    Admin, AdminAnswer, AdminRequest, BrickName, ClusterReport, Init, Join, RemoveStep, Token, VolumeStatus,
    WebListen,
};
use bytes::Bytes;
use shoal_client::{Caller, Client, Options, Wait};
use shoal_cluster::{Bricks, CopyRequest, CopyTask, ReplicatedBlocks};
use shoal_net::Lane;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId, GroupId, InodeId, NodeId, ReplicaId};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Starts a server. A server of the same directory that was stopped in this process may take a moment to
/// release its lock.
fn serve(data: &Path) -> Arc<Server> {
    let spec = ServeSpec {
        data: data.to_owned(),
        listen: None,
        memory_bytes: None,
        cache_bytes: None,
        moved: false,
        web: WebListen::Off,
    };
    let mut dir = None;
    wait_until("the directory is free", || {
        dir = NodeDir::open(data).ok();
        dir.is_some()
    });
    Server::start(dir.unwrap(), &spec).unwrap()
}

fn group(bricks: &[u16]) -> BlockGroup {
    BlockGroup::new(bricks.iter().map(|brick| BrickId(*brick))).unwrap()
}

fn ask(server: &Server, request: AdminRequest) -> Result<AdminAnswer, String> {
    let mut answers = Vec::new();
    server.context.execute(request, &mut |answer| {
        answers.push(answer);
        Ok(())
    })?;
    Ok(answers.pop().unwrap())
}

fn status(server: &Server) -> ClusterReport {
    match ask(server, AdminRequest::ClusterStatus) {
        Ok(AdminAnswer::Cluster(report)) => report,
        other => panic!("{other:?}"),
    }
}

fn digests(server: &Server, name: &str) -> VolumeStatus {
    match ask(server, AdminRequest::Digest { name: name.into() }) {
        Ok(AdminAnswer::Statuses { mut volumes }) => volumes.remove(0),
        other => panic!("{other:?}"),
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Several {
    temp: tempfile::TempDir,
    servers: Vec<Arc<Server>>,
    token: Token,
}

fn join_spec(temp: &Path, n: usize, token: &Token) -> Join {
    let address = free_address();
    Join {
        data: temp.join(format!("data{n}")),
        token: token.clone(),
        name: format!("node{n}"),
        listen: address.clone(),
        address,
    }
}

fn three() -> Several {
    several(3)
}

fn several(count: usize) -> Several {
    let temp = tempfile::tempdir().unwrap();
    let address = free_address();
    let data = temp.path().join("data1");
    let first = Init { data: data.clone(), name: "node1".into(), listen: address.clone(), address };
    let token: Token = init(&first).unwrap().token.token.parse().unwrap();
    let mut servers = vec![serve(&data)];
    for n in 2..=count {
        let spec = join_spec(temp.path(), n, &token);
        assert_eq!(join(&spec).unwrap().node, n as u32);
        servers.push(serve(&spec.data));
    }
    wait_until("three replicas keep the map", || {
        let report = status(&servers[2]);
        report.map.len() == 3 && report.map.iter().all(|replica| replica.online && replica.role != "learner")
    });
    Several { temp, servers, token }
}

impl Several {
    /// Stops a server and drops it.
    fn stop(&mut self, at: usize) {
        self.servers.remove(at).stop().unwrap();
    }

    fn brick(&self, n: usize) -> BrickName {
        BrickName { host: format!("node{n}"), path: self.temp.path().join(format!("brick{n}")) }
    }

    fn make_volume(&self) {
        let bricks = (1..=3).map(|n| self.brick(n)).collect();
        let (name, arbiters) = ("web".into(), Vec::new());
        let create =
            AdminRequest::CreateVolume { name, replica: 3, bricks, arbiters, shards: None, force: false };
        assert_eq!(ask(&self.servers[1], create), Ok(AdminAnswer::Done));
        assert_eq!(
            ask(&self.servers[2], AdminRequest::StartVolume { name: "web".into() }),
            Ok(AdminAnswer::Done)
        );
        wait_until("the volume runs", || {
            let volume = &status(&self.servers[0]).volumes[0];
            volume.has_leader && (volume.bricks_online, volume.replicas_online) == (3, 3)
        });
    }
}

#[test]
fn joined_servers_share_map_and_volumes_and_continue_without_a_stopped_one() {
    let mut three = three();
    three.make_volume();
    let servers = &three.servers;
    let map = digests(&servers[0], "cluster");
    assert_eq!(map.replicas.len(), 3);
    assert!(map.replicas.iter().all(|one| one.digest.is_some() && one.digest == map.replicas[0].digest));
    let taken = AdminRequest::AddBricks { name: "web".into(), bricks: vec![three.brick(1)], force: true };
    let why = ask(&servers[0], taken).unwrap_err();
    assert!(why.contains("is a brick of volume web, with content"), "{why}");
    let unknown = ask(&servers[0], AdminRequest::StopVolume { name: "wib".into() }).unwrap_err();
    assert!(unknown.contains("there are: web"), "{unknown}");

    three.stop(0);
    let servers = &three.servers;
    let set = |value: &str| AdminRequest::SetOption {
        name: "web".into(),
        key: "heal.bytes-per-second".into(),
        value: value.into(),
    };
    assert_eq!(ask(&servers[0], set("1000")), Ok(AdminAnswer::Done), "two of three decide");
    assert!(!status(&servers[1]).nodes[0].connected);
    servers[0].stop().unwrap();
    let why = ask(&servers[1], set("2000")).unwrap_err();
    assert!(why.contains("1 of the 3 nodes") && why.contains("2 are needed"), "{why}");

    let again = serve(&three.temp.path().join("data1"));
    wait_until("the map can be changed again", || ask(&again, set("3000")).is_ok());
    wait_until("the volume has a leader again", || status(&again).volumes[0].has_leader);
    servers[1].stop().unwrap();
    again.stop().unwrap();
}

#[test]
fn client_uses_its_volumes_only_and_an_empty_brick_can_be_removed() {
    let three = three();
    let servers = &three.servers;
    three.make_volume();
    let issued = match ask(&servers[1], AdminRequest::IssueClient { name: "laptop".into() }) {
        Ok(AdminAnswer::Credentials(issued)) => issued,
        other => panic!("{other:?}"),
    };
    let credentials = Credentials::from_pem(&issued.authority, &issued.certificate, &issued.key).unwrap();
    let network = Network::new(credentials.cluster().unwrap(), credentials).unwrap();
    let view = ClusterView::new(network, None, ClusterMap::default(), Box::new(|_| {}));
    let link = view.network().link(&three.token.addresses[0], Lane::Requests);
    view.catch_up(&link).unwrap();
    let map = view.map();
    assert!(map.secrets.authority.is_empty() && map.secrets.tokens.is_empty());
    let refused =
        request_over(&link, &NodeRequest::Report { digest: false }, PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("only nodes"), "{refused}");

    let (volume, _) = map.volume("web").unwrap();
    let poller = Poller::start(view.clone(), Vec::new()).unwrap();
    let replicas = Arc::new(VolumeReplicas { view: view.clone(), volume, requests: Arc::default() });
    let bricks: Arc<dyn Bricks> = view.clone();
    let blocks = ReplicatedBlocks::new(volume, bricks);
    let client = Client::open_replicated(replicas, blocks, Options::default()).unwrap();
    assert!(client.statfs(shoal_client::Wait::Allowed).unwrap().total_bytes > 0);
    // A node copies a block for another one. It belongs to a session that lives, so it is not swept.
    let block = BlockId { session: client.session(), seq: 1 << 40 };
    let (two, all) = (group(&[1, 2]), group(&[1, 2, 3]));
    let content = Bytes::from_static(b"a block");
    let leader = &servers[0].context.view;
    for brick in two.bricks() {
        leader.brick(brick).unwrap().put(block, std::slice::from_ref(&content)).unwrap();
    }
    let info = BlockInfo { len: content.len() as u32, group: two };
    let request = CopyRequest { id: block, info, task: CopyTask::Heal, epoch: leader.map().epoch };
    assert_eq!(leader.request_copy(NodeId(2), volume, &request), Some(all));
    let last = leader.brick(BrickId(3)).unwrap();
    assert_eq!(last.get(block, 0, info.len), Ok(content));
    assert_eq!(view.request_copy(NodeId(2), volume, &request), None, "a client may not have blocks copied");
    all.bricks().for_each(|brick| leader.brick(brick).unwrap().delete(&[block]).unwrap());
    client.close().unwrap();

    let step = |step| AdminRequest::RemoveBricks { name: "web".into(), bricks: vec![three.brick(1)], step };
    let why = ask(&servers[0], step(RemoveStep::Start)).unwrap_err();
    assert!(why.contains("add others first"), "{why}");
    let more = BrickName { host: "node1".into(), path: three.temp.path().join("brick4") };
    let add = AdminRequest::AddBricks { name: "web".into(), bricks: vec![more], force: false };
    assert_eq!(ask(&servers[2], add), Ok(AdminAnswer::Done));
    assert!(ask(&servers[0], step(RemoveStep::Commit)).unwrap_err().contains("is in use"));
    assert_eq!(ask(&servers[0], step(RemoveStep::Start)), Ok(AdminAnswer::Done));
    wait_until("the brick can be taken away", || ask(&servers[1], step(RemoveStep::Commit)).is_ok());
    wait_until("it is forgotten", || servers[0].context.view.map().bricks.len() == 3);

    assert_eq!(ask(&servers[0], AdminRequest::RevokeClient { name: "laptop".into() }), Ok(AdminAnswer::Done));
    wait_until("the client is refused", || {
        request_over(&link, &NodeRequest::Map { epoch: 0 }, PATIENCE)
            .is_err_and(|error| error.to_string().contains("revoked"))
    });
    drop(poller);
    servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn a_machine_without_a_valid_token_or_an_empty_directory_does_not_join() {
    let three = three();
    let wrong = Token { secret: 1, ..three.token.clone() };
    let spec = join_spec(three.temp.path(), 4, &wrong);
    let decided = || status(&three.servers[0]).map.iter().filter_map(|replica| replica.applied).max();
    let before = decided();
    assert!(join(&spec).unwrap_err().to_string().contains("token is wrong"));
    assert_eq!(decided(), before, "the sender is not authenticated: nothing is written for it");
    let other = Token { fingerprint: "0".repeat(64), ..three.token.clone() };
    let why = join(&join_spec(three.temp.path(), 4, &other)).unwrap_err().to_string();
    assert!(why.contains("no node of the cluster answers"), "{why}");
    let spec = Join { name: "node1".into(), ..join_spec(three.temp.path(), 4, &three.token) };
    assert!(join(&spec).unwrap_err().to_string().contains("there is a node 'node1' already"));
    let spec =
        Join { data: three.temp.path().join("data2"), ..join_spec(three.temp.path(), 4, &three.token) };
    assert!(join(&spec).unwrap_err().to_string().contains("is a member of a cluster already"));
    assert_eq!(status(&three.servers[0]).nodes.len(), 3);
    three.servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn token_is_accepted_by_a_node_with_an_older_map() {
    let mut nodes = several(4);
    // The fourth node keeps no replica of the map, and polls for it.
    let fourth = nodes.servers[3].context.view.map().nodes[&NodeId(4)].address.clone();
    for n in 5..=7 {
        let issued = match ask(&nodes.servers[0], AdminRequest::IssueToken { hours: 1 }) {
            Ok(AdminAnswer::Token(issued)) => issued.token.parse::<Token>().unwrap(),
            other => panic!("{other:?}"),
        };
        let token = Token { addresses: vec![fourth.clone()], ..issued };
        let spec = join_spec(nodes.temp.path(), n, &token);
        assert_eq!(join(&spec).unwrap().node, n as u32);
        nodes.servers.push(serve(&spec.data));
    }
    nodes.servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn volume_starts_although_replicas_are_added_before_the_first_ones_are_open() {
    let nodes = several(5);
    let bricks = (1..=3).map(|n| nodes.brick(n)).collect();
    let name = || "web".to_owned();
    let arbiters = Vec::new();
    let create =
        AdminRequest::CreateVolume { name: name(), replica: 3, bricks, arbiters, shards: None, force: false };
    assert_eq!(ask(&nodes.servers[0], create), Ok(AdminAnswer::Done));
    let (key, value) = ("cluster.metadata-replicas".to_owned(), "5".to_owned());
    let set = AdminRequest::SetOption { name: name(), key, value };
    assert_eq!(ask(&nodes.servers[0], set), Ok(AdminAnswer::Done));
    assert_eq!(ask(&nodes.servers[0], AdminRequest::StartVolume { name: name() }), Ok(AdminAnswer::Done));
    wait_until("all five decide", || {
        let statuses =
            ask(&nodes.servers[0], AdminRequest::VolumeStatus { name: Some(name()), digest: false });
        let Ok(AdminAnswer::Statuses { mut volumes }) = statuses else { panic!("{statuses:?}") };
        let replicas = volumes.remove(0).replicas;
        let decides = |role: &str| role == "leader" || role == "follower";
        replicas.len() == 5 && replicas.iter().all(|replica| replica.online && decides(&replica.role))
    });
    nodes.servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn replica_whose_directory_is_gone_is_not_recreated() {
    let mut three = three();
    three.make_volume();
    three.stop(2);
    let data = three.temp.path().join("data3");
    std::fs::remove_dir_all(data.join("volumes")).unwrap();
    std::fs::remove_dir_all(three.brick(3).path).unwrap();
    let again = serve(&data);
    let find = || {
        let statuses = ask(&again, AdminRequest::VolumeStatus { name: Some("web".into()), digest: false });
        let Ok(AdminAnswer::Statuses { mut volumes }) = statuses else { panic!("{statuses:?}") };
        let volume = volumes.remove(0);
        let replica = volume.replicas.into_iter().find(|replica| replica.node == "node3").unwrap();
        (replica, volume.bricks.into_iter().find(|brick| brick.brick.host == "node3").unwrap())
    };
    wait_until("both are looked at", || {
        let (replica, brick) = find();
        replica.role.contains("is missing") && brick.trouble.is_some_and(|why| why.contains("disk mounted"))
    });
    let (replica, brick) = find();
    assert!(!replica.online && !brick.online);
    assert!(!data.join("volumes").exists() && !three.brick(3).path.exists());
    let group =
        three.servers[0].context.view.map().volume("web").map(|(id, _)| id).unwrap_or(GroupId::CLUSTER);
    assert!(again.context.groups.of(group).is_none());
    three.servers.iter().for_each(|server| server.stop().unwrap());
    again.stop().unwrap();
}

#[test]
fn deleted_volume_leaves_empty_bricks_and_a_retired_brick_is_taken_over_by_force() {
    let three = three();
    three.make_volume();
    let context = &three.servers[0].context;
    let map = context.view.map();
    let id = *map.bricks.iter().find(|(_, brick)| brick.node == NodeId(1)).unwrap().0;
    let brick = context.view.local_brick(id).unwrap();
    for seq in 0..3 {
        let block = shoal_types::BlockId { session: shoal_types::SessionId(999), seq };
        brick.put(block, &[bytes::Bytes::from_static(b"content")]).unwrap();
    }
    drop(brick);
    let path = three.brick(1).path;
    let identity = context.dir.brick(id).unwrap();
    for request in
        [AdminRequest::StopVolume { name: "web".into() }, AdminRequest::DeleteVolume { name: "web".into() }]
    {
        assert_eq!(ask(&three.servers[0], request), Ok(AdminAnswer::Done));
    }
    let is_empty = |n: usize| std::fs::read_dir(three.brick(n).path).unwrap().next().is_none();
    wait_until("all bricks are emptied", || (1..=3).all(is_empty));
    wait_until("it is not shown any more", || status(&three.servers[1]).deleting.is_empty());
    three.make_volume();
    assert_eq!(context.dir.brick(id), Some(identity), "the number stays used");

    // A brick that was retired by an older release, which has left its files in place.
    let old = three.temp.path().join("old");
    shoal_brick::Brick::format(&old).unwrap();
    let identity = shoal_brick::contents(&old).unwrap().0;
    context.dir.made_brick_somewhere(id, identity);
    let why = context.bricks.check_new_place(&old, false).unwrap_err();
    assert!(why.contains("holds a retired brick of this cluster with 0 blocks"), "{why}");
    let said = context.bricks.check_new_place(&old, true).unwrap().unwrap();
    assert!(said.contains("deleted first"), "{said}");
    wait_until("the retired brick is deleted", || std::fs::read_dir(&old).unwrap().next().is_none());
    assert_eq!(context.bricks.check_new_place(&old, false), Ok(None));
    assert!(
        context.bricks.check_new_place(&path, true).unwrap_err().contains("is a brick of volume web"),
        "one in use stays"
    );

    // Adding a brick takes its place with `force` only.
    shoal_brick::Brick::format(&old).unwrap();
    context.dir.made_brick_somewhere(id, shoal_brick::contents(&old).unwrap().0);
    let bricks = vec![BrickName { host: "node1".into(), path: old.clone() }];
    let add = |force| {
        ask(&three.servers[0], AdminRequest::AddBricks { name: "web".into(), bricks: bricks.clone(), force })
    };
    let why = add(false).unwrap_err();
    assert!(why.contains("retired brick") && why.contains("`force` after the bricks"), "{why}");
    assert_eq!(add(true), Ok(AdminAnswer::Done));
    wait_until("the new brick is served", || {
        let map = context.view.map();
        let added = map.bricks.iter().find(|(_, brick)| brick.path == old);
        added.is_some_and(|(id, _)| context.view.local_brick(*id).is_some())
    });
    three.servers.iter().for_each(|server| server.stop().unwrap());
}

fn refusal(server: &Server) -> Option<String> {
    ask(server, AdminRequest::ClusterStatus).err()
}

fn start_error(data: &Path) -> String {
    let mut why = None;
    // The stopped server may take a moment to release the directory.
    wait_until("the directory is free", || {
        let dir = NodeDir::open(data).ok();
        let spec = ServeSpec {
            data: data.to_owned(),
            listen: None,
            memory_bytes: None,
            cache_bytes: None,
            moved: false,
            web: WebListen::Off,
        };
        why = dir.map(|dir| Server::start(dir, &spec).err().map(|error| format!("{error:#}")));
        why.is_some()
    });
    why.flatten().expect("the server does not start")
}

#[test]
fn detached_node_stops_serving_and_says_so() {
    let mut nodes = several(4);
    assert_eq!(
        ask(&nodes.servers[0], AdminRequest::Detach { host: "node4".into(), force: false }),
        Ok(AdminAnswer::Done)
    );
    wait_until("the node has learned it", || refusal(&nodes.servers[3]).is_some());
    let why = refusal(&nodes.servers[3]).unwrap();
    assert!(why.contains("node4") && why.contains("was detached") && why.contains("peer join"), "{why}");
    nodes.stop(3);
    let why = start_error(&nodes.temp.path().join("data4"));
    assert!(why.contains("does not start a server any more") && why.contains("was detached"), "{why}");
    // A node that was down when it was detached learns it from its peers.
    let away = nodes.temp.path().join("data3");
    nodes.stop(2);
    assert_eq!(
        ask(&nodes.servers[0], AdminRequest::Detach { host: "node3".into(), force: true }),
        Ok(AdminAnswer::Done)
    );
    let back = serve(&away);
    wait_until("the node has learned it, too", || refusal(&back).is_some());
    back.stop().unwrap();
    assert_eq!(status(&nodes.servers[1]).nodes.len(), 2);
    nodes.servers.iter().for_each(|server| server.stop().unwrap());
}

fn copy_tree(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    // A file may vanish while it is copied; what counts is the identity in the copy.
    assert!(to.join("node.json").exists(), "{copied}");
}

#[test]
fn copy_of_a_running_node_is_refused_and_the_node_goes_on() {
    let three = three();
    three.make_volume();
    let (data, copy) = (three.temp.path().join("data3"), three.temp.path().join("copy"));
    let runs = || three.servers[0].context.view.map().runs.clone();
    wait_until("all starts are noted in the map", || runs().len() == 3);
    let before = runs();
    copy_tree(&data, &copy);
    let why = start_error(&copy);
    assert!(why.contains("is a copy"), "{why}");

    // A copy that cannot be told from the original, as of a whole disk.
    let spec = ServeSpec {
        data: copy.clone(),
        listen: Some(free_address()),
        memory_bytes: None,
        cache_bytes: None,
        moved: true,
        web: WebListen::Off,
    };
    let twin = Server::start(NodeDir::open(&copy).unwrap(), &spec).unwrap();
    wait_until("the copy is refused", || refusal(&twin).is_some());
    let why = refusal(&twin).unwrap();
    assert!(why.contains("another process with this node's identity"), "{why}");
    twin.stop().unwrap();
    drop(twin);
    assert!(start_error(&copy).contains("another process"));
    assert_eq!(refusal(&three.servers[2]), None);
    assert_eq!(runs(), before, "the map names the original still");
    assert!(status(&three.servers[0]).nodes[2].connected);
    let set = AdminRequest::SetOption {
        name: "web".into(),
        key: "heal.bytes-per-second".into(),
        value: "1000".into(),
    };
    assert_eq!(ask(&three.servers[2], set), Ok(AdminAnswer::Done));
    three.servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn old_copy_of_a_node_is_refused_after_all_peers_were_restarted() {
    let mut three = three();
    let (data, copy) = (three.temp.path().join("data3"), three.temp.path().join("copy"));
    three.stop(2);
    copy_tree(&data, &copy);
    let again = serve(&data);
    let run = again.context.run;
    let noted = |server: &Server| server.context.view.map().runs.get(&NodeId(3)) == Some(&run);
    wait_until("the later start is noted in the map", || three.servers.iter().all(|server| noted(server)));
    again.stop().unwrap();
    drop(again);
    three.stop(1);
    three.stop(0);
    for n in [1, 2] {
        three.servers.push(serve(&three.temp.path().join(format!("data{n}"))));
    }
    // The copy starts once more, which gives it the same count as the original's last start.
    let text = std::fs::read_to_string(copy.join("node.json")).unwrap();
    let mut identity: serde_json::Value = serde_json::from_str(&text).unwrap();
    identity["place"] = serde_json::Value::Null;
    std::fs::write(copy.join("node.json"), identity.to_string()).unwrap();
    let old = serve(&copy);
    assert_eq!(old.context.run.starts, run.starts);
    wait_until("the copy is refused", || refusal(&old).is_some());
    assert!(refusal(&old).unwrap().contains("an old copy"));
    old.stop().unwrap();
    three.servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn replica_that_is_newer_than_the_known_map_is_not_swept() {
    let temp = tempfile::tempdir().unwrap();
    let (data, address) = (temp.path().join("data1"), free_address());
    init(&Init { data: data.clone(), name: "node1".into(), listen: address.clone(), address }).unwrap();
    let server = serve(&data);
    let context = &server.context;
    let map = context.view.map();
    let volume = GroupId(77);
    let (old, new) = (ReplicaId(0), ReplicaId(map.next.replica));
    for id in [old, new] {
        context.dir.begin_replica(id).unwrap();
        std::fs::create_dir_all(context.dir.replica(volume, id)).unwrap();
    }
    context.groups.sweep(&map);
    let left = |id| context.dir.replica(volume, id).exists();
    assert!(!left(old), "its volume was deleted");
    assert!(left(new), "this map was made before its volume");
    server.stop().unwrap();
}

#[test]
fn node_is_not_detached_while_its_groups_have_no_majority_without_it() {
    let mut three = three();
    let detach = || AdminRequest::Detach { host: "node2".into(), force: false };
    let third = three.temp.path().join("data3");
    let has_three_votes = |server: &Server| {
        let replicas = server.context.report(false).replicas;
        replicas.iter().any(|one| one.group == GroupId::CLUSTER && one.leads && one.members.len() == 3)
    };
    wait_until("all three vote", || three.servers.iter().any(|server| has_three_votes(server)));
    three.stop(2);
    let why = ask(&three.servers[0], detach()).unwrap_err();
    assert!(why.contains("only 1 of the 3 replicas of the cluster map"), "{why}");
    assert!(three.servers[0].context.view.map().nodes.contains_key(&NodeId(2)));
    three.servers.push(serve(&third));
    wait_until("the third replica is back", || ask(&three.servers[0], detach()).is_ok());
    let set = AdminRequest::IssueToken { hours: 1 };
    wait_until("the rest decides", || ask(&three.servers[0], set.clone()).is_ok());
    three.servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn only_copy_of_a_block_is_not_given_up_with_a_replaced_brick_that_is_not_served() {
    let mut three = three();
    let (name, arbiters) = ("web".to_owned(), Vec::new());
    let bricks = vec![three.brick(3)];
    let create = AdminRequest::CreateVolume { name, replica: 1, bricks, arbiters, shards: None, force: true };
    assert_eq!(ask(&three.servers[0], create), Ok(AdminAnswer::Done));
    let start = AdminRequest::StartVolume { name: "web".into() };
    assert_eq!(ask(&three.servers[0], start), Ok(AdminAnswer::Done));
    let view = three.servers[0].context.view.clone();
    let (volume, _) = view.map().volume("web").unwrap();
    let replicas = Arc::new(VolumeReplicas { view: view.clone(), volume, requests: Arc::default() });
    let client = Client::open_replicated(replicas, ReplicatedBlocks::new(volume, view), Options::default());
    let (client, wait) = (client.unwrap(), Wait::Allowed);
    let caller = Caller { uid: 0, gid: 0, umask: 0 };
    let file = client.create(wait, &caller, InodeId::ROOT, b"file", 0o100_600, 0).unwrap().ino;
    client.write(wait, file, 0, &[7; 1 << 20], false).unwrap();
    client.fsync(file).unwrap();
    client.close().unwrap();

    let new = BrickName { host: "node1".into(), path: three.temp.path().join("brick4") };
    let old = three.brick(3);
    let replace = |force| {
        let (name, old, new) = ("web".into(), old.clone(), new.clone());
        AdminRequest::ReplaceBrick { name, old, new, force }
    };
    three.stop(2);
    let why = ask(&three.servers[0], replace(false)).unwrap_err();
    assert!(why.contains("1 blocks") && why.contains("force"), "{why}");
    assert_eq!(three.servers[0].context.view.map().bricks.len(), 1);
    three.servers.push(serve(&three.temp.path().join("data3")));
    // It is not served yet at this moment, and holds the only copy.
    assert_eq!(ask(&three.servers[0], replace(false)), Ok(AdminAnswer::Done));
    let state = |server: &Server| server.context.view.map().bricks.values().next().map(|brick| brick.state);
    assert_ne!(state(&three.servers[0]), Some(shoal_cluster::BrickState::Gone));
    three.servers.iter().for_each(|server| server.stop().unwrap());
}

#[test]
fn running_node_is_not_replaced_by_a_machine_that_joins_at_its_address() {
    let mut three = three();
    let address = three.servers[0].context.view.map().nodes[&NodeId(2)].address.clone();
    let spec = Join { address: address.clone(), ..join_spec(three.temp.path(), 4, &three.token) };
    let why = join(&spec).unwrap_err().to_string();
    assert!(why.contains("node2") && why.contains("runs"), "{why}");
    assert!(three.servers[0].context.view.map().nodes.contains_key(&NodeId(2)));
    let own = three.servers[0].context.view.map().nodes[&NodeId(1)].address.clone();
    let why = join(&Join { address: own, ..spec.clone() }).unwrap_err().to_string();
    assert!(why.contains("node1") && why.contains("runs"), "{why}");
    three.stop(1);
    assert_eq!(join(&spec).unwrap().node, 4, "a node that does not run has lost its disk");
    three.servers.iter().for_each(|server| server.stop().unwrap());
}
