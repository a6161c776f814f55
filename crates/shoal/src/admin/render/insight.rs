//! What goes on in volumes: disks, mounts, work on blocks, scrubbing, locks.

use super::table::Table;
use super::{count, known, state, yes};
use crate::admin::{
    BrickDetail, ClearedLock, ClearedReport, HealReport, ScrubbingReport, SessionReport, SessionsReport,
    TaskKind, TaskState, TasksReport, VolumeDetail,
};
use crate::show;
use std::fmt::Write;

/// Texts about several volumes, with an empty line between them.
fn each<T>(volumes: &[T], text: impl Fn(&T) -> String) -> String {
    match volumes {
        [] => "No volumes present\n".into(),
        volumes => volumes.iter().map(text).collect::<Vec<_>>().join("\n"),
    }
}

/// `volume status NAME detail`.
pub fn details(volumes: &[VolumeDetail]) -> String {
    each(volumes, |volume| {
        let mut text = format!("Status of volume: {} ({})\n", volume.name, state(volume.state));
        for brick in &volume.bricks {
            text.push_str(&detail(brick));
        }
        text
    })
}

fn detail(brick: &BrickDetail) -> String {
    let status = &brick.status;
    let mut text = format!("{}\n", "-".repeat(60));
    let draining = if status.draining { " (being removed)" } else { "" };
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "{what:<20} : {value}");
    };
    line("Brick", format!("{}{draining}", status.brick));
    line("TCP Port", status.port.to_string());
    line("Online", yes(status.online).into());
    line("Pid", known(status.pid));
    if let Some(trouble) = &status.trouble {
        line("Trouble", trouble.clone());
    }
    line("File System", known(brick.file_system.as_ref()));
    line("Device", known(brick.device.as_ref()));
    line("Disk Space Free", known(status.free_bytes.map(show::bytes)));
    line("Total Disk Space", known(status.total_bytes.map(show::bytes)));
    line("Inode Count", known(brick.inodes));
    line("Free Inodes", known(brick.free_inodes));
    line("Blocks", known(brick.blocks));
    line("Size of Blocks", known(brick.block_bytes.map(show::bytes)));
    text
}

/// `volume status NAME clients`.
pub fn sessions(volumes: &[SessionsReport]) -> String {
    each(volumes, |volume| {
        let mut text = format!("Client connections for volume {}\n", volume.name);
        if let Some(trouble) = &volume.trouble {
            let _ = writeln!(text, "  {trouble}");
            return text;
        }
        let mut table = Table::new(&[
            "Client",
            "Address",
            "Mounted on",
            ">Pid",
            "Credentials",
            "Since",
            ">Silent",
            ">Caches",
            ">Writes",
            ">Locks",
            ">Waiting",
        ]);
        for session in &volume.sessions {
            let SessionReport { host, mountpoint, pid, address, credentials, .. } = session;
            table.row(&[
                host,
                &known(address.as_ref()),
                &known(mountpoint.as_ref()),
                &known(*pid),
                &known(credentials.as_ref()),
                &show::date(session.since),
                &show::seconds(session.silent_s),
                &session.watched,
                &session.exclusive,
                &session.locks,
                &session.locks_waiting,
            ]);
        }
        text.push_str(&table.render(true));
        let _ = writeln!(text, "Number of clients connected: {}", volume.sessions.len());
        text
    })
}

/// `volume status NAME tasks`.
pub fn tasks(volumes: &[TasksReport]) -> String {
    each(volumes, |volume| {
        let mut text = format!("Task Status of Volume {}\n", volume.name);
        if let Some(trouble) = &volume.trouble {
            let _ = writeln!(text, "  {trouble}");
            return text;
        }
        if volume.tasks.is_empty() {
            text.push_str("There are no active volume tasks\n");
            return text;
        }
        let mut table = Table::new(&["Task", "Status", ">Done", ">Left", ">Copied"]);
        for task in &volume.tasks {
            let kind = match task.task {
                TaskKind::Heal => "Heal",
                TaskKind::Rebalance => "Rebalance",
                TaskKind::RemoveBrick => "Remove brick",
                TaskKind::ReplaceBrick => "Replace brick",
            };
            let name = task.brick.as_ref().map_or_else(|| kind.to_owned(), |brick| format!("{kind} {brick}"));
            let status = match task.state {
                TaskState::InProgress => "in progress",
                TaskState::Completed => "completed",
                TaskState::Stopped => "stopped",
            };
            let copied = known(task.copied_bytes.map(show::bytes));
            table.row(&[&name, &status, &known(task.done), &known(task.left), &copied]);
        }
        text.push_str(&table.render(true));
        text
    })
}

/// `volume heal NAME info split-brain`, in the lines that GlusterFS has. Copies never contradict each other.
pub fn split_brain(report: &HealReport) -> String {
    let one = |brick| format!("{}\nNumber of entries in split-brain: 0\n\n", super::connected(brick));
    report.bricks.iter().map(one).collect()
}

/// `volume heal NAME info summary`, in the lines that GlusterFS has.
pub fn heal_summary(report: &HealReport) -> String {
    let mut text = String::new();
    for brick in &report.bricks {
        let _ = writeln!(text, "{}\n", super::connected(brick));
    }
    let possibly = if report.scanning { " (still looking: it may grow)" } else { "" };
    let _ = write!(
        text,
        "Total Number of entries: {}{possibly}\nNumber of entries in heal pending: {}\nNumber of entries in split-brain: \
         0\nNumber of entries without a good copy: {}\n",
        report.degraded, report.degraded, report.failures
    );
    text
}

/// `volume scrub NAME status`.
pub fn scrubbing(report: &ScrubbingReport) -> String {
    let paused = if report.paused { "paused" } else { "active" };
    let mut text = format!("Volume name: {}\nState of scrub: {paused}\n\n", report.name);
    let mut table =
        Table::new(&["Brick", "Now", ">Rounds", "Last round ended", ">Blocks read", ">Damaged", ">Repaired"]);
    for brick in &report.bricks {
        let now = match (brick.trouble.is_some(), brick.reading, report.paused) {
            (true, ..) => "unknown",
            (_, true, false) => "reading",
            (_, _, true) => "paused",
            (_, false, false) => "resting",
        };
        table.row(&[
            &brick.brick,
            &now,
            &brick.rounds,
            &known(brick.finished.map(show::date)),
            &brick.blocks,
            &brick.damaged,
            &brick.repaired,
        ]);
    }
    text.push_str(&table.render(true));
    for brick in &report.bricks {
        if let Some(why) = brick.trouble.as_ref().or(brick.last_error.as_ref()) {
            let _ = writeln!(text, "  {}: {why}", brick.brick);
        }
    }
    text
}

/// `volume clear-locks`.
pub fn cleared(report: &ClearedReport) -> String {
    let mut text = format!(
        "Volume clear-locks successful\n{}: {}: blocked locks={} granted locks={}\n",
        report.name, report.path, report.blocked_count, report.granted_count
    );
    for lock in &report.locks {
        let ClearedLock { granted, family, exclusive, start, end, pid, client } = lock;
        let what = if *granted { "held" } else { "waited for" };
        let kind = if *exclusive { "write" } else { "read" };
        let end = end.map_or_else(|| "end of file".to_owned(), |end| end.to_string());
        let _ = writeln!(
            text,
            "  {family} {kind} lock, bytes {start} to {end}, {what} by process {pid} of {client}"
        );
    }
    let shown = report.locks.len() as u64;
    let all = report.granted_count + report.blocked_count;
    if all > shown {
        let _ = writeln!(text, "  and {} more", count(all - shown, "lock"));
    }
    text
}
