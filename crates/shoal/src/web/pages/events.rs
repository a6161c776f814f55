//! What has happened in the cluster, the newest first.

use super::View;
use super::parts::*;
use crate::admin::{Event, EventKind};
use crate::show;
use crate::web::html::{Html, put};

pub fn events(view: &View<'_>) -> Html {
    let mut page = Html::default();
    let Some(events) = &view.known.events else {
        put!(&mut page; "<p class=\"notice\">The nodes are being asked.</p>");
        return page;
    };
    if !view.known.silent.is_empty() {
        put!(&mut page; "<p class=\"notice\">What these nodes have seen is missing, since they do not answer: ",
            (view.known.silent.join(", ")), "</p>");
    }
    let newest: Vec<&Event> = events.iter().rev().collect();
    let (shown, links) = paged(&newest, view.query.page, "/events", "");
    let mut content = list(view, shown);
    put!(&mut content; [links]);
    put!(&mut page; [section("Events", "since each node's server started", &content)]);
    page
}

/// The last events, with a link to the others.
pub fn last(view: &View<'_>, rows_max: usize) -> Html {
    let events = view.known.events.as_ref();
    let newest: Vec<&Event> = events.iter().flat_map(|events| events.iter().rev()).take(rows_max).collect();
    let mut page = list(view, &newest);
    if events.is_some_and(|events| events.len() > rows_max) {
        put!(&mut page; "<nav class=\"turn\"><a href=\"/events\">all events</a></nav>");
    }
    page
}

fn list(view: &View<'_>, events: &[&Event]) -> Html {
    let mut table = Table::new(&["When", "Event", "Seen by", "What"]);
    for event in events {
        let mut when = Html::default();
        let at_s = event.at_ms / 1000;
        let ago = view.now_unix_s.saturating_sub(at_s);
        put!(&mut when; "<time title=\"", (show::date(at_s)), "\">", (show::seconds(ago)), " ago</time>");
        table.row(&[
            when,
            badge(severity(event.kind), event.kind.name()),
            cell(&event.node),
            cell(&event.text),
        ]);
    }
    table.or("Nothing has happened that any node remembers.")
}

fn severity(kind: EventKind) -> Severity {
    match kind {
        EventKind::NodeDown | EventKind::BrickOffline | EventKind::BrickFull => Severity::Bad,
        EventKind::SessionEnded | EventKind::HealBegun | EventKind::ClockOff | EventKind::Refused => {
            Severity::Warning
        }
        EventKind::NodeUp
        | EventKind::HealDone
        | EventKind::BrickOnline
        | EventKind::BrickRoom
        | EventKind::ClockRight => Severity::Good,
        EventKind::ServerStarted | EventKind::LeaderChanged => Severity::Neutral,
    }
}
