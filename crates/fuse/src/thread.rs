//! The state of any thread, as `/proc` shows it: see proc_pid_stat(5) and
//! `Documentation/scheduler/sched-stats.rst`.

use shoal_types::InodeId;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Standard error, to which the log may be written. Standard output is closed, because the process that
/// mounts may wait for its end.
const STDERR: libc::c_uint = 2;

/// Closes all files but one for this thread, which may be `own`; files that it opens from now on are its
/// alone.
///
/// When the process is killed, a thread that is blocked in the kernel dies last. If it held descriptors of
/// the connection, the connection would stay open. A program that waits for a reply would then keep the lock
/// on which the thread is blocked, and neither would ever end.
pub(crate) fn keep_no_files_but(own: Option<BorrowedFd<'_>>) {
    let close = |first, last| {
        // SAFETY: nothing runs on this thread that would use other files than those that stay and those that
        // it opens.
        first > last || unsafe { libc::close_range(first, last, 0) == 0 }
    };
    // SAFETY: this changes only which threads share descriptors that are closed from now on.
    let has_own_table = unsafe { libc::unshare(libc::CLONE_FILES) == 0 };
    let done = has_own_table
        && close(0, STDERR - 1)
        && match own.map(|own| own.as_raw_fd().unsigned_abs()) {
            Some(own) => {
                close(STDERR + 1, own.saturating_sub(1))
                    && close((own + 1).max(STDERR + 1), libc::c_uint::MAX)
            }
            None => close(STDERR + 1, libc::c_uint::MAX),
        };
    if !done {
        tracing::debug!(error = %std::io::Error::last_os_error(), "a thread could not close inherited files");
    }
}

/// The state of a thread at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// It sleeps: it neither runs nor waits for a processor.
    pub sleeps: bool,
    /// For how long it has run so far.
    pub ran: Duration,
    /// How often it was given a processor.
    pub turns: u64,
    /// `ran` counts to this moment, and not only to the last tick.
    pub is_exact: bool,
}

impl Thread {
    /// Reads the state of a thread; `None` if the thread does not exist or its state cannot be read.
    pub(crate) fn state_of(tid: u32) -> Option<Thread> {
        let schedstat = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
        let mut fields = schedstat.split_ascii_whitespace().map(str::parse::<u64>);
        let (ran_ns, turns) = (fields.next()?.ok()?, fields.nth(1)?.ok()?);
        let stat = Stat::read(&format!("/proc/{tid}/stat"))?;
        let exact = if stat.is_alone { process_time(tid) } else { None };
        Some(Thread {
            sleeps: stat.state != RUNS,
            ran: exact.unwrap_or(Duration::from_nanos(ran_ns)),
            turns,
            is_exact: exact.is_some(),
        })
    }
}

/// The system call that a thread is in: see proc_pid_syscall(5).
pub(crate) struct Call {
    pub number: libc::c_long,
    /// The arguments, as `/proc` writes them.
    arguments: Vec<String>,
}

impl Call {
    /// Reads the system call of a thread; `None` if it is in none, or that cannot be read.
    ///
    /// This takes `exec_update_lock`, which a process holds during execve(2). If a thread waits for the reply
    /// to a request other than `FLUSH`, no thread of its process holds that lock.
    pub(crate) fn of(tid: u32) -> Option<Call> {
        let text = std::fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let number = fields.next()?.parse().ok()?;
        Some(Call { number, arguments: fields.map(str::to_owned).collect() })
    }

    /// A field of proc_pid_fdinfo(5) for the open file that the call names, if the call is one of these.
    fn file_info(&self, tid: u32, calls: &[(libc::c_long, usize)], field: &str) -> Option<Option<String>> {
        let (_, at) = calls.iter().find(|(number, _)| *number == self.number)?;
        let file = u64::from_str_radix(self.arguments.get(*at)?.trim_start_matches("0x"), 16).ok()? as u32;
        let info = std::fs::read_to_string(format!("/proc/{tid}/fdinfo/{file}")).unwrap_or_default();
        Some(info.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_owned()))
    }
}

/// Calls that read an open file, with the position of the file descriptor among their arguments.
const READS: [(libc::c_long, usize); 8] = [
    (libc::SYS_read, 0),
    (libc::SYS_pread64, 0),
    (libc::SYS_readv, 0),
    (libc::SYS_preadv, 0),
    (libc::SYS_preadv2, 0),
    (libc::SYS_sendfile, 1),
    (libc::SYS_splice, 0),
    (libc::SYS_copy_file_range, 0),
];

/// Whether a thread sleeps in a call that reads a file with this inode number, or a file whose inode number
/// cannot be read.
pub(crate) fn reads(tid: u32, ino: InodeId) -> bool {
    let info = Call::of(tid).and_then(|call| call.file_info(tid, &READS, "ino:"));
    info.is_some_and(|number| number.is_none_or(|number| number.parse() == Ok(ino.0)))
}

/// A call that may write to an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writing {
    /// The file was opened with `O_APPEND`.
    pub appends: bool,
}

/// Calls that write to an open file, with the position of the file descriptor among their arguments.
const WRITES: [(libc::c_long, usize); 8] = [
    (libc::SYS_write, 0),
    (libc::SYS_pwrite64, 0),
    (libc::SYS_writev, 0),
    (libc::SYS_pwritev, 0),
    (libc::SYS_pwritev2, 0),
    (libc::SYS_sendfile, 0),
    (libc::SYS_splice, 2),
    (libc::SYS_copy_file_range, 2),
];

impl Writing {
    /// The call of a thread, if it is one that writes. For the open file see proc_pid_fdinfo(5).
    pub(crate) fn of(tid: u32) -> Option<Writing> {
        let call = Call::of(tid)?;
        let flags = call.file_info(tid, &WRITES, "flags:")?;
        let flags = flags.and_then(|flags| i32::from_str_radix(&flags, 8).ok());
        Some(Writing { appends: flags.is_some_and(|flags| flags & libc::O_APPEND != 0) })
    }
}

/// Whether a thread was killed: `SIGKILL` is pending, see proc_pid_status(5). The kernel makes it so for
/// every signal that ends the process, on each of its threads.
pub(crate) fn is_killed(tid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|mask| mask & 1 << (libc::SIGKILL - 1) != 0)
}

/// Whether a thread is being ended (`do_exit` in `kernel/exit.c`), and closes its files. Signals do not reach
/// it any more.
pub(crate) fn is_exiting(tid: u32) -> bool {
    Stat::read(&format!("/proc/{tid}/stat")).is_some_and(|stat| stat.flags & PF_EXITING != 0)
}

/// A flag in `include/linux/sched.h`.
const PF_EXITING: u32 = 0x4;
/// Position after the name: the kernel's flags of the thread.
const FLAGS_FIELD: usize = 6;
/// The state of a thread that runs or waits for a processor.
const RUNS: char = 'R';
/// Position after the name: the number of threads of its process.
const THREADS_FIELD: usize = 17;
/// Position after the name: the processor that it ran on last.
const PROCESSOR_FIELD: usize = 36;

/// Fields of `/proc/PID/stat`.
struct Stat {
    state: char,
    flags: u32,
    /// Its process has no other threads.
    is_alone: bool,
    processor: usize,
}

impl Stat {
    fn read(path: &str) -> Option<Stat> {
        let text = std::fs::read_to_string(path).ok()?;
        // The fields follow the name of the program, which is in parentheses.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let flags = fields.nth(FLAGS_FIELD - 1)?.parse().ok()?;
        let is_alone = fields.nth(THREADS_FIELD - FLAGS_FIELD - 1)? == "1";
        let processor = fields.nth(PROCESSOR_FIELD - THREADS_FIELD - 1)?.parse().ok()?;
        Some(Stat { state, flags, is_alone, processor })
    }
}

/// The processor time of a process up to this moment.
fn process_time(pid: u32) -> Option<Duration> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write where they are pointed to.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The state of a thread as one letter, from its file `stat`: see proc_pid_stat(5). `None` if it cannot be
/// read.
pub(crate) fn thread_state(stat: &str) -> Option<char> {
    Stat::read(stat).map(|stat| stat.state)
}

/// The processor that a thread ran on last.
pub(crate) fn processor_of(tid: u32) -> Option<usize> {
    Stat::read(&format!("/proc/{tid}/stat")).map(|stat| stat.processor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_thread_is_seen_to_run() {
        let tid = nix::unistd::gettid().as_raw() as u32;
        let before = Thread::state_of(tid).expect("it is there");
        assert!(!before.sleeps);
        let mut now = before;
        while now.ran == before.ran {
            now = Thread::state_of(tid).expect("it is there");
        }
        assert!(now.ran > before.ran && now.turns >= before.turns);
        assert!(Thread::state_of(u32::MAX).is_none());
    }

    #[test]
    fn writing_thread_is_recognised_by_its_system_call() {
        // It writes to a pipe without a reader, until the pipe is full.
        let writes = |appends: bool| {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            if appends {
                let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_APPEND);
                nix::fcntl::fcntl(&writer, flags).expect("set");
            }
            let mut child = Command::new("cat").arg("/dev/zero").stdout(writer).spawn().expect("it runs");
            while !Thread::state_of(child.id()).expect("it is there").sleeps
                || Writing::of(child.id()).is_none()
            {
                std::thread::yield_now();
            }
            let writing = Writing::of(child.id());
            drop(reader);
            child.wait().expect("it ends");
            writing
        };
        assert_eq!(writes(false), Some(Writing { appends: false }));
        assert_eq!(writes(true), Some(Writing { appends: true }));
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
        while !Thread::state_of(child.id()).expect("it is there").sleeps {
            std::thread::yield_now();
        }
        assert_eq!(Writing::of(child.id()), None, "it reads");
        let read = std::fs::metadata(format!("/proc/{}/fd/0", child.id())).expect("told").ino();
        assert!(reads(child.id(), InodeId(read)) && !reads(child.id(), InodeId(read + 1)));
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert_eq!(Writing::of(u32::MAX), None);
    }

    #[test]
    fn a_process_of_one_thread_is_seen_to_sleep() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
        let look = || Thread::state_of(child.id()).expect("it is there");
        while !look().sleeps {
            std::thread::yield_now();
        }
        assert!(look().is_exact && look().turns > 0);
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}
