//! A maildir: two mounts deliver to it, two readers empty it.

use crate::harness::{Random, Shared, seed};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const DELIVERERS: usize = 2;
const MESSAGES: usize = 150;
const MESSAGE_BYTES_MAX: u64 = 12_000;
/// Readers that see no new message for this long give up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Received messages by name.
type Received = BTreeMap<String, Vec<u8>>;

fn name(deliverer: usize, number: usize) -> String {
    format!("{number}.d{deliverer}.example.org")
}

/// Bytes that are derived from the name, with an end that proves them complete.
fn message(deliverer: usize, number: usize) -> Vec<u8> {
    let mut random = Random::new(seed() + (deliverer * MESSAGES + number) as u64);
    let len = random.length(MESSAGE_BYTES_MAX) as usize;
    let mut bytes = format!("Subject: {}\n\n", name(deliverer, number)).into_bytes();
    bytes.extend(random.bytes(len));
    bytes.extend(b"\n.\n");
    bytes
}

/// Delivers as qmail does: written and synced under a name in tmp, then moved to new. Every other one uses
/// link and unlink, as older programs do.
fn deliver(maildir: &Path, deliverer: usize) {
    for number in 0..MESSAGES {
        let name = name(deliverer, number);
        let [tmp, new] = ["tmp", "new"].map(|dir| maildir.join(dir).join(&name));
        let mut file = File::create_new(&tmp).expect("the name is new");
        let bytes = message(deliverer, number);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        file.write_all(first).and_then(|()| file.write_all(second)).expect("write");
        if number % 16 == 0 {
            file.sync_all().expect("fsync");
        }
        if number % 2 == 0 {
            fs::rename(&tmp, &new).expect("rename");
        } else {
            fs::hard_link(&tmp, &new).expect("link");
            fs::remove_file(&tmp).expect("unlink");
        }
    }
}

/// Takes new messages until the readers have taken all: each is moved to cur, read, and removed.
fn read(maildir: &Path, reader: usize, taken: &AtomicUsize) -> Received {
    let (mut received, mut last) = (Received::new(), Instant::now());
    while taken.load(Ordering::SeqCst) < DELIVERERS * MESSAGES {
        assert!(last.elapsed() < PATIENCE, "reader {reader} waits for messages that do not come");
        for entry in fs::read_dir(maildir.join("new")).expect("new can be listed") {
            let entry = entry.expect("a listing goes on");
            let name = entry.file_name();
            let mut marked: OsString = name.clone();
            marked.push(format!(":2,S{reader}"));
            let cur = maildir.join("cur").join(marked);
            match fs::rename(entry.path(), &cur) {
                Ok(()) => {}
                // Another reader has moved it first.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => panic!("rename of {name:?}: {error}"),
            }
            let content = fs::read(&cur).expect("a message that was taken can be read");
            fs::remove_file(&cur).expect("and removed");
            let before = received.insert(name.into_string().expect("ours is ASCII"), content);
            assert!(before.is_none(), "reader {reader} was given {:?} twice", entry.file_name());
            taken.fetch_add(1, Ordering::SeqCst);
            last = Instant::now();
        }
    }
    received
}

#[test]
fn every_message_in_a_maildir_arrives_exactly_once_and_complete() {
    let volume = Shared::start("several-mail", 3);
    for dir in ["", "tmp", "new", "cur"] {
        fs::create_dir(volume.path(0).join("maildir").join(dir)).expect("a directory can be made");
    }
    let maildir = |mount: usize| volume.path(mount).join("maildir");
    let taken = AtomicUsize::new(0);
    let received: Vec<Received> = std::thread::scope(|scope| {
        let deliverers: Vec<_> = (0..DELIVERERS)
            .map(|deliverer| {
                let maildir = maildir(deliverer);
                scope.spawn(move || deliver(&maildir, deliverer))
            })
            .collect();
        // One reader on a mount of its own, one beside a deliverer: they compete for the same messages.
        let readers: Vec<_> = [2, 1]
            .into_iter()
            .map(|mount| {
                let (maildir, taken) = (maildir(mount), &taken);
                scope.spawn(move || read(&maildir, mount, taken))
            })
            .collect();
        deliverers.into_iter().for_each(|deliverer| deliverer.join().expect("all is delivered"));
        readers.into_iter().map(|reader| reader.join().expect("all is read")).collect()
    });
    println!("messages that each reader got: {:?}", received.iter().map(BTreeMap::len).collect::<Vec<_>>());
    let mut all = Received::new();
    for (name, content) in received.into_iter().flatten() {
        assert!(all.insert(name.clone(), content).is_none(), "{name} arrived twice");
    }
    assert_eq!(all.len(), DELIVERERS * MESSAGES);
    for (deliverer, number) in (0..DELIVERERS).flat_map(|one| (0..MESSAGES).map(move |n| (one, n))) {
        let name = name(deliverer, number);
        let found = all.get(&name).unwrap_or_else(|| panic!("{name} has not arrived"));
        assert!(*found == message(deliverer, number), "{name} is not what was sent: {} bytes", found.len());
    }
    for (mount, dir) in (0..3).flat_map(|mount| ["tmp", "new", "cur"].map(|dir| (mount, dir))) {
        let left = fs::read_dir(maildir(mount).join(dir)).expect("it can be listed").count();
        assert_eq!(left, 0, "left in {dir} on mount {mount}");
    }
    volume.finish();
}
