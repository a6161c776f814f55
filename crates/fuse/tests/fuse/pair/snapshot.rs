//! A snapshot of a whole tree through one mount.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// All that a program can find out about the files below a directory, by path.
pub fn snapshot(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    look(root, "", &mut found);
    found
}

fn look(root: &Path, at: &str, found: &mut BTreeMap<String, String>) {
    let path = root.join(at);
    let meta = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{at}: {error}"));
    let mut line = format!(
        "ino {} mode {:o} of {}:{} links {} size {} rdev {} mtime {}.{:09} ctime {}.{:09}",
        meta.ino(),
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.nlink(),
        meta.size(),
        meta.rdev(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    );
    if meta.file_type().is_symlink() {
        line += &format!(" -> {}", fs::read_link(&path).expect(at).display());
    }
    if meta.is_file() {
        let content = fs::read(&path).expect(at);
        line += &format!(" of {} bytes, sum {}", content.len(), sum(&content));
    }
    if meta.is_file() || meta.is_dir() {
        line += &format!(" xattrs {:?}", xattrs(&path));
    }
    found.insert(at.to_string(), line);
    if meta.is_dir() {
        for entry in fs::read_dir(&path).expect(at) {
            let name = entry.expect(at).file_name().into_string().expect("text");
            let below = if at.is_empty() { name } else { format!("{at}/{name}") };
            look(root, &below, found);
        }
    }
}

fn sum(content: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    content.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let names = crate::sys::listxattr(path, 4096).expect("listed").1;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    let mut all: Vec<_> = names
        .map(|name| {
            let value = crate::sys::getxattr(path, &name, 4096).expect("listed").1;
            (name, value)
        })
        .collect();
    all.sort();
    all
}
