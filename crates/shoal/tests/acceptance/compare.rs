//! Random operations, step by step, in the volume and in a local directory. Every outcome must be equal,
//! errno by errno and byte by byte, and after every few steps the whole trees.

mod operation;

use crate::harness::{Random, Volume, long, plain, seed, tree};
use operation::{Operation, World};

/// Steps of one sequence, and how many sequences.
const STEPS: usize = 3000;
const SEQUENCES: u64 = 6;
const SEQUENCES_LONG: u64 = 60;
/// Steps between comparisons of the whole trees.
const STEPS_PER_LOOK: usize = 250;
/// Steps shown before one that differs.
const HISTORY_SHOWN: usize = 30;

fn compare(volume: &mut Volume, sequence: u64) {
    let mut random = Random::new(sequence);
    let top = format!("sequence-{sequence}");
    let (inside, outside) = (volume.path().join(&top), volume.local().join(&top));
    let (mut ours, mut reference) = (World::new(&inside), World::new(&outside));
    let mut history: Vec<Operation> = Vec::new();
    let show = |history: &[Operation]| {
        let start = history.len().saturating_sub(HISTORY_SHOWN);
        let lines =
            history[start..].iter().enumerate().map(|(i, op)| format!("    {:5} {op:?}\n", start + i));
        lines.collect::<String>()
    };
    // Somewhere in the middle, a remount empties all caches.
    let remount_at = STEPS / 3 + random.below(0..STEPS as u64 / 3) as usize;
    for step in 0..STEPS {
        let operation = Operation::random(&mut random);
        history.push(operation.clone());
        let (was, should) = (ours.perform(&operation), reference.perform(&operation));
        assert!(
            was == should,
            "SHOAL_TEST_SEED={sequence}: step {step} differs:\n{}\n  here    {was}\n  locally {should}",
            show(&history)
        );
        if step == remount_at && !plain() {
            ours.close_all();
            reference.close_all();
            volume.remount();
        }
        if step % STEPS_PER_LOOK == STEPS_PER_LOOK - 1 {
            let (mut a, mut b) = (tree::read(&inside), tree::read(&outside));
            // Times differ between the two runs, so they are not compared.
            a.values_mut().chain(b.values_mut()).for_each(|node| node.mtime_ns = 0);
            let differences = tree::differences(&a, &b);
            assert!(
                differences.is_empty(),
                "SHOAL_TEST_SEED={sequence}: after step {step}:\n{differences}\n{}",
                show(&history)
            );
        }
    }
}

#[test]
fn random_operations_end_as_they_do_locally() {
    let mut volume = Volume::start("compare");
    let first = seed();
    for sequence in first..first + if long() { SEQUENCES_LONG } else { SEQUENCES } {
        compare(&mut volume, sequence);
    }
    volume.stop();
    volume.fsck();
}
