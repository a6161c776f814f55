//! The state dump of a node: as text, what it holds, caches and waits for.

use super::context::ServerContext;
use super::statistics::volume_name;
use crate::mount_report::dump_title;
use shoal_runtime::budget::of_process;
use shoal_types::GroupId;
use std::fmt::Write;

impl ServerContext {
    /// The state at this moment.
    pub(super) fn dump(&self) -> String {
        let map = self.view.map();
        let name = &self.dir.identity().name;
        let mut text = dump_title(&format!("Server of node {name}"), self.started);
        let _ = writeln!(text, "cluster map of epoch {}", map.epoch);
        if let Some(fence) = self.fenced.get() {
            let _ = writeln!(text, "it has stopped serving: {fence}");
        }
        let _ = writeln!(text, "{}", of_process().describe());
        let report = self.report(false);
        for replica in &report.replicas {
            let volume = match replica.group {
                GroupId::CLUSTER => "the cluster map".to_owned(),
                group => format!("volume {}", volume_name(&map, group)),
            };
            let _ = writeln!(
                text,
                "\n{} of {volume}: {}, term {}, applied {}, members {:?}",
                replica.id, replica.role, replica.term, replica.applied, replica.members
            );
            if let Some(group) = self.opener.volume(replica.group) {
                text.extend(group.server().dump().iter().map(|line| format!("  {line}\n")));
            }
        }
        text.push('\n');
        for brick in &report.bricks {
            let state = brick.offline.as_deref().unwrap_or("served");
            let name = map.brick_name(brick.id);
            let _ = writeln!(
                text,
                "brick {name}: {state}; {} of {} bytes are free",
                brick.free_bytes, brick.total_bytes
            );
        }
        for retired in &report.retired {
            let _ = writeln!(
                text,
                "retired brick {}: {} blocks deleted so far{}",
                retired.path.display(),
                retired.deleted_blocks,
                retired.trouble.as_ref().map(|why| format!("; {why}")).unwrap_or_default()
            );
        }
        for figure in crate::mount_report::traffic_figures(self.view.network().traffic()) {
            let _ = writeln!(text, "{}: {}", figure.name, figure.value);
        }
        text
    }
}
