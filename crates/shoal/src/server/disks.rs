//! The check that a disk has enough room for a new replica or brick.

use crate::show;
use nix::sys::statvfs::statvfs;
use std::path::Path;

/// Refuses a place, which may not exist yet, on a disk that has less free room than this.
pub fn check_room(path: &Path, least_bytes: u64, what: &str) -> Result<(), String> {
    let there = path.ancestors().find(|dir| dir.exists()).unwrap_or(path);
    let room = statvfs(there).map_err(|errno| format!("{}: {errno}", there.display()))?;
    check(path, room.blocks_available() * room.fragment_size(), least_bytes, what)
}

fn check(path: &Path, free_bytes: u64, least_bytes: u64, what: &str) -> Result<(), String> {
    if free_bytes >= least_bytes {
        return Ok(());
    }
    Err(format!(
        "{} is too small for {what}: {} are free, and {} are needed at least; choose a larger disk, or make room",
        path.display(),
        show::bytes(free_bytes),
        show::bytes(least_bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_that_is_too_small_is_refused_with_what_is_needed() {
        let path = Path::new("/srv/brick");
        assert_eq!(check(path, 512 << 20, 512 << 20, "a brick"), Ok(()));
        let why = check(path, 100 << 20, 512 << 20, "a brick").unwrap_err();
        assert!(why.contains("/srv/brick is too small for a brick"), "{why}");
        assert!(why.contains(&show::bytes(100 << 20)) && why.contains(&show::bytes(512 << 20)), "{why}");
        let temp = tempfile::tempdir().unwrap();
        assert!(check_room(&temp.path().join("not/there"), 0, "anything").is_ok());
        assert!(check_room(&temp.path().join("not/there"), u64::MAX, "anything").is_err());
    }
}
