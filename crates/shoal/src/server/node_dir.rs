//! The data directory of a server: the node's identity, its replicas, and its copy of the cluster map.
//!
//! ```text
//! DATA/node.json          format version, identity and addresses of the node; replicas and bricks it created
//! DATA/tls/               the node's credentials
//! DATA/map                the last cluster map: addresses to contact after a restart
//! DATA/cluster/N/         replica N of the group that holds the cluster map, if it is kept here
//! DATA/volumes/ID-N/      replica N of a volume's metadata group
//! DATA/lock, control.sock, shoal.log   as in the data directory of a single machine
//! ```
//!
//! **Promises.** One process at a time. A directory that was copied or restored is recognised, and does not
//! become a second server of the same node ([`NodeDir::begin_run`]). A replica or brick that was made here
//! once and is gone is never recreated, because its votes and blocks are lost. `node.json` is replaced
//! atomically and durably.

use super::disks::check_room;
use crate::data_dir::{self, DataError};
use crate::limits::{DATA_FREE_BYTES_MIN, NODE_BYTES_MAX};
use anyhow::{Context, anyhow, bail};
use nix::fcntl::Flock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_cluster::ClusterMap;
use shoal_net::Fence;
use shoal_runtime::durable;
use shoal_types::{BrickId, GroupId, Incarnation, NodeId, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{DirBuilder, DirEntry, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Version of the directory's layout. Its parts have versions of their own.
const FORMAT: u32 = 1;

/// The content of `node.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    format: u32,
    /// The cluster, 32 hexadecimal digits.
    pub cluster: String,
    /// The number of the node in its cluster.
    pub node: NodeId,
    /// The node's name, as administrators call it.
    pub name: String,
    /// Where the other nodes reach it, `HOST:PORT`.
    pub address: String,
    /// Where it listens, `ADDRESS:PORT`.
    pub listen: String,
    /// Replicas of metadata groups that were made here.
    #[serde(default)]
    replicas: BTreeSet<ReplicaId>,
    /// Bricks that were made on this node, with their identities.
    #[serde(default)]
    bricks: BTreeMap<BrickId, String>,
    /// The directories of these bricks, until they have been deleted.
    #[serde(default)]
    brick_paths: BTreeMap<BrickId, PathBuf>,
    /// Replicas of volumes whose rebalance has not completed, and its number in the cluster map.
    #[serde(default)]
    rebalances: BTreeMap<ReplicaId, u64>,
    /// Number of server starts in this directory so far.
    #[serde(default)]
    starts: u64,
    /// The place of the directory when a server started in it for the first time.
    #[serde(default)]
    place: Option<Place>,
    /// Why no server may start in it again.
    #[serde(default)]
    fenced: Option<Fenced>,
}

/// Tells a directory from a copy of it: programs that copy or restore files make a new lock file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Place {
    /// Inode number of the lock file.
    inode: u64,
    /// Birth time of the lock file, in nanoseconds since 1970, if the file system records it.
    born_ns: Option<u64>,
}

impl Place {
    fn of(file: &File) -> std::io::Result<Place> {
        let metadata = file.metadata()?;
        let born = metadata.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Ok(Place { inode: metadata.ino(), born_ns: born.and_then(|age| age.as_nanos().try_into().ok()) })
    }

    /// A newer kernel may report a birth time where an older one did not.
    fn is_same(&self, other: &Place) -> bool {
        let born = self.born_ns.zip(other.born_ns);
        self.inode == other.inode && born.is_none_or(|(ours, theirs)| ours == theirs)
    }
}

/// The form of [`Fence`] on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fenced {
    Detached,
    Superseded,
    Duplicate,
}

impl From<Fence> for Fenced {
    fn from(fence: Fence) -> Fenced {
        match fence {
            Fence::Detached => Fenced::Detached,
            Fence::Superseded => Fenced::Superseded,
            Fence::Duplicate => Fenced::Duplicate,
        }
    }
}

impl From<Fenced> for Fence {
    fn from(fenced: Fenced) -> Fence {
        match fenced {
            Fenced::Detached => Fence::Detached,
            Fenced::Superseded => Fence::Superseded,
            Fenced::Duplicate => Fence::Duplicate,
        }
    }
}

/// Advice to the administrator of a node that its cluster refuses.
pub fn advice(fence: Fence) -> &'static str {
    match fence {
        Fence::Detached => {
            "To use this machine again, join with an empty data directory and empty bricks (`shoal peer join`). What the old ones \
             hold is not needed by the cluster"
        }
        Fence::Superseded | Fence::Duplicate => {
            "Find the other process: `shoal peer status` on another node shows the node's address. If this data directory is a copy, \
             delete it. If the other one is the copy, stop that for good and start this one with `shoal server --moved`"
        }
    }
}

impl Identity {
    /// A new node's identity.
    pub fn new(cluster: u128, node: NodeId, name: &str, address: &str, listen: &str) -> Identity {
        Identity {
            format: FORMAT,
            cluster: format!("{cluster:032x}"),
            node,
            name: name.to_owned(),
            address: address.to_owned(),
            listen: listen.to_owned(),
            replicas: BTreeSet::new(),
            bricks: BTreeMap::new(),
            brick_paths: BTreeMap::new(),
            rebalances: BTreeMap::new(),
            starts: 0,
            place: None,
            fenced: None,
        }
    }

    /// The cluster's identity.
    pub fn cluster(&self) -> anyhow::Result<u128> {
        u128::from_str_radix(&self.cluster, 16).context("node.json: the cluster's identity is no number")
    }
}

/// A server's directory, which this process holds locked until it drops this.
pub struct NodeDir {
    path: PathBuf,
    identity: Mutex<Identity>,
    lock: Flock<File>,
}

/// Whether there is a server's directory at a path.
pub fn exists(path: &Path) -> bool {
    path.join("node.json").exists()
}

/// Fails if there is a server's directory at a path.
pub fn refuse_member(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    match exists(path) {
        false => Ok(()),
        true => bail!(
            "this machine is a member of a cluster already, with its data in {shown}: `shoal cluster status` shows the \
             cluster, `shoal cluster token` what other machines join with, and `shoal server` starts it"
        ),
    }
}

/// What an interrupted creation of a server's directory may leave in it.
const LEFT_FILES: [&str; 3] = ["map", "map.new", "node.json.new"];
const LEFT_DIRECTORIES: [&str; 2] = ["tls", "cluster"];

/// Whether this is in a directory because a creation was interrupted, and not something else of that name.
fn is_left(path: &Path, name: &OsStr) -> bool {
    let has_only = |part: &str, is_ours: fn(&str) -> bool| {
        let is_ours = |entry: std::io::Result<DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_ours))
        };
        std::fs::read_dir(path.join(part)).is_ok_and(|mut entries| entries.all(is_ours))
    };
    match name.to_str() {
        Some("lock" | "lost+found") => true,
        Some("tls") => has_only("tls", |file| {
            ["ca.pem", "cert.pem", "key.pem"].contains(&file.strip_suffix(".new").unwrap_or(file))
        }),
        Some("cluster") => has_only("cluster", |replica| replica.parse::<u64>().is_ok()),
        // They are written last.
        Some(file) => LEFT_FILES.contains(&file) && path.join("tls").is_dir(),
        None => false,
    }
}

/// Prepares a directory for a new server: creates it if necessary, and refuses one that is not empty. It is a
/// server's directory from [`NodeDir::create`] on.
pub fn prepare(path: &Path) -> anyhow::Result<PathBuf> {
    let shown = path.display();
    refuse_member(path)?;
    DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| shown.to_string())?;
    for entry in std::fs::read_dir(path).with_context(|| shown.to_string())? {
        let name = entry?.file_name();
        if !is_left(path, &name) {
            bail!("{shown} has files of something else in it ({name:?}): choose a new or empty directory");
        }
    }
    data_dir::close_to_others(path).with_context(|| shown.to_string())?;
    check_room(path, DATA_FREE_BYTES_MIN, "a server's data directory").map_err(anyhow::Error::msg)?;
    // Nothing can have been stored in them.
    let remove = |part: &str, remove: fn(PathBuf) -> std::io::Result<()>| match remove(path.join(part)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.join(part).display().to_string())
        }
        _ => Ok(()),
    };
    LEFT_FILES.iter().try_for_each(|part| remove(part, std::fs::remove_file))?;
    LEFT_DIRECTORIES.iter().try_for_each(|part| remove(part, std::fs::remove_dir_all))?;
    path.canonicalize().with_context(|| shown.to_string())
}

impl NodeDir {
    /// Turns a prepared directory into a server's directory. `node.json` comes last: with it and without a
    /// map, no server could start there and no creation could be repeated.
    pub fn create(path: &Path, identity: Identity, map: &[u8]) -> anyhow::Result<NodeDir> {
        let lock = lock(path)?;
        let dir = NodeDir { path: path.to_owned(), identity: Mutex::new(identity), lock };
        durable::create_dir_all(path).with_context(|| path.display().to_string())?;
        dir.save_map(map)?;
        dir.save(&dir.identity.lock())?;
        Ok(dir)
    }

    /// Locks and opens an existing directory.
    pub fn open(path: &Path) -> anyhow::Result<NodeDir> {
        let shown = path.display();
        if !exists(path) {
            bail!(
                "{shown} is not a server's directory. `shoal cluster init --data {shown}` begins a cluster with this \
                 node; `shoal peer join TOKEN --data {shown}` joins one"
            );
        }
        let path = path.canonicalize().with_context(|| shown.to_string())?;
        let lock = lock(&path)?;
        if let Err(error) = data_dir::close_to_others(&path) {
            tracing::warn!(path = %shown, %error, "other users may read the data directory");
        }
        let file = path.join("node.json");
        let text = data_dir::read_whole(&file, NODE_BYTES_MAX).with_context(|| file.display().to_string())?;
        let identity: Identity =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?;
        if identity.format != FORMAT {
            bail!(
                "{} has format version {}, this program knows {FORMAT}: use a newer shoal",
                file.display(),
                identity.format
            );
        }
        Ok(NodeDir { path, identity: Mutex::new(identity), lock })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of this node.
    pub fn node(&self) -> NodeId {
        self.identity.lock().node
    }

    /// The identity of this node.
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// The node's credentials.
    pub fn tls(&self) -> PathBuf {
        self.path.join("tls")
    }

    /// The directory of a replica.
    pub fn replica(&self, group: GroupId, id: ReplicaId) -> PathBuf {
        match group {
            GroupId::CLUSTER => self.path.join("cluster").join(id.0.to_string()),
            volume => self.path.join("volumes").join(format!("{volume}-{}", id.0)),
        }
    }

    /// Replicas that have a directory here.
    pub fn replicas(&self) -> Vec<(GroupId, ReplicaId)> {
        let names = |part| {
            let entries = std::fs::read_dir(self.path.join(part)).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok())
        };
        let of_map = |name: String| Some((GroupId::CLUSTER, ReplicaId(name.parse().ok()?)));
        let of_volumes = names("volumes").filter_map(|name| parse_replica(&name));
        names("cluster").filter_map(of_map).chain(of_volumes).collect()
    }

    /// Whether a replica was made here.
    pub fn made_replica(&self, id: ReplicaId) -> bool {
        self.identity.lock().replicas.contains(&id)
    }

    /// Counts a start of the server. Refused in a directory that was copied or restored, and in one that the
    /// cluster has refused: either may lack votes and blocks that it had promised to keep. `moved`: the
    /// administrator asserts that this is the node's only directory. Then the run is counted beyond `known`,
    /// the latest one in the cluster map.
    pub fn begin_run(&self, moved: bool, known: u64) -> anyhow::Result<Incarnation> {
        let shown = self.path.display();
        let place = Place::of(&self.lock).with_context(|| shown.to_string())?;
        let mut identity = self.identity.lock();
        if let Some(fenced) = identity.fenced.filter(|fenced| !moved || *fenced == Fenced::Detached) {
            let fence = Fence::from(fenced);
            bail!("{shown} does not start a server any more: {fence}. {}", advice(fence));
        }
        if !moved && identity.place.is_some_and(|before| !before.is_same(&place)) {
            bail!(
                "{shown} is a copy of the data directory of node '{}', or was restored from a backup: two servers of one node, or \
                 one that has forgotten what it promised, would damage the metadata. If the original was moved here as it was after \
                 its last stop, and will not run again, say `shoal server --data {shown} --moved` once. Otherwise join with an \
                 empty data directory",
                identity.name
            );
        }
        let mut next = identity.clone();
        next.starts = if moved { next.starts.max(known) } else { next.starts } + 1;
        next.place = Some(place);
        next.fenced = None;
        self.save(&next)?;
        *identity = next;
        Ok(Incarnation { starts: identity.starts, instance: rand::random() })
    }

    /// Records that no server may start here again.
    pub fn set_fenced(&self, fence: Fence) -> anyhow::Result<()> {
        let mut identity = self.identity.lock();
        identity.fenced = Some(fence.into());
        self.save(&identity)
    }

    /// Changes the address to listen on.
    pub fn set_listen(&self, listen: &str) -> anyhow::Result<()> {
        self.change(|identity| identity.listen = listen.to_owned())
    }

    /// Records that a replica is about to be made here. Returns false if it was made before: then it must
    /// exist.
    pub fn begin_replica(&self, id: ReplicaId) -> anyhow::Result<bool> {
        if self.made_replica(id) {
            return Ok(false);
        }
        let mut is_new = false;
        self.change(|identity| is_new = identity.replicas.insert(id))?;
        Ok(is_new)
    }

    /// The rebalance that a replica's volume had not completed, as last recorded.
    pub fn unfinished_rebalance(&self, id: ReplicaId) -> Option<u64> {
        self.identity.lock().rebalances.get(&id).copied()
    }

    /// Records which rebalance a replica's volume has not completed, for the next start.
    pub fn set_unfinished_rebalance(&self, id: ReplicaId, rebalance: Option<u64>) -> anyhow::Result<()> {
        if self.unfinished_rebalance(id) == rebalance {
            return Ok(());
        }
        self.change(|identity| match rebalance {
            Some(rebalance) => drop(identity.rebalances.insert(id, rebalance)),
            None => drop(identity.rebalances.remove(&id)),
        })
    }

    /// The identity of a brick that was made here, if it was.
    pub fn brick(&self, id: BrickId) -> Option<u128> {
        let identity = self.identity.lock();
        u128::from_str_radix(identity.bricks.get(&id)?, 16).ok()
    }

    /// The number of a brick that was made here, by its identity.
    pub fn brick_of(&self, identity_of_brick: u128) -> Option<BrickId> {
        let digits = format!("{identity_of_brick:032x}");
        let identity = self.identity.lock();
        identity.bricks.iter().find(|(_, known)| **known == digits).map(|(id, _)| *id)
    }

    /// Records that a brick was made here.
    pub fn made_brick(&self, id: BrickId, identity_of_brick: u128, path: &Path) -> anyhow::Result<()> {
        self.change(|identity| {
            identity.bricks.insert(id, format!("{identity_of_brick:032x}"));
            identity.brick_paths.insert(id, path.to_owned());
        })
    }

    /// Removes a brick's recorded place: an older release did not record it.
    #[cfg(test)]
    pub fn made_brick_somewhere(&self, id: BrickId, identity_of_brick: u128) {
        self.identity.lock().bricks.insert(id, format!("{identity_of_brick:032x}"));
    }

    /// Records the place of a brick that was made here.
    pub fn note_brick_path(&self, id: BrickId, path: &Path) -> anyhow::Result<()> {
        if self.identity.lock().brick_paths.get(&id).is_some_and(|known| known == path) {
            return Ok(());
        }
        self.change(|identity| drop(identity.brick_paths.insert(id, path.to_owned())))
    }

    /// Records that a brick has been deleted.
    pub fn deleted_brick(&self, id: BrickId) -> anyhow::Result<()> {
        self.change(|identity| drop(identity.brick_paths.remove(&id)))
    }

    /// Bricks that were made here and that no map will name again, with their identities and places.
    pub fn retired_bricks(&self, map: &ClusterMap) -> Vec<(BrickId, u128, PathBuf)> {
        let identity = self.identity.lock();
        let retired = |(id, path): (&BrickId, &PathBuf)| {
            let was_named = id.0 < map.next.brick && !map.bricks.contains_key(id);
            let digits = identity.bricks.get(id).filter(|_| was_named)?;
            Some((*id, u128::from_str_radix(digits, 16).ok()?, path.clone()))
        };
        identity.brick_paths.iter().filter_map(retired).collect()
    }

    /// The last saved map; `None` if there is none that can be read.
    pub fn read_map(&self) -> Option<Vec<u8>> {
        std::fs::read(self.path.join("map")).ok()
    }

    /// Saves the map for the next start.
    pub fn save_map(&self, bytes: &[u8]) -> anyhow::Result<()> {
        self.replace("map", bytes)
    }

    /// Changes the identity on disk first: if that fails, as on a full disk, a retry still finds the change
    /// to be made.
    fn change(&self, change: impl FnOnce(&mut Identity)) -> anyhow::Result<()> {
        let mut identity = self.identity.lock();
        let mut next = identity.clone();
        change(&mut next);
        self.save(&next)?;
        *identity = next;
        Ok(())
    }

    fn save(&self, identity: &Identity) -> anyhow::Result<()> {
        self.replace("node.json", &serde_json::to_vec_pretty(identity)?)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        durable::replace(&self.path, name, bytes, 0o600)
            .with_context(|| self.path.join(name).display().to_string())
    }
}

/// Parses `ID-N`, the name of a replica's directory.
fn parse_replica(name: &str) -> Option<(GroupId, ReplicaId)> {
    let (group, id) = name.split_once('-')?;
    Some((GroupId(u128::from_str_radix(group, 16).ok()?), ReplicaId(id.parse().ok()?)))
}

fn lock(path: &Path) -> anyhow::Result<Flock<File>> {
    data_dir::lock(path).map_err(|error| match error {
        // Unlike `shoal up`, a server has nothing to unmount.
        DataError::InUse { path, pid } => anyhow!(
            "{} is already in use by process {pid}: stop the server there first (`systemctl stop shoal-server`)",
            path.display()
        ),
        other => other.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn identity() -> Identity {
        Identity::new(7, NodeId(3), "alpha", "alpha:7470", "0.0.0.0:7470")
    }

    #[test]
    fn created_replicas_and_bricks_are_remembered_after_a_restart() {
        let temp = tempfile::tempdir().unwrap();
        let path = prepare(&temp.path().join("data")).unwrap();
        let dir = NodeDir::create(&path, identity(), b"map").unwrap();
        assert!(dir.begin_replica(ReplicaId(5)).unwrap());
        dir.made_brick(BrickId(2), 0xabc, Path::new("/srv/b")).unwrap();
        dir.save_map(b"newer").unwrap();
        assert!(NodeDir::open(&path).is_err_and(|error| error.to_string().contains("in use")));
        drop(dir);
        let dir = NodeDir::open(&path).unwrap();
        assert!(!dir.begin_replica(ReplicaId(5)).unwrap());
        assert_eq!(dir.brick(BrickId(2)), Some(0xabc));
        assert_eq!(dir.brick(BrickId(3)), None);
        assert_eq!(dir.read_map().as_deref(), Some(&b"newer"[..]));
        assert_eq!((dir.identity().cluster().unwrap(), dir.identity().node), (7, NodeId(3)));
    }

    #[test]
    fn brick_is_retired_when_the_map_has_named_it_and_does_not_any_more() {
        let temp = tempfile::tempdir().unwrap();
        let path = prepare(&temp.path().join("data")).unwrap();
        let dir = NodeDir::create(&path, identity(), b"map").unwrap();
        dir.made_brick(BrickId(2), 0xabc, Path::new("/srv/b")).unwrap();
        let mut map = ClusterMap::default();
        map.next.brick = 2;
        assert_eq!(dir.retired_bricks(&map), [], "the map is older than the brick");
        map.next.brick = 3;
        assert_eq!(dir.retired_bricks(&map), [(BrickId(2), 0xabc, "/srv/b".into())]);
        assert_eq!(dir.brick_of(0xabc), Some(BrickId(2)));
        dir.deleted_brick(BrickId(2)).unwrap();
        assert_eq!(dir.retired_bricks(&map), []);
        assert_eq!(dir.brick(BrickId(2)), Some(0xabc), "its number stays used");
    }

    #[test]
    fn long_node_file_is_read_and_an_implausible_one_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = prepare(&temp.path().join("data")).unwrap();
        let many = 20_000;
        let mut old = identity();
        old.replicas = (1..=many).map(ReplicaId).collect();
        old.bricks = (1..=many as u16).map(|id| (BrickId(id), format!("{id:032x}"))).collect();
        drop(NodeDir::create(&path, old, b"map").unwrap());
        let dir = NodeDir::open(&path).unwrap();
        assert!(dir.made_replica(ReplicaId(many)) && !dir.made_replica(ReplicaId(many + 1)));
        assert_eq!(dir.brick(BrickId(many as u16)), Some(u128::from(many)));
        drop(dir);
        let file = File::options().write(true).open(path.join("node.json")).unwrap();
        file.set_len(NODE_BYTES_MAX + 1).unwrap();
        assert!(NodeDir::open(&path).is_err_and(|error| format!("{error:#}").contains("longer than")));
    }

    #[test]
    fn copied_directory_does_not_start_until_it_is_said_to_have_been_moved() {
        let temp = tempfile::tempdir().unwrap();
        let path = prepare(&temp.path().join("data")).unwrap();
        let dir = NodeDir::create(&path, identity(), b"map").unwrap();
        let first = dir.begin_run(false, 0).unwrap();
        let second = dir.begin_run(false, 0).unwrap();
        assert_eq!((first.starts, second.starts), (1, 2));
        drop(dir);
        let copy = temp.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for name in ["node.json", "lock"] {
            std::fs::copy(path.join(name), copy.join(name)).unwrap();
        }
        let dir = NodeDir::open(&copy).unwrap();
        let why = dir.begin_run(false, 0).unwrap_err().to_string();
        assert!(why.contains("is a copy") && why.contains("--moved"), "{why}");
        assert_eq!(dir.begin_run(true, 7).unwrap().starts, 8);
        assert_eq!(dir.begin_run(false, 0).unwrap().starts, 9);
    }

    #[test]
    fn fenced_directory_stays_fenced_and_a_detached_one_even_if_it_was_moved() {
        let temp = tempfile::tempdir().unwrap();
        let path = prepare(&temp.path().join("data")).unwrap();
        let dir = NodeDir::create(&path, identity(), b"map").unwrap();
        dir.begin_run(false, 0).unwrap();
        dir.set_fenced(Fence::Duplicate).unwrap();
        drop(dir);
        let dir = NodeDir::open(&path).unwrap();
        assert!(dir.begin_run(false, 0).unwrap_err().to_string().contains("another process"));
        dir.begin_run(true, 0).unwrap();
        dir.set_fenced(Fence::Detached).unwrap();
        assert!(dir.begin_run(true, 0).unwrap_err().to_string().contains("was detached"));
    }

    #[test]
    fn directory_with_other_files_or_an_existing_server_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("letter.txt"), "").unwrap();
        assert!(prepare(temp.path()).is_err_and(|error| error.to_string().contains("letter.txt")));
        std::fs::remove_file(temp.path().join("letter.txt")).unwrap();
        for theirs in ["tls/server.key", "cluster/data.db", "map"] {
            let file = temp.path().join(theirs);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            assert!(prepare(temp.path()).is_err() && file.exists(), "{theirs}");
            if let Some(part) = file.parent().filter(|part| *part != temp.path()) {
                std::fs::remove_dir_all(part).unwrap();
            }
        }
        let path = prepare(&temp.path().join("data")).unwrap();
        drop(NodeDir::create(&path, identity(), b"map").unwrap());
        assert!(prepare(&path).is_err_and(|error| error.to_string().contains("already")));
        assert!(NodeDir::open(temp.path()).is_err_and(|error| error.to_string().contains("cluster init")));
    }

    #[test]
    fn creation_that_was_interrupted_at_any_step_is_repeated() {
        let temp = tempfile::tempdir().unwrap();
        let path = prepare(&temp.path().join("data")).unwrap();
        for left in ["map", "map.new", "node.json.new", "lock"] {
            std::fs::write(path.join(left), "a part").unwrap();
        }
        std::fs::create_dir(path.join("tls")).unwrap();
        assert_eq!(prepare(&path).unwrap(), path);
        // As on a full disk, the map cannot be saved.
        std::fs::create_dir(path.join("map.new")).unwrap();
        assert!(NodeDir::create(&path, identity(), b"map").is_err() && !exists(&path));
        std::fs::remove_dir(path.join("map.new")).unwrap();
        let dir = NodeDir::create(&prepare(&path).unwrap(), identity(), b"map").unwrap();
        assert_eq!(dir.read_map().as_deref(), Some(&b"map"[..]));
    }

    #[test]
    fn existing_directory_is_closed_to_other_users() {
        let temp = tempfile::tempdir().unwrap();
        let set = |mode| std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(mode)).unwrap();
        let mode = || std::fs::metadata(temp.path()).unwrap().mode() & 0o777;
        set(0o755);
        let path = prepare(temp.path()).unwrap();
        assert_eq!(mode(), 0o700, "the authority's key is in it");
        drop(NodeDir::create(&path, identity(), b"map").unwrap());
        set(0o755);
        drop(NodeDir::open(&path).unwrap());
        assert_eq!(mode(), 0o700, "an older program did not close it");
    }

    #[test]
    fn name_of_a_replica_directory_is_parsed() {
        let temp = tempfile::tempdir().unwrap();
        let path = prepare(&temp.path().join("data")).unwrap();
        let dir = NodeDir::create(&path, identity(), b"map").unwrap();
        let (group, id) = (GroupId(0x1234), ReplicaId(9));
        std::fs::create_dir_all(dir.replica(group, id)).unwrap();
        assert!(dir.replica(GroupId::CLUSTER, ReplicaId(8)).ends_with("cluster/8"));
        std::fs::create_dir_all(dir.replica(GroupId::CLUSTER, ReplicaId(8))).unwrap();
        assert_eq!(dir.replicas(), [(GroupId::CLUSTER, ReplicaId(8)), (group, id)]);
    }
}
