//! Limits and defaults of the program, each with its reason.

use std::time::Duration;

/// Where `shoal up` keeps its data and mounts them unless told otherwise: below the current directory, so that trying
/// Shoal touches nothing else.
pub const DATA_DEFAULT: &str = "run/data";
/// See [`DATA_DEFAULT`].
pub const MOUNT_DEFAULT: &str = "run/mnt";
/// Name of a volume that nobody gave a name.
pub const VOLUME_DEFAULT: &str = "shoal";
/// Longest name of a volume, in bytes: it will stand in paths, mount tables and host names' neighbourhood.
pub const VOLUME_NAME_BYTES_MAX: usize = 63;

/// Largest log file in the background, in bytes. Then it becomes `shoal.log.1` and a new one begins: there are never
/// more than two.
pub const LOG_BYTES_MAX: u64 = 16 << 20;
/// Lines of the log that are shown when the background process could not start.
pub const LOG_LINES_SHOWN: usize = 12;

/// Largest description of a data directory that is read, in bytes: it has six short fields.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 10;
/// Largest `node.json` of a server that is read, in bytes. It names every replica and brick that was ever made there: up to 65,535 bricks of
/// 45 bytes each, and a million replicas, which are more than a thousand a day for years.
pub const NODE_BYTES_MAX: u64 = 64 << 20;

/// Longest request on the control socket, in bytes: a volume made of a few hundred bricks.
pub const CONTROL_REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest line of an answer on the control socket, in bytes: statistics of every operation.
pub const CONTROL_REPLY_BYTES_MAX: u64 = 4 << 20;
/// Conversations on the control socket at a time; more are refused.
pub const CONTROL_CONNECTIONS_MAX: usize = 16;
/// A program that connects to the control socket and then says or takes nothing is hung up on after this.
pub const CONTROL_PATIENCE: Duration = Duration::from_secs(10);

/// A server that has to ask others, some of which may be down or about to elect a leader, answers within this.
pub const ADMIN_PATIENCE: Duration = Duration::from_secs(60);

/// A mount that does not answer statfs(2) within this is called hung.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// For how long unmounting is tried again while the mount is in use: programs that are just starting or ending hold files
/// for moments without wanting to.
pub const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between these attempts.
pub const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Unmounting gives up, and leaves the mount, when nothing at all could be written back for this long: several times what a cluster
/// takes to go on after the death of a node.
pub const FLUSH_PATIENCE: Duration = Duration::from_secs(30);
/// A process whose mount was taken away and that has not ended after this may be kept by a mount elsewhere: then somebody looks.
pub const HOLDER_GRACE: Duration = Duration::from_secs(2);
/// Names of directories shown where one is missing.
pub const NAMES_SHOWN_MAX: usize = 8;
/// Programs shown that keep a mount busy.
pub const USERS_SHOWN_MAX: usize = 8;

/// Most memory that a mount's cache can be given, in bytes: beyond it a unit was mistaken.
pub const MEMORY_BYTES_MAX: usize = 1 << 40;

/// Findings of a check that are printed; further ones are counted.
pub const FINDINGS_SHOWN_MAX: u64 = 1000;
/// Threads that verify blocks: enough requests under way for a fast disk, and one core each for checksums.
pub const VERIFY_THREADS: usize = 4;
/// Bytes of names, attributes and small contents read at a time while walking through a volume: one page is kept for
/// each directory on the way down.
pub const WALK_PAGE_BYTES: usize = 256 << 10;
/// Extents of a file read at a time.
pub const EXTENTS_PAGE: usize = 1024;

/// Where a server keeps its data unless told otherwise.
pub const SERVER_DATA_DEFAULT: &str = "/var/lib/shoal";
/// Where a client looks for its credentials.
pub const CREDENTIALS_DEFAULT: &str = "/etc/shoal/client";
/// For how long a join token is valid unless it is said, in hours: a day of setting up machines.
pub const TOKEN_HOURS_DEFAULT: u32 = 24;
/// Longest validity of a token, in hours: a month. A right that nobody remembers should not outlive that.
pub const TOKEN_HOURS_MAX: u32 = 31 * 24;
/// How often digests are asked for while replicas are at different indexes.
pub const DIGEST_ATTEMPTS: u32 = 10;
/// The port of a server.
pub const PORT_DEFAULT: u16 = 7470;

/// A node or client asks for a newer cluster map this often: administration takes effect everywhere within about two rounds.
pub const MAP_POLL: Duration = Duration::from_millis(700);
/// For how long a command waits until a change of the map has reached the node that acts on it.
pub const MAP_NEWS_PATIENCE: Duration = Duration::from_secs(2);
/// How long a node is given to answer a short question. It may be busy, and connecting may take a while.
pub const ASK_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node is given to say what runs on it, before it is shown as disconnected.
pub const REPORT_PATIENCE: Duration = Duration::from_secs(2);
/// Digests are reports that read all metadata.
pub const DIGEST_PATIENCE: Duration = Duration::from_secs(50);
/// How long a page of a replica's state, or the checkpoint it comes from, may take.
pub const STATE_PATIENCE: Duration = Duration::from_secs(30);
/// A change of the cluster map is tried for this long while its group has no leader: an election, or the restart of a node.
pub const EXECUTE_PATIENCE: Duration = Duration::from_secs(12);
/// A question to a volume's leader is repeated for this long while there is none: somewhat longer than an election takes.
pub const LEADER_PATIENCE: Duration = Duration::from_secs(6);
/// How often a server that has started tries to have that noted in the cluster map.
pub const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// Pause between these attempts.
pub const EXECUTE_PAUSE: Duration = Duration::from_millis(150);
/// How often a node looks whether it runs what it should; at once when the map changes.
pub const MANAGE_EVERY: Duration = Duration::from_millis(300);
/// A brick or replica that could not be opened is tried again after this: a disk may have been mounted meanwhile.
pub const REOPEN_AFTER: Duration = Duration::from_secs(5);
/// A replica that should not be here any more is kept for this long at least, so that its group hears from it while it is removed.
pub const REPLICA_GRACE: Duration = Duration::from_secs(30);
/// After a directory of a retired brick was deleted, the next one waits for this many times as long as that
/// took: at most a fifth of a disk's time goes into it ...
pub const RETIRE_REST_FACTOR: u32 = 4;
/// ... but no longer than this, since a server that stops waits for it.
pub const RETIRE_REST_MAX: Duration = Duration::from_secs(1);
/// Least free room of a new brick, in bytes: what is never granted to clients (the log, unwritten metadata,
/// the reserve) takes about 200 MiB of it, and a client holds up to 256 MiB ahead.
pub const BRICK_FREE_BYTES_MIN: u64 = 512 << 20;
/// Least free room of a new server's data directory, in bytes: logs, stores and the room for their
/// compactions, of the cluster map and of a few volumes.
pub const DATA_FREE_BYTES_MIN: u64 = 512 << 20;
/// How often the leader of the cluster map's group looks for bricks that have become empty.
pub const TIDY_EVERY: Duration = Duration::from_secs(2);
/// Sessions whose addresses a server remembers, for `volume status NAME clients`: far more than mount volumes of one cluster.
pub const HEARD_SESSIONS_MAX: usize = 1 << 16;
/// Refused requests that are logged in a minute; the rest is only counted.
pub const REFUSALS_LOGGED_MAX: u64 = 30;
/// A mount asks its servers for the cluster map for this long, in rounds of which the last is finished, before it says that none answers: one
/// that is up answers within milliseconds, and one that is not takes a connection's time-out of 1.5 s each round.
pub const MOUNT_MAP_PATIENCE: Duration = Duration::from_secs(4);
/// A mount that is taken away by force is told so first, if its process listens within this.
pub const ABANDON_PATIENCE: Duration = Duration::from_millis(500);
/// The process of a mount that was taken away by force is waited for this long: the mount point can be used again then.
pub const ABANDONED_END_PATIENCE: Duration = Duration::from_secs(5);
/// How long joining may take: a change of the map, and a key.
pub const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// How long the first replica of a cluster may take to lead itself.
pub const INIT_PATIENCE: Duration = Duration::from_secs(30);
/// Counting the blocks on a brick reads about all blocks of its volume.
pub const COUNT_PATIENCE: Duration = Duration::from_secs(20);
/// A mount looks this long for a volume of which the first server asked knows nothing, or knows that it is not started.
pub const MOUNT_NEWS_PATIENCE: Duration = Duration::from_secs(2);
