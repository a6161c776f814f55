//! A volume for one test: a Shoal process, its data, its mount. Dropping it removes everything.

use super::command::{run, tail, wait_until};
use parking_lot::{Mutex, MutexGuard};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time to mount, which includes recovery.
pub const MOUNT_LIMIT: Duration = Duration::from_secs(120);
/// Longest time of a clean stop, which writes the journal back.
pub const STOP_LIMIT: Duration = Duration::from_secs(120);
/// Longest time for a killed server to be gone.
pub const KILL_LIMIT: Duration = Duration::from_secs(20);
/// Longest time of a test. Then its server is killed, so that the test fails instead of hanging.
const TEST_LIMIT: Duration = Duration::from_secs(900);
const TEST_LIMIT_LONG: Duration = Duration::from_secs(3 * 3600);

/// A mounted volume.
pub struct Volume {
    server: Arc<Mutex<Option<Child>>>,
    data: PathBuf,
    mount: PathBuf,
    options: Vec<String>,
    _watchdog: Sender<()>,
    dir: TempDir,
}

impl Volume {
    /// A fresh volume, mounted. The topic names its directory.
    pub fn start(topic: &str) -> Volume {
        let dir = scratch(topic);
        let data = dir.path().join("data");
        Volume::start_with(dir, data, &[])
    }

    /// A volume with its data in a directory of the test's choice, with options for `shoal up`. `dir` holds
    /// everything else.
    pub fn start_with(dir: TempDir, data: PathBuf, options: &[&str]) -> Volume {
        let mount = dir.path().join("mnt");
        fs::create_dir_all(&data).expect("the data directory can be made");
        fs::create_dir_all(&mount).expect("the mount point can be made");
        let server = Arc::new(Mutex::new(None));
        let watched: Arc<Mutex<Option<Child>>> = Arc::clone(&server);
        let watchdog = watch(move || {
            if let Some(child) = watched.lock().as_mut() {
                let _ = child.kill();
            }
        });
        let options = options.iter().map(|option| option.to_string()).collect();
        let mut volume = Volume { server, data, mount, options, _watchdog: watchdog, dir };
        volume.restart();
        volume
    }

    /// The directory under test.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Where the node keeps its state.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// An ordinary local directory on the same disk, for comparisons and for the test's own files.
    pub fn local(&self) -> PathBuf {
        let local = self.dir.path().join("local");
        fs::create_dir_all(&local).expect("a local directory can be made");
        local
    }

    /// Starts the server again and waits until it is mounted.
    pub fn restart(&mut self) {
        if super::plain() {
            return;
        }
        self.launch();
        let deadline = Instant::now() + MOUNT_LIMIT;
        // Mounted, and ready for `shoal stats`.
        let control = self.data.join("control.sock");
        while !mounted(&self.mount) || UnixStream::connect(&control).is_err() {
            let mut server = self.lock();
            let child = server.as_mut().expect("launched above");
            if let Some(status) = child.try_wait().expect("our child can be waited for") {
                drop(server);
                panic!("shoal up ended with {status} instead of mounting:\n{}", self.log());
            }
            drop(server);
            assert!(
                Instant::now() < deadline,
                "shoal up has not mounted in {MOUNT_LIMIT:?}:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts the server without waiting for anything.
    pub fn launch(&mut self) {
        assert!(self.lock().is_none(), "the server runs already");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
        command.arg("up").arg("--data").arg(&self.data).arg("--mount").arg(&self.mount).args(&self.options);
        let child = spawn(command, &self.log_path());
        *self.lock() = Some(child);
    }

    /// Unmounts and stops as a user does.
    pub fn stop(&mut self) {
        if super::plain() {
            return;
        }
        shoal().arg("umount").arg(&self.mount).limit(STOP_LIMIT.as_secs()).ok();
        self.expect_end();
    }

    /// Stops the server as Ctrl-C does.
    pub fn interrupt(&mut self) {
        let id = self.lock().as_ref().map(Child::id).expect("the server runs");
        // SAFETY: kill(2) takes two integers; the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(id as i32, libc::SIGINT) }, 0);
        self.expect_end();
    }

    fn expect_end(&mut self) {
        let mut child = self.lock().take().expect("the server runs");
        let Some(status) = wait_until(&mut child, Instant::now() + STOP_LIMIT) else {
            *self.lock() = Some(child);
            panic!("shoal was told to stop and still runs after {STOP_LIMIT:?}:\n{}", self.log());
        };
        assert!(status.success(), "shoal up ended with {status}:\n{}", self.log());
        assert!(!mounted(&self.mount), "shoal has stopped and left its mount behind");
    }

    /// Stops and starts again: everything cached is gone.
    pub fn remount(&mut self) {
        self.stop();
        self.restart();
    }

    /// Kills the server (-9) and removes the dead mount.
    pub fn kill(&mut self) {
        let child = self.lock().take();
        if let Some(mut child) = child {
            // It may have died already.
            let _ = child.kill();
            let ended = wait_until(&mut child, Instant::now() + KILL_LIMIT);
            detach(&self.mount);
            child.wait().expect("a killed child ends");
            assert!(
                ended.is_some() || std::thread::panicking(),
                "a killed server waited for itself and did not end"
            );
        }
        detach(&self.mount);
    }

    /// The server's process.
    pub fn pid(&self) -> Option<u32> {
        self.lock().as_ref().map(Child::id)
    }

    /// A handle that kills the server from another thread, at any moment.
    pub fn killer(&self) -> impl FnOnce() + Send + use<> {
        let server = Arc::clone(&self.server);
        move || {
            if let Some(child) = server.lock().as_mut() {
                let _ = child.kill();
            }
        }
    }

    /// Checks the stopped volume; panics unless it is clean.
    pub fn fsck(&self) {
        if super::plain() {
            return;
        }
        assert!(self.lock().is_none(), "fsck is for a volume at rest");
        let outcome = shoal().arg("fsck").arg("--data").arg(&self.data).outcome();
        let clean = outcome.status.is_some_and(|status| status.success());
        assert!(clean, "the volume is not clean: {outcome}\n--- log\n{}", self.log());
    }

    /// Waits until everything done so far is on disk.
    pub fn sync(&self) {
        if super::plain() {
            run("sync").arg("-f").arg(&self.mount).ok();
        } else {
            shoal().arg("sync").arg(&self.mount).ok();
        }
    }

    /// The end of the server's log.
    pub fn log(&self) -> String {
        tail(&fs::read_to_string(self.log_path()).unwrap_or_default(), 60)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("shoal.log")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's log ends:\n{}", self.log());
        }
        self.kill();
    }
}

/// The shoal program.
pub fn shoal() -> super::Run {
    run(env!("CARGO_BIN_EXE_shoal"))
}

/// A directory on a real disk that all users may enter; removed when dropped.
pub fn scratch(topic: &str) -> TempDir {
    assert!(
        nix::unistd::geteuid().is_root(),
        "these tests mount file systems and act as other users: run them as root"
    );
    let place = std::env::var_os("SHOAL_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    fs::create_dir_all(&place).expect("SHOAL_TEST_DIR can be made");
    let name = format!("shoal-test-{topic}-");
    let dir =
        tempfile::Builder::new().prefix(&name).tempdir_in(place).expect("a scratch directory can be made");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("its mode can be set");
    dir
}

/// Whether a path is a mount point. Reads the kernel's mount table and not the file system, which might hang.
pub fn mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("there is a table of mounts");
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|mount| Path::new(mount) == path))
}

/// Removes a mount in any state. `MNT_FORCE` aborts the connection, and with it every call that waits for a
/// reply.
pub fn detach(path: &Path) {
    use nix::mount::{MntFlags, umount2};
    while mounted(path) {
        umount2(path, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).expect("a mount can be detached");
    }
}

/// Starts a long-running shoal process with a log.
pub fn spawn(mut command: Command, log: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log).expect("the log can be written");
    let hand = || Stdio::from(log.try_clone().expect("a file handle can be doubled"));
    command.stdin(Stdio::null()).stdout(hand()).stderr(hand()).process_group(0);
    // SAFETY: prctl(2) is async-signal-safe. It makes the server stop when this test's thread ends without
    // stopping it, as when the test run is interrupted.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.spawn().expect("shoal starts")
}

/// Kills what a test has started when it exceeds its time limit. Ends when the returned sender is dropped.
pub fn watch(kill: impl FnOnce() + Send + 'static) -> Sender<()> {
    let (sender, receiver) = mpsc::channel();
    let limit = if super::long() { TEST_LIMIT_LONG } else { TEST_LIMIT };
    std::thread::spawn(move || {
        if receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("this test takes longer than {limit:?}: killing its server");
            kill();
        }
    });
    sender
}
