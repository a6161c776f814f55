//! Programs on very few files and names, for worlds that are focused on the kernel's cache.
//!
//! Most hazards of `docs/KERNEL_CACHE.md` need three programs that use one object within milliseconds: one
//! that changes it here, one that reads it here, one that changes it elsewhere. So the programs of such a
//! world share one or two objects, and each has a role for a round.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shoal_witness::limits::{FILE_WORDS_GOAL, SLOTS};
use shoal_witness::ops::{How, Op, Outcome, Path, WORD_BYTES, Word};
use shoal_witness::run::choose::Chooser;

/// What the programs of a focused world work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Focus {
    /// The content and size of so many files.
    Content(u32),
    /// Names in one directory.
    Names,
    /// Directories that are moved to and fro.
    Moves,
    /// A file with several names.
    Links,
}

impl Focus {
    /// How late a very late reply is handled, in microseconds: less than the waits of the front end after
    /// which a stale answer is possible, also if several replies in a row are late.
    pub fn late_us_max(self) -> u64 {
        match self {
            Focus::Content(_) | Focus::Links => 5_000,
            Focus::Moves => 20_000,
            Focus::Names => 65_000,
        }
    }

    /// Draws one.
    pub fn draw(rng: &mut SmallRng) -> Focus {
        match rng.random_range(0..8) {
            0..2 => Focus::Content(1),
            2 => Focus::Content(2),
            3..5 => Focus::Names,
            5 => Focus::Moves,
            _ => Focus::Links,
        }
    }
}

/// What a program mostly does in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Reader,
    Writer,
    Both,
}

/// Draws the calls of a program.
pub enum Calls {
    /// All kinds of calls.
    Any(Chooser),
    /// Calls on few objects.
    Focused(Focused),
}

impl Calls {
    /// The calls of a worker.
    pub fn new(focus: Option<Focus>, seed: u64, worker: u32) -> Calls {
        match focus {
            None => Calls::Any(Chooser::new(seed, worker)),
            Some(focus) => Calls::Focused(Focused::new(focus, seed, worker)),
        }
    }

    /// Begins a new round.
    pub fn round(&mut self) {
        match self {
            Calls::Any(chooser) => chooser.round(),
            Calls::Focused(focused) => focused.round(),
        }
    }

    /// All files are closed.
    pub fn forget(&mut self) {
        match self {
            Calls::Any(chooser) => chooser.forget(),
            Calls::Focused(focused) => focused.next = None,
        }
    }

    /// The next call. `holds` says which slots hold an open file.
    pub fn choose(&mut self, holds: impl Fn(u8) -> bool) -> Op {
        match self {
            Calls::Any(chooser) => chooser.choose(holds),
            Calls::Focused(focused) => focused.choose(holds),
        }
    }

    /// A call has returned.
    pub fn learn(&mut self, op: &Op, outcome: &Outcome) {
        match self {
            Calls::Any(chooser) => chooser.learn(op, outcome),
            Calls::Focused(focused) => focused.learn(op, outcome),
        }
    }
}

/// Draws calls on few objects.
pub struct Focused {
    rng: SmallRng,
    focus: Focus,
    role: Role,
    worker: u32,
    words: u32,
    /// The call that the last one suggests.
    next: Option<Op>,
}

impl Focused {
    fn new(focus: Focus, seed: u64, worker: u32) -> Focused {
        let rng = SmallRng::seed_from_u64(seed.wrapping_mul(0x51ed_2701) ^ u64::from(worker));
        Focused { rng, focus, role: Role::Both, worker, words: 0, next: None }
    }

    fn round(&mut self) {
        self.role = self.pick(&[Role::Reader, Role::Writer, Role::Both]);
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.random_range(0..of.len())]
    }

    fn path(&mut self, of: &[&str]) -> Path {
        Path::new(&self.pick(of).bytes().filter(|letter| *letter != b'/').collect::<Vec<_>>())
    }

    fn word(&mut self) -> Word {
        self.words += 1;
        Word::of(self.worker, self.words)
    }

    fn choose(&mut self, holds: impl Fn(u8) -> bool) -> Op {
        if let Some(op) = self.next.take() {
            return op;
        }
        let changes = match self.role {
            Role::Reader => self.rng.random_bool(0.1),
            Role::Writer => self.rng.random_bool(0.75),
            Role::Both => self.rng.random_bool(0.5),
        };
        match self.focus {
            Focus::Content(1) => self.on_content(&["a"], holds, changes),
            Focus::Content(_) => self.on_content(&["a", "b"], holds, changes),
            Focus::Links if self.rng.random_bool(0.4) => self.on_content(&["a", "b"], holds, changes),
            Focus::Links => self.on_links(changes),
            Focus::Names => self.on_names(changes),
            Focus::Moves => self.on_moves(changes),
        }
    }

    fn open(&mut self, of: &[&str], slot: u8) -> Op {
        let path = self.path(of);
        Op::Open { path, create: true, exclusive: false, append: self.rng.random_bool(0.5), slot }
    }

    /// Appends, writes, reads, truncates.
    fn on_content(&mut self, files: &[&str], holds: impl Fn(u8) -> bool, changes: bool) -> Op {
        let slot = self.rng.random_range(0..SLOTS);
        if !holds(slot) || self.rng.random_bool(0.06) {
            return self.open(files, slot);
        }
        let at = self.rng.random_range(0..3);
        match (changes, self.rng.random_range(0..100)) {
            (true, 0..75) => Op::Write { slot, at, word: self.word() },
            (true, 75..92) => Op::Ftruncate { slot, words: at },
            (true, _) => Op::Truncate { path: self.path(files), words: at },
            (false, 0..60) => Op::Read { slot },
            (false, 60..80) => Op::Fstat { slot },
            (false, _) => Op::Lstat { path: self.path(files) },
        }
    }

    /// Makes and removes names of one file, and renames them.
    fn on_links(&mut self, changes: bool) -> Op {
        let all = &["a", "b", "p/a"];
        match (changes, self.rng.random_range(0..100)) {
            (true, 0..40) => Op::Link { from: self.path(all), to: self.path(all) },
            (true, 40..70) => Op::Unlink { path: self.path(&["b", "p/a"]) },
            (true, 70..90) => Op::Rename { from: self.path(all), to: self.path(all), how: self.how() },
            (true, 90..95) => Op::Mkdir { path: self.path(&["p"]) },
            (true, _) => self.open(&["a"], 0),
            (false, 0..80) => Op::Lstat { path: self.path(all) },
            (false, _) => Op::List { path: self.path(&["", "p"]) },
        }
    }

    /// Makes, renames and removes names in one directory, lists it, and looks its attributes up.
    fn on_names(&mut self, changes: bool) -> Op {
        let (files, dirs) = (&["p/a", "p/b"], &["p/q"]);
        match (changes, self.rng.random_range(0..100)) {
            (true, 0..6) => Op::Mkdir { path: self.path(&["p"]) },
            (true, 6..30) => {
                let exclusive = self.rng.random_bool(0.5);
                Op::Open { path: self.path(files), create: true, exclusive, append: false, slot: 0 }
            }
            (true, 30..50) => Op::Unlink { path: self.path(files) },
            (true, 50..66) => Op::Rename { from: self.path(files), to: self.path(files), how: self.how() },
            (true, 66..84) => Op::Mkdir { path: self.path(dirs) },
            (true, _) => Op::Rmdir { path: self.path(dirs) },
            (false, 0..35) => Op::List { path: self.path(&["p"]) },
            (false, 35..65) => Op::Lstat { path: self.path(&["p"]) },
            (false, _) => Op::Lstat { path: self.path(&["p/a", "p/b", "p/q"]) },
        }
    }

    /// Moves directories, and works in them.
    fn on_moves(&mut self, changes: bool) -> Op {
        let (dirs, files) = (&["p", "q", "p/q", "q/p"], &["p/a", "q/a", "p/q/a", "q/p/a"]);
        match (changes, self.rng.random_range(0..100)) {
            (true, 0..55) => {
                let (from, to) = self.pick(&[("q", "p/q"), ("p/q", "q"), ("p", "q/p"), ("q/p", "p")]);
                let how = self.how();
                Op::Rename { from: self.path(&[from]), to: self.path(&[to]), how }
            }
            (true, 55..70) => Op::Mkdir { path: self.path(&["p", "q"]) },
            (true, 70..86) => self.open(files, 0),
            (true, 86..96) => Op::Unlink { path: self.path(files) },
            (true, _) => Op::Rmdir { path: self.path(dirs) },
            (false, 0..35) => Op::List { path: self.path(&["", "p", "q", "p/q", "q/p"]) },
            (false, 35..65) => Op::Lstat { path: self.path(dirs) },
            (false, _) => Op::Lstat { path: self.path(files) },
        }
    }

    fn how(&mut self) -> How {
        self.pick(&[How::Replace, How::Replace, How::Replace, How::NoReplace, How::Exchange])
    }

    /// A long file is truncated.
    fn learn(&mut self, op: &Op, outcome: &Outcome) {
        let long = match outcome {
            Outcome::Content { words } => words.len() as u64 > FILE_WORDS_GOAL,
            Outcome::Attributes { bytes, .. } => *bytes > FILE_WORDS_GOAL * WORD_BYTES,
            _ => false,
        };
        if let Op::Read { slot } | Op::Fstat { slot } = op
            && long
        {
            self.next = Some(Op::Ftruncate { slot: *slot, words: 0 });
        }
    }
}
