//! The metadata store alone, with the keys and values of many small files.
//!
//! **Model.** The state machine's own commands are applied to a store in a directory, in one thread, as a
//! replica's applier does: no log, no network, no kernel. Four programs create files in directories of 1,000
//! each. A file is three keys: an inode, an extent with its content, a dentry. So the keys come in Shoal's
//! order and with its own reads: an absent name, a free inode number, a directory.
//!
//! **Judged** by the rate of the first and of the last million keys: a store whose lookups stay cheap is
//! flat.

use crate::limits::{
    MILLION_FILES_PER_DIR, STORE_BATCH_FILES, STORE_FILE_BYTES, STORE_FILES, STORE_LIST_BYTES, STORE_LISTS,
    STORE_LOOKUPS, STORE_PROGRAMS,
};
use crate::measure::Bench;
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use shoal_namespace::codec::encode_ops;
use shoal_namespace::kv::KvStore;
use shoal_namespace::op::NewInode;
use shoal_namespace::query::{self, Prefetch};
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Command, Op, Outcome, apply_command};
use shoal_store::{RocksOptions, RocksStore};
use shoal_suites::machine::{dir_bytes, resident_bytes};
use shoal_types::{BatchSeq, Cookie, Extent, FileKind, InodeId, Name, SessionId, Timestamp};
use std::path::Path;
use std::time::Instant;

/// Keys of one file.
const KEYS_PER_FILE: usize = 3;
/// A rate is measured over this many keys.
const RATE_KEYS: usize = 1_000_000;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("store-").tempdir_in(&bench.dir)?;
    let files = bench.files.unwrap_or(STORE_FILES);
    let mut load = Load::begin(dir.path(), files, bench.cache_bytes)?;
    let mut facts = Vec::new();
    let mut note = |fact: String| {
        eprintln!("{fact}");
        facts.push(fact);
    };
    let created = load.create()?;
    note(format!("store: {files} files, keys per second of each million: {}", show(&created)));
    let started = Instant::now();
    load.store.flush()?;
    load.store.wait_for_compactions()?;
    note(format!("store: compactions done {:.1} s later; {}", seconds(started), load.state(dir.path())?));
    let (absent, present) = (load.lookups(false)?, load.lookups(true)?);
    note(format!("store: looks up {absent:.0} absent and {present:.0} present names per second, at random"));
    note(format!("store: lists {:.0} files per second, directories at random", load.lists()?));
    drop(load.store);
    let started = Instant::now();
    load.store = RocksStore::open(dir.path(), &options(bench.cache_bytes))?;
    note(format!("store: opens in {:.0} ms", seconds(started) * 1e3));
    let removed = load.remove()?;
    note(format!("store: removes, keys per second of each million: {}", show(&removed)));
    let started = Instant::now();
    load.store.flush()?;
    load.store.wait_for_compactions()?;
    note(format!("store: compactions done {:.1} s later; {}", seconds(started), load.state(dir.path())?));
    bench.facts.extend(facts);
    Ok(())
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// Rates, and the last as a part of the first.
fn show(rates: &[f64]) -> String {
    let all: Vec<String> = rates.iter().map(|rate| format!("{:.0}k", rate / 1e3)).collect();
    match rates {
        [first, .., last] => format!("{} (last/first {:.2})", all.join(" "), last / first),
        _ => all.join(" "),
    }
}

fn options(cache_bytes: Option<usize>) -> RocksOptions {
    RocksOptions { create: true, block_cache_bytes: cache_bytes, ..RocksOptions::default() }
}

/// The rate of each million keys.
struct Rates {
    all: Vec<f64>,
    files: usize,
    since: Instant,
}

impl Rates {
    fn begin() -> Rates {
        Rates { all: Vec::new(), files: 0, since: Instant::now() }
    }

    fn count(&mut self, files: usize) {
        self.files += files;
        if self.files * KEYS_PER_FILE >= RATE_KEYS {
            let rate = (self.files * KEYS_PER_FILE) as f64 / seconds(self.since);
            eprintln!("{rate:.0} keys/s");
            self.all.push(rate);
            (self.files, self.since) = (0, Instant::now());
        }
    }
}

/// A volume that is being filled.
struct Load {
    store: RocksStore,
    session: SessionId,
    seq: BatchSeq,
    first: InodeId,
    files: usize,
    random: StdRng,
}

impl Load {
    fn begin(dir: &Path, files: usize, cache_bytes: Option<usize>) -> anyhow::Result<Load> {
        let store = RocksStore::open(dir, &options(cache_bytes))?;
        let mut load = Load {
            store,
            session: SessionId(0),
            seq: BatchSeq(1),
            first: InodeId(0),
            files,
            random: StdRng::seed_from_u64(1),
        };
        let (time, options) = (Timestamp { secs: 1, nanos: 0 }, VolumeOptions::default());
        load.command(&Command::Format { volume: 1, uid: 0, gid: 0, perm: 0o755, time, options })?;
        let wanted = (files + files / MILLION_FILES_PER_DIR + 1) as u64;
        let open = Command::OpenSession { client: "bench".into(), time, inodes: wanted };
        let Outcome::Opened { session, first, mut inodes } = load.command(&open)? else {
            bail!("the store opens no session");
        };
        // Numbers are granted in ranges; those of the only session are consecutive.
        while inodes < wanted {
            let grant = Command::GrantInodes { session, count: wanted - inodes };
            let Outcome::Granted { inodes: more, .. } = load.command(&grant)? else {
                bail!("the store grants no numbers");
            };
            inodes += more;
        }
        (load.session, load.first) = (session, first);
        Ok(load)
    }

    fn command(&self, command: &Command) -> anyhow::Result<Outcome> {
        let (changes, outcome) = apply_command(&self.store, command)?;
        self.store.write(&changes)?;
        Ok(outcome)
    }

    fn batch(&mut self, ops: &[Op]) -> anyhow::Result<()> {
        let batch = Command::Batch { session: self.session, seq: self.seq, ops: encode_ops(ops).into() };
        let outcome = self.command(&batch)?;
        ensure!(matches!(outcome, Outcome::Applied { .. }), "a batch ended with {outcome:?}");
        self.seq = self.seq.next();
        Ok(())
    }

    /// Programs take turns: the number of the file that is created at this place.
    fn order(&self, place: usize) -> usize {
        let share = self.files / STORE_PROGRAMS;
        match place < share * STORE_PROGRAMS {
            true => place % STORE_PROGRAMS * share + place / STORE_PROGRAMS,
            false => place,
        }
    }

    fn dir(&self, file: usize) -> InodeId {
        InodeId(self.first.0 + (self.files + file / MILLION_FILES_PER_DIR) as u64)
    }

    fn create(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut content = vec![b'm'; STORE_FILE_BYTES];
        let dirs: Vec<Op> = (0..self.files)
            .step_by(MILLION_FILES_PER_DIR)
            .map(|file| create(InodeId::ROOT, self.dir(file), FileKind::Directory))
            .collect::<anyhow::Result<_>>()?;
        for ops in dirs.chunks(STORE_BATCH_FILES) {
            self.batch(ops)?;
        }
        let mut rates = Rates::begin();
        for from in (0..self.files).step_by(STORE_BATCH_FILES) {
            let to = (from + STORE_BATCH_FILES).min(self.files);
            let mut ops = Vec::with_capacity(2 * STORE_BATCH_FILES);
            for place in from..to {
                // Numbers are assigned in the order of creation.
                let ino = InodeId(self.first.0 + place as u64);
                ops.push(create(self.dir(self.order(place)), ino, FileKind::Regular)?);
                // Half of it is compressible, like text.
                self.random.fill_bytes(&mut content[..STORE_FILE_BYTES / 2]);
                ops.push(Op::Write {
                    ino,
                    offset: 0,
                    len: content.len() as u64,
                    content: Some(Extent::Inline(Bytes::copy_from_slice(&content))),
                    size_min: content.len() as u64,
                    time: Timestamp::default(),
                    clear_setid: true,
                    declare: None,
                });
            }
            self.batch(&ops)?;
            rates.count(to - from);
        }
        Ok(rates.all)
    }

    /// Names looked up per second.
    fn lookups(&mut self, present: bool) -> anyhow::Result<f64> {
        let started = Instant::now();
        for _ in 0..STORE_LOOKUPS {
            let place = self.random.random_range(0..self.files);
            let dir = self.dir(self.order(place));
            let ino = self.first.0 + place as u64 + if present { 0 } else { 1 << 40 };
            let reply = query::lookup(&self.store, dir, &name(InodeId(ino))?);
            let found = reply.map_err(|fault| anyhow::anyhow!("looking up: {fault:?}"))?.found.is_some();
            ensure!(found == present, "inode {ino} is found: {found}");
        }
        Ok(STORE_LOOKUPS as f64 / seconds(started))
    }

    /// Files listed per second, with their attributes and contents.
    fn lists(&mut self) -> anyhow::Result<f64> {
        let (mut listed, started) = (0, Instant::now());
        for _ in 0..STORE_LISTS {
            let file = self.random.random_range(0..self.files);
            let dir = self.dir(file);
            let page = query::list(&self.store, dir, Cookie::START, Prefetch::Contents, STORE_LIST_BYTES)
                .map_err(|fault| anyhow::anyhow!("listing: {fault:?}"))?;
            listed += page.entries.len();
        }
        Ok(listed as f64 / seconds(started))
    }

    /// Removes a third of the files, directory by directory.
    fn remove(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut places: Vec<usize> = (0..self.files).collect();
        places.sort_by_key(|place| self.order(*place));
        places.truncate(self.files / 3);
        let mut rates = Rates::begin();
        for places in places.chunks(STORE_BATCH_FILES) {
            let ops: Vec<Op> = places
                .iter()
                .map(|place| {
                    let name = name(InodeId(self.first.0 + *place as u64))?;
                    let parent = self.dir(self.order(*place));
                    Ok(Op::Unlink { parent, name, time: Timestamp::default(), keep: false })
                })
                .collect::<anyhow::Result<_>>()?;
            self.batch(&ops)?;
            rates.count(places.len());
        }
        Ok(rates.all)
    }

    fn state(&self, dir: &Path) -> anyhow::Result<String> {
        let stats: Vec<String> =
            self.store.stats().iter().map(|(name, value)| format!("{name} {}", value >> 20)).collect();
        let (resident, disk) = (resident_bytes("self")? >> 20, dir_bytes(dir)? >> 20);
        Ok(format!("{resident} MiB resident, {disk} MiB on disk ({} MiB)", stats.join(", ")))
    }
}

fn name(ino: InodeId) -> anyhow::Result<Name> {
    Name::try_from(format!("file-{}", ino.0).as_str()).ok().context("a name")
}

fn create(parent: InodeId, ino: InodeId, kind: FileKind) -> anyhow::Result<Op> {
    let new = NewInode {
        kind,
        perm: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Bytes::new(),
        time: Timestamp::default(),
        generation: 1,
        xattrs: Vec::new(),
    };
    Ok(Op::Create { parent, name: name(ino)?, ino, new })
}
