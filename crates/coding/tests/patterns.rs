//! Every pattern of lost shards of small blocks, for all schemes that are likely to be used.

use bytes::Bytes;
use shoal_coding::{Coder, CodingError, Layout, Scheme, Shard};

/// Bytes without a pattern that a code could hide behind.
fn block(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn schemes() -> impl Iterator<Item = Scheme> {
    (2..=10).flat_map(|k| (1..=4).map(move |m| Scheme::new(k, m).expect("it is within the limits")))
}

/// All sets of at most `m` of the scheme's shards, as bits.
fn losses(scheme: Scheme) -> impl Iterator<Item = u32> {
    (0..1u32 << scheme.shards()).filter(move |lost| lost.count_ones() as usize <= scheme.parity())
}

fn split(shards: &[Shard], lost: u32) -> (Vec<Shard>, Vec<usize>) {
    let is_lost = |index: &usize| lost & (1 << index) != 0;
    let left = shards.iter().filter(|shard| !is_lost(&shard.index)).cloned().collect();
    (left, (0..shards.len()).filter(is_lost).collect())
}

#[test]
fn every_pattern_of_up_to_m_lost_shards_is_restored() {
    let mut coder = Coder::new();
    for scheme in schemes() {
        let block = block(777);
        let layout = Layout { scheme, len: 777 };
        let shards = coder.encode(scheme, &block).expect("it encodes");
        for lost in losses(scheme) {
            let (left, gone) = split(&shards, lost);
            assert_eq!(coder.decode(layout, &left).as_ref(), Ok(&block), "{scheme} without {gone:?}");
            let restored = coder.restore(scheme, &gone, &left).expect("enough are left");
            let original: Vec<Shard> = gone.iter().map(|index| shards[*index].clone()).collect();
            assert_eq!(restored, original, "{scheme} without {gone:?}");
        }
    }
}

#[test]
fn one_more_loss_than_m_is_an_error_and_never_wrong_bytes() {
    let mut coder = Coder::new();
    for scheme in schemes() {
        let shards = coder.encode(scheme, &block(1000)).expect("it encodes");
        let layout = Layout { scheme, len: 1000 };
        for lost in (0..1u32 << scheme.shards()).filter(|it| it.count_ones() as usize == scheme.parity() + 1)
        {
            let (left, gone) = split(&shards, lost);
            let too_few = CodingError::TooFew { scheme, good: scheme.data() - 1 };
            assert_eq!(coder.decode(layout, &left), Err(too_few.clone()), "{scheme} without {gone:?}");
            // A shard that is given twice counts once.
            let mut twice = left.clone();
            twice.push(left[0].clone());
            assert_eq!(coder.decode(layout, &twice), Err(too_few.clone()));
            assert_eq!(coder.restore(scheme, &gone, &twice), Err(too_few));
        }
    }
}

#[test]
fn damaged_and_misplaced_shards_are_missing_ones() {
    let mut coder = Coder::new();
    for scheme in schemes() {
        let block = block(1234);
        let layout = Layout { scheme, len: 1234 };
        let shards = coder.encode(scheme, &block).expect("it encodes");
        for bad in losses(scheme) {
            let mut given = shards.clone();
            for index in (0..given.len()).filter(|index| bad & (1 << index) != 0) {
                if index % 2 == 0 {
                    let mut bytes = given[index].bytes.to_vec();
                    bytes[index] ^= 1;
                    given[index].bytes = bytes.into();
                } else {
                    // It claims to be its neighbour, whose slot it must not take.
                    given[index].index = index - 1;
                }
            }
            assert_eq!(coder.decode(layout, &given).as_ref(), Ok(&block), "{scheme} with {bad:b} damaged");
        }
        for index in 0..=scheme.parity() {
            let mut given = shards.clone();
            given[..=index].iter_mut().for_each(|shard| shard.checksum ^= 1);
            assert_eq!(coder.decode(layout, &given).is_ok(), index < scheme.parity());
        }
        let other = Scheme::new(scheme.data() + 1, scheme.parity()).expect("it is within the limits");
        assert!(
            coder.decode(Layout { scheme: other, len: 1234 }, &shards).is_err(),
            "another scheme's shards"
        );
    }
}

#[test]
fn range_of_a_shard_is_restored_from_the_same_range_of_k_others() {
    let mut coder = Coder::new();
    for (k, m) in [(2, 1), (4, 2), (8, 4), (10, 4), (3, 3)] {
        let scheme = Scheme::new(k, m).expect("it is within the limits");
        let block = block(20_000);
        let layout = Layout { scheme, len: 20_000 };
        let shards = coder.encode(scheme, &block).expect("it encodes");
        for wanted in 0..scheme.shards() {
            for range in [0..1, 63..65, 100..1000, 640..704, 0..layout.shard_bytes()] {
                let columns = layout.columns(&range);
                let parts: Vec<Shard> = (1..=k)
                    .map(|step| &shards[(wanted + step) % scheme.shards()])
                    .map(|shard| shard.part(scheme, columns.clone()).expect("it is a part"))
                    .collect();
                let restored = coder.restore(scheme, &[wanted], &parts).expect("k are enough");
                let original = shards[wanted].part(scheme, columns.clone()).expect("it is a part");
                assert_eq!(restored, [original], "{scheme}, shard {wanted}, {range:?}");
            }
        }
    }
}

#[test]
fn blocks_of_all_lengths_come_back() {
    let mut coder = Coder::new();
    for len in [0, 1, 63, 64, 65, 511, 512, 513, 4096, 65_537, 1 << 20, 4 << 20] {
        for (k, m) in [(2, 1), (4, 2), (8, 4)] {
            let scheme = Scheme::new(k, m).expect("it is within the limits");
            let block = block(len);
            let shards = coder.encode(scheme, &block).expect("it encodes");
            let layout = Layout { scheme, len: len as u32 };
            assert!(shards.iter().all(|shard| shard.bytes.len() == layout.shard_bytes() as usize));
            assert_eq!(coder.decode(layout, &shards[m..]).as_ref(), Ok(&block), "{len} bytes");
            for piece in layout.pieces(len as u32 / 3, len as u32 / 2) {
                let start = piece.index * layout.shard_bytes() as usize + piece.range.start as usize;
                let there = piece.range.start as usize..piece.range.end as usize;
                assert_eq!(shards[piece.index].bytes[there.clone()], block[start..start + there.len()]);
            }
        }
    }
}

#[test]
fn shards_that_do_not_fit_together_are_refused() {
    let mut coder = Coder::new();
    let scheme = Scheme::new(2, 1).expect("it is within the limits");
    let shards = coder.encode(scheme, &block(1000)).expect("it encodes");
    let part = |index: usize, range| shards[index].part(scheme, range).expect("it is a part");
    let differ = [part(0, 0..64), part(1, 64..128)];
    assert!(matches!(coder.restore(scheme, &[2], &differ), Err(CodingError::Unfit(_))));
    let uneven = [part(0, 1..65), part(1, 1..65)];
    assert!(matches!(coder.restore(scheme, &[2], &uneven), Err(CodingError::Unfit(_))));
    assert!(matches!(coder.restore(scheme, &[3], &shards), Err(CodingError::Unfit(_))));
    let layout = Layout { scheme, len: 2000 };
    assert!(matches!(coder.decode(layout, &shards), Err(CodingError::Unfit(_))), "another block's length");
    assert_eq!(shards[0].part(scheme, 0..10_000), None);
}

/// The disk keeps what this code wrote: a parity of another library, or of a later version of this one, would
/// not fit to the shards that are stored.
#[test]
fn parity_is_the_same_as_when_the_format_was_fixed() {
    let scheme = Scheme::new(4, 2).expect("it is within the limits");
    let shards = Coder::new().encode(scheme, &block(10_000)).expect("it encodes");
    let checksums: Vec<u32> = shards.iter().map(|shard| shard.checksum).collect();
    assert_eq!(checksums, [4108372498, 1422883821, 3822537280, 3552899313, 2680147000, 3614376462]);
}
