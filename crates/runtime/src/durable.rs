//! Changes of directories that survive a crash.

use std::io;
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
