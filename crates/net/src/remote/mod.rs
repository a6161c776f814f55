//! The services of `wire` over links: client stubs, and the server side.
//!
//! A message is a versioned head and, if there are bytes to be passed through unread, those bytes after it.

mod brick;
mod meta;

pub use brick::{RemoteBrick, serve_brick};
pub use meta::{RemoteMeta, serve_meta, serve_meta_noting};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of the messages of both services.
const CALL_VERSION: u8 = 1;

/// Length of the head, the head; the tail follows as further parts.
fn pack<T: Serialize>(head: &T, tail: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    // Answers can be megabytes, so they are not moved to make room for their length.
    let mut first = shoal_wire::encode_behind(vec![0; 4], CALL_VERSION, head);
    let len = (first.len() - 4) as u32;
    first[..4].copy_from_slice(&len.to_le_bytes());
    let mut parts = vec![Bytes::from(first)];
    parts.extend(tail);
    parts
}

/// Splits and decodes what [`pack`] returns.
fn unpack<T: DeserializeOwned>(body: &Bytes) -> Result<(T, Bytes), String> {
    let short = || "the message is cut off".to_owned();
    let (len, _) = body.split_first_chunk::<4>().ok_or_else(short)?;
    let end = 4usize.checked_add(u32::from_le_bytes(*len) as usize).ok_or_else(short)?;
    let head = body.get(4..end).ok_or_else(short)?;
    let head = shoal_wire::decode(CALL_VERSION, head).map_err(|error| error.to_string())?;
    Ok((head, body.slice(end..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_and_tails_come_back(head in any::<(u64, String)>(), tail in any::<Vec<u8>>()) {
            let body: Vec<u8> = pack(&head, [Bytes::from(tail.clone())]).concat();
            let (again, rest) = unpack::<(u64, String)>(&body.into()).unwrap();
            prop_assert_eq!((again, rest.to_vec()), (head, tail));
        }

        #[test]
        fn rubbish_is_refused_or_understood_but_never_a_panic(body in any::<Vec<u8>>()) {
            let body = Bytes::from(body);
            let _ = unpack::<meta::Call>(&body);
            let _ = unpack::<Result<meta::Answer, shoal_wire::MetaError>>(&body);
            let _ = unpack::<brick::Call>(&body);
            let _ = unpack::<Result<brick::Answer, shoal_wire::BlockError>>(&body);
        }

        #[test]
        fn broken_calls_are_refused_or_understood_but_never_a_panic(at in 0usize..64, byte in any::<u8>(), cut in 0usize..64) {
            let call = meta::Call::Blocks { session: shoal_types::SessionId(3), ids: vec![
                shoal_types::BlockId { session: shoal_types::SessionId(1), seq: 2 }; 3] };
            let mut body = pack(&call, []).concat();
            if let Some(target) = body.get_mut(at) {
                *target = byte;
            }
            body.truncate(body.len().saturating_sub(cut));
            let _ = unpack::<meta::Call>(&body.into());
        }
    }
}
