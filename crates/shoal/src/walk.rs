//! A walk through the tree of a volume at rest, without a mount.
//!
//! **Promises.** Every name is visited once, a directory before and after its contents. Memory is bounded by
//! the depth of the tree and the number of directories. Unreadable parts are reported and skipped. A
//! directory that is below itself, which only damage can cause, is not entered a second time.

use crate::limits::WALK_PAGE_BYTES;
use shoal_namespace::kv::KvRead;
use shoal_namespace::query::{self, DirEntry, FileRecord, Prefetch};
use shoal_namespace::{Fault, TreeError};
use shoal_types::{Cookie, FileKind, InodeId, Name};
use std::collections::HashSet;
use std::path::PathBuf;

/// A step of a walk. The path leads from the root, and is empty for the root itself.
pub enum Step<'a> {
    /// A directory, before its contents.
    Enter(&'a Name, &'a FileRecord),
    /// Anything else.
    File(&'a Name, &'a FileRecord),
    /// The innermost open directory, after its contents.
    Leave(&'a FileRecord),
    /// Something that cannot be read, and why.
    Unreadable(String),
}

/// The position of a walk.
#[derive(Default)]
pub struct Position {
    names: Vec<Name>,
}

impl Position {
    /// The path of the current directory, or of a name in it.
    pub fn path(&self, name: Option<&Name>) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let names = self.names.iter().chain(name);
        let mut path = PathBuf::from("/");
        path.extend(names.map(|name| std::ffi::OsStr::from_bytes(name.as_bytes())));
        path
    }
}

struct Frame {
    record: FileRecord,
    after: Cookie,
    page: std::vec::IntoIter<DirEntry>,
    end: bool,
}

/// Walks through everything. `visit` returns whether to enter a directory; its error ends the walk.
pub fn walk<S: KvRead + ?Sized, E>(
    store: &S,
    prefetch: Prefetch,
    visit: &mut dyn FnMut(&Position, Step<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut position = Position::default();
    let root = match query::inode(store, InodeId::ROOT) {
        Ok(root) => root,
        Err(fault) => {
            return visit(&position, Step::Unreadable(format!("the root directory: {}", words(fault))));
        }
    };
    let mut entered = HashSet::from([InodeId::ROOT]);
    let mut frames = vec![Frame::new(root)];
    while let Some(frame) = frames.last_mut() {
        let Some(entry) = frame.page.next() else {
            if frame.end {
                visit(&position, Step::Leave(&frame.record))?;
                frames.pop();
                position.names.pop();
            } else if let Err(fault) = frame.next_page(store, prefetch) {
                let what =
                    format!("the rest of directory {}: {}", position.path(None).display(), words(fault));
                visit(&position, Step::Unreadable(what))?;
                frame.end = true;
            }
            continue;
        };
        let Some(record) = entry.record else { continue };
        if entry.dentry.kind != FileKind::Directory {
            visit(&position, Step::File(&entry.name, &record))?;
        } else if entered.insert(record.ino) {
            visit(&position, Step::Enter(&entry.name, &record))?;
            position.names.push(entry.name);
            frames.push(Frame::new(record));
        } else {
            let what = format!("directory {} is elsewhere, too", position.path(Some(&entry.name)).display());
            visit(&position, Step::Unreadable(what))?;
        }
    }
    Ok(())
}

impl Frame {
    fn new(record: FileRecord) -> Frame {
        Frame { record, after: Cookie::START, page: Vec::new().into_iter(), end: false }
    }

    fn next_page(
        &mut self,
        store: &(impl KvRead + ?Sized),
        prefetch: Prefetch,
    ) -> Result<(), Fault<TreeError>> {
        let page = query::list(store, self.record.ino, self.after, prefetch, WALK_PAGE_BYTES)?;
        if let Some(last) = page.entries.last() {
            self.after = last.name.cookie();
        }
        // A page without entries is the last one, so the walk ends whatever the store returns.
        self.end = page.end || page.entries.is_empty();
        self.page = page.entries.into_iter();
        Ok(())
    }
}

/// A failed read as a message.
pub fn words(fault: Fault<TreeError>) -> String {
    match fault {
        Fault::Errno(errno) => errno.to_string(),
        Fault::Tree(error) => error.to_string(),
    }
}
