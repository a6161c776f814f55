//! A metadata server that heals a volume's blocks on bricks that fail, join and leave.

#[path = "../blocks/support.rs"]
#[allow(dead_code)]
mod cluster;
#[path = "../../../meta/tests/support/mod.rs"]
mod meta;
mod random;
mod world;

use cluster::{LIST_BLOCKS_MAX, VOLUME, eventually};
use shoal_cluster::Command;
use shoal_cluster::map::Shards;
use shoal_types::{BlockGroup, BlockId, BlockScheme, BrickId, InodeId, SessionId};
use shoal_wire::{BlockService, MetaService, VolumeBlocks};
use std::time::Duration;
use world::Volume;

#[test]
fn blocks_stored_while_a_brick_is_away_are_copied_when_it_is_back() {
    let mut v = Volume::new(3, 3, &[1, 2, 3]);
    v.world.mem(BrickId(2)).set_down(true);
    for _ in 0..20 {
        v.write(5000);
    }
    assert_eq!(v.server.degraded(100).unwrap().len(), 20);
    v.world.mem(BrickId(2)).set_down(false);
    v.assert_healed();
    assert_eq!(v.world.mem(BrickId(2)).len(), 20);
    let status = v.server.heal_status();
    assert!(status.last_error.is_none() && status.failed_blocks == 0, "{status:?}");
}

#[test]
fn what_was_on_a_lost_brick_is_copied_from_the_others() {
    let mut v = Volume::new(4, 3, &[1, 2, 3, 4]);
    for _ in 0..50 {
        v.write(3000);
    }
    v.world.mem(BrickId(3)).wipe();
    v.world.change(Command::Lose { volume: VOLUME, bricks: vec![BrickId(3)] });
    v.server.placement_changed();
    v.assert_healed();
    assert!(!v.server.brick_use().unwrap().contains_key(&BrickId(3)));
    assert_eq!(v.world.mem(BrickId(3)).len(), 0);
}

#[test]
fn a_drained_brick_is_empty_in_the_end() {
    let mut v = Volume::new(4, 2, &[1, 2, 3, 4]);
    for _ in 0..60 {
        v.write(3000);
    }
    assert!(v.world.mem(BrickId(1)).len() > 10);
    v.world.change(Command::Drain { volume: VOLUME, bricks: vec![BrickId(1)] });
    v.server.placement_changed();
    v.assert_healed();
    assert!(!v.server.brick_use().unwrap().contains_key(&BrickId(1)));
    eventually("nothing is left on it", || v.world.mem(BrickId(1)).len() == 0);
    let status = v.server.heal_status();
    assert_eq!(status.done_blocks, status.total_blocks);
    assert_eq!(status.lacking_blocks, 0);
}

#[test]
fn new_bricks_get_their_share_when_asked_for() {
    let mut v = Volume::new(3, 2, &[1, 2, 3]);
    for _ in 0..90 {
        v.write(1000);
    }
    let places = vec![(shoal_types::NodeId(1), "/bricks/new".into())];
    v.world.change(Command::AddBricks { volume: VOLUME, bricks: places });
    v.server.placement_changed();
    v.assert_healed();
    assert_eq!(v.world.mem(BrickId(4)).len(), 0, "nothing moves by itself");
    v.server.rebalance();
    eventually("it has come to an end", || v.server.heal_status().rebalances == 1);
    v.assert_healed();
    let on_new = v.world.mem(BrickId(4)).len();
    assert!((20..70).contains(&on_new), "{on_new} of 180 copies");
    let status = v.server.rebalance_status();
    assert_eq!((status.scanned_blocks, status.failed_blocks), (90, 0), "{status:?}");
    assert_eq!(
        (status.moved_blocks, status.moved_bytes),
        (on_new as u64, on_new as u64 * 1000),
        "{status:?}"
    );
    let all: usize = v.world.ids().into_iter().map(|brick| v.world.mem(brick).len()).sum();
    assert_eq!(all, 180, "no copy too many");
    v.server.rebalance();
    v.server.rebalance();
    eventually("both have come to an end", || v.server.heal_status().rebalances == 3);
    assert_eq!(v.server.heal_status().moved_blocks, 0, "they are where they should be");
    let status = v.server.rebalance_status();
    assert_eq!((status.scanned_blocks, status.moved_blocks), (90, 0), "{status:?}");
}

#[test]
fn unreferenced_copies_are_removed() {
    let mut v = Volume::new(4, 2, &[1, 2, 3, 4]);
    let (id, group) = v.write(1000);
    let stray = v.world.ids().into_iter().find(|brick| !group.contains(*brick)).unwrap();
    v.world.mem(stray).put(id, &[cluster::content(id.seq, 1000)]).unwrap();
    // One was stored by a client that died before it committed, one by a live client that may still commit.
    let abandoned = BlockId { session: SessionId::SERVER, seq: 7 };
    let pending = BlockId { session: v.session.id, seq: 9999 };
    for id in [abandoned, pending] {
        v.blocks.store(id, &[cluster::content(1, 10)]).unwrap();
    }
    v.server.placement_changed();
    eventually("they are gone", || !v.world.mem(stray).has(id) && v.world.holders(abandoned).is_empty());
    assert_eq!(v.world.holders(id), group);
    assert_eq!(v.world.holders(pending).len(), 2);
    v.server.close_session(v.session.id).unwrap();
    eventually("now it is garbage", || v.world.holders(pending).is_empty());
    v.assert_healed();
}

#[test]
fn unreferenced_copies_are_removed_however_many_blocks_a_session_has_stored() {
    let mut v = Volume::new(4, 2, &[1, 2, 3, 4]);
    let written: Vec<_> = (0..6 * LIST_BLOCKS_MAX).map(|_| v.write(100)).collect();
    for (id, group) in written.iter().step_by(3) {
        for brick in v.world.ids().into_iter().filter(|brick| !group.contains(*brick)) {
            v.world.mem(brick).put(*id, &[cluster::content(id.seq, 100)]).unwrap();
        }
    }
    let away = BrickId(4);
    v.world.mem(away).set_down(true);
    v.server.placement_changed();
    eventually("they are gone from the bricks that answer", || {
        let but = |group: BlockGroup| group.without(away);
        written.iter().all(|(id, group)| but(v.world.holders(*id)) == but(*group))
    });
    let is_left = |(id, group): &(BlockId, BlockGroup)| v.world.holders(*id) != *group;
    assert!(written.iter().filter(|one| is_left(one)).count() > 4, "one brick was away");
    v.world.mem(away).set_down(false);
    eventually("they are gone from the one that is back", || !written.iter().any(is_left));
    v.assert_exact();
}

#[test]
fn what_was_left_on_a_brick_goes_though_its_block_was_deleted_before_the_brick_was_back() {
    let mut v = Volume::new(4, 2, &[1, 2, 3, 4]);
    for _ in 0..20 {
        v.write(1000);
    }
    let away = v.world.mem(BrickId(1));
    let left = away.len();
    assert!(left > 0);
    away.set_down(true);
    v.world.change(Command::Drain { volume: VOLUME, bricks: vec![BrickId(1)] });
    v.server.placement_changed();
    v.assert_healed();
    v.unlink_all();
    eventually("the others delete it", || (2..=4).all(|brick| v.world.mem(BrickId(brick)).len() == 0));
    let pending = BlockId { session: v.session.id, seq: 9999 };
    v.blocks.store(pending, &[cluster::content(1, 10)]).unwrap();
    away.set_down(false);
    assert_eq!(away.len(), left);
    // These were named before this block, or never will be; the other one may still be named.
    v.write(1000);
    v.server.placement_changed();
    eventually("nothing is left on it", || away.len() == 0);
    assert_eq!(v.world.holders(pending).len(), 2);
    v.assert_healed();
}

#[test]
fn garbage_on_a_brick_that_is_away_is_deleted_when_it_is_back() {
    let mut v = Volume::new(3, 3, &[1, 2, 3]);
    for _ in 0..30 {
        v.write(1000);
    }
    v.world.mem(BrickId(1)).set_down(true);
    v.unlink_all();
    eventually("the others delete it", || [2, 3].iter().all(|brick| v.world.mem(BrickId(*brick)).len() == 0));
    assert_eq!(v.world.mem(BrickId(1)).len(), 30);
    v.world.mem(BrickId(1)).set_down(false);
    eventually("it is there again and deletes, too", || v.world.mem(BrickId(1)).len() == 0);
    eventually("nothing is known of it", || v.server.brick_use().unwrap().is_empty());
}

#[test]
fn garbage_on_an_absent_brick_keeps_no_task_busy() {
    let mut v = Volume::new(3, 3, &[1, 2, 3]);
    v.write(1000);
    v.world.mem(BrickId(1)).set_down(true);
    v.unlink_all();
    eventually("the others delete it", || [2, 3].iter().all(|brick| v.world.mem(BrickId(*brick)).len() == 0));
    let steps = || v.server.stats().into_iter().find(|(name, _)| *name == "background_steps_total");
    eventually("nothing is done until the brick is back", || {
        let before = steps();
        std::thread::sleep(Duration::from_millis(50));
        steps() == before
    });
}

#[test]
fn copies_that_vanished_are_found_when_the_bricks_are_asked() {
    let mut v = Volume::new(3, 3, &[1, 2, 3]);
    let all: Vec<_> = (0..10).map(|_| v.write(1000).0).collect();
    v.world.mem(BrickId(1)).remove(all[3]);
    v.world.mem(BrickId(2)).damage(all[5]);
    v.server.check_copies();
    eventually("all were asked for", || v.server.heal_status().checks == 1);
    let status = v.server.heal_status();
    assert_eq!((status.total_blocks, status.moved_blocks, status.failed_blocks), (10, 2, 0), "{status:?}");
    assert_eq!(status.lacking_blocks, 0, "{status:?}");
    v.assert_exact();
    v.world.ids().iter().for_each(|brick| v.world.mem(*brick).remove(all[7]));
    v.server.check_copies();
    eventually("all were asked for", || v.server.heal_status().checks == 2);
    assert_eq!(v.server.heal_status().failed_blocks, 1, "this one is lost, and said to be");
}

#[test]
fn a_rebalance_waits_for_a_brick_that_does_not_answer_yet() {
    let mut v = Volume::new(3, 2, &[1, 2, 3]);
    for _ in 0..40 {
        v.write(1000);
    }
    let places = vec![(shoal_types::NodeId(1), "/bricks/new".into())];
    v.world.change(Command::AddBricks { volume: VOLUME, bricks: places });
    v.world.mem(BrickId(4)).set_down(true);
    v.server.placement_changed();
    v.server.rebalance();
    eventually("it was tried", || v.server.heal_status().last == shoal_meta::HealTask::Rebalance);
    assert_eq!((v.world.mem(BrickId(4)).len(), v.server.heal_status().rebalances), (0, 0));
    v.world.mem(BrickId(4)).set_down(false);
    eventually("it has come to an end", || v.server.heal_status().rebalances == 1);
    assert!(v.world.mem(BrickId(4)).len() > 8);
    v.assert_healed();
}

#[test]
fn blocks_that_are_moved_or_checked_do_not_count_as_lacking_copies_and_those_of_a_lost_brick_do() {
    let mut v = Volume::new(4, 2, &[1, 2, 3, 4]);
    for _ in 0..60 {
        v.write(3000);
    }
    // Slow enough to be observed.
    v.server.set_heal_rate(200_000);
    v.server.check_copies();
    let most = |ends: &dyn Fn(&shoal_meta::HealStatus) -> bool| {
        let mut most = (0, 0);
        eventually("it has come to an end", || {
            let status = v.server.heal_status();
            most = (most.0.max(status.total_blocks - status.done_blocks), most.1.max(status.lacking_blocks));
            ends(&status)
        });
        most
    };
    assert_eq!(most(&|status| status.checks == 1).1, 0);
    let on = |brick| v.world.mem(BrickId(brick)).len();
    let on_first = on(1) as u64;
    v.world.change(Command::Drain { volume: VOLUME, bricks: vec![BrickId(1)] });
    v.server.placement_changed();
    let (left, lacking) = most(&|_| on(1) == 0);
    assert!(left > 0 && lacking == 0, "{left} to be moved, {lacking} of {on_first} lack copies");
    let lost = on(2) as u64;
    v.world.mem(BrickId(2)).wipe();
    v.world.change(Command::Lose { volume: VOLUME, bricks: vec![BrickId(2)] });
    v.server.placement_changed();
    let surveys = v.server.heal_status().surveys;
    assert_eq!(most(&|status| status.surveys > surveys && status.lacking_blocks == 0).1, lost);
    v.server.set_heal_rate(0);
    v.assert_healed();
}

#[test]
fn shards_of_a_lost_brick_are_restored_and_those_of_a_drained_one_move() {
    let mut v = Volume::sharded(4, 2, 8);
    for _ in 0..30 {
        v.write(200_000);
    }
    v.world.mem(BrickId(3)).wipe();
    v.world.change(Command::Lose { volume: VOLUME, bricks: vec![BrickId(3)] });
    v.world.change(Command::Drain { volume: VOLUME, bricks: vec![BrickId(5)] });
    v.server.placement_changed();
    v.assert_healed();
    eventually("nothing is left on it", || v.world.mem(BrickId(5)).len() == 0);
    let used = v.server.brick_use().unwrap();
    assert!(!used.contains_key(&BrickId(3)) && !used.contains_key(&BrickId(5)));
    v.assert_exact();
    let stored: u64 = v.server.brick_use().unwrap().values().map(|used| used.bytes).sum();
    assert_eq!(stored, 30 * 6 * 50_048, "each brick has a shard of whole columns");
}

#[test]
fn blocks_that_lost_two_shards_are_healed_before_those_that_lost_one() {
    let mut v = Volume::sharded(4, 2, 8);
    let blocks: Vec<(BlockId, BlockGroup)> = (0..120).map(|_| v.write(200_000)).collect();
    let lost = [BrickId(3), BrickId(5)];
    let with_losses = |count: usize| -> Vec<BlockId> {
        let is_one =
            |group: &BlockGroup| lost.iter().filter(|brick| group.contains(**brick)).count() == count;
        blocks.iter().filter(|(_, group)| is_one(group)).map(|(id, _)| *id).collect()
    };
    let (one, two) = (with_losses(1), with_losses(2));
    assert!(one.len() > 40 && two.len() > 40, "{} and {}", one.len(), two.len());
    // Slow enough to be observed: 24 MB in a second or two.
    v.server.set_heal_rate(16_000_000);
    lost.iter().for_each(|brick| v.world.mem(*brick).wipe());
    v.world.change(Command::Lose { volume: VOLUME, bricks: lost.to_vec() });
    v.server.placement_changed();
    let whole = |ids: &[BlockId]| ids.iter().filter(|id| v.blocks.is_whole(v.group(**id))).count();
    let mut seen_between = false;
    eventually("all are whole", || {
        let one_whole = whole(&one);
        let two_whole = whole(&two);
        assert!(one_whole == 0 || two_whole == two.len(), "{one_whole} of {}, {two_whole}", one.len());
        seen_between |= two_whole > 0 && one_whole == 0;
        one_whole == one.len()
    });
    assert!(seen_between, "the order was observed");
    v.server.set_heal_rate(0);
    v.assert_healed();
    v.assert_exact();
    assert_eq!(v.server.heal_status().failed_blocks, 0);
}

#[test]
fn losses_that_blocks_survive_are_counted_for_copies_and_shards() {
    let mut v = Volume::sharded(4, 2, 6);
    let long: Vec<_> = (0..3).map(|_| v.write(200_000)).collect();
    let (short, copies) = v.write(5_000);
    let classes = |v: &Volume| -> Vec<_> {
        let classes = v.server.losses().unwrap().classes.into_iter();
        classes.map(|it| (it.data, it.all, it.survives, it.whole, it.blocks)).collect()
    };
    assert_eq!(classes(&v), [(0, 3, Some(2), true, 1), (4, 6, Some(2), true, 3)]);
    let away: Vec<BrickId> = long[0].1.bricks().filter(|brick| !copies.contains(*brick)).collect();
    for (count, expected) in [(1, Some(1)), (2, Some(0)), (3, None)] {
        away.iter().take(count).for_each(|brick| v.world.mem(*brick).set_down(true));
        eventually("it is noticed that bricks are away", || {
            let shards = classes(&v).into_iter().filter(|class| class.0 > 0);
            shards.map(|class| (class.2, class.4)).collect::<Vec<_>>() == [(expected, 3)]
        });
    }
    assert!(classes(&v).contains(&(0, 3, Some(2), true, 1)), "its copies are all there");
    let unreadable = v.server.losses().unwrap().unreadable;
    assert_eq!((unreadable.len(), unreadable.contains(&short)), (3, false));
    away.iter().for_each(|brick| v.world.mem(*brick).set_down(false));
    v.assert_healed();
    v.assert_exact();
}

#[test]
fn shards_that_vanished_from_m_bricks_are_found_when_the_bricks_are_asked() {
    let mut v = Volume::sharded(4, 2, 6);
    for _ in 0..10 {
        v.write(200_000);
    }
    [1, 4].map(BrickId).iter().for_each(|brick| v.world.mem(*brick).wipe());
    v.assert_content();
    v.server.check_copies();
    eventually("all were asked for", || v.server.heal_status().checks == 1);
    let status = v.server.heal_status();
    assert_eq!((status.total_blocks, status.moved_blocks, status.failed_blocks), (10, 10, 0), "{status:?}");
    v.assert_exact();
}

#[test]
fn shards_stored_while_a_brick_is_away_are_completed_when_it_is_back() {
    let mut v = Volume::sharded(4, 2, 6);
    v.world.mem(BrickId(2)).set_down(true);
    for _ in 0..20 {
        v.write(200_000);
    }
    assert_eq!(v.server.degraded(100).unwrap().len(), 20);
    v.world.mem(BrickId(2)).set_down(false);
    v.assert_healed();
    assert_eq!(v.world.mem(BrickId(2)).len(), 20);
    v.unlink_all();
    eventually("garbage is deleted", || v.world.ids().iter().all(|brick| v.world.mem(*brick).len() == 0));
}

#[test]
fn volume_of_copies_is_converted_to_shards_and_back_while_a_copy_is_damaged_and_a_brick_away() {
    let mut v = Volume::new(7, 3, &[1, 2, 3, 4, 5, 6, 7]);
    let long: Vec<BlockId> = (0..20).map(|_| v.write(200_000).0).collect();
    let short = v.write(5_000).0;
    let damaged = v.group(long[3]).bricks().next().unwrap();
    v.world.mem(damaged).damage(long[3]);
    v.world.mem(BrickId(7)).set_down(true);
    let shards = Some(Shards { data: 4, parity: 2 });
    let convert = |shards| Command::Convert { volume: VOLUME, replica: 3, shards, force: false };
    v.world.change(convert(shards));
    v.server.placement_changed();
    eventually("all long blocks are in shards", || long.iter().all(|id| v.group(*id).is_sharded()));
    assert!(!v.group(short).is_sharded(), "it is too short for shards");
    v.assert_content();
    v.world.mem(BrickId(7)).set_down(false);
    v.assert_healed();
    eventually("no copy is left", || long.iter().all(|id| v.world.holders(*id).is_empty()));
    v.world.change(convert(None));
    v.server.placement_changed();
    eventually("all blocks are in copies", || long.iter().all(|id| !v.group(*id).is_sharded()));
    v.assert_healed();
    eventually("no shard is left", || {
        v.world.ids().into_iter().map(|brick| v.world.mem(brick).len()).sum::<usize>() == 21 * 3
    });
    v.assert_exact();
    v.assert_consistent();
}

#[test]
fn volume_is_converted_to_schemes_that_survive_more_and_fewer_losses() {
    let mut v = Volume::new(9, 2, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let long: Vec<BlockId> = (0..10).map(|_| v.write(200_000).0).collect();
    let short: Vec<BlockId> = (0..10).map(|_| v.write(5_000).0).collect();
    let all: Vec<BlockId> = long.iter().chain(&short).copied().collect();
    let convert = |v: &Volume, replica, shards| {
        v.world.change(Command::Convert { volume: VOLUME, replica, shards, force: true });
        v.server.placement_changed();
    };
    let have = |v: &Volume, ids: &[BlockId], bricks| ids.iter().all(|id| v.group(*id).len() == bricks);
    v.world.change(Command::AllowCopies { volume: VOLUME });
    convert(&v, 0, Some(Shards { data: 4, parity: 3 }));
    eventually("long blocks are in shards, short ones in as many copies as survive three losses", || {
        have(&v, &long, 7) && have(&v, &short, 4)
    });
    let new = [v.write(5_000).0, v.write(200_000).0];
    assert_eq!(new.map(|id| v.group(id).len()), [4, 7]);
    // Two bricks are lost, more than a block of the old scheme would survive.
    let lost = vec![BrickId(1), BrickId(2)];
    lost.iter().for_each(|brick| v.world.mem(*brick).wipe());
    v.world.change(Command::Lose { volume: VOLUME, bricks: lost });
    v.server.placement_changed();
    v.assert_healed();
    convert(&v, 3, None);
    eventually("all blocks are in three copies", || have(&v, &all, 3) && have(&v, &new, 3));
    assert!(v.group(long[0]).wanted_copies(2) == 3 && v.server.schemes().unwrap().len() == 1);
    v.assert_healed();
    convert(&v, 2, None);
    eventually("all blocks are in two copies", || have(&v, &all, 2) && have(&v, &new, 2));
    let now = v.group(long[0]);
    assert_eq!(Some(now), BlockGroup::new(now.bricks()), "it is as before the first conversion");
    v.assert_healed();
    eventually("nothing else is left", || {
        v.world.ids().into_iter().map(|brick| v.world.mem(brick).len()).sum::<usize>() == 22 * 2
    });
    v.assert_exact();
    v.assert_consistent();
}

#[test]
fn directory_has_its_own_scheme_and_files_that_are_moved_in_or_out_are_converted() {
    let mut v = Volume::new(7, 3, &[1, 2, 3, 4, 5, 6, 7]);
    let (dir, below) = (v.mkdir(InodeId::ROOT, "archive"), v.mkdir(InodeId::ROOT, "below"));
    let outside: Vec<BlockId> = (0..5).map(|_| v.write(200_000).0).collect();
    let inside: Vec<BlockId> = (0..5).map(|n| v.write_at(dir, &format!("in{n}"), 200_000).0).collect();
    let nearest = v.write_at(below, "file", 200_000).0;
    v.rename((InodeId::ROOT, "below"), (dir, "below"));
    let shards = BlockScheme::Shards(Shards { data: 4, parity: 2 });
    let set = |ino, scheme| Command::SetDirectoryScheme {
        volume: VOLUME,
        ino,
        scheme,
        removed: Vec::new(),
        force: false,
    };
    let unwanted = |v: &Volume| v.server.schemes().unwrap().iter().map(|of| of.unwanted_blocks).sum::<u64>();
    v.world.change(set(below, Some(BlockScheme::Copies(3))));
    v.world.change(set(dir, Some(shards)));
    assert_eq!(unwanted(&v), 5);
    assert_eq!(v.server.scheme_of(below).unwrap().nearest, Some((below, BlockScheme::Copies(3))));
    v.server.placement_changed();
    let sharded = |v: &Volume, ids: &[BlockId]| ids.iter().filter(|id| v.group(**id).is_sharded()).count();
    eventually("what is inside is in shards", || sharded(&v, &inside) == 5);
    v.assert_healed();
    assert_eq!((sharded(&v, &outside), sharded(&v, &[nearest]), unwanted(&v)), (0, 0, 0));

    // A brick that is lost does not convert anything else, nor back.
    v.world.mem(BrickId(1)).wipe();
    v.world.change(Command::Lose { volume: VOLUME, bricks: vec![BrickId(1)] });
    v.server.placement_changed();
    v.assert_healed();
    v.server.rebalance();
    eventually("it has come to an end", || v.server.heal_status().rebalances == 1);
    assert_eq!((sharded(&v, &outside), sharded(&v, &inside), sharded(&v, &[nearest])), (0, 5, 0));

    v.rename((dir, "in0"), (InodeId::ROOT, "out"));
    v.rename((InodeId::ROOT, "f1"), (dir, "moved"));
    v.server.placement_changed();
    eventually("the moved files are converted", || {
        sharded(&v, &inside[..1]) == 0 && sharded(&v, &outside[..1]) == 1
    });
    v.assert_content();
    v.world.change(set(below, None));
    v.server.placement_changed();
    eventually("it has the scheme of the directory above", || sharded(&v, &[nearest]) == 1);
    v.world.change(set(dir, None));
    v.server.placement_changed();
    let all: Vec<BlockId> = outside.iter().chain(&inside).chain([&nearest]).copied().collect();
    eventually("all blocks are in the volume's scheme", || sharded(&v, &all) == 0);
    v.assert_healed();
    eventually("no shard is left", || {
        v.world.ids().into_iter().map(|brick| v.world.mem(brick).len()).sum::<usize>() == 11 * 3
    });
    v.assert_exact();
    v.assert_consistent();
}
