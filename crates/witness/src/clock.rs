//! The one clock that all processes of a machine share.

/// `CLOCK_MONOTONIC` in nanoseconds: the same for every process and every processor of this machine.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes the struct it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(failed, 0, "Linux always has CLOCK_MONOTONIC");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
