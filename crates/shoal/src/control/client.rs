//! The client's side of the control socket.

use super::{Request, address};
use crate::admin::AdminRequest;
use crate::limits::{ADMIN_PATIENCE, CONTROL_PATIENCE, CONTROL_REPLY_BYTES_MAX};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a node did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no process serves {0}: start it with `shoal up` or `shoal mount`")]
    NotRunning(PathBuf),
    #[error(
        "the process that serves {0} does not answer: `shoal dump` shows what it waits for, and its log may say more"
    )]
    Silent(PathBuf),
    #[error("the process that serves {data} refused: {what}")]
    Refused { data: PathBuf, what: String },
    #[error(
        "the process that serves {data} answered something strange ({what}): is it another version of shoal?"
    )]
    Strange { data: PathBuf, what: String },
    #[error("{data}: {cause}")]
    Io { data: PathBuf, cause: io::Error },
}

/// Answers to a request, one after the other.
pub struct ReplyStream<T> {
    data: PathBuf,
    lines: BufReader<UnixStream>,
    answer: PhantomData<T>,
}

/// Sends a request that has one answer.
pub fn request<T: DeserializeOwned>(data: &Path, request: &Request) -> Result<T, ControlError> {
    let mut answers = ReplyStream::begin(data, request)?;
    let silent = || ControlError::Silent(data.to_owned());
    answers.next().unwrap_or_else(|| Err(silent()))
}

/// Time-out for the next answer.
fn patience_with(request: &Request) -> Option<Duration> {
    match request {
        // A slow scrub reports rarely, a digest reads all metadata, and disks may be slow.
        Request::Sync
        | Request::Content { .. }
        | Request::Scrub { .. }
        | Request::Admin {
            request: AdminRequest::Digest { .. } | AdminRequest::VolumeStatus { digest: true, .. },
        } => None,
        Request::Admin { .. } => Some(ADMIN_PATIENCE),
        Request::Status | Request::Stats | Request::Dump | Request::Abandon => Some(CONTROL_PATIENCE),
    }
}

impl<T: DeserializeOwned> ReplyStream<T> {
    /// Sends a request that has any number of answers.
    pub fn begin(data: &Path, request: &Request) -> Result<ReplyStream<T>, ControlError> {
        let io = |cause| ControlError::Io { data: data.to_owned(), cause };
        let (address, _dir) = address(data).map_err(io)?;
        let mut stream = UnixStream::connect(address).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => ControlError::NotRunning(data.to_owned()),
            _ => io(cause),
        })?;
        stream.set_write_timeout(Some(CONTROL_PATIENCE)).map_err(io)?;
        stream.set_read_timeout(patience_with(request)).map_err(io)?;
        let mut line = serde_json::to_vec(request).map_err(|cause| io(cause.into()))?;
        line.push(b'\n');
        stream.write_all(&line).map_err(io)?;
        Ok(ReplyStream { data: data.to_owned(), lines: BufReader::new(stream), answer: PhantomData })
    }

    fn read(&mut self) -> Result<Option<T>, ControlError> {
        let data = || self.data.clone();
        let mut line = Vec::new();
        let read = self.lines.by_ref().take(CONTROL_REPLY_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(ControlError::Silent(data()));
            }
            Err(cause) => return Err(ControlError::Io { data: data(), cause }),
        }
        let strange =
            |error: serde_json::Error| ControlError::Strange { data: data(), what: error.to_string() };
        let value: serde_json::Value = serde_json::from_slice(&line).map_err(strange)?;
        if let Some(what) = value.get("error").and_then(serde_json::Value::as_str) {
            return Err(ControlError::Refused { data: data(), what: what.to_owned() });
        }
        serde_json::from_value(value).map(Some).map_err(strange)
    }
}

impl<T: DeserializeOwned> Iterator for ReplyStream<T> {
    type Item = Result<T, ControlError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
