//! A metadata server on another node.

use super::{pack, unpack};
use crate::frame::Service;
use crate::limits::{FRAME_BYTES_MAX, META_TIMEOUT};
use crate::link::Link;
use crate::listener::Replier;
use crate::outcome::NetError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_types::{BatchSeq, BlockId, BlockInfo, Errno, GroupId, InodeId, SessionId, Statfs};
use shoal_wire::{
    Acquire, AcquireReply, Commit, CommitDone, CommitReply, Done, Found, Grant, GrantReply, LockOp,
    LockReply, LockRequest, MetaError, MetaService, OpenReply, Poll, Query, ReadReply, ReadRequest, Recalls,
    Reclaim, SessionRequest,
};
use std::sync::Arc;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    OpenSession(SessionRequest),
    CloseSession(SessionId),
    Grant(Grant),
    /// The operations follow.
    Commit {
        session: SessionId,
        seq: BatchSeq,
        born: Vec<(InodeId, InodeId)>,
        gone: Vec<InodeId>,
    },
    Read(ReadRequest),
    Acquire(Acquire),
    Recalls(Poll),
    Declare(Reclaim),
    Lock(LockRequest),
    Blocks {
        session: SessionId,
        ids: Vec<BlockId>,
    },
    Statfs(SessionId),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Opened(OpenReply),
    Closed,
    Granted(GrantReply),
    Committed(BatchSeq),
    Found(ReadReply),
    Acquired(AcquireReply),
    Recalled(Recalls),
    Declared,
    Locked(LockReply),
    Blocks(Vec<Option<BlockInfo>>),
    Statfs(Statfs),
}

/// Longest page of a listing for a remote client, in bytes, so that it fits a frame.
const LIST_BYTES_MAX: u64 = 6 << 20;

/// A replica of a volume's metadata group on another node, as a service.
pub struct RemoteMeta {
    link: Arc<Link>,
    group: GroupId,
}

fn lost(error: NetError) -> MetaError {
    match error {
        NetError::Denied { denial, .. } => MetaError::Denied(denial),
        error => MetaError::Unavailable(error.to_string()),
    }
}

impl RemoteMeta {
    /// The group's replica behind a link.
    pub fn new(link: Arc<Link>, group: GroupId) -> RemoteMeta {
        RemoteMeta { link, group }
    }

    fn call(&self, call: &Call) -> Result<Answer, MetaError> {
        let body = self.link.call(Service::Meta(self.group), false, pack(call, []), META_TIMEOUT);
        decode_answer(&body.map_err(lost)?)
    }
}

fn decode_answer(body: &Bytes) -> Result<Answer, MetaError> {
    let (answer, _) = unpack::<Result<Answer, MetaError>>(body).map_err(MetaError::Malformed)?;
    answer
}

/// Sends a request and takes the one answer that fits.
macro_rules! call {
    ($self:ident, $call:expr, $answer:pat => $value:expr) => {
        match $self.call(&$call)? {
            $answer => Ok($value),
            _ => Err(MetaError::other_answer()),
        }
    };
}

/// Sends a request, and takes the one answer that fits when it comes. A request that waits for other clients
/// waits for as long as the server lives.
macro_rules! call_then {
    ($self:ident, $call:expr, $answer:pat => $value:expr, $done:ident) => {
        let on_reply = move |outcome: Result<Bytes, NetError>| {
            $done(outcome.map_err(lost).and_then(|body| match decode_answer(&body)? {
                $answer => Ok($value),
                _ => Err(MetaError::other_answer()),
            }));
        };
        $self.link.call_then(Service::Meta($self.group), false, pack(&$call, []), Box::new(on_reply));
    };
}

impl MetaService for RemoteMeta {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        call!(self, Call::OpenSession(request), Answer::Opened(reply) => reply)
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        call!(self, Call::CloseSession(session), Answer::Closed => ())
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        call!(self, Call::Grant(grant), Answer::Granted(reply) => reply)
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        let Commit { session, seq, ops, born, gone } = commit;
        let call = Call::Commit { session, seq, born, gone };
        let parts = pack(&call, [ops]);
        let on_reply = move |outcome: Result<Bytes, NetError>| {
            done(outcome.map_err(lost).and_then(|body| match decode_answer(&body)? {
                Answer::Committed(seq) => Ok(CommitReply { seq }),
                _ => Err(MetaError::other_answer()),
            }));
        };
        self.link.call_then(Service::Meta(self.group), true, parts, Box::new(on_reply));
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        call_then!(self, Call::Read(request), Answer::Found(reply) => reply, done);
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        call_then!(self, Call::Acquire(acquire), Answer::Acquired(reply) => reply, done);
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        call_then!(self, Call::Recalls(poll), Answer::Recalled(reply) => reply, done);
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        call_then!(self, Call::Lock(request), Answer::Locked(reply) => reply, done);
    }
    fn reclaim(&self, reclaim: Reclaim) -> Result<(), MetaError> {
        call!(self, Call::Declare(reclaim), Answer::Declared => ())
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        let found: Result<_, MetaError> =
            call!(self, Call::Blocks { session, ids: ids.to_vec() }, Answer::Blocks(reply) => reply);
        found.and_then(
            |found| if found.len() == ids.len() { Ok(found) } else { Err(MetaError::other_answer()) },
        )
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        call!(self, Call::Statfs(session), Answer::Statfs(reply) => reply)
    }
}

/// Carries out a request for a metadata server, of a client with this certificate.
pub fn serve_meta(meta: &dyn MetaService, certificate: &str, body: &Bytes, reply: Replier) {
    serve_meta_noting(meta, certificate, body, reply, &|_| ());
}

/// [`serve_meta`], which reports long-polls to `polled`: each live session always has one open.
pub fn serve_meta_noting(
    meta: &dyn MetaService,
    certificate: &str,
    body: &Bytes,
    reply: Replier,
    polled: &dyn Fn(SessionId),
) {
    let (call, tail) = match unpack::<Call>(body) {
        Ok(call) => call,
        Err(why) => return respond(reply, Err(MetaError::Malformed(why))),
    };
    let answer = match call {
        Call::Commit { session, seq, born, gone } => {
            let done = move |outcome: Result<CommitReply, MetaError>| {
                respond(reply, outcome.map(|committed| Answer::Committed(committed.seq)));
            };
            return meta.submit(Commit { session, seq, ops: tail, born, gone }, Box::new(done));
        }
        Call::OpenSession(mut request) => {
            if let Some(origin) = &mut request.origin {
                certificate.clone_into(&mut origin.certificate);
            }
            meta.open_session(request).map(Answer::Opened)
        }
        Call::CloseSession(session) => meta.close_session(session).map(|()| Answer::Closed),
        Call::Grant(grant) => meta.grant(grant).map(Answer::Granted),
        Call::Read(mut request) => {
            match &mut request.query {
                Query::List { bytes_max, .. } => *bytes_max = (*bytes_max).min(LIST_BYTES_MAX),
                Query::Walk { bytes_target, bytes_max, .. } => {
                    (*bytes_target, *bytes_max) =
                        ((*bytes_target).min(LIST_BYTES_MAX), (*bytes_max).min(LIST_BYTES_MAX));
                }
                // The server bounds the reply to what fits a frame.
                Query::Extents { .. } | Query::Lookup { .. } | Query::Inode(_) => {}
            }
            return meta.read(request, Box::new(move |answer| respond(reply, answer.map(Answer::Found))));
        }
        Call::Acquire(acquire) => {
            let done = move |answer: Result<_, _>| respond(reply, answer.map(Answer::Acquired));
            return meta.acquire(acquire, Box::new(done));
        }
        Call::Recalls(poll) => {
            polled(poll.session);
            return meta.recalls(poll, Box::new(move |answer| respond(reply, answer.map(Answer::Recalled))));
        }
        Call::Lock(request) => {
            let reply = match request.op {
                // The lock may be held for ever: it must not take one of the places for requests in progress.
                LockOp::Set { wait: true, .. } => reply.patient(),
                _ => reply,
            };
            return meta.lock(request, Box::new(move |answer| respond(reply, answer.map(Answer::Locked))));
        }
        Call::Declare(reclaim) => meta.reclaim(reclaim).map(|()| Answer::Declared),
        Call::Blocks { session, ids } => meta.blocks(session, &ids).map(Answer::Blocks),
        Call::Statfs(session) => meta.statfs(session).map(Answer::Statfs),
    };
    respond(reply, answer);
}

/// Sends the answer. An answer that no frame can carry becomes an error of the call itself. Refused by the
/// transport, it would look as if the server were lost, and be retried for ever.
fn respond(reply: Replier, answer: Result<Answer, MetaError>) {
    let mut parts = pack(&answer, []);
    let bytes: usize = parts.iter().map(Bytes::len).sum();
    if bytes > FRAME_BYTES_MAX as usize {
        tracing::error!(
            bytes,
            what = what(&answer),
            "an answer is too long for a message: the client gets EIO"
        );
        parts = pack(&Err::<Answer, MetaError>(MetaError::Errno(Errno::EIO)), []);
    }
    reply.answer(parts);
}

/// The kind of an answer, for people to read.
fn what(answer: &Result<Answer, MetaError>) -> &'static str {
    match answer {
        Ok(Answer::Found(reply)) => match reply.found {
            Found::Lookup(_) => "a name",
            Found::List(_) => "a directory",
            Found::Walk(_) => "several directories",
            Found::Inode(_) => "an inode",
            Found::Extents(_) => "the content map of a file",
        },
        Ok(Answer::Acquired(_)) => "rights",
        Ok(Answer::Recalled(_)) => "recalls",
        _ => "something else",
    }
}
