//! A process's budget of memory: how large it is, what its parts get, and a thread that gives memory back.
//!
//! **Model.** The buffers and caches of a mount count what they have in the process's [`Budget`]. A server's
//! store is given a fixed part. glibc keeps what is freed for the next allocation, and a thread has it give
//! that back to the system: when the process has become idle, or has more than its limit.

use crate::control::Number;
use crate::limits::{
    ARENAS_OF_SMALL, MEMORY_IDLE_BYTES, MEMORY_LIMIT_MAX_DEFAULT, MEMORY_LIMIT_MIN_DEFAULT,
    MEMORY_LOOK_EVERY, MEMORY_OF_BACKGROUND, MEMORY_OF_REQUESTS, MEMORY_OF_SERVER, MEMORY_PER_MOUNT,
    MEMORY_SMALL, TRIM_GAIN_BYTES_MIN, TRIM_PAUSE_MAX,
};
use crate::mount_report::{number, resident_bytes};
use crate::options::Options;
use shoal_client::Client;
use shoal_client::limits::{BLOCK_CACHE_BYTES_DEFAULT, CACHE_BYTES_DEFAULT, REFERENCE_BYTES};
use shoal_fuse::MountOptions;
use shoal_fuse::limits::{
    BACKGROUND_REQUESTS_MAX, BACKGROUND_REQUESTS_MAX_LEAST, REQUEST_BYTES_MAX, REQUEST_BYTES_MAX_LEAST,
};
use shoal_runtime::budget::{Budget, Share, Use, of_process};
use shoal_runtime::memory::total_bytes;
use shoal_store::cache;
use shoal_store::limits::{BLOCK_CACHE_BYTES_MIN, MEMTABLES_BYTES_MAX_DEFAULT};
use std::sync::{Arc, Weak};

/// The limit of a process that mounts, in bytes.
pub fn of_mount(options: &Options, machine_bytes: usize) -> usize {
    options.memory_bytes.unwrap_or_else(|| {
        // Larger caches than the default ones that were asked for come on top.
        let more = |given: Option<usize>, default| given.unwrap_or(default).saturating_sub(default);
        (machine_bytes / MEMORY_PER_MOUNT).clamp(MEMORY_LIMIT_MIN_DEFAULT, MEMORY_LIMIT_MAX_DEFAULT)
            + more(options.cache_bytes, CACHE_BYTES_DEFAULT)
            + more(options.block_cache_bytes, BLOCK_CACHE_BYTES_DEFAULT)
    })
}

/// What the store of a process gets, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StorePart {
    cache: usize,
    memtables: usize,
}

/// The store's part of the limit of `shoal up`, which mounts and is its own server.
fn of_single(limit: usize, machine_bytes: usize) -> StorePart {
    StorePart { cache: cache::default_bytes(machine_bytes).min(limit / 4), memtables: limit / 8 }
}

/// The limit of a server, in bytes, and its store's part of it; the error is for the administrator.
fn of_server(
    memory_bytes: Option<usize>,
    cache_bytes: Option<usize>,
    machine_bytes: usize,
) -> Result<(usize, StorePart), String> {
    let usual = cache::default_bytes(machine_bytes);
    let Some(limit) = memory_bytes else {
        let cache = cache_bytes.unwrap_or(usual);
        return Ok((cache + MEMORY_OF_SERVER, StorePart { cache, memtables: MEMTABLES_BYTES_MAX_DEFAULT }));
    };
    let cache = cache_bytes.unwrap_or(limit / 2);
    if cache > limit / 4 * 3 {
        return Err(format!(
            "--cache takes {} MiB of the {} MiB of --memory: leave a quarter for everything else",
            cache >> 20,
            limit >> 20
        ));
    }
    Ok((limit, StorePart { cache, memtables: limit / 4 }))
}

/// Sets the budget of a process that mounts a volume of a cluster.
pub fn begin_mount(options: &Options) {
    set_limit(of_mount(options, total_bytes()));
}

/// Sets the budget of `shoal up`.
pub fn begin_single(options: &Options) {
    let limit = of_mount(options, total_bytes());
    of_single(limit, total_bytes()).apply();
    set_limit(limit);
}

/// Sets the budget of a server.
pub fn begin_server(memory_bytes: Option<usize>, cache_bytes: Option<usize>) -> Result<(), String> {
    let (limit, store) = of_server(memory_bytes, cache_bytes, total_bytes())?;
    store.apply();
    set_limit(limit);
    Ok(())
}

fn set_limit(bytes: usize) {
    of_process().set_limit(bytes);
    // What the allocator keeps counts where the budget is small. Where it is not, fresh pages for each buffer
    // would only cost page faults.
    #[cfg(target_env = "gnu")]
    if bytes < MEMORY_SMALL {
        // SAFETY: mallopt(3) takes two integers. If it fails, the allocator keeps more.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, REQUEST_BYTES_MAX_LEAST as i32);
            libc::mallopt(libc::M_ARENA_MAX, ARENAS_OF_SMALL);
        }
    }
}

impl StorePart {
    fn apply(self) {
        cache::set_shared_bytes(self.cache.max(BLOCK_CACHE_BYTES_MIN));
        cache::set_memtables_bytes(self.memtables);
    }
}

/// Mount options that keep within the process's budget what the kernel has in flight, and the inodes that it
/// refers to.
pub fn fit(options: &Options) -> MountOptions {
    fit_to(options, of_process().limit())
}

fn fit_to(options: &Options, limit: usize) -> MountOptions {
    let mut mount = options.mount.clone();
    let request = (limit / MEMORY_OF_REQUESTS).min(REQUEST_BYTES_MAX as usize) as u32;
    // A power of two, at most that.
    mount.request_bytes_max = (request.max(REQUEST_BYTES_MAX_LEAST) / 2 + 1).next_power_of_two();
    let background = (limit / MEMORY_OF_BACKGROUND).min(BACKGROUND_REQUESTS_MAX.into()) as u16;
    mount.background_max = background.max(BACKGROUND_REQUESTS_MAX_LEAST);
    let is_bound = |word: &String| word.starts_with("inodes=") || word.starts_with("lru-limit=");
    if !options.settings().iter().any(is_bound) {
        mount.inodes_max = mount.inodes_max.min(limit / 4 / REFERENCE_BYTES);
    }
    mount
}

/// Figures of the process's budget.
pub fn figures() -> Vec<Number> {
    of_process().figures().map(|(name, bytes)| number(name, bytes)).collect()
}

/// Starts the thread that gives memory back. It ends with the client; without one it ends with the process.
pub fn keep(client: Option<&Arc<Client>>) -> std::io::Result<()> {
    let client = client.map(Arc::downgrade);
    let keeper = Keeper { client, store: of_process().share(Use::Store), trimmer: Trimmer::default() };
    std::thread::Builder::new().name("shoal-memory".into()).spawn(move || keeper.run()).map(drop)
}

struct Keeper {
    client: Option<Weak<Client>>,
    store: Share,
    trimmer: Trimmer,
}

impl Keeper {
    fn run(mut self) {
        let budget = of_process();
        loop {
            std::thread::sleep(MEMORY_LOOK_EVERY);
            self.store.set(cache::used_bytes());
            match self.client.as_ref().map(Weak::upgrade) {
                Some(Some(client)) => client.release_idle(),
                Some(None) => return,
                None => {}
            }
            shoal_brick::release_idle_buffers();
            if self.trimmer.is_due(budget, resident_bytes() as usize) {
                trim();
                self.trimmer.has_trimmed(resident_bytes() as usize);
            }
        }
    }
}

/// Has the allocator give back free pages.
fn trim() {
    // SAFETY: malloc_trim(3) may be called at any time; it touches nothing but free memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Decides when the allocator is to give memory back: pages that are needed again soon cost page faults.
#[derive(Debug, Default)]
struct Trimmer {
    /// What the budget had counted when it was last looked at.
    counted: u64,
    /// Bytes counted since the last time.
    since: u64,
    /// What was resident at the last decision, and after it.
    resident: usize,
    /// Rounds to wait, and how many the next wait takes if it has brought nothing.
    wait: u32,
    pause: u32,
}

impl Trimmer {
    /// Whether it is time. `resident`: what the process has, in bytes.
    fn is_due(&mut self, budget: &Budget, resident: usize) -> bool {
        let counted = budget.counted();
        let fresh = counted - self.counted;
        self.counted = counted;
        self.since = self.since.saturating_add(fresh);
        self.wait = self.wait.saturating_sub(1);
        if self.wait > 0 {
            return false;
        }
        let is_idle = fresh < MEMORY_IDLE_BYTES && self.since >= MEMORY_IDLE_BYTES;
        let is_over = resident > budget.limit();
        self.resident = resident;
        is_idle || is_over
    }

    /// It was done, and so many bytes are still there.
    fn has_trimmed(&mut self, resident: usize) {
        self.since = 0;
        let pause_max = (TRIM_PAUSE_MAX.as_millis() / MEMORY_LOOK_EVERY.as_millis()) as u32;
        self.pause = match self.resident.saturating_sub(resident) < TRIM_GAIN_BYTES_MIN {
            true => (2 * self.pause).clamp(1, pause_max),
            false => 0,
        };
        self.wait = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const GIB: usize = 1 << 30;

    fn options(text: &str) -> Options {
        text.parse().expect("options")
    }

    #[test]
    fn budget_of_a_mount_is_a_share_of_the_machine_unless_it_is_given() {
        let of = |text: &str, machine| of_mount(&options(text), machine);
        assert_eq!([1, 4, 64].map(|gib| of("", gib * GIB) / MIB), [256, 512, 1024]);
        assert_eq!(of("cache=1024,block-cache=64", 64 * GIB) / MIB, 1024 + 768);
        assert_eq!(of("memory=128MiB,cache=1024", 64 * GIB) / MIB, 128);
        let store = |limit: usize, machine| {
            let StorePart { cache, memtables } = of_single(limit * MIB, machine);
            (cache / MIB, memtables / MIB)
        };
        assert_eq!(store(1024, 64 * GIB), (256, 128));
        assert_eq!(store(1024, 4 * GIB), (128, 128));
    }

    #[test]
    fn budget_of_a_server_leaves_a_quarter_beside_its_cache() {
        let (limit, store) = of_server(None, None, 24 * GIB).expect("defaults");
        assert_eq!((limit / MIB, store.cache / MIB), (768 + 512, 768));
        let (limit, store) = of_server(Some(GIB), None, 24 * GIB).expect("memory alone");
        assert_eq!((limit / MIB, store.cache / MIB, store.memtables / MIB), (1024, 512, 256));
        assert_eq!(of_server(Some(GIB), Some(GIB / 4), 24 * GIB).expect("both").1.cache, GIB / 4);
        assert!(of_server(Some(GIB), Some(GIB), 24 * GIB).unwrap_err().contains("--cache"));
    }

    #[test]
    fn requests_and_inodes_of_a_mount_fit_its_budget() {
        let fitted = |text: &str, limit| fit_to(&options(text), limit);
        let request = |limit: usize| fitted("", limit * MIB).request_bytes_max >> 10;
        assert_eq!([64, 128, 300, 512, 4096].map(request), [128, 256, 512, 1024, 1024]);
        let background = |limit: usize| fitted("", limit * MIB).background_max;
        assert_eq!([64, 128, 300, 512, 4096].map(background), [12, 16, 37, 64, 64]);
        assert_eq!(fitted("", 64 * MIB).inodes_max, 64 * MIB / 4 / REFERENCE_BYTES);
        assert_eq!(fitted("inodes=1000000", 64 * MIB).inodes_max, 1_000_000);
    }

    #[test]
    fn memory_is_given_back_when_the_process_is_idle_or_over_its_limit() {
        let budget = Budget::new(100 * MIB);
        let mut trimmer = Trimmer::default();
        assert!(!trimmer.is_due(&budget, 90 * MIB), "nothing was used");
        let share = budget.count(Use::Blocks, 50 * MIB);
        assert!(!trimmer.is_due(&budget, 90 * MIB), "it is busy");
        drop(share);
        assert!(trimmer.is_due(&budget, 90 * MIB));
        trimmer.has_trimmed(40 * MIB);
        assert!(!trimmer.is_due(&budget, 40 * MIB), "nothing was used since");
        assert!(trimmer.is_due(&budget, 110 * MIB));
    }

    #[test]
    fn trimming_that_brings_nothing_is_repeated_less_and_less_often() {
        let budget = Budget::new(MIB);
        let mut trimmer = Trimmer::default();
        let mut done = 0;
        for _ in 0..1000 {
            if trimmer.is_due(&budget, 2 * MIB) {
                trimmer.has_trimmed(2 * MIB);
                done += 1;
            }
        }
        assert!((10..80).contains(&done), "{done}");
    }
}
