//! A PostgreSQL server with its data in a directory that is to be tested or measured, and pgbench beside it.

use crate::programs::stat_of;
use anyhow::{Context, bail};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The user that the server runs as: PostgreSQL refuses root.
const USER: &str = "postgres";
/// Seconds within which the server starts or stops. After a kill it replays its log first.
const START_SECONDS: &str = "120";
/// Longest time until processes that were killed are gone.
const KILL_WAIT_MAX: Duration = Duration::from_secs(20);
const KILL_LOOK_EVERY: Duration = Duration::from_millis(10);

/// A PostgreSQL server, running or not. Dropping it kills the server.
pub struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    /// For its socket and its log: a directory on a local disk.
    local: PathBuf,
}

/// What pgbench reports.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transactions {
    /// Transactions that were committed.
    pub count: u64,
    /// Transactions per second.
    pub per_second: f64,
}

impl Postgres {
    /// A server whose data are, or will be, in a directory. `local` is a directory on a local disk.
    pub fn at(data: &Path, local: &Path) -> anyhow::Result<Postgres> {
        let programs = programs().context("PostgreSQL is not installed: the package is called postgresql")?;
        let server = Postgres { programs, data: data.to_owned(), local: local.to_owned() };
        for dir in [data, local] {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            let user = nix::unistd::User::from_name(USER)?.context("there is no user postgres")?;
            chown(dir, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(server)
    }

    /// Creates an empty database cluster with checksums.
    pub fn create(&self) -> anyhow::Result<()> {
        let options = ["--no-locale", "--encoding=UTF8", "--auth=trust", "--data-checksums"];
        self.run("initdb", |initdb| initdb.args(options).arg("-D").arg(&self.data)).map(drop)
    }

    /// Starts the server; returns when it answers.
    pub fn start(&self) -> anyhow::Result<()> {
        let options = format!("-c listen_addresses= -c unix_socket_directories={}", self.local.display());
        self.control("start", |ctl| ctl.arg("-l").arg(self.local.join("log")).arg("-o").arg(&options))
    }

    /// Stops the server as an administrator does.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.control("stop", |ctl| ctl.args(["-m", "fast"]))
    }

    /// Ends the server and its sessions with SIGKILL, if it runs, and waits until they are gone.
    pub fn kill(&self) {
        let pids = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let Some(server) = pids.lines().next().and_then(|line| line.parse::<i32>().ok()) else { return };
        let of_server = |pid: &i32| parent_of(*pid) == Some(server);
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let sessions = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(of_server);
        let all: Vec<i32> = std::iter::once(server).chain(sessions.collect::<Vec<i32>>()).collect();
        for pid in &all {
            // SAFETY: a system call without memory.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        let until = Instant::now() + KILL_WAIT_MAX;
        while all.iter().any(|pid| parent_of(*pid).is_some()) && Instant::now() < until {
            std::thread::sleep(KILL_LOOK_EVERY);
        }
    }

    /// Runs SQL, and answers what it prints.
    pub fn sql(&self, text: &str) -> anyhow::Result<String> {
        let out = self.run("psql", |psql| self.client(psql).args(["-XAtq", "-c", text, "postgres"]))?;
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    }

    /// Runs pgbench with options: `-i` creates its tables; `-n` keeps the history of earlier runs.
    pub fn pgbench(&self, options: &[&str]) -> anyhow::Result<Transactions> {
        let out = self.run("pgbench", |bench| self.client(bench).args(options).arg("postgres"))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let after = |what: &str| {
            let line = text.lines().find(|line| line.starts_with(what))?;
            line[what.len()..].trim().split(['/', ' ']).next()?.parse::<f64>().ok()
        };
        let count = after("number of transactions actually processed:").unwrap_or_default();
        Ok(Transactions { count: count as u64, per_second: after("tps =").unwrap_or_default() })
    }

    /// Checks that the tables of pgbench agree with each other, and each index with its table. Returns the
    /// number of transactions in its history.
    pub fn check(&self) -> anyhow::Result<u64> {
        let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
                    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";
        let sums = self.sql(sums)?;
        let mut each = sums.split('|');
        let first = each.next();
        if each.any(|other| Some(other) != first) {
            bail!("the balances of accounts, tellers, branches and history differ: {sums}");
        }
        self.sql("CREATE EXTENSION IF NOT EXISTS amcheck")?;
        self.run("pg_amcheck", |check| self.client(check).args(["--heapallindexed", "postgres"]))?;
        Ok(self.sql("SELECT count(*) FROM pgbench_history")?.parse()?)
    }

    fn control(
        &self,
        action: &str,
        options: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<()> {
        let common = ["-s", "-w", "-t", START_SECONDS];
        let done = self.run("pg_ctl", |ctl| options(ctl.arg(action).args(common).arg("-D").arg(&self.data)));
        done.map(drop).with_context(|| fs::read_to_string(self.local.join("log")).unwrap_or_default())
    }

    fn client<'a>(&self, program: &'a mut Command) -> &'a mut Command {
        program.arg("-h").arg(&self.local)
    }

    /// Runs one of PostgreSQL's programs as its user, who may enter all directories.
    fn run(
        &self,
        program: &str,
        options: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<Output> {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}")).arg("--clear-groups");
        command.args(["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]);
        command.arg(self.programs.join(program)).current_dir("/").stdin(Stdio::null());
        options(&mut command);
        // pg_ctl leaves a server behind that would keep pipes open.
        if program == "pg_ctl" {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let out = command.output().with_context(|| format!("{command:?}"))?;
        if !out.status.success() {
            bail!("{program} ended with {}:\n{}", out.status, String::from_utf8_lossy(&out.stderr));
        }
        Ok(out)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the newest installed version has its programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let numbered = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Some(PathBuf::from(format!("/usr/lib/postgresql/{}/bin", numbered.max()?)))
}

/// The parent of a process.
fn parent_of(pid: i32) -> Option<i32> {
    stat_of(pid)?.get(1)?.parse().ok()
}
