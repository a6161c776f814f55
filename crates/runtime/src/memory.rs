//! How much memory the machine has.

/// Memory of the machine, in bytes; 0 where the system does not tell. Defaults of caches are shares of it.
pub fn total_bytes() -> usize {
    // SAFETY: sysconf(3) takes a number and reads nothing of ours.
    let figure = |name| usize::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0);
    figure(libc::_SC_PHYS_PAGES).saturating_mul(figure(libc::_SC_PAGESIZE))
}

#[cfg(test)]
mod tests {
    use super::total_bytes;

    #[test]
    fn memory_of_this_machine_is_known() {
        assert!(total_bytes() > 64 << 20);
    }
}
