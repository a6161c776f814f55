//! Notifications, and what the front end reads of threads: the [`Host`] of a simulated mount.

use super::locks::InodeLock;
use super::pages::PAGE_BYTES;
use super::state::{Call, State};
use super::{Kernel, MOUNT_THREADS, Pin};
use shoal_channel::abi::{self, opcode};
use shoal_fuse::{DirtyPages, Host, NotifyOutcome, OpenFile, Thread, Writing};
use shoal_runtime::simulator::Simulator;
use shoal_runtime::time::Duration;
use shoal_types::{InodeId, Name};
use std::io;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The attribute that the front end sets to clear `S_NOSEC`.
const ASK: &[u8] = b"security.shoal.ask\0";

/// The kernel, as the front end uses it.
pub struct ModelHost(pub Arc<Kernel>);

impl ModelHost {
    /// The calling thread waits in a notification meanwhile.
    fn blocked<T>(&self, wait: impl FnOnce(&Arc<Kernel>) -> T) -> T {
        struct Blocked<'a>(&'a Kernel, u32);
        impl Drop for Blocked<'_> {
            fn drop(&mut self) {
                self.0.state.lock().blocked.remove(&self.1);
            }
        }
        let tid = self.current();
        self.0.state.lock().blocked.insert(tid);
        let _blocked = Blocked(&self.0, tid);
        wait(&self.0)
    }

    /// The inode, pinned; `None` if the kernel does not know it.
    fn find(&self, node: u64) -> Option<Pin> {
        let mut state = self.0.state.lock();
        state.inodes.contains_key(&node).then(|| Pin::new(&self.0, &mut state, node))
    }

    fn has_ended(&self) -> bool {
        self.0.state.lock().ended
    }
}

impl Host for ModelHost {
    fn entry(&self, node: InodeId, name: &Name) -> io::Result<NotifyOutcome> {
        if self.has_ended() {
            return Ok(NotifyOutcome::Ended);
        }
        let [name] = name.as_bytes() else { return Ok(NotifyOutcome::Unknown) };
        tracing::debug!(%node, name = char::from(*name).to_string(), "INVAL_ENTRY");
        let Some(dir) = self.find(node.0) else { return Ok(NotifyOutcome::Unknown) };
        let _lock: InodeLock = self.blocked(|kernel| kernel.lock(dir.node(), true));
        let mut state = self.0.state.lock();
        let is_known = state.inode(dir.node()).is_dir() && state.inval_entry((dir.node(), *name));
        drop(state);
        self.0.send_forgets();
        Ok(if is_known { NotifyOutcome::Invalidated } else { NotifyOutcome::Unknown })
    }

    fn inode(&self, node: InodeId, offset: i64, len: i64) -> io::Result<NotifyOutcome> {
        if self.has_ended() {
            return Ok(NotifyOutcome::Ended);
        }
        tracing::debug!(%node, offset, len, "INVAL_INODE");
        let Some(pin) = self.find(node.0) else { return Ok(NotifyOutcome::Unknown) };
        let node = pin.node();
        self.0.state.lock().inval_attributes(node);
        let Ok(offset) = u64::try_from(offset) else { return Ok(NotifyOutcome::Invalidated) };
        let last = if len <= 0 { u64::MAX } else { (offset + len as u64 - 1) / PAGE_BYTES };
        let range = offset / PAGE_BYTES..=last;
        let mut locked: Vec<u64> = {
            let mut state = self.0.state.lock();
            let inode = state.inode(node);
            if let Some(listing) = &mut inode.listing
                && *range.start() == 0
            {
                listing.is_lost = true;
            }
            inode.pages.invalidate(&range);
            inode.pages.0.range(range).map(|(number, _)| *number).collect()
        };
        if !locked.is_empty() {
            self.blocked(|kernel| {
                kernel.wait_until(|state| {
                    let pages = &mut state.inode(node).pages.0;
                    locked.retain(|number| {
                        pages.get(number).is_some_and(|page| page.locked_by.is_some()) || {
                            pages.remove(number);
                            false
                        }
                    });
                    locked.is_empty().then_some(())
                });
            });
        }
        Ok(NotifyOutcome::Invalidated)
    }

    fn prune(&self, nodes: &[InodeId]) -> io::Result<NotifyOutcome> {
        if self.has_ended() {
            return Ok(NotifyOutcome::Ended);
        }
        let mut state = self.0.state.lock();
        nodes.iter().for_each(|node| state.prune(node.0));
        drop(state);
        self.0.send_forgets();
        Ok(NotifyOutcome::Invalidated)
    }

    fn epoch(&self) -> io::Result<NotifyOutcome> {
        tracing::debug!("INC_EPOCH");
        let mut state = self.0.state.lock();
        state.epoch += 1;
        Ok(if state.ended { NotifyOutcome::Ended } else { NotifyOutcome::Invalidated })
    }

    fn keep_nothing_else(&self, _: bool) {}

    fn current(&self) -> u32 {
        MOUNT_THREADS + self.0.world.0.current() as u32
    }

    fn thread_state(&self, tid: u32) -> Option<Thread> {
        let state = self.0.state.lock();
        let thread = state.threads.get(&tid)?;
        Some(Thread { sleeps: !thread.unconsumed, ran: Duration::ZERO, turns: thread.turns, is_exact: true })
    }

    fn is_blocked(&self, tid: i32) -> bool {
        self.0.state.lock().blocked.contains(&(tid as u32))
    }

    fn is_exiting(&self, _: u32) -> bool {
        false
    }

    fn is_killed(&self, _: u32) -> bool {
        // Programs end with their machine.
        false
    }

    fn reads(&self, tid: u32, ino: InodeId) -> bool {
        let call = |state: &State| state.threads.get(&tid)?.call;
        call(&self.0.state.lock()) == Some(Call::Reads(ino.0))
    }

    fn writing(&self, tid: u32) -> Option<Writing> {
        match self.0.state.lock().threads.get(&tid)?.call {
            Some(Call::Writes { appends }) => Some(Writing { appends }),
            _ => None,
        }
    }

    fn seeks(&self, tid: u32) -> bool {
        self.0.state.lock().threads.get(&tid).is_some_and(|thread| thread.call == Some(Call::Seeks))
    }

    fn open(&self, ino: InodeId, generation: u64, flags: i32) -> io::Result<Box<dyn OpenFile>> {
        let stale = || io::Error::from_raw_os_error(libc::ESTALE);
        let pin = self.find(ino.0).ok_or_else(stale)?;
        // A handle has 32 bits for it.
        if self.0.state.lock().inode(ino.0).generation as u32 != generation as u32 {
            return Err(stale());
        }
        if flags & libc::O_PATH == 0 {
            self.0.permission(self.current(), ino.0).map_err(io::Error::from_raw_os_error)?;
        }
        Ok(Box::new(File { kernel: self.0.clone(), tid: self.current(), pin }))
    }
}

/// A file that a thread of the mount process has open.
struct File {
    kernel: Arc<Kernel>,
    tid: u32,
    pin: Pin,
}

impl OpenFile for File {
    fn refresh(&self) -> io::Result<()> {
        self.kernel.getattr(self.tid, self.pin.node(), false).map(drop).map_err(io::Error::from_raw_os_error)
    }

    fn cached_size(&self) -> io::Result<u64> {
        Ok(self.kernel.state.lock().inode(self.pin.node()).attr.size)
    }

    fn seek_end(&self) -> io::Result<u64> {
        let node = self.pin.node();
        let _lock = self.kernel.lock(node, true);
        self.kernel.update_size(self.tid, node).map_err(io::Error::from_raw_os_error)?;
        self.cached_size()
    }

    fn clear_s_nosec(&self) -> io::Result<()> {
        let node = self.pin.node();
        let _lock = self.kernel.lock(node, true);
        self.kernel.state.lock().inode(node).nosec = false;
        let set = abi::SetxattrIn::default();
        match self
            .kernel
            .request(self.tid, opcode::SETXATTR, node, &[set.as_bytes(), ASK], |_, reply| reply.map(drop))
        {
            Err(libc::EBUSY) => Ok(()),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
            Ok(()) => Err(io::Error::other("it was set")),
        }
    }

    fn dirty_pages(&self, _: i64, _: i64) -> io::Result<DirtyPages> {
        Ok(DirtyPages::default())
    }
}
