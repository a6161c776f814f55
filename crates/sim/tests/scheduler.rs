//! The scheduler: time, locks, channels, and the end of machines.

use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_runtime::{channel, simulator, thread};
use shoal_sim::scheduler::{End, OBSERVER, Scheduler};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LONG: Duration = Duration::from_secs(100_000);

/// Runs something as the main task of a world.
fn run(seed: u64, main: impl FnOnce(&Rc<Scheduler>) + 'static) -> (End, Rc<Scheduler>) {
    let world = Scheduler::new(seed);
    let _entered = simulator::enter(world.clone());
    let inside = world.clone();
    let task = world.start(OBSERVER, Duration::ZERO, "main", Box::new(move || main(&inside)));
    let end = world.run(task, LONG);
    world.end();
    (end, world)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(run).expect("a task")
}

#[test]
fn an_hour_of_sleep_passes_at_once() {
    let (end, world) = run(1, |_| {
        let begun = Instant::now();
        thread::sleep(Duration::from_secs(3600));
        assert!(begun.elapsed() >= Duration::from_secs(3600) && begun.elapsed() < Duration::from_secs(3601));
    });
    assert_eq!((end, world.panics()), (End::Done, Vec::new()));
}

#[test]
fn tasks_exclude_each_other_wake_each_other_and_pass_things_on() {
    for seed in 0..50 {
        let (end, world) = run(seed, |_| {
            let shared = Arc::new((Mutex::new(0), Condvar::new()));
            let (give, take) = channel::bounded(2);
            for _ in 0..4 {
                let (shared, give) = (shared.clone(), give.clone());
                spawn("adds", move || {
                    for n in 0..10 {
                        let mut count = shared.0.lock();
                        let seen = *count;
                        thread::sleep(Duration::from_micros(n));
                        *count = seen + 1;
                        shared.1.notify_all();
                        drop(count);
                        give.send(n).expect("a receiver is left");
                    }
                });
            }
            drop(give);
            let sum: u64 = take.iter().sum();
            let mut count = shared.0.lock();
            while *count < 40 {
                shared.1.wait(&mut count);
            }
            assert_eq!((*count, sum), (40, 180));
            let late = shared.1.wait_for(&mut count, Duration::from_secs(5));
            assert!(late.timed_out());
        });
        assert_eq!((end, world.panics()), (End::Done, Vec::new()), "seed {seed}");
    }
}

#[test]
fn a_deadlock_is_seen() {
    let (end, _) = run(1, |_| {
        let (give, take) = channel::unbounded::<()>();
        let waiting = spawn("waits", move || _ = take.recv());
        let _ = waiting.join();
        drop(give);
    });
    assert!(matches!(end, End::Stuck(tasks) if tasks.len() == 2));
}

#[test]
fn the_tasks_of_a_dead_machine_end_where_they_stand_and_give_back_what_they_hold() {
    struct Counts(Arc<AtomicU64>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let counts = dropped.clone();
    let (end, world) = run(3, move |world| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        for n in 0..3 {
            let (shared, counts) = (shared.clone(), Counts(counts.clone()));
            let work = move || {
                let _counts = counts;
                let mut guard = shared.0.lock();
                match n {
                    // One task holds the lock for ever, one waits for it, one waits for a condition.
                    0 => thread::sleep(LONG),
                    1 => {}
                    _ => shared.1.wait(&mut guard),
                }
                unreachable!("no task gets past the lock");
            };
            world.start(7, Duration::from_millis([2, 3, 1][n]), "dies", Box::new(work));
        }
        thread::sleep(Duration::from_secs(1));
        world.kill(7);
        assert_eq!(counts.load(Ordering::Relaxed), 3);
        drop(shared.0.lock());
    });
    assert_eq!((end, world.panics()), (End::Done, Vec::new()));
    assert_eq!(dropped.load(Ordering::Relaxed), 3);
}

#[test]
fn clocks_run_at_a_pace_of_their_own_and_a_stopped_machine_does_nothing() {
    let (end, world) = run(5, |world| {
        world.set_clock(1, Duration::from_secs(50), 100_000);
        let begun = world.time_ns();
        let inside = world.clone();
        let slept = world.start(
            1,
            Duration::ZERO,
            "sleeps",
            Box::new(move || {
                thread::sleep(Duration::from_secs(11));
                let took = inside.time_ns() - begun;
                assert!(
                    (10_000_000_000..10_100_000_000).contains(&took),
                    "its clock runs fast by a tenth: {took}"
                );
                inside.stop(1, Duration::from_secs(30));
                let now = Instant::now();
                thread::sleep(Duration::from_secs(1));
                assert!(now.elapsed() >= Duration::from_secs(33), "its clock went on");
            }),
        );
        use shoal_runtime::simulator::Simulator;
        while !world.is_finished(slept) {
            thread::sleep(Duration::from_secs(1));
        }
    });
    assert_eq!((end, world.panics()), (End::Done, Vec::new()));
}
