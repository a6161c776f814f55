//! Pages of clusters that are not there.

use super::*;
use crate::admin::{
    AdminAnswer, ClientReport, Event, EventKind, EventsReport, TaskKind, TaskReport, TaskState, TasksReport,
};
use crate::limits::WEB_ROWS_MAX;
use crate::web::fixture;
use crate::web::query_cache::QueryCache;
use std::time::{Duration, Instant};

const NOW_S: u64 = 1_800_000_000;

/// A cache that knows such a cluster.
fn cache(nodes: usize, volumes: usize, clients: usize) -> QueryCache {
    let mut cache = QueryCache::default();
    let reports = (0..volumes).map(fixture::volume).collect();
    learn(&mut cache, StatusQuery::Cluster, AdminAnswer::Cluster(fixture::cluster(nodes, volumes)));
    learn(&mut cache, StatusQuery::Volumes, AdminAnswer::Volumes { volumes: reports });
    let statuses = (0..volumes).map(fixture::status).collect();
    learn(&mut cache, StatusQuery::Statuses, AdminAnswer::Statuses { volumes: statuses });
    let sessions = (0..volumes).map(|n| fixture::sessions(n, clients)).collect();
    learn(&mut cache, StatusQuery::Sessions, AdminAnswer::Sessions { volumes: sessions });
    learn(&mut cache, StatusQuery::Clients, AdminAnswer::Clients { clients: Vec::new() });
    cache
}

fn learn(cache: &mut QueryCache, query: StatusQuery, answer: AdminAnswer) {
    learn_at(cache, query, answer, 1000);
}

fn learn_at(cache: &mut QueryCache, query: StatusQuery, answer: AdminAnswer, now_ms: u64) {
    cache.want(&query, now_ms);
    cache.answered(&query, Ok(answer), now_ms);
}

fn shown_with(cache: &QueryCache, page: &Page, query: &str) -> String {
    let query = Query::of(query);
    render(page, &View { known: cache.known(), query: &query, now_ms: 700_000, now_unix_s: NOW_S })
}

fn shown(cache: &QueryCache, page: &Page) -> String {
    shown_with(cache, page, "")
}

fn all(name: &str) -> [Page; 5] {
    [Page::Overview, Page::Volumes, Page::Volume(name.into()), Page::Clients, Page::Events]
}

#[test]
fn nothing_that_a_cluster_is_called_becomes_markup() {
    let evil = "<img src=x onerror=alert(1)>\"'&";
    let mut cache = QueryCache::default();
    let mut cluster = fixture::cluster(1, 1);
    (cluster.node, cluster.nodes[0].name, cluster.nodes[0].address) = (evil.into(), evil.into(), evil.into());
    (cluster.volumes[0].name, cluster.attention) =
        (evil.into(), vec![evil.into(), format!("volume {evil}: `{evil}`")]);
    learn(&mut cache, StatusQuery::Cluster, AdminAnswer::Cluster(cluster));
    let mut volume = fixture::volume(0);
    volume.name = evil.into();
    volume.options.insert(evil.into(), evil.into());
    learn(&mut cache, StatusQuery::Volumes, AdminAnswer::Volumes { volumes: vec![volume] });
    let mut status = fixture::status(0);
    (status.name, status.replicas[0].node, status.bricks[0].trouble) =
        (evil.into(), evil.into(), Some(evil.into()));
    status.bricks[0].brick = format!("node1:/{evil}").parse().unwrap();
    learn(&mut cache, StatusQuery::Statuses, AdminAnswer::Statuses { volumes: vec![status] });
    let mut sessions = fixture::sessions(0, 1);
    (sessions.name, sessions.trouble) = (evil.into(), Some(evil.into()));
    let session = &mut sessions.sessions[0];
    (session.host, session.mountpoint, session.credentials) =
        (evil.into(), Some(evil.into()), Some(evil.into()));
    learn(&mut cache, StatusQuery::Sessions, AdminAnswer::Sessions { volumes: vec![sessions] });
    let client = ClientReport { name: evil.into(), issued: None, revoked: true };
    learn(&mut cache, StatusQuery::Clients, AdminAnswer::Clients { clients: vec![client] });
    let event = Event {
        at_ms: 1,
        node: evil.into(),
        run: 1,
        number: 1,
        kind: EventKind::Refused,
        volume: None,
        text: evil.into(),
    };
    let report = EventsReport { events: vec![event], silent: vec![evil.into()] };
    learn(&mut cache, StatusQuery::Events, AdminAnswer::Events(report));
    for (lived_s, requests) in [(10, 0), (12, 1000)] {
        let mut profile = fixture::profile(evil, lived_s, requests);
        profile.mounts[0].mount.host = evil.into();
        learn_at(
            &mut cache,
            StatusQuery::Profile(evil.into()),
            AdminAnswer::Profile(profile),
            lived_s * 1000,
        );
    }
    cache.want(&StatusQuery::Tasks, 1000);
    cache.answered(&StatusQuery::Tasks, Err(evil.into()), 1000);
    for page in all(evil) {
        let text = shown(&cache, &page);
        assert!(
            text.contains("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;"),
            "{page:?} shows none: {text}"
        );
        assert!(!text.contains("<img") && !text.contains("\"'&"), "{page:?}: {text}");
    }
    assert!(!missing(evil).contains("<img"));
}

#[test]
fn pages_of_200_volumes_and_2000_clients_are_small_and_made_at_once() {
    let mut cache = cache(30, 200, 10);
    for (lived_s, requests) in [(10, 0), (12, 1000)] {
        let report = fixture::profile("volume-007", lived_s, requests);
        learn_at(
            &mut cache,
            StatusQuery::Profile("volume-007".into()),
            AdminAnswer::Profile(report),
            lived_s * 1000,
        );
    }
    for page in all("volume-007") {
        let began = Instant::now();
        let text = shown(&cache, &page);
        assert!(began.elapsed() < Duration::from_secs(1), "{page:?} took {:?}", began.elapsed());
        assert!(text.len() < 192 << 10, "{page:?} has {} bytes", text.len());
    }
    let first = shown(&cache, &Page::Clients);
    assert!(
        first.contains("1–100 of 2,000")
            && first.matches("<td class=\"\" data-title=\"Client\">").count() == WEB_ROWS_MAX
    );
    let last = shown_with(&cache, &Page::Clients, "page=20");
    assert!(last.contains("1901–2000 of 2,000"), "{last}");
    let one = shown_with(&cache, &Page::Clients, "volume=volume-011");
    assert!(one.contains("of volume volume-011") && !one.contains("volume-012"), "{one}");
    assert!(shown(&cache, &Page::Overview).contains("all 200 volumes"));
    assert!(shown_with(&cache, &Page::Volumes, "page=2").contains("volume-199"));
}

#[test]
fn overview_says_that_all_is_well_or_what_is_not() {
    let mut cache = cache(3, 1, 2);
    let well = shown(&cache, &Page::Overview);
    assert!(well.contains("All is well") && well.contains("3 of 3") && well.contains("node1"), "{well}");
    let mut cluster = fixture::cluster(3, 1);
    (cluster.nodes[2].connected, cluster.volumes[0].bricks_online) = (false, 2);
    (cluster.nodes[2].uptime_s, cluster.nodes[2].version) = (None, None);
    learn(&mut cache, StatusQuery::Cluster, AdminAnswer::Cluster(cluster.with_attention()));
    let down = shown(&cache, &Page::Overview);
    assert!(down.contains("2 things need attention") && down.contains("2 of 3"), "{down}");
    assert!(
        down.contains("does not answer") && down.contains("<code>shoal volume status volume-000</code>"),
        "{down}"
    );
}

#[test]
fn empty_cluster_and_one_that_has_not_answered_yet_have_pages() {
    for cache in [cache(1, 0, 0), QueryCache::default()] {
        for page in all("gone") {
            let text = shown(&cache, &page);
            assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"), "{text}");
        }
    }
    let text = shown(&cache(1, 0, 0), &Page::Overview);
    assert!(text.contains("There is no volume yet"), "{text}");
    assert!(Page::Volume("gone".into()).is_missing(cache(1, 0, 0).known()));
    assert!(!Page::Volume("gone".into()).is_missing(QueryCache::default().known()), "that is not known yet");
}

#[test]
fn volume_shows_its_charts_its_hops_and_the_progress_of_healing() {
    let mut cache = cache(3, 1, 0);
    let name = "volume-000";
    for step in 0..20 {
        let report = fixture::profile(name, 10 + 3 * step, 3000 * step);
        learn_at(
            &mut cache,
            StatusQuery::Profile(name.into()),
            AdminAnswer::Profile(report),
            600_000 + 3000 * step,
        );
    }
    let mut cluster = fixture::cluster(3, 1);
    for lacking in [400, 100] {
        cluster.volumes[0].degraded = Some(lacking);
        learn(&mut cache, StatusQuery::Cluster, AdminAnswer::Cluster(cluster.clone()));
    }
    let heal = TaskReport {
        task: TaskKind::Heal,
        brick: None,
        state: TaskState::InProgress,
        done: Some(1234),
        left: Some(100),
        copied_bytes: Some(300 << 20),
    };
    let tasks = vec![TasksReport { name: name.into(), tasks: vec![heal], trouble: None }];
    learn(&mut cache, StatusQuery::Tasks, AdminAnswer::Tasks { volumes: tasks });
    let text = shown(&cache, &Page::Volume(name.into()));
    for part in [
        "Throughput",
        "Mean latency by hop",
        "100 blocks to heal",
        "1,234 examined",
        "class=\"filled\" width=\"75\"",
        "90%",
        "1,000/s",
        "web1:/mnt/web",
        "auth.allow",
        "leader",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(shown(&cache, &Page::Volumes).contains("Under way"));
}

#[test]
fn addresses_lead_to_pages_and_nonsense_to_none() {
    assert_eq!(Page::of("/"), Some(Page::Overview));
    assert_eq!(Page::of("/volume/a%2Fb"), Some(Page::Volume("a/b".into())));
    for wrong in ["", "/volume", "/volume/%", "/other", "//", "/volumes/"] {
        assert_eq!(Page::of(wrong), None, "{wrong}");
    }
    assert_eq!(Query::of("page=7&volume=a%20b&x"), Query { page: 7, volume: Some("a b".into()) });
    assert_eq!(Query::of("page=-1&volume=%"), Query::default());
}
