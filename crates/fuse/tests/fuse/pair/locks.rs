//! POSIX locks and flock(2) across two mounts with lock coordination enabled.

use super::cut::with_cut_mounted;
use super::{Pair, Side, eventually, pair, pair_mounted};
use nix::fcntl::{FcntlArg, fcntl};
use shoal_fuse::{LockScope, MountOptions};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The kernel may reclaim cached objects at any time: it is enough that it kept all of them in one attempt.
const TRIES: u32 = 5;

/// A program that executes commands, one per line, and prints their outcomes.
const AGENT: &str = r#"
import sys, os, fcntl, struct, errno, signal
class Alarm(Exception): pass
def ring(*_): raise Alarm
signal.signal(signal.SIGUSR1, ring)
files, kinds = {}, {'r': fcntl.F_RDLCK, 'w': fcntl.F_WRLCK, 'u': fcntl.F_UNLCK}
whole = {'r': fcntl.LOCK_SH, 'w': fcntl.LOCK_EX, 'u': fcntl.LOCK_UN}
def ask(file, command, kind, start, length):
    lock = struct.pack('hhqqi4x', kinds[kind], 0, int(start), int(length), 0)
    return struct.unpack('hhqqi4x', fcntl.fcntl(files[file], command, lock))
def do(what, file='', *rest):
    if what == 'open': files[file] = os.open(rest[0], os.O_RDWR | os.O_CREAT, 0o644)
    elif what == 'close': os.close(files.pop(file))
    elif what == 'set': ask(file, fcntl.F_SETLK, *rest)
    elif what == 'wait': ask(file, fcntl.F_SETLKW, *rest)
    elif what == 'ofd': ask(file, 37, *rest)
    elif what == 'ofdwait': ask(file, 38, *rest)
    elif what == 'flock': fcntl.flock(files[file], whole[rest[0]] | fcntl.LOCK_NB)
    elif what == 'flockwait': fcntl.flock(files[file], whole[rest[0]])
    elif what == 'get':
        kind, _, start, length, pid = ask(file, fcntl.F_GETLK, *rest)
        name = [name for name, number in kinds.items() if number == kind][0]
        return 'free' if name == 'u' else f'{name} {start} {length} {pid}'
    elif what == 'fork':
        # The child has the same open files, and goes on living until its input ends.
        ours, its = os.pipe()
        if os.fork() == 0:
            os.close(its); os.read(ours, 1); os._exit(0)
        os.close(ours); files[file] = its
    elif what == 'thread':
        # Goes on with something else meanwhile.
        global thread
        from concurrent.futures import ThreadPoolExecutor
        thread = ThreadPoolExecutor(1).submit(do, file, *rest)
    elif what == 'join': return thread.result()
    elif what == 'read': return os.pread(files[file], 1000, 0).decode()
    elif what == 'write': os.pwrite(files[file], rest[0].encode(), 0)
    return 'ok'
for line in sys.stdin:
    try: said = do(*line.split())
    except OSError as error: said = errno.errorcode[error.errno]
    except Alarm: said = 'EINTR'
    print(said, flush=True)
"#;

/// A running command program. It ends with the test, even if that fails.
struct Agent {
    process: Child,
    tell: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Agent {
    /// A program that has opened `file` on a mount as `f`.
    fn new(side: &Side) -> Agent {
        let mut process = Command::new("python3")
            .args(["-c", AGENT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let (tell, hear) = (process.stdin.take(), process.stdout.take().expect("piped"));
        let mut agent = Agent { process, tell, hear: BufReader::new(hear) };
        agent.open(side, "f", "file");
        agent
    }

    fn open(&mut self, side: &Side, name: &str, file: &str) {
        assert_eq!(self.does(&format!("open {name} {}", side.path(file).display())), "ok");
    }

    /// Sends a command, and does not wait.
    fn begin(&mut self, what: &str) {
        writeln!(self.tell.as_mut().expect("it lives"), "{what}").expect("it listens");
    }

    /// The outcome of the command.
    fn outcome(&mut self) -> String {
        let mut line = String::new();
        self.hear.read_line(&mut line).expect("it speaks");
        line.trim_end().to_owned()
    }

    fn does(&mut self, what: &str) -> String {
        self.begin(what);
        self.outcome()
    }

    fn signal(&self, signal: i32) {
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Closes the program's input, and waits for its normal end.
    fn exit(mut self) {
        self.tell = None;
        self.process.wait().expect("it ends");
    }

    fn kill(mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn cluster() -> MountOptions {
    MountOptions { locks: LockScope::Cluster, ..MountOptions::default() }
}

fn with_locks(body: impl FnOnce(&Pair) + Send + 'static) {
    pair_mounted(cluster(), body);
}

impl Pair {
    fn stat(&self, name: &str) -> u64 {
        self.server.stats().into_iter().find(|(found, _)| *found == name).expect("a figure").1
    }

    fn await_waiting(&self, count: u64) {
        eventually("so many wait", || self.stat("locks_waiting") == count);
    }

    /// One program on each mount.
    fn agents(&self) -> (Agent, Agent) {
        (Agent::new(&self.a), Agent::new(&self.b))
    }
}

#[test]
fn fcntl_locks_exclude_between_mounts_in_ranges() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(a.does("set f w 0 30"), "ok");
        assert_eq!(b.does("set f w 20 20"), "EAGAIN");
        assert_eq!(b.does("set f r 29 1"), "EAGAIN");
        assert_eq!(b.does("set f w 30 10"), "ok");
        // The middle of the range is unlocked: both ends stay locked.
        assert_eq!(a.does("set f u 10 10"), "ok");
        assert_eq!(b.does("set f w 10 10"), "ok");
        assert_eq!(b.does("set f w 9 1"), "EAGAIN");
        assert_eq!(b.does("set f w 20 1"), "EAGAIN");
        assert_eq!(b.does("set f u 0 0"), "ok");
        assert_eq!(a.does("set f w 0 0"), "ok");
        assert_eq!(b.does("set f r 1000000 1"), "EAGAIN");
    });
}

#[test]
fn locks_are_upgraded_and_downgraded() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(a.does("set f r 0 10"), "ok");
        assert_eq!(b.does("set f r 0 10"), "ok");
        assert_eq!(a.does("set f w 0 10"), "EAGAIN");
        // The owner still has its earlier lock.
        assert_eq!(b.does("set f w 0 10"), "EAGAIN");
        assert_eq!(b.does("set f u 0 10"), "ok");
        assert_eq!(a.does("set f w 0 10"), "ok");
        assert_eq!(b.does("set f r 0 10"), "EAGAIN");
        assert_eq!(a.does("set f r 0 10"), "ok");
        assert_eq!(b.does("set f r 0 10"), "ok");
    });
}

#[test]
fn getlk_returns_the_conflicting_lock() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(b.does("get f w 0 0"), "free");
        assert_eq!(a.does("set f r 100 50"), "ok");
        assert_eq!(b.does("get f w 0 0"), format!("r 100 50 {}", a.process.id()));
        assert_eq!(b.does("get f r 0 0"), "free");
        assert_eq!(b.does("get f w 0 100"), "free");
        assert_eq!(a.does("get f w 0 0"), "free");
    });
}

#[test]
fn a_waiting_program_gets_its_lock_when_the_other_gives_it_up_closes_or_dies() {
    with_locks(|pair| {
        type End = fn(Agent) -> Option<Agent>;
        let ends: [(&str, End); 4] = [
            ("unlocks", |mut agent| {
                assert_eq!(agent.does("set f u 0 0"), "ok");
                Some(agent)
            }),
            ("closes", |mut agent| {
                assert_eq!(agent.does("close f"), "ok");
                Some(agent)
            }),
            ("exits", |agent| {
                agent.exit();
                None
            }),
            ("is killed", |agent| {
                agent.kill();
                None
            }),
        ];
        for (how, end) in ends {
            for (one, other) in pair.both_ways() {
                pair.step(how);
                let (mut holder, mut waiter) = (Agent::new(one), Agent::new(other));
                assert_eq!(holder.does("set f w 0 10"), "ok");
                waiter.begin("wait f w 5 10");
                pair.await_waiting(1);
                let holder = end(holder);
                assert_eq!(waiter.outcome(), "ok", "{how}");
                assert_eq!(Agent::new(one).does("set f r 5 1"), "EAGAIN", "{how}");
                drop(holder);
                waiter.exit();
            }
        }
        assert_eq!((pair.stat("locks"), pair.stat("locks_waiting")), (0, 0));
    });
}

#[test]
fn a_waiting_program_gets_its_lock_when_the_other_mount_ends() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(a.does("set f w 0 10"), "ok");
        b.begin("wait f w 0 10");
        pair.await_waiting(1);
        pair.step("the mount is taken away");
        pair.a.mounted.abort().expect("ended");
        pair.a.give_up();
        assert_eq!(b.outcome(), "ok");
    });
}

#[test]
fn a_signal_ends_the_waiting_and_nothing_stays_behind() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(a.does("set f w 0 10"), "ok");
        assert_eq!(a.does("flock f w"), "ok");
        for wait in ["wait f w 0 10", "ofdwait f w 0 10", "flockwait f r"] {
            pair.step(wait);
            b.begin(wait);
            pair.await_waiting(1);
            b.signal(libc::SIGUSR1);
            assert_eq!(b.outcome(), "EINTR", "{wait}");
            assert_eq!(pair.stat("locks_waiting"), 0);
        }
        pair.step("a killed program");
        b.begin("wait f w 0 10");
        pair.await_waiting(1);
        b.kill();
        pair.await_waiting(0);
        assert_eq!(a.does("set f u 0 10"), "ok");
        assert_eq!(Agent::new(&pair.b).does("set f w 0 10"), "ok");
    });
}

#[test]
fn programs_that_would_wait_for_each_other_for_ever_are_told_so() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        a.open(&pair.a, "g", "other");
        b.open(&pair.b, "g", "other");
        assert_eq!(a.does("set f w 0 0"), "ok");
        assert_eq!(b.does("set g w 0 0"), "ok");
        a.begin("wait g w 0 0");
        pair.await_waiting(1);
        // The error number has two names.
        let refused = b.does("wait f w 0 0");
        assert!(["EDEADLK", "EDEADLOCK"].contains(&refused.as_str()), "{refused}");
        assert_eq!(b.does("set g u 0 0"), "ok");
        assert_eq!(a.outcome(), "ok");
    });
}

#[test]
fn posix_locks_end_with_the_first_close_of_the_file_by_their_process() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        a.open(&pair.a, "g", "file");
        assert_eq!(a.does("set f w 0 0"), "ok");
        assert_eq!(a.does("close g"), "ok");
        assert_eq!(b.does("set f w 0 0"), "ok");
    });
}

/// One of B's threads waits for a lock that A has, while another thread closes the file; then the lock is
/// granted.
fn granted_after_a_close(pair: &Pair, a: &mut Agent, b: &mut Agent) {
    b.open(&pair.b, "g", "file");
    assert_eq!(a.does("set f w 0 10"), "ok");
    assert_eq!(b.does("thread wait f w 0 10"), "ok");
    pair.await_waiting(1);
    assert_eq!(b.does("close g"), "ok");
    assert_eq!(a.does("set f u 0 10"), "ok");
    assert_eq!(b.does("join"), "ok");
}

#[test]
fn a_lock_that_is_granted_after_a_close_by_another_thread_ends_with_the_next_close() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        granted_after_a_close(pair, &mut a, &mut b);
        assert_eq!(a.does("set f w 0 10"), "EAGAIN");
        assert_eq!(b.does("close f"), "ok");
        assert_eq!(a.does("set f w 0 10"), "ok");
    });
}

#[test]
fn flock_excludes_shares_and_converts_between_mounts() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(a.does("flock f w"), "ok");
        assert_eq!(b.does("flock f r"), "EAGAIN");
        // flock(2) and fcntl(2) locks do not conflict with each other.
        assert_eq!(b.does("set f w 0 0"), "ok");
        assert_eq!(a.does("flock f r"), "ok");
        assert_eq!(b.does("flock f r"), "ok");
        // Conversion releases the old lock first.
        assert_eq!(a.does("flock f w"), "EAGAIN");
        assert_eq!(b.does("flock f w"), "ok");
        a.begin("flockwait f r");
        pair.await_waiting(1);
        assert_eq!(b.does("flock f u"), "ok");
        assert_eq!(a.outcome(), "ok");
        // Another open file description of the file is another owner.
        a.open(&pair.a, "g", "file");
        assert_eq!(a.does("flock g w"), "EAGAIN");
        b.begin("flockwait f w");
        pair.await_waiting(1);
        assert_eq!(a.does("close f"), "ok");
        assert_eq!(b.outcome(), "ok");
    });
}

#[test]
fn flock_belongs_to_the_open_file_in_every_process_that_inherited_it() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(a.does("flock f w"), "ok");
        assert_eq!(a.does("fork child"), "ok");
        assert_eq!(a.does("close f"), "ok");
        b.begin("flockwait f w");
        pair.await_waiting(1);
        assert_eq!(Agent::new(&pair.b).does("flock f r"), "EAGAIN");
        pair.step("the child ends");
        assert_eq!(a.does("close child"), "ok");
        assert_eq!(b.outcome(), "ok");
    });
}

#[test]
fn locks_of_open_file_descriptions_exclude_and_end_with_the_last_close() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        a.open(&pair.a, "g", "file");
        assert_eq!(a.does("ofd f w 0 10"), "ok");
        assert_eq!(b.does("ofd f w 5 10"), "EAGAIN");
        assert_eq!(b.does("set f w 5 10"), "EAGAIN");
        assert_eq!(a.does("ofd g w 5 10"), "EAGAIN");
        // Locks of open file descriptions do not belong to the process.
        assert_eq!(a.does("close g"), "ok");
        assert_eq!(b.does("ofd f w 5 10"), "EAGAIN");
        b.begin("ofdwait f w 5 10");
        pair.await_waiting(1);
        assert_eq!(a.does("close f"), "ok");
        assert_eq!(b.outcome(), "ok");
        b.exit();
        eventually("nothing is left", || pair.stat("locks") == 0);
    });
}

#[test]
fn what_was_written_under_a_lock_is_read_under_the_next() {
    with_locks(|pair| {
        let (mut a, mut b) = pair.agents();
        for n in 0..200 {
            pair.step(format!("{n}"));
            let (one, other) = if n % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
            let text = format!("{n:09}");
            assert_eq!(one.does("wait f w 0 0"), "ok");
            assert_eq!(one.does(&format!("write f {text}")), "ok");
            other.begin("wait f r 0 0");
            assert_eq!(one.does("set f u 0 0"), "ok");
            assert_eq!(other.outcome(), "ok");
            assert_eq!(other.does("read f"), text);
            assert_eq!(other.does("set f u 0 0"), "ok");
        }
    });
}

/// Runs a Python program on each mount at the same time, with its directory and `who` as arguments.
fn run_on_both(pair: &Pair, script: &str) {
    let start = |side: &Side, who: &str| {
        let mut command = Command::new("timeout");
        command.args(["80", "python3", "-c", script, side.root().to_str().expect("text"), who]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3")
    };
    let both = [start(&pair.a, "a"), start(&pair.b, "b")];
    for one in both {
        let output = one.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn counters_that_are_changed_under_locks_are_right_in_the_end() {
    for lock in ["fcntl.lockf", "fcntl.flock", "ofd"] {
        with_locks(move |pair| {
            fs::write(pair.a.path("count"), "0").expect("written");
            let script = format!(
                "
import fcntl, struct, sys
def ofd(file, how):
    kind = fcntl.F_UNLCK if how == fcntl.LOCK_UN else fcntl.F_WRLCK
    fcntl.fcntl(file, 38, struct.pack('hhqqi4x', kind, 0, 0, 0, 0))
for n in range(150):
    with open(sys.argv[1] + '/count', 'r+') as file:
        {lock}(file, fcntl.LOCK_EX)
        count = int(file.read())
        file.seek(0)
        file.write(str(count + 1))
        file.flush()
        # Half of the time the end of the file has to do.
        if n % 2: {lock}(file, fcntl.LOCK_UN)"
            );
            run_on_both(pair, &script);
            assert_eq!(fs::read_to_string(pair.b.path("count")).expect("there"), "300", "{lock}");
        });
    }
}

#[test]
fn sqlite_serves_writers_on_two_mounts() {
    with_locks(|pair| {
        let script = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1] + '/base.db', timeout=60, isolation_level=None)
base.execute('PRAGMA synchronous=OFF')
base.execute('BEGIN IMMEDIATE')
base.execute('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, n INTEGER)')
base.execute('INSERT OR IGNORE INTO t VALUES (1, 0)')
base.execute('COMMIT')
for n in range(60):
    base.execute('BEGIN IMMEDIATE')
    found = base.execute('SELECT n FROM t WHERE id = 1').fetchone()[0]
    base.execute('UPDATE t SET n = ? WHERE id = 1', (found + 1,))
    base.execute('INSERT INTO t (n) VALUES (?)', (found,))
    base.execute('COMMIT')
assert base.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'";
        run_on_both(pair, script);
        let check = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1] + '/base.db', timeout=60)
assert base.execute('SELECT n FROM t WHERE id = 1').fetchone()[0] == 120
assert [row[0] for row in base.execute('SELECT n FROM t WHERE id > 1 ORDER BY n')] == list(range(120))
assert base.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'";
        run_on_both(pair, check);
    });
}

#[test]
fn mount_that_is_cut_off_loses_its_locks_to_the_waiter() {
    with_cut_mounted(cluster(), |pair, cut| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(b.does("set f w 0 10"), "ok");
        cut.set(true);
        pair.step("the other waits");
        assert_eq!(a.does("wait f w 0 10"), "ok");
        pair.step("it hears what has become of it");
        let ended = pair.b.client.session();
        cut.set(false);
        eventually("another session", || pair.b.client.session() != ended);
        pair.step("who had it cannot go on as if nothing had happened");
        assert_eq!(b.does("set f w 20 30"), "EIO");
        assert_eq!(b.does("write f x"), "EIO");
        assert_eq!(b.does("set f u 0 10"), "ok");
        pair.step("who knows that it is gone can");
        assert_eq!(b.does("set f w 0 10"), "EAGAIN");
        assert_eq!(b.does("set f w 20 30"), "ok");
        assert_eq!(b.does("write f x"), "ok");
        b.exit();
    });
}

#[test]
fn a_lock_that_was_granted_after_a_close_is_missed_like_any_other_when_it_is_lost() {
    with_cut_mounted(cluster(), |pair, cut| {
        let (mut a, mut b) = pair.agents();
        granted_after_a_close(pair, &mut a, &mut b);
        cut.set(true);
        pair.step("the other waits");
        assert_eq!(a.does("wait f w 0 10"), "ok");
        let ended = pair.b.client.session();
        cut.set(false);
        eventually("another session", || pair.b.client.session() != ended);
        assert_eq!(b.does("write f x"), "EIO");
        b.exit();
    });
}

#[test]
fn a_lock_that_is_asked_for_again_and_again_is_taken_from_a_mount_that_is_cut_off() {
    with_cut_mounted(cluster(), |pair, cut| {
        let (mut a, mut b) = pair.agents();
        assert_eq!(b.does("flock f w"), "ok");
        cut.set(true);
        pair.step("the other tries");
        while a.does("flock f w") != "ok" {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let ended = pair.b.client.session();
        cut.set(false);
        eventually("another session", || pair.b.client.session() != ended);
        assert_eq!(b.does("write f x"), "EIO");
        b.exit();
    });
}

#[test]
fn without_the_option_locks_are_each_mounts_own_and_cost_nothing() {
    pair(|pair| {
        let (mut a, mut b) = pair.agents();
        let requests = pair.a.requests(|| {
            assert_eq!(a.does("set f w 0 0"), "ok");
            assert_eq!(a.does("flock f w"), "ok");
            assert_eq!(a.does("close f"), "ok");
        });
        assert_eq!(requests, []);
        assert_eq!(b.does("set f w 0 0"), "ok");
        assert_eq!(b.does("flock f w"), "ok");
    });
}

#[test]
fn file_without_locks_stays_in_the_page_cache() {
    with_locks(|pair| {
        let content = vec![7; 100_000];
        fs::write(pair.a.path("file"), &content).expect("written");
        let read = || assert!(fs::read(pair.a.path("file")).expect("there") == content);
        read();
        // The kernel may have reclaimed access times or other cached objects.
        let expected = ["open", "release", "getattr"];
        let is_cached = |requests: &[(&'static str, u64)]| {
            requests.iter().all(|(name, count)| expected.contains(name) && *count == 1)
        };
        let tries: Vec<_> = (0..TRIES).map(|_| pair.a.requests(read)).collect();
        assert!(tries.iter().any(|requests| is_cached(requests)), "{tries:?}");
    });
}

#[test]
fn a_lock_through_a_file_opened_for_reading_ends_with_its_close() {
    with_locks(|pair| {
        let b = RefCell::new(pair.agents().1);
        let b = |command: &str| b.borrow_mut().does(command);
        let file = File::open(pair.a.path("file")).expect("opens");
        let flock = |kind: i32| libc::flock { l_type: kind as i16, ..unsafe { std::mem::zeroed() } };
        let lock = flock(libc::F_RDLCK);
        fcntl(&file, FcntlArg::F_SETLK(&lock)).expect("locked");
        assert_eq!(b("set f w 0 0"), "EAGAIN");
        drop(file);
        eventually("it is released", || b("set f w 0 0") == "ok");
    });
}
