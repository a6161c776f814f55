//! The directory of a volume that is mounted instead of its root.
//!
//! It is found once, when the mount begins, and kept by inode, as a bind mount does: the mount follows it
//! when it is moved, and is empty for good when it is removed. The client's reference keeps the inode until
//! the mount ends.

use crate::limits::NAMES_SHOWN_MAX;
use anyhow::bail;
use shoal_client::{Client, Wait};
use shoal_types::{Cookie, FileKind, InodeId};
use std::ops::ControlFlow;

/// The inode of a directory, by its path from the root of the volume; the client refers to it from then on.
pub fn find(client: &Client, volume: &str, path: &str) -> anyhow::Result<InodeId> {
    let (mut dir, mut above) = (InodeId::ROOT, String::new());
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let found = client.lookup(Wait::Allowed, dir, name.as_bytes());
        let Some(entry) = found.map_err(|error| anyhow::anyhow!("{volume}:{above}/{name}: {error}"))? else {
            bail!(
                "volume {volume} has no directory /{path}: {} {}. Make it on a mount of the whole volume first",
                if above.is_empty() { "its root" } else { &above },
                holds(client, dir, name)
            );
        };
        let here = format!("{above}/{name}");
        match entry.inode.kind {
            FileKind::Directory => {}
            FileKind::Symlink => {
                let target = client.readlink(Wait::Allowed, entry.ino).unwrap_or_default();
                bail!(
                    "{here} in volume {volume} is a symbolic link to {}: name the directory that it leads to",
                    String::from_utf8_lossy(&target)
                );
            }
            _ => bail!("{here} in volume {volume} is a file: only a directory can be mounted"),
        }
        if dir != InodeId::ROOT {
            client.forget(dir, 1);
        }
        (dir, above) = (entry.ino, here);
    }
    Ok(dir)
}

/// What a directory holds instead of a name, for people.
fn holds(client: &Client, dir: InodeId, missing: &str) -> String {
    let (mut names, mut more) = (Vec::new(), false);
    let shown = client.readdir(Wait::Allowed, dir, Cookie::START, false, &mut |name, dentry, _| {
        if dentry.kind == FileKind::Directory {
            more = names.len() == NAMES_SHOWN_MAX;
            if more {
                return ControlFlow::Break(());
            }
            names.push(String::from_utf8_lossy(name.as_bytes()).into_owned());
        }
        ControlFlow::Continue(())
    });
    names.sort();
    match (shown, names.is_empty()) {
        (Err(_), _) => format!("has no {missing}"),
        (Ok(_), true) => format!("has no {missing}, and no other directories"),
        (Ok(_), false) => {
            format!("has no {missing}, but {}{}", names.join(", "), if more { ", ..." } else { "" })
        }
    }
}
