//! A brick on another node.

use super::{pack, unpack};
use crate::frame::Service;
use crate::limits::BRICK_TIMEOUT;
use crate::link::Link;
use crate::listener::Replier;
use crate::outcome::NetError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_types::{BlockId, BrickId, SessionId, Statfs};
use shoal_wire::{BlockError, BlockPage, BlockService, GetDone, Moment};
use std::sync::Arc;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    /// The content follows.
    Put(BlockId),
    Get {
        id: BlockId,
        offset: u32,
        len: u32,
    },
    Delete(Vec<BlockId>),
    Moment,
    DeleteOlder {
        ids: Vec<BlockId>,
        than: Moment,
    },
    Length(BlockId),
    List {
        from: BlockId,
    },
    Sessions,
    Statfs,
    Check(BlockId),
    TakeReads,
    NoteReads(Vec<(BlockId, u32)>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// The content follows.
    Content,
    Moment(Moment),
    Kept(Vec<BlockId>),
    Length(u32),
    Blocks(BlockPage<BlockId>),
    Sessions(Vec<SessionId>),
    Statfs(Statfs),
    Reads(Vec<(BlockId, u32)>),
}

/// A brick on another node, as a service.
pub struct RemoteBrick {
    link: Arc<Link>,
    brick: BrickId,
}

impl RemoteBrick {
    /// The brick of this number behind a link.
    pub fn new(link: Arc<Link>, brick: BrickId) -> RemoteBrick {
        RemoteBrick { link, brick }
    }

    fn call(&self, call: &Call, tail: &[Bytes]) -> Result<(Answer, Bytes), BlockError> {
        let parts = pack(call, tail.iter().cloned());
        let outcome = self.link.call(Service::Brick(self.brick), false, parts, BRICK_TIMEOUT);
        answer_in(self.brick, self.link.address(), outcome)
    }

    fn unexpected_answer(&self) -> BlockError {
        unexpected_answer(self.brick, self.link.address())
    }
}

fn unreachable(brick: BrickId, what: &str) -> BlockError {
    BlockError::Unreachable(format!("{brick} at {what}"))
}

fn unexpected_answer(brick: BrickId, address: &str) -> BlockError {
    BlockError::Unreachable(format!("{brick} at {address}: its answer makes no sense"))
}

/// The answer in an outcome of a request, and the bytes behind it.
fn answer_in(
    brick: BrickId,
    address: &str,
    outcome: Result<Bytes, NetError>,
) -> Result<(Answer, Bytes), BlockError> {
    let body = outcome.map_err(|error| unreachable(brick, &error.to_string()))?;
    let (answer, tail) = unpack::<Result<Answer, BlockError>>(&body)
        .map_err(|why| unreachable(brick, &format!("{address}: {why}")))?;
    Ok((answer?, tail))
}

fn content_of(
    brick: BrickId,
    address: &str,
    answer: Result<(Answer, Bytes), BlockError>,
    len: u32,
) -> Result<Bytes, BlockError> {
    match answer? {
        (Answer::Content, bytes) if bytes.len() == len as usize => Ok(bytes),
        _ => Err(unexpected_answer(brick, address)),
    }
}

impl BlockService for RemoteBrick {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        match self.call(&Call::Put(id), parts)?.0 {
            Answer::Done => Ok(()),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        let answer = self.call(&Call::Get { id, offset, len }, &[]);
        content_of(self.brick, self.link.address(), answer, len)
    }
    fn get_then(&self, id: BlockId, offset: u32, len: u32, done: GetDone) -> Result<(), GetDone> {
        let (brick, address) = (self.brick, self.link.address().to_owned());
        let parts = pack(&Call::Get { id, offset, len }, []);
        let answered = move |outcome| {
            done(content_of(brick, &address, answer_in(brick, &address, outcome), len));
        };
        self.link.call_then(Service::Brick(brick), false, parts, Box::new(answered));
        Ok(())
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        match self.call(&Call::Delete(ids.to_vec()), &[])?.0 {
            Answer::Done => Ok(()),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn moment(&self) -> Result<Moment, BlockError> {
        match self.call(&Call::Moment, &[])?.0 {
            Answer::Moment(moment) => Ok(moment),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        match self.call(&Call::DeleteOlder { ids: ids.to_vec(), than }, &[])?.0 {
            Answer::Kept(ids) => Ok(ids),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        match self.call(&Call::Length(id), &[])?.0 {
            Answer::Length(len) => Ok(len),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        match self.call(&Call::List { from }, &[])?.0 {
            Answer::Blocks(page) if goes_on(&page, from) => Ok(page),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        match self.call(&Call::Sessions, &[])?.0 {
            Answer::Sessions(sessions) => Ok(sessions),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        match self.call(&Call::Statfs, &[])?.0 {
            Answer::Statfs(stat) => Ok(stat),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        match self.call(&Call::Check(id), &[])?.0 {
            Answer::Length(len) => Ok(len),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        match self.call(&Call::TakeReads, &[])?.0 {
            Answer::Reads(reads) => Ok(reads),
            _ => Err(self.unexpected_answer()),
        }
    }
    fn note_reads(&self, reads: Vec<(BlockId, u32)>) {
        // Counts that get lost cost nothing but a later promotion.
        let parts = pack(&Call::NoteReads(reads), []);
        self.link.call_then(Service::Brick(self.brick), false, parts, Box::new(|_| ()));
    }
}

/// Whether a page continues the listing from `from`. Otherwise a reader of all pages might never end, or take
/// a block for one of another session.
fn goes_on(page: &BlockPage<BlockId>, from: BlockId) -> bool {
    let belongs = |id: &BlockId| id.session == from.session && *id >= from;
    page.blocks.iter().chain(&page.next).all(belongs) && page.next != Some(from)
}

/// Carries out a request for a brick.
pub fn serve_brick(brick: &dyn BlockService, body: &Bytes, reply: Replier) {
    let (call, content) = match unpack::<Call>(body) {
        Ok(call) => call,
        Err(why) => return reply.refuse(&why),
    };
    let mut tail = Bytes::new();
    let answer = match call {
        Call::Put(id) => brick.put(id, &[content]).map(|()| Answer::Done),
        Call::Get { id, offset, len } => brick.get(id, offset, len).map(|bytes| {
            tail = bytes;
            Answer::Content
        }),
        Call::Delete(ids) => brick.delete(&ids).map(|()| Answer::Done),
        Call::Moment => brick.moment().map(Answer::Moment),
        Call::DeleteOlder { ids, than } => brick.delete_older(&ids, than).map(Answer::Kept),
        Call::Length(id) => brick.length(id).map(Answer::Length),
        Call::List { from } => brick.list(from).map(Answer::Blocks),
        Call::Sessions => brick.sessions().map(Answer::Sessions),
        Call::Statfs => brick.statfs().map(Answer::Statfs),
        Call::Check(id) => brick.check(id).map(Answer::Length),
        Call::TakeReads => brick.take_reads().map(Answer::Reads),
        Call::NoteReads(reads) => {
            brick.note_reads(reads);
            Ok(Answer::Done)
        }
    };
    reply.answer(pack(&answer, [tail]));
}
