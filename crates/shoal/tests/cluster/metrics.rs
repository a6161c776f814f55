//! Metrics for Prometheus: what nodes and mounts tell, checked by Prometheus's own tool, and by the alerts
//! and the dashboard that are made of them.

use crate::harness::{Cluster, sh};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The metrics of a node's machine.
fn scrape(cluster: &Cluster, node: usize) -> String {
    cluster.shoal(node).arg("metrics").ok()
}

/// The values of a metric with this text among its labels.
fn values(text: &str, name: &str, label: &str) -> Vec<f64> {
    let its = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
    its.map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")).collect()
}

/// All words of a text that look like metrics of Shoal.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("shoal_")).map(str::to_owned).collect()
}

/// Has Prometheus's own tool check a file.
fn promtool(dir: &Path, what: &str, file: &str) {
    sh(dir, &format!("promtool check {what} {file}")).ok();
}

#[test]
fn prometheus_takes_the_metrics_and_alerts_and_dashboard_name_no_others() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    fs::write(mount.path().join("large"), vec![7; 3 << 20]).expect("written");
    fs::File::open(mount.path()).expect("open").sync_all().expect("durable");
    let scrapes: Vec<String> = (1..=3).map(|node| scrape(&cluster, node)).collect();
    let all = scrapes.concat();
    for (n, text) in scrapes.iter().enumerate() {
        fs::write(cluster.local().join(format!("scrape{n}")), text).expect("written");
        promtool(&cluster.local(), "metrics", &format!("< scrape{n}"));
        assert_eq!(values(text, "shoal_up", "process=\"server\""), [1.0], "{text}");
        assert!(!text.contains("does not know"), "a figure without a meaning: {text}");
    }
    let here = format!("mountpoint=\"{}\"", mount.path().display());
    assert_eq!(values(&all, "shoal_brick_up", "brick="), [1.0; 3]);
    assert_eq!(values(&all, "shoal_replica_leads", "volume=\"v\"").iter().sum::<f64>(), 1.0);
    assert!(
        values(&all, "shoal_brick_call_duration_seconds_count", "call=\"put\"").iter().sum::<f64>() >= 3.0
    );
    assert!(values(&scrapes[0], "shoal_client_blocks_put_bytes_total", &here)[0] >= (3 << 20) as f64);

    let sum = |name: &str, label: &str| values(&all, name, label).iter().sum::<f64>();
    assert!(values(&scrapes[0], "shoal_fuse_written_bytes_total", &here)[0] >= (3 << 20) as f64);
    // The commit of the file, hop by hop.
    assert!(sum("shoal_metadata_call_duration_seconds_count", "call=\"commit\"") >= 1.0);
    assert!(sum("shoal_metadata_request_duration_seconds_count", "call=\"commit\"") >= 1.0);
    for step in ["queue", "flush", "apply", "commit"] {
        let label = format!("step=\"{step}\"");
        assert!(sum("shoal_metadata_raft_duration_seconds_count", &label) >= 1.0, "{step}: {all}");
    }
    assert!(sum("shoal_brick_written_bytes_total", "brick=") >= 3.0 * (3 << 20) as f64);
    assert_eq!(sum("shoal_node_fenced", "node="), 0.0);

    let dist = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    promtool(&dist, "rules", "prometheus/alerts.yml");
    let dashboard = fs::read_to_string(dist.join("grafana/shoal.json")).expect("it is there");
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
    let alerts = fs::read_to_string(dist.join("prometheus/alerts.yml")).expect("it is there");
    let known = metrics_in(&all);
    for (what, text) in [("alerts", alerts), ("dashboard", dashboard)] {
        let named = metrics_in(&text);
        assert!(named.len() > 8, "{what}: {named:?}");
        // A counter of errors is there once there was an error.
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{what} name metrics that no process tells: {unknown:?}");
    }

    let paused = mount.pause();
    cluster.kill(3);
    let text = scrape(&cluster, 3);
    assert_eq!(values(&text, "shoal_up", "process=\"server\""), [0.0], "{text}");
    let target = format!("target=\"{}\"", mount.path().display());
    assert_eq!(values(&text, "shoal_up", &target), [0.0], "{text}");
    drop(paused);
    cluster.start(3);
    mount.unmount();
}
