//! The pages. Pure: what is known in, HTML out.
//!
//! **Promises.** Names, paths and texts of the cluster are escaped, whatever they are. Long lists come in
//! pages of [`WEB_ROWS_MAX`](crate::limits::WEB_ROWS_MAX) rows, so that no page grows with the cluster. What
//! is not known is said.

mod clients;
mod enter;
mod events;
mod overview;
mod parts;
#[cfg(test)]
mod tests;
mod volume;
mod volumes;

pub use enter::enter;

use super::html::{Html, decoded, put};
use super::query_cache::{LatestAnswers, StatusQuery};
use crate::admin::{VolumeState, VolumeStatus};
use crate::limits::WEB_REFRESH_S;
use crate::show;
use parts::Severity;

/// A page that can be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Page {
    Overview,
    Volumes,
    /// Of one volume.
    Volume(String),
    Clients,
    Events,
}

/// What the address of a page says beside its path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Query {
    /// Which page of a long list, from 1.
    pub page: usize,
    /// Only of this volume.
    pub volume: Option<String>,
}

/// What a page is made from.
pub struct View<'a> {
    pub known: &'a LatestAnswers,
    pub query: &'a Query,
    /// The time of the cache's clock, in milliseconds.
    pub now_ms: u64,
    pub now_unix_s: u64,
}

impl Query {
    /// From the part of an address after `?`. What makes no sense is left out.
    pub fn of(text: &str) -> Query {
        let mut query = Query::default();
        for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "page" => query.page = value.parse().unwrap_or_default(),
                "volume" => query.volume = decoded(value).filter(|name| !name.is_empty()),
                _ => {}
            }
        }
        query
    }
}

impl Page {
    /// From the path of an address. `None`: there is no such page.
    pub fn of(path: &str) -> Option<Page> {
        Some(match path {
            "/" => Page::Overview,
            "/volumes" => Page::Volumes,
            "/clients" => Page::Clients,
            "/events" => Page::Events,
            other => Page::Volume(decoded(other.strip_prefix("/volume/")?)?),
        })
    }

    /// What has to be known for the page, and what is shown once it is known.
    pub fn queries(&self) -> (Vec<StatusQuery>, Vec<StatusQuery>) {
        use StatusQuery as Q;
        match self {
            Page::Overview => (vec![Q::Cluster, Q::Statuses], vec![Q::Volumes, Q::Sessions, Q::Events]),
            Page::Volumes => (vec![Q::Cluster, Q::Statuses, Q::Volumes], vec![Q::Tasks]),
            Page::Volume(_) => (vec![Q::Cluster, Q::Statuses, Q::Volumes], vec![Q::Tasks]),
            Page::Clients => (vec![Q::Cluster, Q::Sessions, Q::Clients], vec![]),
            Page::Events => (vec![Q::Cluster, Q::Events], vec![]),
        }
    }

    /// Whether the page is of a volume that there is not.
    pub fn is_missing(&self, known: &LatestAnswers) -> bool {
        match (self, &known.volumes) {
            (Page::Volume(name), Some(volumes)) => !volumes.iter().any(|volume| volume.name == *name),
            _ => false,
        }
    }

    fn title(&self) -> &str {
        match self {
            Page::Overview => "Overview",
            Page::Volumes => "Volumes",
            Page::Volume(name) => name,
            Page::Clients => "Clients",
            Page::Events => "Events",
        }
    }
}

/// A page as a whole.
pub fn render(page: &Page, view: &View<'_>) -> String {
    let main = match page {
        Page::Overview => overview::overview(view),
        Page::Volumes => volumes::volumes(view),
        Page::Volume(name) => volume::volume(view, name),
        Page::Clients => clients::clients(view),
        Page::Events => events::events(view),
    };
    let mut content = Html::default();
    put!(&mut content; [troubles(page, view.known)], [main]);
    document(page.title(), Some((page, view)), &content)
}

/// A page that says that something is not there.
pub fn missing(what: &str) -> String {
    let mut content = Html::default();
    put!(&mut content; "<section class=\"lone\"><h1>Not found</h1><p>", (what), "</p><p><a href=\"/\">Overview</a></p></section>");
    document("Not found", None, &content)
}

/// The frame around what a page shows. Only a page that has a view refreshes itself.
fn document(title: &str, live: Option<(&Page, &View<'_>)>, content: &Html) -> String {
    let mut page = Html::default();
    put!(&mut page; "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
        "<meta name=\"color-scheme\" content=\"light dark\"><title>", (title), " · Shoal</title>",
        "<link rel=\"icon\" href=\"/icon.svg\"><link rel=\"stylesheet\" href=\"/style.css\">");
    if live.is_some() {
        put!(&mut page; "<script src=\"/page.js\" defer data-every=\"", (WEB_REFRESH_S), "\"></script>",
            "<noscript><meta http-equiv=\"refresh\" content=\"", (WEB_REFRESH_S), "\"></noscript>");
    }
    put!(&mut page; "</head><body><header><a class=\"brand\" href=\"/\">", [mark()], "Shoal</a>");
    if let Some((shown, view)) = live {
        put!(&mut page; "<nav>", [tabs(shown)], "</nav>", [place(view)]);
    }
    put!(&mut page; "</header><main>", [*content]);
    if let Some((_, view)) = live {
        put!(&mut page; "<footer>", (show::date(view.now_unix_s)), " · refreshes every ", (WEB_REFRESH_S),
            " s · read-only · Shoal ", (env!("CARGO_PKG_VERSION")), "</footer>");
    }
    put!(&mut page; "</main></body></html>\n");
    page.into_text()
}

/// Three fish that swim the same way.
fn mark() -> Html {
    let mut mark = Html::default();
    put!(&mut mark; "<svg viewBox=\"0 0 32 32\" aria-hidden=\"true\">",
        "<path d=\"M3 9c4-4 9-4 13 0 2-2 3-3 5-3v6c-2 0-3-1-5-3-4 4-9 4-13 0z\"/>",
        "<path d=\"M12 17c4-4 9-4 13 0 2-2 3-3 5-3v6c-2 0-3-1-5-3-4 4-9 4-13 0z\"/>",
        "<path d=\"M3 25c4-4 9-4 13 0 2-2 3-3 5-3v6c-2 0-3-1-5-3-4 4-9 4-13 0z\"/></svg>");
    mark
}

fn tabs(shown: &Page) -> Html {
    let mut tabs = Html::default();
    let is_volume = matches!(shown, Page::Volume(_));
    for (page, address, title) in [
        (Page::Overview, "/", "Overview"),
        (Page::Volumes, "/volumes", "Volumes"),
        (Page::Clients, "/clients", "Clients"),
        (Page::Events, "/events", "Events"),
    ] {
        let is_here = *shown == page || (is_volume && page == Page::Volumes);
        let class = if is_here { "here" } else { "" };
        put!(&mut tabs; "<a class=\"", (class), "\" href=\"", (address), "\">", (title), "</a>");
    }
    tabs
}

/// Which cluster this is, and which node answers.
fn place(view: &View<'_>) -> Html {
    let mut place = Html::default();
    if let Some(cluster) = &view.known.cluster {
        let short: String = cluster.cluster.chars().take(8).collect();
        put!(&mut place; "<span class=\"place\">cluster ", (short), " · seen from <b>", (&cluster.node), "</b></span>");
    }
    place
}

/// Questions of a page that have no new answer.
fn troubles(page: &Page, known: &LatestAnswers) -> Html {
    let (mut needed, wanted) = page.queries();
    needed.extend(wanted);
    if let Page::Volume(name) = page {
        needed.push(StatusQuery::Profile(name.clone()));
    }
    let mut notes = Html::default();
    for (query, why) in known.troubles.iter().filter(|(query, _)| needed.contains(query)) {
        let what = match query {
            StatusQuery::Cluster => "The state of the cluster",
            StatusQuery::Statuses => "The state of bricks and replicas",
            StatusQuery::Volumes => "The configuration of the volumes",
            StatusQuery::Tasks => "The progress of healing and rebalancing",
            StatusQuery::Sessions => "What the clients hold",
            StatusQuery::Clients => "Who has credentials",
            StatusQuery::Events => "What has happened",
            StatusQuery::Profile(_) => "What the volume does",
        };
        put!(&mut notes; "<p class=\"notice\">", (what), " is not known at the moment: ", (why), "</p>");
    }
    notes
}

/// The state of a volume, and how good that is.
fn state(state: VolumeState) -> (Severity, &'static str) {
    match state {
        VolumeState::Started => (Severity::Good, "started"),
        VolumeState::Stopped => (Severity::Neutral, "stopped"),
        VolumeState::Created => (Severity::Neutral, "created"),
    }
}

/// The node whose replica leads a volume.
fn leader(status: &VolumeStatus) -> Option<&str> {
    let leads = status.replicas.iter().find(|replica| replica.online && replica.role == "leader");
    leads.map(|replica| replica.node.as_str())
}
