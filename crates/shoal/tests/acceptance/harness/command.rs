//! Programs run by tests: each in a process group of its own, under a time limit, its output kept for the
//! report.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No program of a test needs longer, on the slowest machine that runs them.
const RUN_SECONDS_DEFAULT: u64 = 300;
/// How often a running program is polled.
const POLL: Duration = Duration::from_millis(5);
/// A process that waits in a dead mount may not die at once; the test must not hang with it.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// A program about to run.
pub struct Run {
    command: Command,
    what: String,
    limit: Duration,
}

/// The result of a program.
pub struct Outcome {
    what: String,
    /// How it ended; `None`: it took too long and was killed.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A program running beside the test. Killed with its children when dropped.
pub struct Running {
    child: Child,
    what: String,
    deadline: Instant,
    stdout: File,
    stderr: File,
}

/// Prepares to run a program.
pub fn run(program: impl AsRef<OsStr>) -> Run {
    let program = program.as_ref();
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).process_group(0).env("LC_ALL", "C");
    Run {
        command,
        what: program.to_string_lossy().into_owned(),
        limit: Duration::from_secs(RUN_SECONDS_DEFAULT),
    }
}

/// Prepares to run a bash script in a directory; it ends at its first failing command.
pub fn sh(dir: &Path, script: &str) -> Run {
    run("bash").arg("-euo").arg("pipefail").arg("-c").arg(script).dir(dir)
}

/// The checker, `shoal-witness`, which `cargo build --workspace` puts beside the program: it runs random
/// programs on several mounts.
pub fn witness<'a>(mounts: impl IntoIterator<Item = &'a Path>, seconds: &str, seed: u64) -> Run {
    let path = Path::new(env!("CARGO_BIN_EXE_shoal")).with_file_name("shoal-witness");
    assert!(path.exists(), "{} is missing: cargo build --release --workspace --bins", path.display());
    let check = mounts.into_iter().fold(run(path).arg("run"), Run::arg);
    check.arg("--seconds").arg(seconds).arg("--seed").arg(seed.to_string())
}

impl Run {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Run {
        self.what = format!("{} {}", self.what, arg.as_ref().to_string_lossy());
        self.command.arg(arg);
        self
    }

    /// Sets the working directory. The program changes to it by itself: the parent waits until the child has
    /// begun, and in a dead mount it would wait without a limit.
    pub fn dir(mut self, dir: &Path) -> Run {
        let mut command = Command::new("env");
        command.arg("-C").arg(dir).arg(self.command.get_program()).args(self.command.get_args());
        command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).process_group(0);
        self.command = command;
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Sets the time limit.
    pub fn limit(mut self, seconds: u64) -> Run {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Starts it beside the test.
    pub fn start(mut self) -> Running {
        let capture = || tempfile::tempfile().expect("a temporary file for a program's output");
        let (stdout, stderr) = (capture(), capture());
        let hand = |file: &File| Stdio::from(file.try_clone().expect("a file handle can be doubled"));
        self.command.stdout(hand(&stdout)).stderr(hand(&stderr));
        let child =
            self.command.spawn().unwrap_or_else(|error| panic!("cannot start `{}`: {error}", self.what));
        Running { child, what: self.what, deadline: Instant::now() + self.limit, stdout, stderr }
    }

    /// Runs it to its end, with any outcome.
    pub fn outcome(self) -> Outcome {
        self.start().wait()
    }

    /// Runs it and returns what it printed. Panics if it fails.
    pub fn ok(self) -> String {
        self.outcome().ok()
    }
}

impl Running {
    /// Waits for its end with any outcome, or for its time limit.
    pub fn wait(mut self) -> Outcome {
        let status = wait_until(&mut self.child, self.deadline);
        if status.is_none() {
            self.kill();
        }
        let what = std::mem::take(&mut self.what);
        Outcome { what, status, stdout: text(&mut self.stdout), stderr: text(&mut self.stderr) }
    }

    fn kill(&mut self) {
        // The whole process group, since shells have children. A group that is gone already is fine. SAFETY:
        // kill(2) takes two integers and touches no memory of this process.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        wait_until(&mut self.child, Instant::now() + KILL_GRACE);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

impl Outcome {
    /// What it printed. Panics unless it succeeded.
    pub fn ok(self) -> String {
        assert!(self.status.is_some_and(|status| status.success()), "{self}");
        self.stdout
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Some(status) => writeln!(f, "`{}` ended with {status}", self.what)?,
            None => writeln!(f, "`{}` took too long and was killed", self.what)?,
        }
        write!(f, "--- stdout\n{}\n--- stderr\n{}", tail(&self.stdout, 100), tail(&self.stderr, 100))
    }
}

/// Waits for a child until a moment; `None` if it still runs then.
pub fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours can be waited for") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL);
    }
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.read_to_end(&mut bytes))
        .expect("captured output can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}
