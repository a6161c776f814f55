//! The random choice of a worker's next call. There are so few names that calls conflict all the time.

use crate::limits;
use crate::ops::{How, Name, Op, Outcome, Path, WORD_BYTES, Word};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Mostly directories.
const DIRS: &[Name] = b"pq";
/// Mostly files.
const FILES: &[Name] = b"abc";

/// The mix of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mood {
    /// Everything.
    Mixed,
    /// Mostly reads: they fill caches and acquire leases.
    Reader,
    /// Mostly changes.
    Writer,
    /// Mostly directories: makes, renames and removes them.
    Mover,
}

/// Draws calls.
#[derive(Debug)]
pub struct Chooser {
    rng: SmallRng,
    worker: u32,
    words: u32,
    mood: Mood,
    /// The call that the last one suggests.
    next: Option<Op>,
}

impl Chooser {
    /// The chooser of one worker; different for each.
    pub fn new(seed: u64, worker: u32) -> Self {
        let rng = SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(worker));
        Self { rng, worker, words: 0, mood: Mood::Mixed, next: None }
    }

    /// Begins a new round, perhaps with another mix.
    pub fn round(&mut self) {
        self.mood = match self.rng.random_range(0..10) {
            0..4 => Mood::Mixed,
            4..7 => Mood::Reader,
            7..9 => Mood::Writer,
            _ => Mood::Mover,
        };
    }

    /// All slots are closed from now on.
    pub fn forget(&mut self) {
        self.next = None;
    }

    /// How long to think before the next call of a slow round, in microseconds.
    pub fn think_us(&mut self) -> u32 {
        if self.chance(50) { 0 } else { self.rng.random_range(0..=limits::THINK_US_MAX) }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn pick(&mut self, names: &[Name]) -> Name {
        names[self.rng.random_range(0..names.len())]
    }

    fn word(&mut self) -> Word {
        self.words += 1;
        Word::of(self.worker, self.words)
    }

    fn slot(&mut self) -> u8 {
        self.rng.random_range(0..limits::SLOTS)
    }

    /// The directory of a name.
    fn parents(&mut self) -> Vec<Name> {
        match self.rng.random_range(0..100) {
            0..40 => vec![],
            40..90 => vec![self.pick(DIRS)],
            90..94 => vec![self.pick(FILES)],
            _ => vec![self.pick(DIRS), self.pick(DIRS)],
        }
    }

    fn below(&mut self, last: Name) -> Path {
        let mut names = self.parents();
        names.push(last);
        Path::new(&names)
    }

    /// A path that probably leads to a file.
    fn file(&mut self) -> Path {
        let last = if self.chance(94) { self.pick(FILES) } else { self.pick(DIRS) };
        self.below(last)
    }

    /// A path that probably leads to a directory.
    fn dir(&mut self) -> Path {
        if self.chance(70) {
            return Path::new(&[self.pick(DIRS)]);
        }
        let last = if self.chance(90) { self.pick(DIRS) } else { self.pick(FILES) };
        self.below(last)
    }

    fn any(&mut self) -> Path {
        if self.chance(75) { self.file() } else { self.dir() }
    }

    /// The next call. `holds` says which slots hold an open file.
    pub fn choose(&mut self, holds: impl Fn(u8) -> bool) -> Op {
        if let Some(op) = self.next.take() {
            return op;
        }
        let slot = self.slot();
        if holds(slot) && self.chance(25) {
            return self.on_open_file(slot);
        }
        let percent = self.rng.random_range(0..100);
        match self.mood {
            Mood::Reader if percent < 90 => self.look(slot),
            Mood::Writer if percent < 85 => self.change(slot),
            Mood::Mover if percent < 85 => self.move_about(),
            _ => match percent % 10 {
                0..4 => self.look(slot),
                4..9 => self.change(slot),
                _ => self.move_about(),
            },
        }
    }

    fn on_open_file(&mut self, slot: u8) -> Op {
        let at = self.rng.random_range(0..3);
        match self.rng.random_range(0..100) {
            0..35 => Op::Read { slot },
            35..70 => Op::Write { slot, at, word: self.word() },
            70..88 => Op::Fstat { slot },
            88..98 => Op::Ftruncate { slot, words: at },
            _ => Op::Fsync { slot },
        }
    }

    fn look(&mut self, slot: u8) -> Op {
        match self.rng.random_range(0..100) {
            0..40 => Op::Lstat { path: self.any() },
            40..65 => {
                let path = if self.chance(30) { Path::default() } else { self.dir() };
                Op::List { path }
            }
            65..92 => {
                let path = self.file();
                Op::Open { path, create: false, exclusive: false, append: self.chance(30), slot }
            }
            _ => Op::Readlink { path: self.file() },
        }
    }

    fn change(&mut self, slot: u8) -> Op {
        match self.rng.random_range(0..100) {
            0..32 => {
                let (create, exclusive) = (self.chance(90), self.chance(40));
                let exclusive = create && exclusive;
                Op::Open { path: self.file(), create, exclusive, append: self.chance(30), slot }
            }
            32..48 => Op::Unlink { path: self.file() },
            48..62 => Op::Rename { from: self.file(), to: self.file(), how: self.how() },
            62..74 => Op::Link { from: self.file(), to: self.file() },
            74..80 => Op::Symlink { path: self.file(), target: self.word() },
            80..88 => Op::Truncate { path: self.file(), words: self.rng.random_range(0..3) },
            88..96 => Op::Mkdir { path: self.dir() },
            _ => Op::Rmdir { path: self.dir() },
        }
    }

    fn move_about(&mut self) -> Op {
        match self.rng.random_range(0..100) {
            0..35 => Op::Mkdir { path: self.dir() },
            35..60 => Op::Rmdir { path: self.dir() },
            60..95 => Op::Rename { from: self.dir(), to: self.dir(), how: self.how() },
            _ => Op::Rename { from: self.any(), to: self.any(), how: self.how() },
        }
    }

    fn how(&mut self) -> How {
        match self.rng.random_range(0..10) {
            0..7 => How::Replace,
            7..9 => How::NoReplace,
            _ => How::Exchange,
        }
    }

    /// An opened file is mostly read or written at once; a long file is truncated.
    pub fn learn(&mut self, op: &Op, outcome: &Outcome) {
        let long = match outcome {
            Outcome::Content { words } => words.len() as u64 > limits::FILE_WORDS_GOAL,
            Outcome::Attributes { bytes, .. } => *bytes > limits::FILE_WORDS_GOAL * WORD_BYTES,
            _ => false,
        };
        self.next = match op {
            Op::Read { slot } | Op::Fstat { slot } if long => Some(Op::Ftruncate { slot: *slot, words: 0 }),
            Op::Open { slot, create, .. } if matches!(outcome, Outcome::Opened { .. }) => {
                let slot = *slot;
                let write = if *create { 60 } else { 20 };
                if self.chance(write) {
                    let at = self.rng.random_range(0..3);
                    Some(Op::Write { slot, at, word: self.word() })
                } else if self.chance(60) {
                    Some(Op::Read { slot })
                } else {
                    None
                }
            }
            _ => None,
        };
    }
}
