//! Worker processes: this program again, controlled by lines and answering in lines.
//!
//! **Promises.** No wait for a process is unbounded. A process that is stuck in a kernel cannot even be
//! killed, and is left behind.

use crate::limits;
use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Exit code of this program: something is wrong with the mounts.
pub const WRONG: u8 = 1;
/// Exit code of this program: it could not find out.
pub const TROUBLE: u8 = 2;

/// What a worker did.
#[derive(Debug)]
pub enum WorkerEvent<M> {
    /// A message.
    Message(M),
    /// It is gone, or its message cannot be read.
    Gone,
}

/// Some workers, by number.
#[derive(Debug)]
pub struct Pool<M> {
    workers: Vec<Worker>,
    events: mpsc::Receiver<(usize, WorkerEvent<M>)>,
    sender: mpsc::Sender<(usize, WorkerEvent<M>)>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    /// Closed to end it.
    lines: Option<ChildStdin>,
}

/// This program, with these arguments.
pub fn this_program(arguments: &[String]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(arguments);
    Ok(command)
}

impl<M: DeserializeOwned + Send + 'static> Default for Pool<M> {
    fn default() -> Self {
        let (sender, events) = mpsc::channel();
        Self { workers: Vec::new(), events, sender }
    }
}

impl<M: DeserializeOwned + Send + 'static> Pool<M> {
    /// Starts one more worker.
    pub fn start(&mut self, mut command: Command) -> anyhow::Result<()> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a worker")?;
        let output = child.stdout.take().context("a worker has no output")?;
        let (number, sender) = (self.workers.len(), self.sender.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(message) => {
                        if sender.send((number, WorkerEvent::Message(message))).is_err() {
                            return;
                        }
                    }
                    // A worker that was killed ends within a line.
                    Err(_) => break,
                }
            }
            let _ = sender.send((number, WorkerEvent::Gone));
        });
        let lines = child.stdin.take();
        self.workers.push(Worker { child, lines });
        Ok(())
    }

    /// Workers started.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether none was started.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// The process of a worker.
    pub fn pid(&self, worker: usize) -> u32 {
        self.workers[worker].child.id()
    }

    /// Sends a message to a worker; ignored if it is gone.
    pub fn send(&mut self, worker: usize, message: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        if let Some(lines) = &mut self.workers[worker].lines {
            let _ = lines.write_all(&line);
        }
    }

    /// The next message of any worker, until `until`.
    pub fn next_event(&self, until: Instant) -> Option<(usize, WorkerEvent<M>)> {
        let wait = until.saturating_duration_since(Instant::now());
        self.events.recv_timeout(wait).ok()
    }

    /// Closes the input of all workers: each ends when it is done.
    pub fn close_inputs(&mut self) {
        for worker in &mut self.workers {
            worker.lines = None;
        }
    }

    /// Kills a worker, and returns whether it is gone.
    pub fn kill(&mut self, worker: usize) -> bool {
        let child = &mut self.workers[worker].child;
        let _ = child.kill();
        wait(child, limits::KILL_WAIT).is_some()
    }
}

impl<M> Drop for Pool<M> {
    fn drop(&mut self) {
        for Worker { child, lines } in &mut self.workers {
            *lines = None;
            if wait(child, Duration::ZERO).is_none() {
                let _ = child.kill();
            }
        }
        let until = Instant::now() + limits::KILL_WAIT;
        for worker in &mut self.workers {
            wait(&mut worker.child, until.saturating_duration_since(Instant::now()));
        }
    }
}

/// How a child ended, if it does within this time.
pub fn wait(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + time;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

/// Sends a message to the process that started this worker: one line, at once.
pub fn say(message: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}

/// The worker's next message; `None` when it is to end.
pub fn receive<M: for<'a> Deserialize<'a>>() -> anyhow::Result<Option<M>> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}
