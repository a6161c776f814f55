//! How a world's blocks are on its bricks: in copies or in shards, and with or without a hot tier.
//!
//! Half of all worlds have copies on one tier. A quarter is dispersed. A quarter has a hot tier, half of
//! these over shards. In a third of all of them an administrator converts the volume, adds bricks and removes
//! some, and in half of those without a hot tier attaches one. Where there are shards or tiers, or may be,
//! everything is short: a block of some hundred bytes is split, a block leaves the hot tier after seconds,
//! and a few blocks fill it.

use crate::scheduler::Machine;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shoal_cluster::map::NextIds;
use shoal_cluster::{Brick, BrickState, ClusterMap, HotTier, Node, Shards, Volume, VolumeState};
use shoal_meta::TierSettings;
use shoal_types::{BrickId, GroupId, NodeId, Tier, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

/// The first machine with a client; bricks are on machines before it.
pub const FIRST_CLIENT: Machine = 11;
/// The world's volume.
pub const VOLUME: u128 = 0x51;
/// Bricks of a tier with copies: more than copies of a block, so that another brick can replace one.
const BRICKS: u16 = 4;
/// Schemes of dispersed worlds, each with the numbers of bricks that it is tried on.
const SCHEMES: [(Shards, RangeInclusive<u16>); 3] = [
    (Shards { data: 2, parity: 1 }, 4..=6),
    (Shards { data: 2, parity: 2 }, 4..=6),
    (Shards { data: 3, parity: 2 }, 5..=6),
];
/// How often a program's word is repeated in a file of such a world: then a shard is more than padding.
const WORD_REPEATS: u64 = 16;
/// Content up to this size is inline in such a world, in bytes: almost none.
pub const INLINE_BYTES: u32 = 8;
/// Shortest block that is split, in bytes: all, or those of more than one word.
const SHARDED_BYTES_MIN: [u64; 2] = [1, 2 * 8 * WORD_REPEATS];
/// Capacity of a brick of the hot tier, in bytes: never exhausted, or by a few blocks.
const HOT_BYTES: [u64; 3] = [1 << 40, 6 << 10, 2 << 10];
/// The share of worlds with an administrator.
const MANAGED: f64 = 0.33;
/// Fewest copies of a block: it survives one loss, as each fault of a brick may be one.
const COPIES_MIN: u8 = 2;
/// Most bricks that an administrator adds.
const SPARES_MAX: u16 = 2;
/// The share of worlds with an administrator, and without a hot tier at first, where one is attached.
const ATTACHES: f64 = 0.5;
/// Longest time after which an unused block leaves the hot tier, in seconds.
const DEMOTE_AFTER_S_MAX: u64 = 5;
/// Longest time for which a block that was used is left alone, in seconds.
const REST_S_MAX: u64 = 2;
/// Most reads after which a block moves to the hot tier.
const PROMOTE_READS_MAX: u32 = 2;
/// Wall clocks are no further apart than this where the order of times decides, in milliseconds.
const CLOCK_MS_MAX: u64 = 2_000;
/// Wall clocks are this far apart otherwise.
const FAR_CLOCK_MS_MAX: u64 = 1_000_000;

/// How blocks are on the bricks of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bricks of the cold tier.
    pub cold_bricks: u16,
    /// Copies of a block when the world begins; if it is in shards, one more than the parity shards.
    pub replica: u8,
    /// The scheme of the cold tier, if it has shards.
    pub shards: Option<Shards>,
    /// Shortest block that is split, in bytes.
    pub sharded_bytes_min: u64,
    /// How often a program's word is repeated in a file.
    pub word_repeats: u64,
    /// The hot tier, if there is one.
    pub hot: Option<Hot>,
    /// The scheme of shards that an administrator converts the cold tier to, or from; `None`: there is no
    /// administrator.
    pub scheme: Option<Shards>,
    /// Copies of a block when an administrator has converted the cold tier to copies.
    pub copies: u8,
    /// Bricks that an administrator may add, to the cold tier or as a hot one. They have the last numbers.
    pub spares: u16,
    /// The hot tier that an administrator attaches. Its bricks are spare ones, and never exhausted.
    pub later_hot: Option<Hot>,
}

/// The hot tier of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hot {
    /// Its bricks.
    pub bricks: u16,
    /// They have the first numbers, so that faults of certain bricks happen there.
    pub is_first: bool,
    /// Copies of a block.
    pub copies: u8,
    /// Capacity of each brick, in bytes.
    pub brick_bytes: u64,
    /// When blocks are moved.
    pub settings: TierSettings,
}

impl Layout {
    /// The layout of a seed; `replica`: copies, where it has nothing but copies.
    pub fn of(seed: u64, replica: u8) -> Layout {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x71e2);
        let copies = Layout {
            cold_bricks: BRICKS,
            replica,
            shards: None,
            sharded_bytes_min: 0,
            word_repeats: 1,
            hot: None,
            scheme: None,
            copies: replica,
            spares: 0,
            later_hot: None,
        };
        let layout = match rng.random_range(0..4) {
            0 | 1 => copies,
            2 => copies.dispersed(&mut rng),
            _ => {
                let over_shards = rng.random_bool(0.5);
                let cold = if over_shards { copies.dispersed(&mut rng) } else { copies };
                Layout { word_repeats: WORD_REPEATS, hot: Some(Hot::drawn(&mut rng)), ..cold }
            }
        };
        let mut rng = SmallRng::seed_from_u64(seed ^ 0xad31);
        if !rng.random_bool(MANAGED) {
            return layout;
        }
        let managed = layout.managed(&mut rng);
        let mut rng = SmallRng::seed_from_u64(seed ^ 0xa77a);
        if managed.hot.is_some() || !rng.random_bool(ATTACHES) {
            return managed;
        }
        let hot = Hot::drawn(&mut rng);
        Layout { later_hot: Some(hot), spares: managed.spares + hot.bricks, ..managed }
    }

    /// The layout with an administrator. In half of them, a block in copies survives another number of losses
    /// than one in shards.
    fn managed(self, rng: &mut SmallRng) -> Layout {
        let spares = rng.random_range(0..=SPARES_MAX);
        let dispersed = if self.shards.is_some() { self } else { self.dispersed(rng) };
        let alike = dispersed.replica;
        let copies = if rng.random_bool(0.5) { alike } else { rng.random_range(COPIES_MIN..=alike + 1) };
        let replica = if self.shards.is_some() { alike } else { copies };
        Layout { shards: self.shards, scheme: dispersed.shards, replica, copies, spares, ..dispersed }
    }

    fn dispersed(self, rng: &mut SmallRng) -> Layout {
        let (shards, bricks) = SCHEMES[rng.random_range(0..SCHEMES.len())].clone();
        Layout {
            cold_bricks: rng.random_range(bricks),
            replica: shards.parity + 1,
            shards: Some(shards),
            sharded_bytes_min: SHARDED_BYTES_MIN[rng.random_range(0..SHARDED_BYTES_MIN.len())],
            word_repeats: WORD_REPEATS,
            ..self
        }
    }

    /// Whether there is more than copies on one tier, or may be.
    pub fn is_special(&self) -> bool {
        self.shards.is_some() || self.hot.is_some() || self.scheme.is_some()
    }

    /// The bricks at the beginning, numbered from 1.
    pub fn bricks(&self) -> u16 {
        self.cold_bricks + self.hot.map_or(0, |hot| hot.bricks)
    }

    /// The bricks with those that may be added.
    pub fn all_bricks(&self) -> u16 {
        self.bricks() + self.spares
    }

    /// The hot tier that there is at the beginning, or may be later.
    pub fn any_hot(&self) -> Option<Hot> {
        self.hot.or(self.later_hot)
    }

    /// The tier of a brick at the beginning.
    pub fn tier_of(&self, brick: BrickId) -> Tier {
        match self.hot {
            Some(hot) if hot.is_first && brick.0 <= hot.bricks => Tier::Hot,
            Some(hot) if !hot.is_first && brick.0 > self.cold_bricks && brick.0 <= self.bricks() => Tier::Hot,
            _ => Tier::Cold,
        }
    }

    /// How far apart wall clocks are at the beginning, in milliseconds.
    pub fn clock_ms_max(&self) -> u64 {
        if self.any_hot().is_some() { CLOCK_MS_MAX } else { FAR_CLOCK_MS_MAX }
    }

    /// The map of a cluster with these bricks, each on a node of its own, with their files below a directory.
    pub fn map(&self, dir: &Path) -> ClusterMap {
        let volume = GroupId(VOLUME);
        let mut map = ClusterMap { epoch: 1, cluster: 1, ..ClusterMap::default() };
        for number in 1..=self.all_bricks() {
            let (name, address) = (format!("n{number}"), format!("n{number}:7470"));
            map.nodes.insert(NodeId(number.into()), Node { name, address, joined: Timestamp::default() });
        }
        for number in 1..=self.bricks() {
            let (node, path, state) = (NodeId(number.into()), brick_dir(dir, number), BrickState::Active);
            map.bricks.insert(BrickId(number), Brick { node, path, volume, state, replaced: false });
        }
        map.next = NextIds { brick: self.bricks() + 1, ..NextIds::default() };
        let ids = || map.bricks.keys().copied();
        let hot: BTreeSet<BrickId> = ids().filter(|brick| self.tier_of(*brick) == Tier::Hot).collect();
        let volume_in_map = Volume {
            name: "world".into(),
            replica: self.replica,
            state: VolumeState::Started,
            replicas: Vec::new(),
            bricks: ids().collect(),
            options: BTreeMap::new(),
            created: Timestamp::default(),
            rebalance: 0,
        };
        map.volumes.insert(volume, volume_in_map);
        map.schemes.extend(self.shards.map(|shards| (volume, shards)));
        let tier = |of: Hot| HotTier { bricks: hot, replica: of.copies, shards: None, detaching: false };
        map.tiers.extend(self.hot.map(|of| (volume, tier(of))));
        map
    }
}

/// The directory of a brick.
pub fn brick_dir(dir: &Path, number: u16) -> std::path::PathBuf {
    dir.join(format!("brick-{number}"))
}

impl Hot {
    fn drawn(rng: &mut SmallRng) -> Hot {
        let high_percent = rng.random_range(50..=90);
        let settings = TierSettings {
            detaching: false,
            demote_after_s: rng.random_range(1..=DEMOTE_AFTER_S_MAX),
            rest_s: rng.random_range(0..=REST_S_MAX),
            promote_reads: rng.random_range(1..=PROMOTE_READS_MAX),
            high_percent,
            low_percent: rng.random_range(0..=high_percent),
            bytes_per_second: 0,
            paused: false,
        };
        Hot {
            bricks: rng.random_range(2..=3),
            is_first: rng.random_bool(0.5),
            copies: 2,
            brick_bytes: HOT_BYTES[rng.random_range(0..HOT_BYTES.len())],
            settings,
        }
    }
}
