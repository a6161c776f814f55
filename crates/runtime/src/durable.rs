//! Changes of directories and files that survive a crash.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}

/// Creates a directory, and those above it that are missing. Their names are durable when this returns, and
/// so is that of a directory which exists already: the process that created it may not have synced it.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    create_with(dir, &mut sync_dir)
}

/// Replaces a file of a directory, or makes it. A crash leaves the old content or the new one, and the new
/// one is durable when this returns. `mode` is the file's mode before the umask. The content is written to
/// `NAME.new` first, which a crash may leave behind.
pub fn replace(dir: &Path, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let draft = dir.join(format!("{name}.new"));
    // A draft of an interrupted attempt would keep its mode.
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| std::fs::rename(&draft, dir.join(name)));
    if let Err(error) = renamed {
        // The disk may be full. If the draft cannot be removed, the next attempt removes it.
        let _ = std::fs::remove_file(&draft);
        return Err(error);
    }
    sync_dir(dir)
}

fn create_with(dir: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !parent.exists() => {
            create_with(parent, sync)?;
            return create_with(dir, sync);
        }
        Err(error) if !dir.is_dir() => return Err(error),
        _ => {}
    }
    sync(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn replaced_file_is_a_new_one_and_a_failed_attempt_leaves_the_old_one() {
        let dir = std::env::temp_dir().join(format!("shoal-replace-{}", std::process::id()));
        let (file, draft) = (dir.join("file"), dir.join("file.new"));
        create_dir_all(&dir).unwrap();
        replace(&dir, "file", b"old", 0o600).unwrap();
        std::fs::hard_link(&file, dir.join("before")).unwrap();
        std::fs::write(&draft, "a part of an interrupted attempt").unwrap();
        std::fs::set_permissions(&draft, PermissionsExt::from_mode(0o644)).unwrap();
        replace(&dir, "file", b"new", 0o600).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&file).as_str(), read(&dir.join("before")).as_str()), ("new", "old"));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, draft.exists()), (0o600, false));
        std::fs::create_dir(dir.join("directory")).unwrap();
        assert!(replace(&dir, "directory", b"new", 0o600).is_err());
        assert!(!dir.join("directory.new").exists(), "a full disk gets its room back");
        std::fs::create_dir(&draft).unwrap();
        assert!(replace(&dir, "file", b"newer", 0o600).is_err());
        assert_eq!(read(&file), "new");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn every_directory_that_gained_a_name_is_synced() {
        let top = std::env::temp_dir().join(format!("shoal-durable-{}", std::process::id()));
        let mut synced = Vec::new();
        let mut create = |dir: &Path| {
            let made = create_with(dir, &mut |dir| {
                synced.push(dir.to_owned());
                sync_dir(dir)
            });
            (made.map_err(|error| error.kind()), std::mem::take(&mut synced))
        };
        let (one, two, three) = (top.join("1"), top.join("1/2"), top.join("1/2/3"));
        assert_eq!(create(&top), (Ok(()), vec![std::env::temp_dir()]));
        assert_eq!(create(&three), (Ok(()), vec![top.clone(), one, two.clone()]));
        assert_eq!(create(&three), (Ok(()), vec![two]), "it may have been created and not synced");
        std::fs::write(top.join("file"), "").unwrap();
        assert_eq!(create(&top.join("file")), (Err(io::ErrorKind::AlreadyExists), vec![]));
        assert!(create(&top.join("file/4")).0.is_err());
        std::fs::remove_dir_all(&top).unwrap();
    }
}
