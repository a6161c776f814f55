//! Random writes, deletions and failures: nothing is lost, and in the end every copy is where it should be.

use crate::cluster::{VOLUME, eventually};
use crate::world::Volume;
use proptest::prelude::*;
use shoal_cluster::Command;
use shoal_cluster::map::{BrickState, Shards};
use shoal_types::{BlockScheme, BrickId, InodeId};

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Unlink(usize),
    /// One brick at a time is away.
    Away(usize),
    Back,
    /// A brick is lost and a new one takes its place.
    Replace(usize),
    Drain(usize),
    Undrain,
    Rebalance,
    /// To shards, and back to copies.
    Convert,
    /// The directory of all files is in shards, or as the volume again.
    SetScheme,
    Heal,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1usize..2000).prop_map(Step::Write),
        3 => (0usize..40).prop_map(Step::Unlink),
        2 => (0usize..8).prop_map(Step::Away),
        2 => Just(Step::Back),
        1 => (0usize..8).prop_map(Step::Replace),
        1 => (0usize..8).prop_map(Step::Drain),
        1 => Just(Step::Undrain),
        1 => Just(Step::Rebalance),
        1 => Just(Step::Convert),
        1 => Just(Step::SetScheme),
        1 => Just(Step::Heal),
    ]
}

struct Run {
    v: Volume,
    away: Option<BrickId>,
    lost: u32,
    /// Writes are so many times as long as the step says.
    scale: usize,
    /// So many bricks stay in use.
    active_min: usize,
    /// A scheme of shards, and the copies of a block that is converted back.
    converts_to: Option<(Shards, u8)>,
}

impl Run {
    fn active(&self) -> Vec<BrickId> {
        let map = self.v.world.map.read();
        map.bricks_of(VOLUME).filter(|(_, it)| it.state == BrickState::Active).map(|(id, _)| id).collect()
    }

    fn back(&mut self) {
        if let Some(brick) = self.away.take() {
            self.v.world.mem(brick).set_down(false);
        }
    }

    fn heal(&mut self) {
        self.back();
        self.v.server.placement_changed();
        self.v.assert_healed();
    }

    fn step(&mut self, step: Step) {
        let active = self.active();
        let brick = |index: usize| active[index % active.len()];
        match step {
            Step::Write(len) => drop(self.v.write(len * self.scale)),
            Step::Unlink(index) => {
                if let Some(name) = self.v.files.keys().nth(index).cloned() {
                    self.v.unlink(&name);
                }
            }
            Step::Away(index) => {
                self.back();
                self.away = Some(brick(index));
                self.v.world.mem(brick(index)).set_down(true);
            }
            Step::Back => self.back(),
            Step::Replace(index) => {
                // The earlier loss must have been healed, or the last copy may be the one that is lost now.
                self.heal();
                self.lost += 1;
                let old = brick(index);
                let node = self.v.world.node_of(old);
                self.v.world.mem(old).wipe();
                let new = (node, format!("/new/{}", self.lost).into());
                self.v.world.change(Command::ReplaceBrick { volume: VOLUME, old, new, gone: true });
                self.v.server.placement_changed();
            }
            Step::Drain(index) if active.len() > self.active_min => {
                self.v.world.change(Command::Drain { volume: VOLUME, bricks: vec![brick(index)] });
                self.v.server.placement_changed();
            }
            Step::Drain(_) => {}
            Step::Undrain => {
                let map = self.v.world.map.read().clone();
                let draining = |(id, it): (BrickId, &shoal_cluster::Brick)| {
                    (it.state == BrickState::Draining).then_some(id)
                };
                let bricks: Vec<BrickId> = map.bricks_of(VOLUME).filter_map(draining).collect();
                if !bricks.is_empty() {
                    self.v.world.change(Command::Undrain { volume: VOLUME, bricks });
                    self.v.server.placement_changed();
                }
            }
            Step::Rebalance => self.v.server.rebalance(),
            Step::Convert => {
                let Some((shards, replica)) = self.converts_to else { return };
                let shards = Some(shards).filter(|_| !self.v.world.map.read().schemes.contains_key(&VOLUME));
                self.v.world.change(Command::Convert { volume: VOLUME, replica, shards, force: true });
                self.v.server.placement_changed();
            }
            Step::SetScheme => {
                let (volume, ino, removed, force) = (VOLUME, InodeId::ROOT, Vec::new(), true);
                let has_one = self.v.world.map.read().directory_schemes.contains_key(&VOLUME);
                let Some((shards, _)) = self.converts_to else { return };
                let scheme = (!has_one).then_some(BlockScheme::Shards(shards));
                self.v.world.change(Command::SetDirectoryScheme { volume, ino, scheme, removed, force });
                self.v.server.placement_changed();
            }
            Step::Heal => self.heal(),
        }
    }

    fn all(mut self, steps: Vec<Step>) {
        for step in steps {
            self.step(step);
        }
        self.v.assert_content();
        // Leftovers of deleted blocks can be told from uncommitted blocks only when a later block is known.
        self.v.write(1);
        self.heal();
        eventually("all blocks are in their scheme", || {
            self.v.server.schemes().unwrap().iter().all(|scheme| scheme.unwanted_blocks == 0)
        });
        let mut tries = 0;
        eventually("copies in excess are swept and garbage is deleted", || {
            tries += 1;
            if tries % 50 == 0 {
                self.v.server.placement_changed();
            }
            let known: usize = self.v.files.values().map(|(id, _)| self.v.group(*id).len()).sum();
            self.v.world.ids().into_iter().map(|brick| self.v.world.mem(brick).len()).sum::<usize>() == known
        });
        self.v.assert_exact();
        self.v.assert_consistent();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_and_everything_comes_to_its_place(steps in prop::collection::vec(step(), 5..40)) {
        let v = Volume::new(5, 3, &[1, 2, 3, 4, 5]);
        Run { v, away: None, lost: 0, scale: 1, active_min: 3, converts_to: None }.all(steps);
    }

    /// Short blocks are in copies, and long ones in shards.
    #[test]
    fn no_shard_is_lost_and_each_comes_to_its_place(steps in prop::collection::vec(step(), 5..40)) {
        let v = Volume::sharded(3, 2, 7);
        Run { v, away: None, lost: 0, scale: 200, active_min: 5, converts_to: None }.all(steps);
    }

    #[test]
    fn nothing_is_lost_while_blocks_become_shards_and_copies_again(
        steps in prop::collection::vec(step(), 5..40)
    ) {
        let v = Volume::new(7, 3, &[1, 2, 3, 4, 5, 6, 7]);
        let converts_to = Some((Shards { data: 3, parity: 2 }, 3));
        Run { v, away: None, lost: 0, scale: 200, active_min: 5, converts_to }.all(steps);
    }

    #[test]
    fn nothing_is_lost_while_the_number_of_losses_changes_that_blocks_survive(
        steps in prop::collection::vec(step(), 5..40)
    ) {
        let v = Volume::new(7, 2, &[1, 2, 3, 4, 5, 6, 7]);
        v.world.change(Command::AllowCopies { volume: VOLUME });
        let converts_to = Some((Shards { data: 3, parity: 2 }, 4));
        Run { v, away: None, lost: 0, scale: 200, active_min: 5, converts_to }.all(steps);
    }
}
