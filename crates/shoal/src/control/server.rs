//! The server's side of the control socket.

use super::{Request, address};
use crate::limits::{CONTROL_CONNECTIONS_MAX, CONTROL_PATIENCE, CONTROL_REQUEST_BYTES_MAX};
use serde::Serialize;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers by calling `say` once or more. `say` fails if the client has closed its connection. An error
    /// as the outcome is sent to the client.
    fn handle(
        &self,
        request: Request,
        say: &mut dyn FnMut(&dyn Answer) -> io::Result<()>,
    ) -> Result<(), String>;
}

/// An answer that can be sent.
pub trait Answer {
    /// As a line of JSON, without the newline.
    fn line(&self) -> serde_json::Result<Vec<u8>>;
}

impl<T: Serialize> Answer for T {
    fn line(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// The open socket. Closed when this is dropped.
pub struct Control {
    path: PathBuf,
    listener: Arc<UnixListener>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Opens the socket of a data directory that this process has locked: a socket found there is stale.
    pub fn open(data: &Path, handler: Arc<dyn Handler>) -> io::Result<Control> {
        let path = data.join("control.sock");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (address, _dir) = address(data)?;
        let listener = Arc::new(UnixListener::bind(address)?);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (listener, stop) = (listener.clone(), stop.clone());
            std::thread::Builder::new()
                .name("control".into())
                .spawn(move || serve(&listener, &stop, &handler))?
        };
        Ok(Control { path, listener, stop, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A listening socket that is shut down ends a blocked accept(2).
        // SAFETY: the descriptor is open as long as `listener` lives.
        unsafe { libc::shutdown(std::os::fd::AsRawFd::as_raw_fd(&*self.listener), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, stop: &AtomicBool, handler: &Arc<dyn Handler>) {
    let open = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if stop.load(Ordering::Relaxed) => return,
            Err(error) => {
                tracing::warn!(%error, "control socket");
                // Out of descriptors, most likely: an immediate retry would only spin.
                std::thread::sleep(CONTROL_PATIENCE / 100);
                continue;
            }
        };
        let slot = ConnectionSlot::acquire(&open);
        let handler = handler.clone();
        let talk = move || {
            // A client that closes its connection early is not worth a log line.
            let outcome = converse(stream, slot.is_some(), &*handler);
            tracing::debug!(?outcome, "control conversation");
            drop(slot);
        };
        if let Err(error) = std::thread::Builder::new().name("control-talk".into()).spawn(talk) {
            tracing::warn!(%error, "control socket");
        }
    }
}

fn converse(mut stream: UnixStream, admitted: bool, handler: &dyn Handler) -> io::Result<()> {
    stream.set_read_timeout(Some(CONTROL_PATIENCE))?;
    stream.set_write_timeout(Some(CONTROL_PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new(&stream).take(CONTROL_REQUEST_BYTES_MAX).read_until(b'\n', &mut line)?;
    let outcome = match serde_json::from_slice(&line) {
        _ if !admitted => Err("too many conversations at once; try again".into()),
        Ok(request) => handler.handle(request, &mut |answer| {
            let mut text = answer.line()?;
            text.push(b'\n');
            stream.write_all(&text)
        }),
        Err(error) => Err(format!("request not understood: {error}")),
    };
    if let Err(what) = outcome {
        let mut text = serde_json::to_vec(&serde_json::json!({ "error": what }))?;
        text.push(b'\n');
        stream.write_all(&text)?;
    }
    stream.shutdown(Shutdown::Both)
}

/// A slot among the bounded number of conversations.
struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    fn acquire(open: &Arc<AtomicUsize>) -> Option<ConnectionSlot> {
        let slot = ConnectionSlot(open.clone());
        (open.fetch_add(1, Ordering::Relaxed) < CONTROL_CONNECTIONS_MAX).then_some(slot)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{self, ControlError, ReplyStream, ScrubReport, request};

    struct Echo;
    impl Handler for Echo {
        fn handle(
            &self,
            request: Request,
            say: &mut dyn FnMut(&dyn Answer) -> io::Result<()>,
        ) -> Result<(), String> {
            match request {
                Request::Scrub { bytes_per_second } => {
                    for blocks in 0..bytes_per_second.unwrap_or(0) {
                        say(&ScrubReport::Progress { blocks, bytes: 0 })
                            .map_err(|error| error.to_string())?;
                    }
                    Ok(())
                }
                Request::Status => say(&"hello").map_err(|error| error.to_string()),
                Request::Stats
                | Request::Dump
                | Request::Sync
                | Request::Content { .. }
                | Request::Abandon
                | Request::Admin { .. } => Err("no numbers today".into()),
            }
        }
    }

    #[test]
    fn questions_are_answered_and_refusals_told() {
        let dir = tempfile::tempdir().unwrap();
        // A path that is longer than a socket's path may be.
        let data = dir.path().join("d".repeat(120));
        std::fs::create_dir(&data).unwrap();
        assert!(matches!(request::<String>(&data, &Request::Status), Err(ControlError::NotRunning(_))));
        std::fs::write(data.join("control.sock"), "left over").unwrap();
        let control = Control::open(&data, Arc::new(Echo)).unwrap();
        assert_eq!(request::<String>(&data, &Request::Status).unwrap(), "hello");
        assert!(matches!(request::<u64>(&data, &Request::Status), Err(ControlError::Strange { .. })));
        match request::<String>(&data, &Request::Stats) {
            Err(ControlError::Refused { what, .. }) => assert_eq!(what, "no numbers today"),
            other => panic!("{other:?}"),
        }
        let request = Request::Scrub { bytes_per_second: Some(3) };
        let answers = ReplyStream::<ScrubReport>::begin(&data, &request).unwrap();
        let blocks: Vec<u64> = answers
            .map(|report| match report.unwrap() {
                ScrubReport::Progress { blocks, .. } => blocks,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(blocks, [0, 1, 2]);
        drop(control);
        assert!(matches!(
            control::request::<String>(&data, &Request::Status),
            Err(ControlError::NotRunning(_))
        ));
        assert!(!data.join("control.sock").exists());
    }

    #[test]
    fn nonsense_is_answered_with_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let _control = Control::open(dir.path(), Arc::new(Echo)).unwrap();
        for nonsense in ["\n", "{}\n", "{\"do\": \"format\"}\n", "\0\0\n"] {
            let mut stream = UnixStream::connect(dir.path().join("control.sock")).unwrap();
            stream.write_all(nonsense.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(r#"{"error":"request not understood"#), "{nonsense:?}: {answer}");
        }
    }
}
