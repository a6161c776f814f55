//! The mounts of all volumes and what they hold, and who has credentials.

use super::View;
use super::parts::*;
use crate::admin::SessionReport;
use crate::show;
use crate::web::html::{Html, put};

/// A mount that has not been heard of for so long is marked: it polls every second.
const SILENT_S: u64 = 10;

pub fn clients(view: &View<'_>) -> Html {
    let mut page = Html::default();
    let Some(sessions) = &view.known.sessions else {
        put!(&mut page; "<p class=\"notice\">The leaders of the volumes are being asked.</p>");
        return page;
    };
    let only = view.query.volume.as_deref();
    let mut mounts: Vec<(&str, &SessionReport)> = Vec::new();
    let mut unknown = Html::default();
    for volume in sessions.iter().filter(|volume| only.is_none_or(|only| volume.name == only)) {
        mounts.extend(volume.sessions.iter().map(|session| (volume.name.as_str(), session)));
        // A volume that is not started has no mounts, which is no trouble.
        if let Some(why) = volume.trouble.as_ref().filter(|why| !why.contains("is not started")) {
            put!(&mut unknown; "<p class=\"notice\">", (&volume.name), ": ", (why), "</p>");
        }
    }
    mounts.sort_by(|(_, a), (_, b)| {
        (&a.host, &a.mountpoint, &a.session).cmp(&(&b.host, &b.mountpoint, &b.session))
    });
    put!(&mut page; [unknown], [tiles(&mounts)]);
    let (shown, links) = paged(&mounts, view.query.page, "/clients", only.unwrap_or_default());
    let mut table = Table::new(&[
        "Client",
        "Volume",
        "Mounted on",
        "Last heard of",
        "Credentials",
        ">Caches",
        ">Alone may change",
        ">Locks",
        ">Waits for locks",
        ">Not committed",
    ]);
    for (volume, session) in shown {
        table.row(&row(volume, session));
    }
    let mut content = table.or("Nothing is mounted.");
    put!(&mut content; [links]);
    let note = match only {
        Some(volume) => format!("of volume {volume}"),
        None => "of all volumes".to_owned(),
    };
    put!(&mut page; [section("Mounts", note, &content)]);
    if only.is_some() {
        put!(&mut page; "<p class=\"note\"><a href=\"/clients\">the mounts of all volumes</a></p>");
    }
    put!(&mut page; [credentials(view)]);
    page
}

fn tiles(mounts: &[(&str, &SessionReport)]) -> Html {
    let sum = |of: fn(&SessionReport) -> u64| mounts.iter().map(|(_, session)| of(session)).sum::<u64>();
    let mut page = Html::default();
    let waiting = sum(|session| session.locks_waiting);
    let severity = if waiting == 0 { Severity::Neutral } else { Severity::Warning };
    let waits = format!("{} wait", grouped(waiting));
    put!(&mut page; "<div class=\"tiles\">",
        [tile("Mounts", grouped(mounts.len() as u64), "have a session", Severity::Neutral)],
        [tile("Cached", grouped(sum(|session| session.watched)), "directories and linked files", Severity::Neutral)],
        [tile("Held alone", grouped(sum(|session| session.exclusive)), "may be changed without asking", Severity::Neutral)],
        [tile("Locks", grouped(sum(|session| session.locks)), waits, severity)],
        "</div>");
    page
}

fn row(volume: &str, session: &SessionReport) -> [Html; 10] {
    let mut client = Html::default();
    put!(&mut client; "<b>", (&session.host), "</b>");
    if let Some(address) = &session.address {
        put!(&mut client; " <small>", (address), "</small>");
    }
    let mut mountpoint = known(session.mountpoint.as_ref());
    if let Some(pid) = session.pid {
        put!(&mut mountpoint; " <small>process ", (pid), "</small>");
    }
    let heard = match session.silent_s {
        silent if silent >= SILENT_S => {
            badge(Severity::Warning, format_args!("{} ago", show::seconds(silent)))
        }
        silent => cell(format_args!("{} ago", show::seconds(silent))),
    };
    let waiting = match session.locks_waiting {
        0 => cell(0),
        some => badge(Severity::Warning, grouped(some)),
    };
    [
        client,
        link("/volume/", volume, volume),
        mountpoint,
        heard,
        known(session.credentials.as_ref()),
        cell(grouped(session.watched)),
        cell(grouped(session.exclusive)),
        cell(grouped(session.locks)),
        waiting,
        cell(if session.granted_bytes == 0 { "0".into() } else { show::bytes(session.granted_bytes) }),
    ]
}

fn credentials(view: &View<'_>) -> Html {
    let Some(clients) = &view.known.clients else { return Html::default() };
    let (shown, _) = paged(clients, 1, "/clients", "");
    let mut table = Table::new(&["Client", "Credentials", "Issued"]);
    for client in shown {
        let state = match client.revoked {
            true => badge(Severity::Bad, "revoked"),
            false => badge(Severity::Good, "valid"),
        };
        table.row(&[cell(&client.name), state, known(client.issued.map(show::date))]);
    }
    let note = match clients.len() - shown.len() {
        0 => String::new(),
        more => format!("and {} more: shoal client list", grouped(more as u64)),
    };
    section("Credentials", note, &table.or("No client has credentials: shoal client issue NAME makes some."))
}
