//! `O_DIRECT` beside the page cache.

use crate::ends::Ends;
use crate::sys::Aio;
use crate::volume::Volume;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Bytes of one direct write: several pages.
const BYTES: usize = 16 << 10;
/// Direct writes, one after the other. Without the invalidation after each, 20 are enough.
const ROUNDS: u64 = 2000;

/// Memory that the kernel accepts for `O_DIRECT`, filled with a round's number.
struct Aligned(Vec<u64>);

impl Aligned {
    fn new() -> Aligned {
        Aligned(vec![0; (BYTES + 4096) / 8])
    }

    fn fill(&mut self, round: u64) -> &[u8] {
        self.0.fill(round);
        // SAFETY: the vector is that long, and each byte of an integer may be read.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>(), self.0.len() * 8) };
        let skip = bytes.as_ptr().align_offset(4096);
        &bytes[skip..skip + BYTES]
    }
}

/// Reads the file until stopped. No word may be older than the last round that was complete before.
fn read_along(file: &File, complete: &AtomicU64, over: &AtomicBool) {
    let mut buffer = vec![0; BYTES];
    while !over.load(SeqCst) {
        let before = complete.load(SeqCst);
        file.read_exact_at(&mut buffer, 0).expect("read");
        let oldest = buffer.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight"))).min();
        assert!(oldest >= Some(before), "read {oldest:?} after round {before} was complete");
    }
}

#[test]
fn buffered_reader_beside_asynchronous_direct_writes_reads_what_is_complete() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, vec![0; BYTES]).expect("written");
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).expect("opens");
    let (complete, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let file = File::open(&path).expect("opens");
                read_along(&file, &complete, &over);
            })
        });
        let (aio, mut memory) = (Aio::new(), Aligned::new());
        for round in 1..=ROUNDS {
            assert_eq!(aio.write_at(&direct, memory.fill(round), 0).expect("completes"), BYTES as i64);
            complete.store(round, SeqCst);
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
    });
    drop(direct);
    volume.end();
}
