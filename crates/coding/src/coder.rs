//! Encodes blocks, restores lost shards and decodes blocks.

use crate::limits::COLUMN_BYTES;
use crate::scheme::{Layout, Scheme};
use crate::shard::Shard;
use bytes::{Bytes, BytesMut};
use reed_solomon_simd::{Error, ReedSolomonDecoder, ReedSolomonEncoder};
use thiserror::Error as ThisError;

/// Why shards do not give back what was wanted.
#[derive(Clone, PartialEq, Debug, ThisError)]
pub enum CodingError {
    /// Fewer than `k` different, intact shards of the range.
    #[error("{good} intact shards of {scheme} are too few")]
    TooFew {
        /// The scheme.
        scheme: Scheme,
        /// Different intact shards that were given.
        good: usize,
    },
    /// The shards are of different ranges, or the range is not one of whole columns, or there is no such
    /// shard, or the shards are not of this block's length.
    #[error("the shards do not fit together: {0}")]
    Unfit(&'static str),
    /// The library refused what was given to it.
    #[error("coding: {0}")]
    Library(#[from] Error),
}

/// Encoder and decoder. Keeps its working memory, about three times a block, for the next call.
#[derive(Default)]
pub struct Coder {
    encoder: Option<ReedSolomonEncoder>,
    decoder: Option<ReedSolomonDecoder>,
}

impl Coder {
    /// A coder without working memory.
    pub fn new() -> Coder {
        Coder::default()
    }

    /// All shards of a block, the data shards first. Data shards share the block's memory, but for those
    /// that are padded.
    pub fn encode(&mut self, scheme: Scheme, block: &Bytes) -> Result<Vec<Shard>, CodingError> {
        let len = u32::try_from(block.len()).map_err(|_| CodingError::Unfit("the block is too long"))?;
        let shard_bytes = Layout { scheme, len }.shard_bytes() as usize;
        let data: Vec<Bytes> =
            (0..scheme.data()).map(|index| data_shard(block, index * shard_bytes, shard_bytes)).collect();
        let parity = self.parity(scheme, &data)?;
        let shard = |(index, bytes)| Shard::new(scheme, index, 0, bytes);
        Ok(data.into_iter().chain(parity).enumerate().map(shard).collect())
    }

    /// Restores shards, data or parity, over the range of those that are given: any `k`, in any order. More
    /// than `k` do no harm, nor do damaged ones.
    pub fn restore(
        &mut self,
        scheme: Scheme,
        wanted: &[usize],
        have: &[Shard],
    ) -> Result<Vec<Shard>, CodingError> {
        let (offset, mut data, parity) = sorted(scheme, have)?;
        if wanted.iter().any(|index| *index >= scheme.shards()) {
            return Err(CodingError::Unfit("there is no such shard"));
        }
        let wants_parity =
            wanted.iter().any(|index| *index >= scheme.data() && parity[index - scheme.data()].is_none());
        if wants_parity || wanted.iter().any(|index| data.get(*index).is_some_and(Option::is_none)) {
            self.restore_data(scheme, &mut data, &parity)?;
        }
        let mut all = data;
        all.extend(parity);
        if wants_parity {
            let data: Vec<Bytes> = all.iter().take(scheme.data()).flatten().cloned().collect();
            let made = self.parity(scheme, &data)?;
            all.truncate(scheme.data());
            all.extend(made.into_iter().map(Some));
        }
        let shard = |index: &usize| {
            let bytes = all[*index].clone().expect("a wanted shard was given or restored");
            Shard::new(scheme, *index, offset, bytes)
        };
        Ok(wanted.iter().map(shard).collect())
    }

    /// The whole block, from any `k` of its whole shards.
    pub fn decode(&mut self, layout: Layout, have: &[Shard]) -> Result<Bytes, CodingError> {
        let (offset, mut data, parity) = sorted(layout.scheme, have)?;
        let given = data.iter().chain(&parity).flatten().next().map_or(0, Bytes::len);
        if offset != 0 || given != layout.shard_bytes() as usize {
            return Err(CodingError::Unfit("these are not the whole shards"));
        }
        if data.iter().any(Option::is_none) {
            self.restore_data(layout.scheme, &mut data, &parity)?;
        }
        let mut block = BytesMut::with_capacity(given * layout.scheme.data());
        data.iter().flatten().for_each(|shard| block.extend_from_slice(shard));
        block.truncate(layout.len as usize);
        Ok(block.freeze())
    }

    fn parity(&mut self, scheme: Scheme, data: &[Bytes]) -> Result<Vec<Bytes>, CodingError> {
        let shard_bytes = data.first().map_or(0, Bytes::len);
        if shard_bytes == 0 {
            return Ok(vec![Bytes::new(); scheme.parity()]);
        }
        let (k, m) = (scheme.data(), scheme.parity());
        let encoder = match &mut self.encoder {
            Some(encoder) => {
                encoder.reset(k, m, shard_bytes)?;
                encoder
            }
            empty => empty.insert(ReedSolomonEncoder::new(k, m, shard_bytes)?),
        };
        for shard in data {
            encoder.add_original_shard(shard)?;
        }
        let encoded = encoder.encode()?;
        Ok(encoded.recovery_iter().map(Bytes::copy_from_slice).collect())
    }

    /// Restores the data shards that are `None`.
    fn restore_data(
        &mut self,
        scheme: Scheme,
        data: &mut [Option<Bytes>],
        parity: &[Option<Bytes>],
    ) -> Result<(), CodingError> {
        let shard_bytes = data.iter().chain(parity).flatten().next().map_or(0, Bytes::len);
        if shard_bytes == 0 {
            data.iter_mut().for_each(|shard| *shard = Some(Bytes::new()));
            return Ok(());
        }
        let (k, m) = (scheme.data(), scheme.parity());
        let decoder = match &mut self.decoder {
            Some(decoder) => {
                decoder.reset(k, m, shard_bytes)?;
                decoder
            }
            empty => empty.insert(ReedSolomonDecoder::new(k, m, shard_bytes)?),
        };
        for (index, shard) in data.iter().enumerate() {
            if let Some(shard) = shard {
                decoder.add_original_shard(index, shard)?;
            }
        }
        let lost = data.iter().filter(|shard| shard.is_none()).count();
        let used = parity.iter().enumerate().filter_map(|(index, shard)| Some((index, shard.as_ref()?)));
        for (index, shard) in used.take(lost) {
            decoder.add_recovery_shard(index, shard)?;
        }
        let decoded = decoder.decode()?;
        for (index, bytes) in decoded.restored_original_iter() {
            data[index] = Some(Bytes::copy_from_slice(bytes));
        }
        Ok(())
    }
}

fn data_shard(block: &Bytes, start: usize, len: usize) -> Bytes {
    let end = block.len().min(start + len);
    if end == start + len {
        return block.slice(start..end);
    }
    let mut padded = BytesMut::zeroed(len);
    if start < end {
        padded[..end - start].copy_from_slice(&block[start..end]);
    }
    padded.freeze()
}

type Slots = Vec<Option<Bytes>>;

/// The intact shards by index, data and parity, and the offset of their range. Each counts once.
fn sorted(scheme: Scheme, have: &[Shard]) -> Result<(u32, Slots, Slots), CodingError> {
    let mut slots: Slots = vec![None; scheme.shards()];
    let mut range = None;
    for shard in have.iter().filter(|shard| shard.is_intact(scheme)) {
        if *range.get_or_insert((shard.offset, shard.bytes.len())) != (shard.offset, shard.bytes.len()) {
            return Err(CodingError::Unfit("their ranges differ"));
        }
        slots[shard.index] = Some(shard.bytes.clone());
    }
    let good = slots.iter().flatten().count();
    let (offset, len) =
        range.filter(|_| good >= scheme.data()).ok_or(CodingError::TooFew { scheme, good })?;
    if !offset.is_multiple_of(COLUMN_BYTES) || !len.is_multiple_of(COLUMN_BYTES as usize) {
        return Err(CodingError::Unfit("the range is not one of whole columns"));
    }
    let parity = slots.split_off(scheme.data());
    Ok((offset, slots, parity))
}
