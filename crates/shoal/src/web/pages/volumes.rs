//! The list of volumes.

use super::parts::*;
use super::{View, leader, state};
use crate::admin::{BrickStatus, TaskKind, TaskReport, TaskState, VolumeHealth, VolumeReport};
use crate::limits::WEB_ROWS_MAX;
use crate::show;
use crate::web::chart::bar;
use crate::web::html::{Html, put};

pub fn volumes(view: &View<'_>) -> Html {
    let mut page = Html::default();
    let Some(cluster) = &view.known.cluster else {
        put!(&mut page; "<p class=\"notice\">The nodes are being asked.</p>");
        return page;
    };
    let (table, links) = table(view, &cluster.volumes, WEB_ROWS_MAX);
    let mut content = table.or("There is no volume yet: shoal volume create makes one.");
    put!(&mut content; [links]);
    put!(&mut page; [section("Volumes", count(cluster.volumes.len(), "volume"), &content)]);
    let mut under_way = Html::default();
    for volume in view.known.tasks.iter().flat_map(|tasks| tasks.iter()) {
        if volume.tasks.iter().any(|task| task.state == TaskState::InProgress) {
            put!(&mut under_way; "<h3>", [link("/volume/", &volume.name, &volume.name)], "</h3>", [tasks(view, &volume.name)]);
        }
    }
    if !under_way.is_empty() {
        put!(&mut page; [section("Under way", "", &under_way)]);
    }
    page
}

/// A table of volumes, of which those are left out that are not on the page, and links to the other pages.
/// With room for fewer rows than a page has, the link is to the list.
pub fn table(view: &View<'_>, all: &[VolumeHealth], rows_max: usize) -> (Table, Html) {
    let (rows, links) = match rows_max < WEB_ROWS_MAX {
        true => {
            let mut links = Html::default();
            put!(&mut links; "<nav class=\"turn\"><a href=\"/volumes\">all ", (grouped(all.len() as u64)), " volumes</a></nav>");
            (all.get(..rows_max.min(all.len())).unwrap_or(all), links)
        }
        false => paged(all, view.query.page, "/volumes", ""),
    };
    let mut table =
        Table::new(&["Volume", "State", "Kind", "Bricks", "Metadata", "Leader", ">To heal", "Least room"]);
    let statuses = view.known.statuses.as_ref();
    for volume in rows {
        let (severity, word) = state(volume.state);
        let status = statuses.and_then(|all| all.iter().find(|status| status.name == volume.name));
        let report = view.known.volumes.as_ref();
        let report = report.and_then(|all| all.iter().find(|report| report.name == volume.name));
        let led = match status.and_then(leader) {
            Some(node) => cell(node),
            None if volume.has_leader => cell("yes"),
            None if severity == Severity::Good => badge(Severity::Bad, "none"),
            None => cell(UNKNOWN),
        };
        let fullest = status.and_then(|status| {
            let share = |brick: &&BrickStatus| {
                let (total, free) = (brick.total_bytes.unwrap_or(0), brick.free_bytes.unwrap_or(0));
                free.saturating_mul(1000) / total.max(1)
            };
            status.bricks.iter().filter(|brick| brick.total_bytes.is_some()).min_by_key(share)
        });
        table.row(&[
            link("/volume/", &volume.name, &volume.name),
            badge(severity, word),
            known(report.map(kind)),
            of(volume.bricks_online.into(), volume.bricks.into()),
            of(volume.replicas_online.into(), volume.replicas.into()),
            led,
            to_heal(volume),
            fullest.map_or_else(|| cell(UNKNOWN), |brick| room(brick.total_bytes, brick.free_bytes)),
        ]);
    }
    (table, links)
}

pub fn to_heal(volume: &VolumeHealth) -> Html {
    match volume.degraded {
        Some(0) => cell(0),
        Some(lacking) => badge(Severity::Warning, grouped(lacking)),
        None => cell(UNKNOWN),
    }
}

/// `Replicate 3`, `Disperse 4 + 2`, `Distribute`.
pub fn kind(volume: &VolumeReport) -> String {
    match volume.shards {
        Some((data, parity)) => format!("Disperse {data} + {parity}"),
        None if volume.replica > 1 => format!("Replicate {}", volume.replica),
        None => "Distribute".into(),
    }
}

pub fn brick_state(brick: &BrickStatus) -> Html {
    match (&brick.trouble, brick.online, brick.draining) {
        (Some(why), ..) => badge(Severity::Bad, why),
        (None, false, _) => badge(Severity::Bad, "offline"),
        (None, true, true) => badge(Severity::Warning, "being removed"),
        (None, true, false) => badge(Severity::Good, "online"),
    }
}

/// What is done with the blocks of a volume, each with a bar if it is known how much there is to do.
pub fn tasks(view: &View<'_>, name: &str) -> Html {
    let mut page = Html::default();
    let its = view.known.tasks.as_ref().and_then(|all| all.iter().find(|one| one.name == name));
    for task in its.into_iter().flat_map(|one| &one.tasks) {
        let title = match task.task {
            TaskKind::Heal => "Heal",
            TaskKind::Rebalance => "Rebalance",
            TaskKind::RemoveBrick => "Remove brick",
            TaskKind::ReplaceBrick => "Replace brick",
        };
        let state = match task.state {
            TaskState::InProgress => badge(Severity::Warning, "in progress"),
            TaskState::Completed => badge(Severity::Good, "completed"),
            TaskState::Stopped => badge(Severity::Neutral, "stopped"),
        };
        put!(&mut page; "<div class=\"task\"><p><b>", (title));
        if let Some(brick) = &task.brick {
            put!(&mut page; " ", (brick));
        }
        put!(&mut page; "</b> ", [state], "</p>");
        if let Some(part) = part(view, name, task) {
            put!(&mut page; [bar(part, "calm")]);
        }
        put!(&mut page; "<p class=\"note\">", (numbers(task)), "</p></div>");
    }
    page
}

/// How much of a task is done, from 0 to 1, if that is known.
fn part(view: &View<'_>, name: &str, task: &TaskReport) -> Option<f64> {
    match (task.task, task.state) {
        (_, TaskState::Completed) => Some(1.0),
        (TaskKind::Heal, _) => {
            let peak = *view.known.heal_peaks.get(name)?;
            let left = task.left?.min(peak);
            (peak > 0).then(|| 1.0 - left as f64 / peak as f64)
        }
        _ => None,
    }
}

fn numbers(task: &TaskReport) -> String {
    let mut numbers = Vec::new();
    let what = match task.task {
        TaskKind::Heal => "to heal",
        _ => "left",
    };
    numbers.extend(task.left.map(|left| format!("{} {what}", count(left as usize, "block"))));
    numbers.extend(task.done.map(|done| format!("{} examined", grouped(done))));
    numbers.extend(task.copied_bytes.map(|bytes| format!("{} copied", show::bytes(bytes))));
    numbers.join(" · ")
}
