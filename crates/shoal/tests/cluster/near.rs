//! A mount on a node reads blocks from the files of its node's brick, without the node's server.

use crate::harness::{Cluster, Mount, sh};
use serde_json::Value;
use std::fs;
use std::path::Path;

const BYTES: usize = 24 << 20;

/// A mount on the machine of a node.
fn mount_on_node(cluster: &Cluster, node: usize, options: &str) -> Mount {
    let path = cluster.local().join(format!("near{node}"));
    fs::create_dir_all(&path).expect("made");
    let source = format!("{}:/v", cluster.address(node));
    let credentials = cluster.credentials("tester");
    let command = cluster.shoal(node).arg("mount").arg("--credentials").arg(credentials);
    command.arg("--options").arg(options).arg(source).arg(&path).ok();
    Cluster::mounted(path)
}

fn figure(cluster: &Cluster, mount: &Mount, name: &str) -> u64 {
    let text = cluster.shoal(1).arg("stats").arg("--json").arg(mount.path()).ok();
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let figures = all["client"].as_array().expect("figures");
    let found = figures.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} in {text}"));
    found["value"].as_u64().expect("a number")
}

/// Reads the file on a new mount. Returns how many bytes came from the files of the brick.
fn read_cold(cluster: &Cluster, node: usize, options: &str, content: &[u8]) -> u64 {
    let mount = mount_on_node(cluster, node, options);
    assert!(fs::read(mount.path().join("file")).expect("read") == content);
    let bytes = figure(cluster, &mount, "local_brick_read_bytes_total");
    mount.unmount();
    bytes
}

fn blocks(brick: &Path) -> Vec<std::path::PathBuf> {
    let listed = sh(brick, "find blocks -type f").ok();
    listed.lines().map(|line| brick.join(line)).collect()
}

#[test]
fn mount_on_a_node_reads_local_copies_and_fetches_missing_or_damaged_ones() {
    let mut cluster = Cluster::with_volume(3);
    let content: Vec<u8> = (0..BYTES).map(|n| (n / 7 % 251) as u8).collect();
    let mount = cluster.mount();
    fs::write(mount.path().join("file"), &content).expect("written");
    sh(mount.path(), "sync file").ok();
    mount.unmount();
    cluster.wait_healed(1, 60);

    assert_eq!(read_cold(&cluster, 1, "local-reads=off", &content), 0, "only if it may");
    let all = read_cold(&cluster, 1, "local-reads=on", &content);
    // Until the files of the brick are open, reads use the network.
    assert!(all > BYTES as u64 / 2, "{all} of {BYTES} bytes came from the files of the brick");

    // The node's server is not needed for that: the other nodes keep the volume running.
    let mount = mount_on_node(&cluster, 2, "local-reads=on");
    assert_eq!(fs::metadata(mount.path().join("file")).expect("there").len(), BYTES as u64);
    sh(mount.path(), "head -c 65536 file >/dev/null").ok();
    let before = figure(&cluster, &mount, "local_brick_read_bytes_total");
    assert!(before > 0 && before < BYTES as u64 / 2, "{before}");
    cluster.kill(2);
    assert!(fs::read(mount.path().join("file")).expect("read") == content);
    let after = figure(&cluster, &mount, "local_brick_read_bytes_total");
    assert!(after > BYTES as u64 * 3 / 4, "{after} of {BYTES} bytes came from the files of the brick");
    mount.unmount();
    cluster.start(2);
    cluster.wait_healed(1, 60);

    // One copy is damaged, and one is gone.
    let brick = cluster.brick_path(1);
    let [damaged, gone] = blocks(&brick)[..2].to_vec().try_into().expect("two blocks");
    let mut bytes = fs::read(&damaged).expect("read");
    bytes[5000] ^= 1;
    fs::write(&damaged, bytes).expect("damaged");
    fs::remove_file(gone).expect("removed");
    let rest = read_cold(&cluster, 1, "local-reads=on", &content);
    assert!(rest < BYTES as u64 && rest > 0, "{rest} of {BYTES} bytes came from the files of the brick");

    // The path of the brick leads to another directory: no file of it is read.
    let mount = mount_on_node(&cluster, 1, "local-reads=on");
    assert_eq!(fs::metadata(mount.path().join("file")).expect("there").len(), BYTES as u64);
    let aside = brick.with_extension("aside");
    fs::rename(&brick, &aside).expect("moved");
    let copied = sh(&cluster.local(), &format!("cp -r {} {}", aside.display(), brick.display()));
    copied.ok();
    sh(&brick, "sed -i 's/^id f/id e/;t;s/^id ./id f/' shoal-brick").ok();
    assert!(fs::read(mount.path().join("file")).expect("read") == content);
    assert_eq!(figure(&cluster, &mount, "local_brick_reads_total"), 0);
    mount.unmount();
    fs::remove_dir_all(&brick).expect("removed");
    fs::rename(&aside, &brick).expect("moved back");
}
