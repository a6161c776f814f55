//! Replies: exactly one for each request. They may be sent later, from any thread.

use crate::abi::{self, OpenFlags};
use crate::types::{Attr, Entry, FileHandle, Lock, NodeId, Statfs, Unique};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerocopy::IntoBytes;

/// The connection over which replies are sent to the kernel.
pub trait ReplyPath: Send + Sync {
    /// Replies to a request with an errno, negated, or with data.
    fn reply(&self, unique: Unique, error: i32, data: &[IoSlice<'_>]) -> io::Result<()>;
}

/// The reply to one request. It is sent once; dropping it sends an error.
pub(crate) struct Reply {
    unique: Unique,
    path: Arc<dyn ReplyPath>,
    is_sent: bool,
    /// Whether a reply was sent, if the request has a [`Canceller`], which may send it as well.
    shared_is_sent: Option<Arc<AtomicBool>>,
}

/// Replies to a request with an error, if it has no other reply so far. It may outlive the request.
pub struct Canceller {
    unique: Unique,
    path: Arc<dyn ReplyPath>,
    is_sent: Arc<AtomicBool>,
}

impl Canceller {
    /// Replies with an errno, a positive number, if there is no other reply. A later one is discarded.
    pub fn error(&self, errno: i32) {
        if !self.is_sent.swap(true, Ordering::AcqRel) {
            deliver(&*self.path, self.unique, -errno, &[]);
        }
    }
}

impl Reply {
    pub(crate) fn new(unique: Unique, path: Arc<dyn ReplyPath>) -> Reply {
        Reply { unique, path, is_sent: false, shared_is_sent: None }
    }

    /// Sends the reply. False if it is discarded, because another was sent before.
    fn send(mut self, error: i32, data: &[IoSlice<'_>]) -> bool {
        let is_first = self.is_first();
        if is_first {
            deliver(&*self.path, self.unique, error, data);
        }
        is_first
    }

    /// Whether nothing was sent before. From now on something was.
    fn is_first(&mut self) -> bool {
        let is_first = |sent: &Arc<AtomicBool>| !sent.swap(true, Ordering::AcqRel);
        !std::mem::replace(&mut self.is_sent, true) && self.shared_is_sent.as_ref().is_none_or(is_first)
    }

    fn canceller(&mut self) -> Canceller {
        let is_sent = self.shared_is_sent.get_or_insert_default().clone();
        Canceller { unique: self.unique, path: self.path.clone(), is_sent }
    }

    fn data(self, data: &[u8]) {
        self.send(0, &[IoSlice::new(data)]);
    }

    fn structure(self, value: &(impl IntoBytes + zerocopy::Immutable)) {
        self.data(value.as_bytes());
    }
}

fn deliver(path: &dyn ReplyPath, unique: Unique, error: i32, data: &[IoSlice<'_>]) {
    match path.reply(unique, error, data) {
        Ok(()) => {}
        // `ENOENT`: the caller was interrupted and does not wait any more. `ENODEV`: the mount has ended.
        Err(why) if matches!(why.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
        Err(why) => tracing::error!(unique = unique.0, "the kernel refused a reply: {why}"),
    }
}

/// A dropped reply is sent as an error, so that no caller waits for ever.
impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_first() {
            tracing::error!(unique = self.unique.0, "a request was dropped without a reply");
            deliver(&*self.path, self.unique, -libc::EIO, &[]);
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        pub struct $name(pub(crate) Reply);

        impl $name {
            /// Replies with an errno, a positive number.
            pub fn error(self, errno: i32) {
                self.0.send(-errno, &[]);
            }

            /// Can reply with an error as long as this has not.
            pub fn canceller(&mut self) -> Canceller {
                self.0.canceller()
            }
        }
    )* };
}

replies! {
    /// The reply to LOOKUP and to what makes a name.
    ReplyEntry
    /// The reply to CREATE.
    ReplyCreate
    /// The reply to READ and READLINK.
    ReplyData
    /// The reply without content.
    ReplyEmpty
    /// The reply to WRITE and COPY_FILE_RANGE.
    ReplyWrite
    /// The reply to OPEN and OPENDIR.
    ReplyOpen
    /// The reply to STATFS.
    ReplyStatfs
    /// The reply to GETXATTR and LISTXATTR.
    ReplyXattr
    /// The reply to GETLK.
    ReplyLock
    /// The reply to LSEEK.
    ReplyLseek
    /// The reply to IOCTL.
    ReplyIoctl
}

impl ReplyEntry {
    /// The inode of the name.
    pub fn entry(self, entry: &Entry) {
        self.0.structure(&abi::EntryOut::from(entry));
    }
}

impl ReplyCreate {
    /// The file was created, and is open.
    pub fn created(self, entry: &Entry, handle: FileHandle, flags: OpenFlags) {
        let open = abi::OpenOut { fh: handle.0, open_flags: flags.bits(), padding: 0 };
        self.0.structure(&abi::CreateOut { entry: entry.into(), open });
    }
}

/// The reply to GETATTR, STATX and SETATTR.
pub struct ReplyAttr {
    reply: Reply,
    /// For STATX, which has room for the birth time.
    is_statx: bool,
}

impl ReplyAttr {
    pub(crate) fn new(reply: Reply, is_statx: bool) -> ReplyAttr {
        ReplyAttr { reply, is_statx }
    }

    /// The attributes, which the kernel may use for so long.
    pub fn attr(self, lifetime: &Duration, attr: &Attr) {
        let (attr_valid, attr_valid_nsec) = (lifetime.as_secs(), lifetime.subsec_nanos());
        if self.is_statx {
            let stat = attr.into();
            self.reply.structure(&abi::StatxOut { attr_valid, attr_valid_nsec, stat, ..Default::default() });
        } else {
            let attr = attr.into();
            self.reply.structure(&abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr });
        }
    }

    /// Replies with an errno, a positive number.
    pub fn error(self, errno: i32) {
        self.reply.send(-errno, &[]);
    }

    /// Can reply with an error as long as this has not.
    pub fn canceller(&mut self) -> Canceller {
        self.reply.canceller()
    }
}

impl ReplyData {
    /// The concatenation of all parts.
    pub fn parts(self, parts: &[IoSlice<'_>]) {
        self.0.send(0, parts);
    }
}

impl ReplyEmpty {
    /// Success.
    pub fn ok(self) {
        self.0.send(0, &[]);
    }
}

impl ReplyWrite {
    /// So many bytes were written.
    pub fn written(self, size: u32) {
        self.0.structure(&abi::WriteOut { size, padding: 0 });
    }
}

impl ReplyOpen {
    /// The file is open. False if the request was cancelled: then the kernel will not send RELEASE.
    pub fn opened(self, handle: FileHandle, flags: OpenFlags) -> bool {
        let out = abi::OpenOut { fh: handle.0, open_flags: flags.bits(), padding: 0 };
        self.0.send(0, &[IoSlice::new(out.as_bytes())])
    }
}

impl ReplyStatfs {
    /// Sizes of the file system.
    pub fn statfs(self, sizes: &Statfs) {
        self.0.structure(&abi::Kstatfs {
            blocks: sizes.blocks,
            bfree: sizes.blocks_free,
            bavail: sizes.blocks_available,
            files: sizes.files,
            ffree: sizes.files_free,
            bsize: sizes.unit_bytes,
            namelen: sizes.name_bytes_max,
            frsize: sizes.unit_bytes,
            ..Default::default()
        });
    }
}

impl ReplyXattr {
    /// The size of the value.
    pub fn size(self, size: u32) {
        self.0.structure(&abi::GetxattrOut { size, padding: 0 });
    }

    /// The value.
    pub fn data(self, value: &[u8]) {
        self.0.data(value);
    }
}

impl ReplyLock {
    /// The conflicting lock; [`libc::F_UNLCK`] if there is none.
    pub fn lock(self, lock: &Lock) {
        let Lock { start, end, kind, pid } = *lock;
        self.0.structure(&abi::LkOut { lk: abi::FileLock { start, end, kind: kind as u32, pid } });
    }
}

impl ReplyLseek {
    /// The offset found.
    pub fn offset(self, offset: u64) {
        self.0.structure(&abi::LseekOut { offset });
    }
}

impl ReplyIoctl {
    /// Success, and what the caller gets: as many bytes as the request has room for.
    pub fn data(self, data: &[u8]) {
        let head = abi::IoctlOut::default();
        self.0.send(0, &[IoSlice::new(head.as_bytes()), IoSlice::new(data)]);
    }
}

/// Records of a listing, in a buffer of the size that the kernel has requested.
struct Listing {
    reply: Reply,
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Listing {
    /// Adds a record; false if it does not fit.
    fn add(&mut self, head: &[u8], name: &[u8]) -> bool {
        let len = (head.len() + name.len()).next_multiple_of(abi::DIRENT_ALIGN);
        let end = self.bytes.len() + len;
        if end > self.bytes_max {
            return false;
        }
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

/// The reply to READDIR.
pub struct ReplyDirectory(Listing);

/// The reply to READDIRPLUS.
pub struct ReplyDirectoryPlus {
    listing: Listing,
    /// The offset of the first record.
    starts: Vec<usize>,
}

/// The type of an inode in a record of a listing: the upper bits of its mode.
fn dirent(ino: u64, offset: u64, mode: u32, name: &[u8]) -> abi::Dirent {
    abi::Dirent { ino, off: offset, namelen: name.len() as u32, kind: (mode & libc::S_IFMT) >> 12 }
}

impl ReplyDirectory {
    pub(crate) fn new(reply: Reply, bytes_max: u32) -> ReplyDirectory {
        let bytes_max = bytes_max as usize;
        ReplyDirectory(Listing { reply, bytes: Vec::with_capacity(bytes_max), bytes_max })
    }

    /// Adds a name. `offset` is where a listing continues after it. False if it does not fit.
    pub fn add(&mut self, ino: u64, offset: u64, mode: u32, name: &[u8]) -> bool {
        self.0.add(dirent(ino, offset, mode, name).as_bytes(), name)
    }

    /// Sends what was added.
    pub fn ok(self) {
        self.0.reply.data(&self.0.bytes);
    }

    /// Replies with an errno, a positive number.
    pub fn error(self, errno: i32) {
        self.0.reply.send(-errno, &[]);
    }

    /// Can reply with an error as long as this has not.
    pub fn canceller(&mut self) -> Canceller {
        self.0.reply.canceller()
    }
}

impl ReplyDirectoryPlus {
    pub(crate) fn new(reply: Reply, bytes_max: u32) -> ReplyDirectoryPlus {
        let bytes_max = bytes_max as usize;
        let listing = Listing { reply, bytes: Vec::with_capacity(bytes_max), bytes_max };
        ReplyDirectoryPlus { listing, starts: Vec::new() }
    }

    /// Adds a name with its inode. `offset` is where a listing continues after it. False if it does not fit.
    pub fn add(&mut self, offset: u64, name: &[u8], entry: &Entry) -> bool {
        let dirent = dirent(entry.attr.ino, offset, entry.attr.mode, name);
        let head = abi::Direntplus { entry_out: entry.into(), dirent };
        let start = self.listing.bytes.len();
        let fits = self.listing.add(head.as_bytes(), name);
        if fits {
            self.starts.push(start);
        }
        fits
    }

    /// Expires the names added so far: they are looked up again at their next use.
    pub fn expire_names(&mut self) {
        const VALID: usize = std::mem::offset_of!(abi::EntryOut, entry_valid);
        const VALID_NSEC: usize = std::mem::offset_of!(abi::EntryOut, entry_valid_nsec);
        for start in &self.starts {
            self.listing.bytes[start + VALID..][..size_of::<u64>()].fill(0);
            self.listing.bytes[start + VALID_NSEC..][..size_of::<u32>()].fill(0);
        }
    }

    /// Sends what was added.
    pub fn ok(self) {
        self.listing.reply.data(&self.listing.bytes);
    }

    /// Replies with an errno, a positive number.
    pub fn error(self, errno: i32) {
        self.listing.reply.send(-errno, &[]);
    }

    /// Can reply with an error as long as this has not.
    pub fn canceller(&mut self) -> Canceller {
        self.listing.reply.canceller()
    }
}

/// A negative entry, which the kernel caches.
pub fn absent(lifetime: Duration) -> Entry {
    Entry {
        node: NodeId(0),
        generation: 0,
        name_lifetime: lifetime,
        attr_lifetime: Duration::ZERO,
        attr: Attr { mode: libc::S_IFREG, ..Attr::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use zerocopy::FromBytes;

    /// Keeps what is sent.
    #[derive(Default)]
    struct Kept(Mutex<Vec<(u64, i32, Vec<u8>)>>);

    impl ReplyPath for Kept {
        fn reply(&self, unique: Unique, error: i32, data: &[IoSlice<'_>]) -> io::Result<()> {
            let data = data.iter().flat_map(|part| part.to_vec()).collect();
            self.0.lock().push((unique.0, error, data));
            Ok(())
        }
    }

    fn kept() -> (Arc<Kept>, Reply) {
        let kept = Arc::new(Kept::default());
        (kept.clone(), Reply::new(Unique(3), kept))
    }

    fn entry(node: u64) -> Entry {
        let attr = Attr { ino: node, mode: libc::S_IFDIR | 0o755, ..Attr::default() };
        let lifetime = Duration::new(7, 8);
        Entry { node: NodeId(node), generation: 1, name_lifetime: lifetime, attr_lifetime: lifetime, attr }
    }

    #[test]
    fn request_that_is_dropped_is_answered_with_an_error() {
        let (kept, reply) = kept();
        drop(ReplyEmpty(reply));
        assert_eq!(*kept.0.lock(), [(3, -libc::EIO, Vec::new())]);
    }

    #[test]
    fn request_gets_one_reply() {
        let (kept, reply) = kept();
        ReplyWrite(reply).written(9);
        assert_eq!(*kept.0.lock(), [(3, 0, [9u32.to_ne_bytes(), [0; 4]].concat())]);
    }

    #[test]
    fn names_fill_the_buffer_up_to_its_end_and_not_beyond() {
        let (kept, reply) = kept();
        let record = size_of::<abi::Dirent>() as u32 + 8;
        let mut listing = ReplyDirectory::new(reply, 2 * record);
        assert!(listing.add(5, 1, libc::S_IFREG, b"a"));
        assert!(listing.add(6, 2, libc::S_IFDIR, b"12345678"));
        assert!(!listing.add(7, 3, libc::S_IFREG, b"b"));
        listing.ok();
        let (_, _, bytes) = kept.0.lock().pop().expect("it was sent");
        let (first, rest) = abi::Dirent::read_from_prefix(&bytes).expect("a record");
        assert_eq!(first, abi::Dirent { ino: 5, off: 1, namelen: 1, kind: 8 });
        assert_eq!(&rest[..8], b"a\0\0\0\0\0\0\0");
        let (second, name) = abi::Dirent::read_from_prefix(&rest[8..]).expect("a record");
        assert_eq!((second.kind, name), (4, &b"12345678"[..]));
    }

    #[test]
    fn expired_names_keep_their_attributes() {
        let (kept, reply) = kept();
        let mut listing = ReplyDirectoryPlus::new(reply, 4096);
        assert!(listing.add(1, b"a", &entry(5)) && listing.add(2, b"another name", &entry(6)));
        listing.expire_names();
        listing.ok();
        let (_, _, bytes) = kept.0.lock().pop().expect("it was sent");
        let mut rest = &bytes[..];
        for node in [5, 6] {
            let (record, names) = abi::Direntplus::read_from_prefix(rest).expect("a record");
            let out = record.entry_out;
            assert_eq!((out.nodeid, out.entry_valid, out.entry_valid_nsec), (node, 0, 0));
            assert_eq!((out.attr_valid, out.attr_valid_nsec), (7, 8));
            rest = &names[(record.dirent.namelen as usize).next_multiple_of(8)..];
        }
        assert!(rest.is_empty());
    }
}
