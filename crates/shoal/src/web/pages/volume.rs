//! One volume: its state, what it does over time and how long that takes, its mounts, bricks, replicas,
//! options.

use super::overview::with_code;
use super::parts::*;
use super::{View, state, volumes};
use crate::admin::{VolumeReport, VolumeState, VolumeStatus};
use crate::limits::WEB_WINDOW;
use crate::rates::{Rates, Row};
use crate::show;
use crate::web::chart::{Scale, Series, Window, chart};
use crate::web::history::{History, Hop, Point};
use crate::web::html::{Html, put};

pub fn volume(view: &View<'_>, name: &str) -> Html {
    let mut page = Html::default();
    let reports = view.known.volumes.as_ref();
    let Some(report) = reports.and_then(|all| all.iter().find(|report| report.name == name)) else {
        put!(&mut page; "<p class=\"notice\">The nodes are being asked about volume ", (name), ".</p>");
        return page;
    };
    put!(&mut page; [head(view, report)]);
    let tasks = volumes::tasks(view, name);
    if !tasks.is_empty() {
        put!(&mut page; [section("Work on blocks", "", &tasks)]);
    }
    let history = view.known.histories.get(name);
    if report.state == VolumeState::Started {
        put!(&mut page; [activity(view, history.map(|history| &**history))]);
    }
    let statuses = view.known.statuses.as_ref();
    let status = statuses.and_then(|all| all.iter().find(|status| status.name == name));
    put!(&mut page; [mounts(view, name, history.map(|history| &**history))]);
    put!(&mut page; [bricks(status, history.map(|history| &**history))], [replicas(status)], [options(report)]);
    page
}

/// Name, state and kind, and what is wrong with this volume.
fn head(view: &View<'_>, report: &VolumeReport) -> Html {
    let (severity, word) = state(report.state);
    let mut page = Html::default();
    put!(&mut page; "<div class=\"head\"><h1>", (&report.name), "</h1><p>", [badge(severity, word)], " <span>", (volumes::kind(report)),
        "</span> <span>created ", (show::date(report.created)), "</span></p><p class=\"note\">");
    let survives = |nodes: u32| count(nodes as usize, "node");
    put!(&mut page; "Goes on with ", (survives(report.data_nodes_may_be_down)), " with bricks and ",
        (survives(report.metadata_nodes_may_be_down)), " with metadata down.</p>");
    let begins = format!("volume {}: ", report.name);
    let its = view.known.cluster.iter().flat_map(|cluster| &cluster.attention);
    let its: Vec<&str> = its.filter_map(|line| line.strip_prefix(begins.as_str())).collect();
    if !its.is_empty() {
        put!(&mut page; "<div class=\"health warn\"><ul>");
        for line in its {
            put!(&mut page; "<li>", [with_code(line)], "</li>");
        }
        put!(&mut page; "</ul></div>");
    }
    put!(&mut page; "</div>");
    page
}

fn rate(bytes: f64) -> String {
    format!("{} MB/s", short(bytes / 1e6))
}

fn latency(ns: f64) -> String {
    // `1 ms` is better at an axis than `1.0 ms`.
    show::nanos(ns as u64).replace(".0 ", " ")
}

fn share(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

/// A number with no more digits than are of use.
fn short(value: f64) -> String {
    match value {
        none if none <= 0.0 => "0".into(),
        small if small < 9.95 => format!("{small:.1}"),
        some => grouped(some.round() as u64),
    }
}

/// The charts, and what happens now by hop.
fn activity(view: &View<'_>, history: Option<&History>) -> Html {
    let mut page = Html::default();
    let none = History::default();
    let history = history.unwrap_or(&none);
    if history.points.is_empty() {
        put!(&mut page; "<p class=\"none\">The mounts and bricks are being asked; the charts begin with their second answer.</p>");
    }
    let window =
        Window { from_ms: view.now_ms.saturating_sub(WEB_WINDOW.as_millis() as u64), to_ms: view.now_ms };
    let series = |label: &'static str, shape: fn(f64) -> String, of: fn(&Point) -> Option<f64>| Series {
        label,
        now: history.now().as_ref().and_then(of).map_or_else(|| UNKNOWN.into(), shape),
        points: history.points.iter().map(|(at_ms, point)| (*at_ms, point.as_ref().and_then(of))).collect(),
    };
    let throughput = [
        series("read", rate, |point| Some(point.read_bytes)),
        series("written", rate, |point| Some(point.written_bytes)),
    ];
    let requests = [series("requests of programs", per_s, |point| Some(point.mounts.per_s))];
    let latencies = [
        series("programs wait", latency, |point| took(&point.mounts)),
        series("metadata", latency, |point| took(&point.metadata)),
        series("disks", latency, |point| took(&point.bricks)),
    ];
    let memory = [series("from memory", share, |point| point.from_memory)];
    put!(&mut page; "<div class=\"charts\">",
        [chart("Throughput", Scale::Linear, rate, &throughput, window)],
        [chart("Requests", Scale::Linear, per_s, &requests, window)],
        [chart("Mean latency by hop", Scale::Logarithmic, latency, &latencies, window)],
        [chart("Answered from the mounts' memory", Scale::Share, share, &memory, window)],
        "</div>", [hops(history.now())]);
    section("What it does", "all mounts and bricks together", &page)
}

fn per_s(value: f64) -> String {
    format!("{}/s", short(value))
}

/// The mean, if there were requests.
fn took(hop: &Hop) -> Option<f64> {
    (hop.mean_ns > 0).then_some(hop.mean_ns as f64)
}

fn hops(now: Option<Point>) -> Html {
    let Some(now) = now else { return Html::default() };
    let mut table = Table::new(&["Hop", ">Per second", ">Mean", ">99 of 100 within", "What it includes"]);
    for (name, hop, what) in [
        ("Requests of programs", now.mounts, "the mount's kernel until the answer, from memory or not"),
        ("Metadata", now.metadata, "network, queue, Raft and store, as mounts see it"),
        ("Bricks", now.bricks, "reads and writes of blocks, without the network"),
    ] {
        let [mean, p99] = [hop.mean_ns, hop.p99_ns].map(show::nanos);
        table.row(&[cell(name), cell(short(hop.per_s)), cell(mean), cell(p99), cell(what)]);
    }
    table.or("")
}

/// The figures of a mount or brick: operations, read, written, mean, 99 of 100.
fn figures(row: Option<&Row>) -> [Html; 5] {
    let rates: Option<&Rates> = row.and_then(|row| row.rates.as_ref());
    let Some(rates) = rates else { return [(); 5].map(|()| cell(UNKNOWN)) };
    let megabytes = |bytes: f64| cell(short(bytes / 1e6));
    [
        cell(short(rates.operations)),
        megabytes(rates.read_bytes),
        megabytes(rates.written_bytes),
        cell(show::nanos(rates.mean_ns)),
        cell(show::nanos(rates.p99_ns)),
    ]
}

/// The busiest mounts.
fn mounts(view: &View<'_>, name: &str, history: Option<&History>) -> Html {
    let mut rows: Vec<&Row> = history.iter().flat_map(|history| &history.last.mounts).collect();
    let per_s = |row: &Row| row.rates.as_ref().map_or(0.0, |rates| rates.operations);
    rows.sort_by(|a, b| per_s(b).total_cmp(&per_s(a)));
    let mut table = Table::new(&[
        "Mount",
        ">Requests/s",
        ">Read MB/s",
        ">Written MB/s",
        ">Mean",
        ">99 of 100",
        "Most time",
    ]);
    let (shown, links) = paged(&rows, view.query.page, "", "");
    for row in shown.iter().copied() {
        let [operations, read, written, mean, p99] = figures(Some(row));
        let busiest = row.rates.as_ref().and_then(|rates| rates.busiest.as_ref());
        let busiest = match (&row.trouble, busiest) {
            (Some(why), _) => badge(Severity::Warning, why),
            (None, Some((operation, percent))) => cell(format_args!("{operation} {percent}%")),
            (None, None) => cell(UNKNOWN),
        };
        table.row(&[cell(&row.name), operations, read, written, mean, p99, busiest]);
    }
    let mut content = table.or("Nothing has it mounted, or the mounts have not answered yet.");
    put!(&mut content; [links], "<p class=\"note\"><a href=\"/clients?volume=", { name }, "\">what they hold</a></p>");
    section("Mounts", "", &content)
}

fn bricks(status: Option<&VolumeStatus>, history: Option<&History>) -> Html {
    let mut table = Table::new(&[
        "Brick",
        "State",
        "Room",
        ">Calls/s",
        ">Read MB/s",
        ">Written MB/s",
        ">Mean",
        ">99 of 100",
    ]);
    for brick in status.iter().flat_map(|status| &status.bricks) {
        let name = brick.brick.to_string();
        let mut rows = history.iter().flat_map(|history| &history.last.bricks);
        let [calls, read, written, mean, p99] = figures(rows.find(|row| row.name == name));
        let room = room(brick.total_bytes, brick.free_bytes);
        table.row(&[cell(name), volumes::brick_state(brick), room, calls, read, written, mean, p99]);
    }
    section("Bricks", "", &table.or("Its bricks are not known yet."))
}

fn replicas(status: Option<&VolumeStatus>) -> Html {
    let mut table = Table::new(&["Node", "Role", ">Term", ">Applied", ">Behind"]);
    for replica in status.iter().flat_map(|status| &status.replicas) {
        let role = match (replica.online, replica.role.as_str()) {
            (true, "leader") => badge(Severity::Good, "leader"),
            (true, role) => badge(Severity::Neutral, role),
            (false, why) => badge(Severity::Bad, why),
        };
        let applied = known(replica.applied.map(grouped));
        table.row(&[
            cell(&replica.node),
            role,
            known(replica.term),
            applied,
            known(replica.lag.map(grouped)),
        ]);
    }
    section("Metadata replicas", "", &table.or("Its replicas are not known yet."))
}

fn options(report: &VolumeReport) -> Html {
    let mut table = Table::new(&["Option", "Value"]);
    for (key, value) in &report.options {
        table.row(&[cell(key), cell(value)]);
    }
    section("Options", "those that differ from the default", &table.or("All options have their defaults."))
}
