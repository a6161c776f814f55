use super::files::{FileRow, Kind};
use super::state::*;
use crate::admin::{
    BrickProfile, ClusterReport, MountName, MountProfile, MountTop, PeerReport, ProfileReport, TopFile,
    TopReport, VolumeHealth, VolumeState,
};
use crate::limits::{TOP_HISTORY_MAX, TOP_INTERVAL_S_DEFAULT};
use crate::profile::{OpReport, Profile, Profiled, Sizes};
use crate::rates::{Rates, Row};

/// A state that has heard of a cluster of three nodes, some of which are down.
pub fn cluster(volumes: &[&str], down: &[&str]) -> State {
    let mut state = State::of_cluster(None, TOP_INTERVAL_S_DEFAULT);
    learn(&mut state, 0, What::Cluster(Ok(Box::new(report(volumes, down)))));
    state
}

pub fn report(volumes: &[&str], down: &[&str]) -> ClusterReport {
    let node = |node: u32| {
        let name = format!("n{node}");
        PeerReport {
            node,
            connected: !down.contains(&name.as_str()),
            address: format!("{name}:7470"),
            local: node == 1,
            name,
            version: None,
            pid: None,
            uptime_s: None,
            epoch: None,
        }
    };
    let volume = |name: &&str| VolumeHealth {
        name: (*name).into(),
        state: VolumeState::Started,
        bricks_online: 3,
        bricks: 3,
        replicas_online: 3,
        replicas: 3,
        has_leader: true,
        degraded: Some(0),
        full_bricks: Vec::new(),
    };
    ClusterReport {
        cluster: "0123456789abcdef0123456789abcdef".into(),
        epoch: 7,
        node: "n1".into(),
        nodes: (1..=3).map(node).collect(),
        map: Vec::new(),
        volumes: volumes.iter().map(volume).collect(),
        attention: Vec::new(),
        deleting: Vec::new(),
    }
}

/// News that came so many seconds after the beginning, of the volume that is shown.
pub fn learn(state: &mut State, at_s: u64, what: What) -> Action {
    let volume = state.shown().volume.clone().filter(|_| !matches!(what, What::Cluster(_)));
    state.learn(News { volume, at_ms: at_s * 1000, at_unix_s: 1_767_225_599 + at_s, what })
}

fn mount(host: &str) -> MountName {
    MountName { host: host.into(), mountpoint: Some("/mnt/web".into()), pid: Some(17) }
}

/// After so many seconds: a thousand reads and a hundred writes a second of the first mount, ten times less
/// of the second, and of the bricks.
pub fn profile(at_s: u64, away: bool) -> ProfileReport {
    let profiled = |scale: u64, names: [&str; 2]| {
        let op = |name: &str, count: u64, bucket: usize| {
            let mut latency_log2 = vec![0; bucket + 1];
            latency_log2[bucket] = count;
            let total_ns = count * 3 * (1 << bucket) / 2;
            let op = OpReport { name: name.into(), latency_log2, total_ns, ..OpReport::default() };
            op.since(&OpReport::default())
        };
        let sizes = |bytes| Sizes { bytes, size_log2: Vec::new() };
        let done = scale * at_s;
        let cumulative = Profile {
            duration_s: at_s,
            duration_ms: at_s * 1000,
            reads: sizes(done * 120_000),
            writes: sizes(done * 10_000),
            operations: vec![op(names[0], done * 10, 17), op(names[1], done, 21)],
            metadata: Vec::new(),
        };
        Profiled { cumulative, ..Profiled::default() }
    };
    let brick = |node: u32| {
        let gone = away && node == 3;
        BrickProfile {
            brick: format!("n{node}:/srv/web").parse().expect("a brick"),
            profiled: (!gone).then(|| profiled(30 * u64::from(node), ["get", "put"])),
            trouble: gone.then(|| "its node does not answer, or does not serve it".into()),
        }
    };
    let one =
        |host: &str, scale| MountProfile { mount: mount(host), profiled: profiled(scale, ["read", "write"]) };
    ProfileReport {
        name: "web".into(),
        bricks: (1..=3).map(brick).collect(),
        mounts: [("web1", 100), ("web2", 10)].into_iter().map(|(host, scale)| one(host, scale)).collect(),
        silent: if away { vec![mount("web3")] } else { Vec::new() },
        trouble: None,
    }
}

/// After so many seconds: of some files, each read a tenth as often as the one before it.
pub fn top(at_s: u64) -> TopReport {
    let paths = ["/a/often", "/a/seldom", "/projects/2026/november/a-long-name-of-a-directory/b/data.bin"];
    let file = |(at, path): (usize, &&str)| {
        let count = 800 * at_s / 10u64.pow(at as u32);
        TopFile { path: Some((*path).into()), inode: at as u64, count, over_max: 0, bytes: count * 12_000 }
    };
    let files = paths.iter().enumerate().map(file).collect();
    TopReport {
        name: "web".into(),
        operation: "read".into(),
        by_bytes: false,
        mounts: vec![MountTop { mount: mount("web1"), duration_s: at_s, files }],
        silent: Vec::new(),
        trouble: None,
    }
}

/// A cluster under load, whose node n3 may be down.
pub fn loaded(away: bool) -> State {
    let mut state = cluster(&["other", "web"], if away { &["n3"] } else { &[] });
    assert_eq!(state.press(Key::Volume(2)), Action::Watch("web".into()));
    for at_s in [100, 102, 104] {
        learn(&mut state, at_s, What::Profile(Ok(Box::new(profile(at_s, away)))));
        for kind in Kind::ALL {
            learn(&mut state, at_s, What::Top(kind, Ok(top(at_s))));
        }
    }
    state
}

#[test]
fn first_volume_is_watched_unless_one_is_named_and_keys_choose_another() {
    let mut state = State::of_cluster(None, 2.0);
    let watched = learn(&mut state, 0, What::Cluster(Ok(Box::new(report(&["web", "other"], &[])))));
    assert_eq!(watched, Action::Watch("other".into()));
    assert_eq!(state.press(Key::Volume(2)), Action::Watch("web".into()));
    assert_eq!(state.press(Key::Volume(2)), Action::Nothing, "it is watched already");
    assert_eq!(state.press(Key::Volume(3)), Action::Nothing, "there is none");
    assert_eq!(state.press(Key::NextVolume), Action::Watch("other".into()));
    // An answer about the volume before is not taken for one about this.
    let late = News {
        volume: Some("web".into()),
        at_ms: 5000,
        at_unix_s: 5,
        what: What::Profile(Ok(Box::new(profile(5, false)))),
    };
    state.learn(late);
    assert!(state.shown().sample.mounts.is_empty());
    let mut named = State::of_cluster(Some("web".into()), 2.0);
    let watched = learn(&mut named, 0, What::Cluster(Ok(Box::new(report(&["other", "web"], &[])))));
    assert_eq!(watched, Action::Nothing);
}

#[test]
fn all_is_known_after_two_answers_of_each_kind() {
    let mut state = cluster(&["web"], &[]);
    for at_s in [10, 12] {
        assert!(!state.is_complete());
        learn(&mut state, at_s, What::Profile(Ok(Box::new(profile(at_s, false)))));
        for kind in Kind::ALL {
            learn(&mut state, at_s, What::Top(kind, Ok(top(at_s))));
        }
    }
    assert!(state.is_complete());
    let total = state.shown().sample.total.clone().expect("a total");
    assert_eq!((total.operations, total.read_bytes), (1210.0, 13_200_000.0));
    assert_eq!(state.shown().history.len(), 1);
}

#[test]
fn node_that_is_down_and_a_silent_mount_are_noted_and_the_rest_goes_on() {
    let state = loaded(true);
    assert_eq!(state.shown().notes, ["node n3 does not answer", "mount web3:/mnt/web does not answer"]);
    assert!(state.shown().sample.total.is_some());
    let row = state.shown().sample.bricks.last().expect("three bricks");
    assert_eq!((row.name.as_str(), row.rates.is_none(), row.trouble.is_some()), ("n3:/srv/web", true, true));
    assert_eq!(state.notes_at(1_767_225_599 + 104).len(), 2);
    assert_eq!(state.notes_at(1_767_225_599 + 164)[0], "no answer for 1m 00s");
}

#[test]
fn deleted_volume_and_lost_cluster_are_noted_without_old_figures() {
    let mut state = loaded(false);
    learn(&mut state, 106, What::Profile(Err("there is no volume web".into())));
    learn(&mut state, 106, What::Top(Kind::Read, Err("there is no volume web".into())));
    let shown = state.shown();
    assert_eq!(shown.notes, ["there is no volume web"]);
    assert!(shown.sample.total.is_none() && shown.sample.mounts.iter().all(|row| row.rates.is_none()));
    assert_eq!(shown.history.back(), Some(&None));
    learn(&mut state, 108, What::Profile(Ok(Box::new(profile(108, false)))));
    learn(&mut state, 108, What::Top(Kind::Read, Ok(top(108))));
    assert!(state.shown().notes.is_empty() && state.shown().sample.total.is_some());
    learn(&mut state, 109, What::Cluster(Err("the server does not run\u{1b}[31m".into())));
    assert_eq!(state.shown().notes, ["the server does not run?[31m"]);
}

#[test]
fn cluster_without_volumes_says_so() {
    let state = cluster(&[], &[]);
    assert_eq!(state.shown().notes, ["the cluster has no volume yet"]);
}

#[test]
fn paused_screen_stays_while_news_come_and_shows_the_latest_afterwards() {
    let mut state = loaded(false);
    state.press(Key::Pause);
    learn(&mut state, 106, What::Profile(Ok(Box::new(profile(106, false)))));
    assert_eq!(state.shown().history.len(), 2);
    state.press(Key::Pause);
    assert_eq!(state.shown().history.len(), 3);
    for at_s in 0..2 * TOP_HISTORY_MAX as u64 {
        learn(&mut state, 200 + at_s, What::Profile(Err("away".into())));
    }
    assert_eq!(state.shown().history.len(), TOP_HISTORY_MAX);
}

#[test]
fn tables_are_sorted_by_the_chosen_column_and_the_unknown_comes_last() {
    let row = |name: &str, values: Option<(f64, f64, u64)>| Row {
        name: name.into(),
        rates: values.map(|(operations, read_bytes, mean_ns)| Rates {
            operations,
            read_bytes,
            mean_ns,
            ..Rates::default()
        }),
        trouble: None,
    };
    let rows = [
        row("x", None),
        row("a", Some((1.0, 5.0, 9))),
        row("b", Some((3.0, 0.0, 4))),
        row("c", Some((1.0, 6.0, 1))),
    ];
    let names = |sort| sorted(&rows, sort).iter().map(|row| row.name.as_str()).collect::<String>();
    assert_eq!([Sort::Operations, Sort::Read, Sort::Latency].map(names), ["bacx", "cabx", "abcx"]);
}

#[test]
fn directories_have_what_happens_to_the_files_in_them() {
    let file = |path: &str, operations, mount: &str| FileRow {
        path: path.into(),
        operations,
        mount: mount.into(),
        ..FileRow::default()
    };
    let files =
        [file("/a/x", 1.0, "m"), file("/a/y", 2.0, "n"), file("/top", 5.0, "m"), file("(inode 7)", 1.0, "m")];
    let rows = sorted_files(&files, Sort::Operations, true);
    let rows: Vec<_> = rows.iter().map(|row| (row.path.as_str(), row.operations, row.other_mounts)).collect();
    assert_eq!(rows, [("/", 5.0, 0), ("/a", 3.0, 1), ("(removed, or not committed yet)", 1.0, 0)]);
}
