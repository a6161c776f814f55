//! The structures are those of the installed `linux/fuse.h`.

use shoal_channel::abi::*;
use std::fmt::Write;
use std::process::Command;

/// The C name of a structure, its size, and its fields with their offsets.
type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

macro_rules! layouts {
    ($($c:literal $rust:ident),* $(,)?) => { &[$(($c, size_of::<$rust>(), $rust::FIELDS)),*] };
}

const LAYOUTS: &[Layout] = layouts![
    "fuse_in_header" InHeader, "fuse_out_header" OutHeader, "fuse_attr" Attr, "fuse_kstatfs" Kstatfs,
    "fuse_file_lock" FileLock, "fuse_entry_out" EntryOut, "fuse_forget_in" ForgetIn,
    "fuse_forget_one" ForgetOne, "fuse_batch_forget_in" BatchForgetIn, "fuse_getattr_in" GetattrIn,
    "fuse_attr_out" AttrOut, "fuse_mknod_in" MknodIn, "fuse_mkdir_in" MkdirIn, "fuse_rename_in" RenameIn,
    "fuse_rename2_in" Rename2In, "fuse_link_in" LinkIn, "fuse_setattr_in" SetattrIn, "fuse_open_in" OpenIn,
    "fuse_create_in" CreateIn, "fuse_open_out" OpenOut, "fuse_release_in" ReleaseIn,
    "fuse_flush_in" FlushIn, "fuse_read_in" ReadIn, "fuse_write_in" WriteIn, "fuse_write_out" WriteOut,
    "fuse_setxattr_in" SetxattrIn, "fuse_getxattr_in" GetxattrIn,
    "fuse_getxattr_out" GetxattrOut, "fuse_lk_in" LkIn, "fuse_lk_out" LkOut,
    "fuse_interrupt_in" InterruptIn, "fuse_ioctl_in" IoctlIn, "fuse_ioctl_out" IoctlOut,
    "fuse_fallocate_in" FallocateIn, "fuse_dirent" Dirent, "fuse_direntplus" Direntplus,
    "fuse_lseek_in" LseekIn, "fuse_lseek_out" LseekOut, "fuse_copy_file_range_in" CopyFileRangeIn,
];

/// Those of headers from version 7.39 on (Linux 6.6).
const STATX_LAYOUTS: &[Layout] = layouts![
    "fuse_statx_in" StatxIn, "fuse_sx_time" SxTime, "fuse_statx" Statx, "fuse_statx_out" StatxOut,
];

/// Numbers of `linux/fuse.h` and ours.
const NUMBERS: &[(&str, u64)] = &[
    ("FUSE_LOOKUP", opcode::LOOKUP as u64),
    ("FUSE_SETATTR", opcode::SETATTR as u64),
    ("FUSE_LINK", opcode::LINK as u64),
    ("FUSE_STATFS", opcode::STATFS as u64),
    ("FUSE_RELEASE", opcode::RELEASE as u64),
    ("FUSE_FSYNC", opcode::FSYNC as u64),
    ("FUSE_SETXATTR", opcode::SETXATTR as u64),
    ("FUSE_REMOVEXATTR", opcode::REMOVEXATTR as u64),
    ("FUSE_FLUSH", opcode::FLUSH as u64),
    ("FUSE_INIT", opcode::INIT as u64),
    ("FUSE_READDIR", opcode::READDIR as u64),
    ("FUSE_SETLKW", opcode::SETLKW as u64),
    ("FUSE_CREATE", opcode::CREATE as u64),
    ("FUSE_INTERRUPT", opcode::INTERRUPT as u64),
    ("FUSE_DESTROY", opcode::DESTROY as u64),
    ("FUSE_IOCTL", opcode::IOCTL as u64),
    ("FUSE_POLL", opcode::POLL as u64),
    ("FUSE_BATCH_FORGET", opcode::BATCH_FORGET as u64),
    ("FUSE_READDIRPLUS", opcode::READDIRPLUS as u64),
    ("FUSE_RENAME2", opcode::RENAME2 as u64),
    ("FUSE_TMPFILE", opcode::TMPFILE as u64),
    ("FUSE_COPY_FILE_RANGE", opcode::COPY_FILE_RANGE as u64),
    ("FUSE_DO_READDIRPLUS", InitFlags::DO_READDIRPLUS.bits()),
    ("FUSE_NO_OPEN_SUPPORT", InitFlags::NO_OPEN_SUPPORT.bits()),
    ("FUSE_POSIX_ACL", InitFlags::POSIX_ACL.bits()),
    ("FUSE_MAX_PAGES", InitFlags::MAX_PAGES.bits()),
    ("FUSE_EXPLICIT_INVAL_DATA", InitFlags::EXPLICIT_INVAL_DATA.bits()),
    ("FUSE_HANDLE_KILLPRIV_V2", InitFlags::HANDLE_KILLPRIV_V2.bits()),
    ("FUSE_SETXATTR_EXT", InitFlags::SETXATTR_EXT.bits()),
    ("FUSE_INIT_EXT", InitFlags::INIT_EXT.bits()),
    ("FUSE_WRITE_CACHE", WriteFlags::CACHE.bits() as u64),
    ("FUSE_WRITE_KILL_SUIDGID", WriteFlags::KILL_SUIDGID.bits() as u64),
    ("FOPEN_KEEP_CACHE", OpenFlags::KEEP_CACHE.bits() as u64),
    ("FOPEN_NOFLUSH", OpenFlags::NOFLUSH.bits() as u64),
    ("FATTR_MTIME_NOW", SetattrValid::MTIME_NOW.bits() as u64),
    ("FATTR_KILL_SUIDGID", SetattrValid::KILL_SUIDGID.bits() as u64),
    ("FUSE_GETATTR_FH", GETATTR_FH as u64),
    ("FUSE_LK_FLOCK", LK_FLOCK as u64),
    ("FUSE_SETXATTR_ACL_KILL_SGID", SETXATTR_ACL_KILL_SGID as u64),
];

#[test]
fn structures_and_numbers_are_those_of_the_kernels_header() {
    let mut source = String::from("#include <linux/fuse.h>\n#include <stddef.h>\n");
    let assert_layout = |source: &mut String, (name, size, fields): &Layout| {
        writeln!(source, "_Static_assert(sizeof(struct {name}) == {size}, \"size of {name}\");").unwrap();
        for (field, offset) in *fields {
            // `type` is a keyword of Rust.
            let field = if *field == "kind" { "type" } else { field };
            let is = format!("offsetof(struct {name}, {field}) == {offset}");
            writeln!(source, "_Static_assert({is}, \"{name}.{field}\");").unwrap();
        }
    };
    LAYOUTS.iter().for_each(|layout| assert_layout(&mut source, layout));
    source.push_str("#if FUSE_KERNEL_MINOR_VERSION >= 39\n");
    STATX_LAYOUTS.iter().for_each(|layout| assert_layout(&mut source, layout));
    source.push_str("#endif\n");
    for (name, number) in NUMBERS {
        // Flags are written as signed numbers of 32 bits there.
        writeln!(source, "_Static_assert((unsigned long long){name} == {number}ull, \"{name}\");").unwrap();
    }
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("layout.c");
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").args(["-fsyntax-only", "-xc"]).arg(&file).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
