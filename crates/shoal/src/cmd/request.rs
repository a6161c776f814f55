//! Requests to the server of this machine.

use crate::admin::{AdminAnswer, AdminRequest};
use crate::control::{ControlError, ReplyStream, Request};
use crate::server::node_dir;
use crate::show;
use anyhow::{anyhow, bail};
use std::path::Path;

/// Sends a request to the server of a data directory. Notes go to standard error, the answer comes back.
pub fn request(data: &Path, request: AdminRequest) -> anyhow::Result<AdminAnswer> {
    request_with_notes(data, request, |note| eprintln!("note: {}", show::runnable(note)))
}

/// As [`request`], with notes as `noted` shows them.
pub fn request_with_notes(
    data: &Path,
    request: AdminRequest,
    noted: impl Fn(&str),
) -> anyhow::Result<AdminAnswer> {
    let mut answers = ReplyStream::begin(data, &Request::Admin { request }).map_err(explain)?;
    loop {
        match answers.next().transpose().map_err(explain)? {
            Some(AdminAnswer::Note { text }) => noted(&text),
            Some(answer) => return Ok(answer),
            None => bail!("the server in {} hung up without an answer; its log may say why", data.display()),
        }
    }
}

/// As [`request`], for requests that are answered with [`AdminAnswer::Done`].
pub fn act(data: &Path, request: AdminRequest) -> anyhow::Result<()> {
    match self::request(data, request)? {
        AdminAnswer::Done => Ok(()),
        other => Err(unexpected_answer(&other)),
    }
}

/// An answer to some other question.
pub fn unexpected_answer(answer: &AdminAnswer) -> anyhow::Error {
    anyhow!("unexpected answer of the server ({answer:?}): is it another version of shoal?")
}

/// Errors of the control socket as they concern a cluster's server.
fn explain(error: ControlError) -> anyhow::Error {
    match error {
        // The server's own words.
        ControlError::Refused { what, .. } => anyhow!(what),
        ControlError::NotRunning(data) => {
            let shown = data.display();
            if node_dir::exists(&data) {
                anyhow!(
                    "the server in {shown} does not run: `systemctl start shoal-server`, or `shoal server --data {shown} \
                     --background`"
                )
            } else {
                anyhow!(no_server(&data))
            }
        }
        ControlError::Io { data, cause } if cause.kind() == std::io::ErrorKind::NotFound => {
            anyhow!(no_server(&data))
        }
        ControlError::Io { data, cause } if cause.kind() == std::io::ErrorKind::PermissionDenied => {
            anyhow!(
                "{}: {cause}: administration takes the user that runs the server, mostly root",
                data.display()
            )
        }
        other => other.into(),
    }
}

fn no_server(data: &Path) -> String {
    format!(
        "there is no server in {}: run this on a node of the cluster, or say with --data DIR (or SHOAL_DATA) where its data \
         are; `shoal cluster init` begins a cluster here, `shoal peer join TOKEN` joins one",
        data.display()
    )
}
