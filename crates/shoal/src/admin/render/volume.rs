//! Volumes as they were configured.

use super::state;
use super::table::Table;
use crate::admin::VolumeReport;
use crate::show;
use serde::Serialize;
use shoal_cluster::limits::SHARDED_BYTES_MIN;
use shoal_cluster::options::{ALL, Known};
use std::collections::BTreeMap;
use std::fmt::Write;

/// `volume info`.
pub fn volumes(volumes: &[VolumeReport]) -> String {
    if volumes.is_empty() {
        return "No volumes present\n".into();
    }
    let mut text = String::new();
    for volume in volumes {
        if !text.is_empty() {
            text.push('\n');
        }
        let kind = match volume.shards {
            Some(_) => "Disperse",
            None if volume.replica > 1 => "Replicate",
            None => "Distribute",
        };
        let redundancy = match volume.shards {
            Some((data, parity)) => format!(
                "Shards of each block: {data} + {parity} ({} copies of a block below {})",
                volume.replica,
                show::bytes(SHARDED_BYTES_MIN)
            ),
            None => format!("Copies of each block: {}", volume.replica),
        };
        let _ = write!(
            text,
            "Volume Name: {}\nType: {kind}\nVolume ID: {}\nStatus: {}\nCreated: {}\n{redundancy}\nNumber of \
             Bricks: {}\nTransport-type: tcp, mutual TLS\nMetadata replicas: {}\n",
            volume.name,
            volume.id,
            state(volume.state),
            show::date(volume.created),
            volume.bricks.len(),
            volume.metadata.join(", "),
        );
        if !volume.arbiters.is_empty() {
            let _ = writeln!(text, "Arbiters: {} (metadata and no blocks)", volume.arbiters.join(", "));
        }
        let (data, metadata) = (volume.data_nodes_may_be_down, volume.metadata_nodes_may_be_down);
        let _ = writeln!(
            text,
            "Nodes that may be down: {} (of those with bricks {data}, of those with metadata {metadata})\nBricks:",
            data.min(metadata)
        );
        for (n, place) in volume.bricks.iter().enumerate() {
            let draining = if place.draining { " (being removed)" } else { "" };
            let hot = if place.hot { " (hot)" } else { "" };
            let _ = writeln!(text, "Brick{}: {}{hot}{draining}", n + 1, place.brick);
        }
        if !volume.options.is_empty() {
            text.push_str("Options Reconfigured:\n");
        }
        for (key, value) in &volume.options {
            let _ = writeln!(text, "{key}: {value}");
        }
    }
    text
}

/// Settings with their values, defaults included.
pub fn option_values(volume: &VolumeReport, only: Option<&str>) -> BTreeMap<&'static str, String> {
    let wanted = ALL.iter().filter(|known| only.is_none_or(|key| known.key == key));
    let value = |key: &str, default: &str| volume.options.get(key).map_or(default, String::as_str).to_owned();
    wanted.map(|known| (known.key, value(known.key, known.default))).collect()
}

/// `volume get`: one setting or all of them.
pub fn options(volume: &VolumeReport, only: Option<&str>) -> String {
    let mut table = Table::new(&["Option", "Value"]);
    for (key, value) in option_values(volume, only) {
        let default = if volume.options.contains_key(key) { "" } else { " (DEFAULT)" };
        table.row(&[&key, &format!("{value}{default}")]);
    }
    table.render(true)
}

/// A setting that there is, as `volume set help --json` prints it.
#[derive(Serialize)]
pub struct KnownOption {
    option: &'static str,
    default: &'static str,
    description: &'static str,
}

/// All settings that there are.
pub fn known_options() -> Vec<KnownOption> {
    let known =
        |known: &Known| KnownOption { option: known.key, default: known.default, description: known.help };
    ALL.iter().map(known).collect()
}

/// `volume set help`.
pub fn option_help(known: &[KnownOption]) -> String {
    let text = |known: &KnownOption| {
        let KnownOption { option, default, description } = known;
        format!("Option: {option}\nDefault Value: {default}\nDescription: {description}\n")
    };
    known.iter().map(text).collect::<Vec<_>>().join("\n")
}
