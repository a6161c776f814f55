//! Hosts with addresses on a network of their own: network namespaces, joined by a bridge that is in a
//! namespace, too. Nothing of it touches the machine's own network, and dropping it removes everything.

use super::command::run;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// A network with hosts on it.
pub struct Network {
    prefix: String,
    hosts: BTreeSet<usize>,
}

fn ip(arguments: &str) {
    let mut command = run("ip");
    for argument in arguments.split_whitespace() {
        command = command.arg(argument);
    }
    command.ok();
}

impl Network {
    /// Without hosts.
    pub fn new() -> Network {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("sh{}x{number}", std::process::id());
        let network = Network { prefix, hosts: BTreeSet::new() };
        let bridge = network.name(0);
        ip(&format!("netns add {bridge}"));
        ip(&format!("-n {bridge} link add br0 type bridge"));
        ip(&format!("-n {bridge} link set br0 up"));
        network
    }

    /// Makes sure that there is a host of this number, from 1 to 254.
    pub fn host(&mut self, number: usize) {
        if !self.hosts.insert(number) {
            return;
        }
        let (host, bridge, address) = (self.name(number), self.name(0), self.address(number));
        let port = format!("p{number}");
        ip(&format!("netns add {host}"));
        ip(&format!("-n {host} link set lo up"));
        ip(&format!("-n {host} link add eth0 type veth peer name {port} netns {bridge}"));
        ip(&format!("-n {host} addr add {address}/24 dev eth0"));
        ip(&format!("-n {host} link set eth0 up"));
        ip(&format!("-n {bridge} link set {port} master br0"));
        ip(&format!("-n {bridge} link set {port} up"));
    }

    fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.prefix)
    }

    /// The address of a host.
    pub fn address(&self, host: usize) -> String {
        format!("10.71.0.{host}")
    }

    /// The words that run a program on a host: only its network namespace is the host's own.
    pub fn on(&self, host: usize) -> [String; 2] {
        ["nsenter".into(), format!("--net={}", PathBuf::from("/run/netns").join(self.name(host)).display())]
    }

    /// Cuts a host off, or connects it again.
    pub fn connect(&self, host: usize, connected: bool) {
        let state = if connected { "up" } else { "down" };
        ip(&format!("-n {} link set p{host} {state}", self.name(0)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in self.hosts.iter().chain([&0]) {
            // With any outcome.
            let _ = run("ip").arg("netns").arg("del").arg(self.name(*host)).outcome();
        }
    }
}
