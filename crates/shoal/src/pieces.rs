//! Where the content of a file is: told by the process of a mount, asked for by commands.

use crate::control::{ControlError, Piece, Pieces, Place, ReplyStream, Request};
use shoal_client::Client;
use shoal_types::{BrickId, Extent, InodeId};
use shoal_wire::ExtentsReply;
use std::collections::HashMap;
use std::path::Path;

/// Tells where the committed content of a file is, page by page.
pub fn tell_content(
    client: &Client,
    ino: InodeId,
    name: &dyn Fn(BrickId) -> String,
    tell: &mut dyn FnMut(Pieces) -> Result<(), String>,
) -> Result<(), String> {
    let mut start = 0;
    loop {
        let reply = client.extents(ino, start).map_err(|error| error.to_string())?;
        let end = reply.extents.last().map(|(offset, extent)| offset + extent.len());
        let more = reply.more;
        tell(pieces(reply, name))?;
        match end {
            Some(end) if more => start = end,
            _ => return Ok(()),
        }
    }
}

fn pieces(reply: ExtentsReply, name: &dyn Fn(BrickId) -> String) -> Pieces {
    let groups: HashMap<_, _> = reply.blocks.iter().map(|(id, info)| (*id, info.group)).collect();
    let piece = |(offset, extent): (u64, Extent)| {
        let bytes = extent.len();
        let place = match extent {
            Extent::Inline(_) => Place::Metadata,
            Extent::Zero { .. } => Place::Reserved,
            Extent::Block(block) => {
                let group = groups.get(&block.id).copied().unwrap_or_default();
                Place::Block {
                    session: block.id.session.0,
                    sequence: block.id.seq,
                    within: block.offset,
                    data_shards: group.data_shards(),
                    bricks: group.bricks().map(name).collect(),
                }
            }
        };
        Piece { offset, bytes, place }
    };
    Pieces { pieces: reply.extents.into_iter().map(piece).collect() }
}

/// Asks the process of a mount, by its directory, where the content of a file is.
pub fn ask_content(home: &Path, inode: u64) -> Result<Vec<Piece>, ControlError> {
    let pages: ReplyStream<Pieces> = ReplyStream::begin(home, &Request::Content { inode })?;
    let mut all = Vec::new();
    for page in pages {
        all.extend(page?.pieces);
    }
    Ok(all)
}
