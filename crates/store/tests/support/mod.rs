//! A disk in memory that loses what was not flushed, sector by sector, and fails on request.

#![allow(dead_code)]

use shoal_store::log::disk::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a disk writes whole or not at all, in bytes.
pub const SECTOR_BYTES: usize = 512;

#[derive(Default, Clone)]
struct Content {
    /// As programs see it.
    seen: Vec<u8>,
    /// As it was at the last flush.
    durable: Vec<u8>,
    /// Writes since then.
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Default, Clone)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Directories since the last flush, one after each change.
    pending_names: Vec<BTreeMap<String, usize>>,
    calls_until_failure: Option<u32>,
}

/// The disk; clones share it.
#[derive(Default, Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

pub struct SimFile {
    disk: SimDisk,
    id: usize,
}

/// xorshift: deterministic chance.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("lock")
    }

    /// A power cut: any prefix of the directory's changes and any sectors of what was written may have
    /// reached the disk.
    pub fn crash(&self, chance: &mut Chance) -> SimDisk {
        let mut state = self.state().clone();
        let kept = chance.next(state.pending_names.len() + 1);
        if let Some(names) = kept.checked_sub(1).and_then(|last| state.pending_names.get(last)) {
            state.durable_names = names.clone();
        }
        state.names = state.durable_names.clone();
        state.pending_names.clear();
        state.calls_until_failure = None;
        for file in &mut state.files {
            // Often all or nothing, else each sector independently.
            let mood = chance.next(4);
            for (offset, bytes) in std::mem::take(&mut file.pending) {
                let mut at = 0;
                while at < bytes.len() {
                    let step = (SECTOR_BYTES - (offset + at) % SECTOR_BYTES).min(bytes.len() - at);
                    if mood == 0 || mood > 1 && chance.next(2) == 0 {
                        put(&mut file.durable, offset + at, &bytes[at..at + step]);
                    }
                    at += step;
                }
            }
            file.seen = file.durable.clone();
        }
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// The n-th call from now on fails, and all after it.
    pub fn fail_after(&self, calls: u32) {
        self.state().calls_until_failure = Some(calls);
    }

    /// Changes the bytes of a file without a write.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let id = state.names[name];
        change(&mut state.files[id].seen);
        state.files[id].durable = state.files[id].seen.clone();
        state.files[id].pending.clear();
    }

    pub fn copy(&self) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(self.state().clone())))
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[name]].seen.clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        match &mut state.calls_until_failure {
            Some(0) => Err(io::Error::other("injected failure")),
            Some(left) => {
                *left -= 1;
                Ok(state)
            }
            None => Ok(state),
        }
    }

    fn rename_in(state: &mut State, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        change(&mut state.names);
        let names = state.names.clone();
        state.pending_names.push(names);
    }
}

fn put(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if into.len() < offset + bytes.len() {
        into.resize(offset + bytes.len(), 0);
    }
    into[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.call()?.names.keys().cloned().collect())
    }

    fn open(&self, name: &str, create_new: bool) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.call()?;
        let id = match (state.names.get(name), create_new) {
            (Some(_), true) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), false) => *id,
            (None, true) => {
                state.files.push(Content::default());
                let id = state.files.len() - 1;
                SimDisk::rename_in(&mut state, |names| {
                    names.insert(name.into(), id);
                });
                id
            }
            (None, false) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(SimFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.call()?;
        assert!(!state.names.contains_key(to), "{to} is taken");
        let id = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        SimDisk::rename_in(&mut state, |names| {
            names.remove(from);
            names.insert(to.into(), id);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.call()?;
        SimDisk::rename_in(&mut state, |names| {
            names.remove(name);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.call()?;
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.call()?.files[self.id].seen.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.disk.call()?;
        let from = &state.files[self.id].seen;
        let found = from.get(offset as usize..offset as usize + into.len());
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.call()?;
        let file = &mut state.files[self.id];
        put(&mut file.seen, offset as usize, bytes);
        file.pending.push((offset as usize, bytes.to_vec()));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.call()?;
        let file = &mut state.files[self.id];
        // A new length is durable with the next flush at the latest; here it is at once, which is no easier
        // for the log.
        for bytes in [&mut file.seen, &mut file.durable] {
            bytes.resize(len as usize, 0);
        }
        file.pending.retain(|(offset, bytes)| offset + bytes.len() <= len as usize);
        Ok(())
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        if self.len()? < len { self.set_len(len) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.call()?;
        let file = &mut state.files[self.id];
        file.durable = file.seen.clone();
        file.pending.clear();
        Ok(())
    }
}
