//! A cluster of real servers in network namespaces, and mounts of its volumes.

use super::command::{Run, run, tail, wait_until};
use super::eventually;
use super::hosts::Network;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time of a test: then its mounts are removed, so that it fails instead of hanging.
const TEST_LIMIT: Duration = Duration::from_secs(600);
const TEST_LIMIT_LONG: Duration = Duration::from_secs(3600);
/// Longest time of a command of the program.
const COMMAND_SECONDS: u64 = 90;
const END_LIMIT: Duration = Duration::from_secs(60);

/// The first host with mounts; these hosts are no nodes.
pub const CLIENT: usize = 100;
/// Number of hosts with mounts.
const CLIENTS: usize = 4;

/// A cluster under test.
pub struct Cluster {
    pub network: Network,
    nodes: Vec<Node>,
    token: String,
    dir: TempDir,
}

struct Node {
    server: Option<Child>,
    data: PathBuf,
    log: PathBuf,
}

/// A mounted volume.
pub struct Mount {
    path: PathBuf,
    ended: Arc<AtomicBool>,
}

/// A mount's process that is stopped.
pub struct Paused(i32);

impl Drop for Paused {
    fn drop(&mut self) {
        signal(self.0, libc::SIGCONT);
    }
}

/// Sends a signal to a process that serves a mount of this test.
fn signal(process: i32, signal: i32) {
    // SAFETY: kill(2) takes two integers.
    let sent = unsafe { libc::kill(process, signal) };
    assert!(sent == 0 || std::thread::panicking(), "process {process} is not there");
}

impl Cluster {
    /// Nodes n1, n2, ... that form a cluster.
    pub fn new(nodes: usize) -> Cluster {
        let dir = tempfile::Builder::new().prefix("shoal-cluster-").tempdir().expect("a temporary directory");
        let mut cluster = Cluster { network: Network::new(), nodes: Vec::new(), token: String::new(), dir };
        for client in 0..CLIENTS {
            cluster.network.host(CLIENT + client);
        }
        for _ in 0..nodes {
            cluster.join();
        }
        cluster
    }

    /// With a volume `v` of three copies on the first three nodes, started.
    pub fn with_volume(nodes: usize) -> Cluster {
        Cluster::with_volume_on(nodes, [1, 2, 3])
    }

    /// With a volume `v` of three copies on these nodes, started.
    pub fn with_volume_on(nodes: usize, on: [usize; 3]) -> Cluster {
        let cluster = Cluster::new(nodes);
        let bricks = on.map(|node| cluster.brick(node));
        let mut create = cluster.shoal(1).arg("volume").arg("create").arg("v").arg("replica").arg("3");
        for brick in bricks {
            create = create.arg(brick);
        }
        create.ok();
        cluster.shoal(1).arg("volume").arg("start").arg("v").ok();
        cluster
    }

    /// The next node joins, or begins the cluster.
    pub fn join(&mut self) -> usize {
        let number = self.nodes.len() + 1;
        self.network.host(number);
        let data = self.dir.path().join(format!("n{number}"));
        let log = self.dir.path().join(format!("n{number}.log"));
        self.nodes.push(Node { server: None, data, log });
        self.enter(number);
        self.start(number);
        number
    }

    /// Creates a node's data directory: it begins the cluster, or joins it.
    pub fn enter(&mut self, node: usize) {
        let address = self.network.address(node);
        let command = match node {
            1 if self.token.is_empty() => self.shoal(1).arg("cluster").arg("init"),
            _ => self.shoal(node).arg("peer").arg("join").arg(&self.token),
        };
        let command = command.arg("--listen").arg(&address).arg("--address").arg(&address);
        let said = command.arg("--name").arg(format!("n{node}")).arg("--no-start").ok();
        if self.token.is_empty() {
            self.token = token_in(&said);
        }
    }

    /// A fresh token, for a node that lost its disk.
    pub fn renew_token(&mut self, at: usize) {
        let said = self.shoal(at).arg("cluster").arg("token").ok();
        self.token = token_in(&said);
    }

    /// The address of a node's server.
    pub fn address(&self, node: usize) -> String {
        self.network.address(node)
    }

    /// A command of the program on a node.
    pub fn shoal(&self, node: usize) -> Run {
        let [enter, net] = self.network.on(node);
        let data = self.nodes.get(node - 1).map(|one| one.data.clone()).unwrap_or_default();
        run(enter).arg(net).arg(env!("CARGO_BIN_EXE_shoal")).env("SHOAL_DATA", data).limit(COMMAND_SECONDS)
    }

    /// `HOST:/PATH` of a node's brick.
    pub fn brick(&self, node: usize) -> String {
        format!("n{node}:{}", self.brick_path(node).display())
    }

    /// The directory of a node's brick.
    pub fn brick_path(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("brick{node}"))
    }

    /// A node's data directory.
    pub fn data(&self, node: usize) -> PathBuf {
        self.nodes[node - 1].data.clone()
    }

    /// How many metadata replicas of volumes a node keeps.
    pub fn replicas_on(&self, node: usize) -> usize {
        let kept = fs::read_dir(self.nodes[node - 1].data.join("volumes"));
        kept.map_or(0, |entries| entries.count())
    }

    /// A directory for a test's own things.
    pub fn local(&self) -> PathBuf {
        let local = self.dir.path().join("local");
        fs::create_dir_all(&local).expect("a directory can be made");
        local
    }

    /// Checks what a node keeps of volume v, and returns the report. Its server must not run.
    pub fn fsck(&self, node: usize) -> String {
        let data = &self.nodes[node - 1].data;
        self.shoal(node).arg("fsck").arg("--data").arg(data).arg("--volume").arg("v").ok()
    }

    /// Starts a server and waits until it answers.
    pub fn start(&mut self, node: usize) {
        self.launch(node);
        eventually("the server answers", 60, || {
            let one = &mut self.nodes[node - 1];
            let child = one.server.as_mut().expect("launched above");
            if let Some(status) = child.try_wait().expect("our child") {
                panic!("server {node} ended with {status}:\n{}", self.log(node));
            }
            match std::os::unix::net::UnixStream::connect(one.data.join("control.sock")) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        });
    }

    fn launch(&mut self, node: usize) {
        let [enter, net] = self.network.on(node);
        let one = &mut self.nodes[node - 1];
        assert!(one.server.is_none(), "server {node} runs already");
        let log = File::options().create(true).append(true).open(&one.log).expect("the log can be written");
        let hand = || Stdio::from(log.try_clone().expect("a file handle can be doubled"));
        let mut command = Command::new(enter);
        command.arg(net).arg(env!("CARGO_BIN_EXE_shoal")).arg("server").arg("--data").arg(&one.data);
        command.env("SHOAL_LOG", std::env::var("SHOAL_LOG").unwrap_or_else(|_| "info".into()));
        command.stdin(Stdio::null()).stdout(hand()).stderr(hand()).process_group(0);
        // SAFETY: prctl(2) is async-signal-safe. The server stops when this test's process ends without
        // having stopped it.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        one.server = Some(command.spawn().expect("the server starts"));
    }

    fn signal(&self, node: usize, signal: i32) {
        let child = self.nodes[node - 1].server.as_ref().expect("the server runs");
        // SAFETY: kill(2) takes two integers; the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    }

    /// kill -9.
    pub fn kill(&mut self, node: usize) {
        self.signal(node, libc::SIGKILL);
        self.reap(node);
    }

    /// Stops a server with SIGTERM, as systemd does.
    pub fn stop(&mut self, node: usize) {
        self.signal(node, libc::SIGTERM);
        self.reap(node);
    }

    /// SIGSTOP.
    pub fn pause(&self, node: usize) {
        self.signal(node, libc::SIGSTOP);
    }

    /// SIGCONT.
    pub fn resume(&self, node: usize) {
        self.signal(node, libc::SIGCONT);
    }

    fn reap(&mut self, node: usize) {
        let log = self.log(node);
        let mut child = self.nodes[node - 1].server.take().expect("the server runs");
        assert!(
            wait_until(&mut child, Instant::now() + END_LIMIT).is_some(),
            "server {node} does not end:\n{log}"
        );
    }

    /// A node loses its data directory and its brick.
    pub fn wipe(&mut self, node: usize) {
        for path in [self.nodes[node - 1].data.clone(), self.brick_path(node)] {
            fs::remove_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }

    /// The end of a server's log.
    pub fn log(&self, node: usize) -> String {
        tail(&fs::read_to_string(&self.nodes[node - 1].log).unwrap_or_default(), 60)
    }

    /// Everything that a server has logged.
    pub fn whole_log(&self, node: usize) -> String {
        fs::read_to_string(&self.nodes[node - 1].log).unwrap_or_default()
    }

    /// Asks a node for a report as JSON, with any exit code, since that states the health.
    pub fn json(&self, node: usize, words: &[&str]) -> Result<Value, String> {
        let mut command = self.shoal(node);
        for word in words {
            command = command.arg(word);
        }
        let outcome = command.arg("--json").outcome();
        serde_json::from_str(&outcome.stdout).map_err(|error| format!("{error}: {outcome}"))
    }

    /// The node that leads the metadata group of volume v.
    pub fn leader(&self, ask: usize) -> usize {
        let mut found = 0;
        eventually("the volume's metadata has a leader", 30, || {
            let status = self.json(ask, &["volume", "status", "v"])?;
            let replicas = replicas(&status)?;
            let leads = |replica: &&Value| replica["role"] == "leader" && replica["online"] == true;
            let node = replicas.iter().find(leads).ok_or_else(|| status.to_string())?;
            let name = node["node"].as_str().unwrap_or_default();
            found = name.trim_start_matches('n').parse().map_err(|_| format!("node {name}"))?;
            Ok(())
        });
        found
    }

    /// Waits until every block has all its copies, by the records and by the bricks themselves.
    pub fn wait_healed(&self, ask: usize, seconds: u64) {
        eventually("the bricks are asked for every block", 60, || {
            let outcome = self.shoal(ask).arg("volume").arg("heal").arg("v").arg("full").outcome();
            match outcome.status.and_then(|status| status.code()) {
                Some(0 | 1) => Ok(()),
                _ => Err(outcome.to_string()),
            }
        });
        eventually("every block has all its copies", seconds, || {
            let heal = self.json(ask, &["volume", "heal", "v", "info"])?;
            let report = one(&heal);
            let number = |field: &str| report[field].as_u64();
            match (number("degraded"), number("waiting"), report["scanning"].as_bool()) {
                (Some(0), Some(0), Some(false)) => Ok(()),
                _ => Err(heal.to_string()),
            }
        });
    }

    /// Waits until all metadata replicas of the volume are at the same entry and identical.
    pub fn wait_identical(&self, ask: usize, count: usize) {
        eventually("all metadata replicas are identical", 60, || {
            let status = self.json(ask, &["volume", "digest", "v"])?;
            let replicas = replicas(&status)?;
            let digests: Vec<&Value> = replicas.iter().map(|one| &one["digest"]).collect();
            let whole = digests.len() == count && digests.iter().all(|digest| !digest.is_null());
            if whole && digests.windows(2).all(|two| two[0] == two[1]) {
                Ok(())
            } else {
                Err(status.to_string())
            }
        });
    }

    /// Credentials for a client of this name.
    pub fn credentials(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(format!("credentials-{name}"));
        if !dir.exists() {
            self.shoal(1).arg("client").arg("issue").arg(name).arg("--out").arg(&dir).ok();
        }
        dir
    }

    /// The command that mounts volume v on the first client's host.
    pub fn mount_command(&self, credentials: &Path, path: &Path) -> Run {
        self.mount_command_on(CLIENT, credentials, path)
    }

    fn mount_command_on(&self, host: usize, credentials: &Path, path: &Path) -> Run {
        fs::create_dir_all(path).expect("the mount point can be made");
        let servers: Vec<String> = (1..=self.nodes.len()).map(|node| self.network.address(node)).collect();
        let command = self.shoal(host).env("SHOAL_LOG", "info").arg("mount").arg("--credentials");
        command.arg(credentials).arg(format!("{}:/v", servers.join(","))).arg(path)
    }

    /// Mounts volume v on the first client's host.
    pub fn mount(&self) -> Mount {
        self.mount_on(0)
    }

    /// Mounts volume v at a path of the test's choice, with mount options.
    pub fn mount_at(&self, place: &str, options: &str) -> Mount {
        let path = self.dir.path().join(place);
        self.mount_command(&self.credentials("tester"), &path).arg("--options").arg(options).ok();
        Cluster::mounted(path)
    }

    /// Mounts volume v on one of the clients' hosts, from 0.
    pub fn mount_on(&self, client: usize) -> Mount {
        self.try_mount_on(client).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Mounts volume v on one of the clients' hosts, unless that fails.
    pub fn try_mount_on(&self, client: usize) -> Result<Mount, String> {
        let path = self.dir.path().join(format!("mnt{client}"));
        let outcome = self.mount_command_on(CLIENT + client, &self.credentials("tester"), &path).outcome();
        match outcome.status.is_some_and(|status| status.success()) {
            true => Ok(Cluster::mounted(path)),
            false => Err(outcome.to_string()),
        }
    }

    /// A mount that is removed when the test exceeds its time limit.
    pub fn mounted(path: PathBuf) -> Mount {
        let ended = Arc::new(AtomicBool::new(false));
        let (watched, point) = (ended.clone(), path.clone());
        let limit = if super::long() { TEST_LIMIT_LONG } else { TEST_LIMIT };
        std::thread::spawn(move || {
            let until = Instant::now() + limit;
            while !watched.load(Ordering::Relaxed) {
                if Instant::now() >= until {
                    eprintln!("the test takes too long: taking its mount away");
                    take_away(&point);
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Mount { path, ended }
    }
}

fn token_in(text: &str) -> String {
    let word = text.split_whitespace().find(|word| word.starts_with("shoal1/"));
    word.unwrap_or_else(|| panic!("there is no token in:\n{text}")).to_owned()
}

/// Reports of one volume are a list with one element, or that element.
fn one(report: &Value) -> &Value {
    report.get(0).unwrap_or(report)
}

fn replicas(status: &Value) -> Result<Vec<Value>, String> {
    let list = one(status)["replicas"].as_array().cloned();
    list.ok_or_else(|| format!("no replicas in {status}"))
}

fn take_away(path: &Path) {
    // By force first: this ends the calls that wait for the dead cluster.
    let _ = run("umount").arg("-f").arg("-l").arg(path).limit(20).outcome();
}

impl Mount {
    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends its process with kill -9. Programs that use it get errors from now on.
    pub fn kill(&self) {
        signal(self.process(), libc::SIGKILL);
    }

    /// Stops its process, as a closed laptop does, until the returned guard is dropped.
    pub fn pause(&self) -> Paused {
        let process = self.process();
        signal(process, libc::SIGSTOP);
        Paused(process)
    }

    fn process(&self) -> i32 {
        let status = run(env!("CARGO_BIN_EXE_shoal")).arg("status").arg(&self.path).arg("--json").ok();
        let status: Value = serde_json::from_str(&status).expect("status --json prints JSON");
        one(&status)["pid"].as_u64().expect("a mount has a process") as i32
    }

    /// Unmounts as a user does.
    pub fn unmount(self) {
        run(env!("CARGO_BIN_EXE_shoal")).arg("umount").arg(&self.path).limit(COMMAND_SECONDS).ok();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        if mounts.contains(&format!(" {} ", self.path.display())) {
            take_away(&self.path);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in 1..=self.nodes.len() {
                eprintln!("--- log of n{node}\n{}", self.log(node));
            }
        }
        // A failing test may leave a mount behind; its directory is about to be removed.
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let ours = |line: &str| {
            line.split(' ').nth(1).map(PathBuf::from).filter(|path| path.starts_with(self.dir.path()))
        };
        mounts.lines().filter_map(ours).for_each(|path| take_away(&path));
        for node in &mut self.nodes {
            if let Some(mut child) = node.server.take() {
                // SAFETY: kill(2) takes two integers; a stopped process dies of SIGKILL, too.
                unsafe { libc::kill(child.id() as i32, libc::SIGKILL) };
                wait_until(&mut child, Instant::now() + END_LIMIT);
            }
        }
    }
}
