//! A volume with several mounts on this machine: one server, as a cluster of one node, and a process for each
//! mount. Dropping it removes everything.

use super::command::{Run, tail, wait_until};
use super::tree::assert_same;
use super::volume::{KILL_LIMIT, MOUNT_LIMIT, STOP_LIMIT, detach, mounted, scratch, shoal, spawn, watch};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use parking_lot::Mutex;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The name of the volume.
const VOLUME: &str = "v";
/// The port of every server; each has an address of its own.
const PORT: u16 = 7470;

/// Names a program that mounts instead of the one under test: a build with a planted defect.
pub const PLANTED: &str = "SHOAL_TEST_PLANTED";

static NETWORKS: AtomicU8 = AtomicU8::new(1);

/// A volume with several mounts.
pub struct Shared {
    /// The server first, then the mounts.
    processes: Arc<Mutex<Vec<Child>>>,
    address: String,
    mounts: Vec<PathBuf>,
    _watchdog: Sender<()>,
    dir: TempDir,
}

impl Shared {
    /// A fresh volume with this many mounts. The topic names its directory.
    pub fn start(topic: &str, mounts: usize) -> Shared {
        Shared::start_with(topic, mounts, "")
    }

    /// A fresh volume whose mounts have mount options.
    pub fn start_with(topic: &str, mounts: usize, options: &str) -> Shared {
        let dir = scratch(topic);
        let processes: Arc<Mutex<Vec<Child>>> = Arc::default();
        let watched = Arc::clone(&processes);
        let watchdog = watch(move || watched.lock().iter_mut().for_each(|child| drop(child.kill())));
        let (mounts, address) = ((0..mounts).map(|n| dir.path().join(format!("m{n}"))).collect(), loopback());
        let shared = Shared { processes, address, mounts, _watchdog: watchdog, dir };
        if super::plain() {
            shared.link();
        } else {
            shared.serve();
            shared.mounts.iter().for_each(|mount| shared.mount(mount, options));
        }
        shared
    }

    /// Unmounts and mounts again with mount options.
    pub fn remount(&self, mount: usize, options: &str) {
        let path = &self.mounts[mount];
        shoal().arg("umount").arg(path).limit(STOP_LIMIT.as_secs()).ok();
        let mut ended = self.processes.lock().remove(1 + mount);
        assert!(
            wait_until(&mut ended, Instant::now() + STOP_LIMIT).is_some(),
            "an unmounted process does not end"
        );
        self.begin_mount(path, options);
        let mut processes = self.processes.lock();
        let new = processes.pop().expect("begun above");
        processes.insert(1 + mount, new);
    }

    /// Changes a setting of the volume.
    pub fn set(&self, key: &str, value: &str) {
        self.ask(&["volume", "set", VOLUME, key, value]);
    }

    /// The output of a command about the volume.
    pub fn ask(&self, words: &[&str]) -> String {
        words.iter().fold(self.shoal(), Run::arg).ok()
    }

    /// One plain directory under all names, to test the tests.
    fn link(&self) {
        let one = self.dir.path().join("one");
        fs::create_dir(&one).expect("a directory can be made");
        for mount in &self.mounts {
            std::os::unix::fs::symlink(&one, mount).expect("a symlink can be made");
        }
    }

    fn serve(&self) {
        let address = format!("{}:{PORT}", self.address);
        let init = self.shoal().arg("cluster").arg("init").arg("--no-start").arg("--name").arg("n1");
        init.arg("--listen").arg(&address).arg("--address").arg(&address).ok();
        let mut server = Command::new(env!("CARGO_BIN_EXE_shoal"));
        server.arg("server").arg("--data").arg(self.data());
        self.begin(server, "server", || UnixStream::connect(self.data().join("control.sock")).is_ok());
        let brick = format!("n1:{}", self.dir.path().join("brick").display());
        self.shoal().arg("volume").arg("create").arg(VOLUME).arg(brick).ok();
        self.shoal().arg("volume").arg("start").arg(VOLUME).ok();
    }

    fn mount(&self, mount: &Path, options: &str) {
        fs::create_dir(mount).expect("the mount point can be made");
        self.begin_mount(mount, options);
    }

    /// Ends the process of a mount with kill -9. The dead mount stays on the mount point.
    pub fn kill(&self, mount: usize) {
        let child = &mut self.processes.lock()[1 + mount];
        child.kill().expect("our child can be killed");
    }

    /// Stops the process of a mount (SIGSTOP) until the returned value is dropped. Returns when all threads
    /// of the process have stopped: kill(2) returns sooner, and until then requests are answered.
    ///
    /// A test that fails must drop the value before it closes files of that mount, or it waits for ever.
    pub fn stop(&self, mount: usize) -> Stopped {
        let process = Pid::from_raw(self.processes.lock()[1 + mount].id() as i32);
        // `begin_mount` waits until the mount answers, which is a moment before it is announced.
        let until = Instant::now() + MOUNT_LIMIT;
        while !is_guarded(process.as_raw()) {
            assert!(Instant::now() < until, "no process guards the mount");
            std::thread::sleep(Duration::from_millis(10));
        }
        kill(process, Signal::SIGSTOP).expect("our child can be stopped");
        let stopped = Stopped(process);
        let change = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        let seen = waitid(Id::Pid(process), change).expect("our child can be waited for");
        assert_eq!(seen, WaitStatus::Stopped(process, Signal::SIGSTOP));
        stopped
    }

    /// Mounts over a killed mount as a user does: mounting removes the dead one.
    pub fn mount_again(&self, mount: usize) {
        let mut killed = self.processes.lock().remove(1 + mount);
        assert!(
            wait_until(&mut killed, Instant::now() + KILL_LIMIT).is_some(),
            "a killed process does not end"
        );
        self.begin_mount(&self.mounts[mount], "");
        let mut processes = self.processes.lock();
        let new = processes.pop().expect("begun above");
        processes.insert(1 + mount, new);
    }

    fn begin_mount(&self, mount: &Path, options: &str) {
        let planted = std::env::var_os(PLANTED);
        let mut command = Command::new(planted.unwrap_or_else(|| env!("CARGO_BIN_EXE_shoal").into()));
        command.arg("mount").arg("--foreground").arg("--credentials").arg(self.data().join("tls"));
        command.args(["-o", options]).arg(format!("{}:{PORT}:/{VOLUME}", self.address)).arg(mount);
        // A dead mount that is about to be replaced is also in the mount table, and the kernel lists it from
        // its caches.
        let answers = || nix::sys::statvfs::statvfs(mount).is_ok();
        self.begin(command, &name(mount), || answers() && mounted(mount));
    }

    /// Starts a long-running process and waits until it is ready.
    fn begin(&self, command: Command, name: &str, ready: impl Fn() -> bool) {
        let log = self.dir.path().join(format!("{name}.log"));
        self.processes.lock().push(spawn(command, &log));
        let deadline = Instant::now() + MOUNT_LIMIT;
        while !ready() {
            let ended = self.processes.lock().last_mut().expect("begun above").try_wait();
            let ended = ended.expect("our child can be waited for");
            assert!(
                ended.is_none(),
                "{name} ended with {ended:?} instead of getting ready:\n{}",
                self.logs()
            );
            assert!(Instant::now() < deadline, "{name} is not ready in {MOUNT_LIMIT:?}:\n{}", self.logs());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// A command for the server.
    pub fn shoal(&self) -> Run {
        shoal().env("SHOAL_DATA", self.data())
    }

    /// The server's data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// `HOST:PORT` of the server.
    pub fn server(&self) -> String {
        format!("{}:{PORT}", self.address)
    }

    /// One of the mounts, from 0.
    pub fn path(&self, mount: usize) -> &Path {
        &self.mounts[mount]
    }

    /// An ordinary local directory on the same disk.
    pub fn local(&self) -> PathBuf {
        let local = self.dir.path().join("local");
        fs::create_dir_all(&local).expect("a local directory can be made");
        local
    }

    /// An address of this volume's own on the loopback interface.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Verifies that all mounts show equal trees, unmounts each as a user does, and checks the volume.
    pub fn finish(self) {
        for other in &self.mounts[1..] {
            assert_same(other, &self.mounts[0], true);
        }
        if super::plain() {
            return;
        }
        for mount in &self.mounts {
            shoal().arg("umount").arg(mount).limit(STOP_LIMIT.as_secs()).ok();
        }
        let mut processes = std::mem::take(&mut *self.processes.lock());
        let server = processes.first().expect("there is a server").id();
        // SAFETY: kill(2) takes two integers; the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(server as i32, libc::SIGTERM) }, 0);
        for child in &mut processes {
            let ended = wait_until(child, Instant::now() + STOP_LIMIT);
            if ended.is_none() {
                let _ = child.kill();
            }
            assert!(ended.is_some_and(|status| status.success()), "ended with {ended:?}:\n{}", self.logs());
        }
        let fsck = self.shoal().arg("fsck").arg("--data").arg(self.data()).arg("--volume").arg(VOLUME);
        let outcome = fsck.outcome();
        let clean = outcome.status.is_some_and(|status| status.success());
        assert!(clean, "the volume is not clean: {outcome}\n{}", self.logs());
    }

    fn logs(&self) -> String {
        let names = ["server".to_owned()].into_iter().chain(self.mounts.iter().map(|mount| name(mount)));
        let log = |name: String| {
            let text = fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default();
            format!("--- the log of {name} ends:\n{}\n", tail(&text, 40))
        };
        names.map(log).collect()
    }
}

/// Whether the guard of a mount's process runs.
fn is_guarded(process: i32) -> bool {
    let parent = format!("PPid:\t{process}\n");
    let is_guard = |dir: PathBuf| {
        let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
        read("status").contains(&parent) && read("cmdline").contains("guard-mount")
    };
    fs::read_dir("/proc").expect("/proc can be listed").flatten().any(|entry| is_guard(entry.path()))
}

/// A stopped process of a mount. It continues when this is dropped.
pub struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        let mut processes = self.processes.lock();
        processes.iter_mut().for_each(|child| drop(child.kill()));
        if !super::plain() {
            self.mounts.iter().for_each(|mount| detach(mount));
        }
        for child in processes.iter_mut() {
            wait_until(child, Instant::now() + KILL_LIMIT);
        }
    }
}

/// What a mount's directory is called.
fn name(mount: &Path) -> String {
    mount.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// An address on which no other process listens: each test process has a network of loopback addresses of its
/// own.
fn loopback() -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{low}.{}", high | 0x80, NETWORKS.fetch_add(1, Ordering::Relaxed))
}
