//! Handles of open files, where the mount keeps the locks: a number that is never used again, and how the
//! file was opened.
//!
//! A file that is open for reading and writing either may be [mapped](is_mappable) shared and writable, or is
//! read and written past the page cache, as with `O_DIRECT`. See [`shoal_client::Client::open_mappable`].

use shoal_channel::FileHandle;

/// Bits below the number.
const BITS: u32 = 2;
/// The file is open for reading and writing, and may be mapped.
const MAPPABLE: u64 = 1;
/// Reads and writes pass the page cache by.
const DIRECT: u64 = 2;

/// A handle with this number for a file opened with `flags`.
pub(crate) fn new(number: u64, flags: i32, may_map: bool) -> FileHandle {
    let how = match (is_for_reading_and_writing(flags), may_map) {
        (false, _) => 0,
        (true, true) => MAPPABLE,
        (true, false) => DIRECT,
    };
    FileHandle(number << BITS | how)
}

/// Whether open(2) with these flags allows shared writable mappings.
pub(crate) fn is_for_reading_and_writing(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_RDWR
}

/// Whether this client must close the file with [`shoal_client::Client::close_mappable`].
pub(crate) fn is_mappable(handle: FileHandle) -> bool {
    handle.0 & MAPPABLE != 0
}

/// The flags with which the file is open in effect.
pub(crate) fn flags(handle: FileHandle, flags: i32) -> i32 {
    if handle.0 & DIRECT != 0 { flags | libc::O_DIRECT } else { flags }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_open_for_reading_and_writing_may_be_mapped_or_is_direct() {
        for flags in [libc::O_RDONLY, libc::O_WRONLY | libc::O_APPEND] {
            for may_map in [false, true] {
                let handle = new(7, flags, may_map);
                assert!(!is_mappable(handle) && super::flags(handle, flags) == flags);
            }
        }
        let [mapped, direct] = [true, false].map(|may_map| new(7, libc::O_RDWR, may_map));
        assert!(is_mappable(mapped) && !is_mappable(direct) && mapped != direct);
        assert_eq!(flags(mapped, libc::O_RDWR), libc::O_RDWR);
        assert_eq!(flags(direct, libc::O_RDWR), libc::O_RDWR | libc::O_DIRECT);
    }
}
