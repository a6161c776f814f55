//! Limits and defaults of the program, each with its reason.

use std::time::Duration;

/// Where `shoal up` keeps its data and mounts them by default: below the current directory, so that trying
/// Shoal touches nothing else.
pub const DATA_DEFAULT: &str = "run/data";
/// The mount point that belongs to [`DATA_DEFAULT`].
pub const MOUNT_DEFAULT: &str = "run/mnt";
/// Name of a volume that was created without one.
pub const VOLUME_DEFAULT: &str = "shoal";
/// Longest name of a volume, in bytes: it occurs in paths, in mount tables and beside host names.
pub const VOLUME_NAME_BYTES_MAX: usize = 63;

/// Largest log file in the background, in bytes. A larger one is renamed to `shoal.log.1`, so there are never
/// more than two.
pub const LOG_BYTES_MAX: u64 = 16 << 20;
/// Lines of the log that are shown when the background process could not start.
pub const LOG_LINES_SHOWN: usize = 12;

/// Largest manifest of a data directory that is read, in bytes: it has six short fields.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 10;
/// Largest `node.json` of a server that is read, in bytes. It names every replica and brick that was ever
/// made there. 65,535 bricks take 45 bytes each; a million replicas are more than a thousand a day for years.
pub const NODE_BYTES_MAX: u64 = 64 << 20;

/// Longest request on the control socket, in bytes: a volume made of a few hundred bricks.
pub const CONTROL_REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest line of an answer on the control socket, in bytes: statistics of every operation.
pub const CONTROL_REPLY_BYTES_MAX: u64 = 4 << 20;
/// Conversations on the control socket at a time; more are refused.
pub const CONTROL_CONNECTIONS_MAX: usize = 16;
/// The servers have so long to tell the room of a volume before a mount's status says that they do not
/// answer.
pub const ROOM_WAIT_MAX: Duration = Duration::from_secs(2);
/// Threads that may wait for that: each ends when the servers answer.
pub const ROOM_WAITS_MAX: usize = 4;
/// A client of the control socket that neither sends nor reads for this long is disconnected.
pub const CONTROL_PATIENCE: Duration = Duration::from_secs(10);

/// Bound on an answer for which a server contacts other nodes, some of which may be down or about to elect a
/// leader.
pub const ADMIN_PATIENCE: Duration = Duration::from_secs(60);
/// A request or a mount that has waited for so long looks for the nodes that do not answer. Healthy ones
/// answer sooner. With [`NOTE_PATIENCE`] it is longer than [`REPORT_PATIENCE`]: a report that leaves out a
/// node which is down needs no note.
pub const NOTE_AFTER: Duration = Duration::from_millis(1300);
/// A command that waits for a mount to write back says so when nothing was written back for so long.
pub const NOTE_WRITE_BACK_AFTER: Duration = Duration::from_secs(2);
/// A node that gives no sign of life for so long is named as one that does not answer.
pub const NOTE_PATIENCE: Duration = Duration::from_secs(1);

/// For how long blocks of a brick on this machine are read over the network after its files were not found.
pub const NEAR_BRICK_AGAIN: Duration = Duration::from_secs(30);
/// A mount that reads blocks from the files of a brick tells its server how often, at most this often.
pub const NEAR_READS_EVERY: Duration = Duration::from_secs(1);

/// The run directory of a mount's process that died, or could not write everything back, is kept for so long
/// after the last line of its log: an administrator may want to read that.
pub const RUN_DIR_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// A mount that does not answer statfs(2) within this time is reported as hung.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Unmounting is retried for this long while the mount is in use: programs that start or end hold files for a
/// moment.
pub const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between these attempts.
pub const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Unmounting fails, and leaves the mount, when nothing could be written back for this long: several times
/// what a cluster's fail-over takes after the death of a node.
pub const FLUSH_PATIENCE: Duration = Duration::from_secs(30);
/// A process that has not ended this long after its mount was removed may be kept alive by another mount
/// namespace. Then the programs that hold the mount are searched for and shown.
pub const HOLDER_GRACE: Duration = Duration::from_secs(2);
/// Names of directories shown when one is not found.
pub const NAMES_SHOWN_MAX: usize = 8;
/// Programs shown that keep a mount busy.
pub const USERS_SHOWN_MAX: usize = 8;

/// Rounds of `shoal tune`: with five, a difference in all of them by chance is one in a hundred.
pub const TUNE_ROUNDS_DEFAULT: usize = 5;
/// Fewer tell nothing about noise.
pub const TUNE_ROUNDS_MIN: usize = 2;
/// Temporary mounts at once.
pub const TUNE_MOUNTS_MAX: usize = 16;
/// A smaller difference is none, whatever the noise: nothing would be gained by it.
pub const TUNE_DIFFERENCE_MIN: f64 = 0.02;
/// Longest `journal-age`, in milliseconds: what is done in that time may be lost with the machine.
pub const JOURNAL_AGE_MS_MAX: usize = 10_000;
/// Least budget of memory of a process, in bytes: below it transfers of blocks would take up most of it.
pub const MEMORY_LIMIT_MIN: usize = 64 << 20;
/// Without a limit, a mount's budget is the machine's memory divided by this.
pub const MEMORY_PER_MOUNT: usize = 8;
/// Smallest budget of a mount without a limit, in bytes.
pub const MEMORY_LIMIT_MIN_DEFAULT: usize = 256 << 20;
/// Largest budget of a mount without a limit, in bytes: what its caches and windows need with their defaults.
pub const MEMORY_LIMIT_MAX_DEFAULT: usize = 1 << 30;
/// What a server's budget has beside its block cache, in bytes: memtables, and blocks on their way.
pub const MEMORY_OF_SERVER: usize = 512 << 20;
/// The largest request of the kernel is the budget divided by this: so many streams may wait with one each.
pub const MEMORY_OF_REQUESTS: usize = 512;
/// The kernel has one read-ahead or writeback request in flight for so many bytes of the budget: over
/// io_uring each queue keeps the memory of as many as it had at once.
pub const MEMORY_OF_BACKGROUND: usize = 8 << 20;
/// With a smaller budget than this, in bytes, buffers are returned to the system as soon as they are freed.
pub const MEMORY_SMALL: usize = 256 << 20;
/// Arenas of the allocator with such a budget: each keeps what was freed in it.
pub const ARENAS_OF_SMALL: i32 = 2;
/// How often it is checked whether memory can be given back.
pub const MEMORY_LOOK_EVERY: Duration = Duration::from_secs(1);
/// A process that takes less memory than this between two such checks is idle, in bytes.
pub const MEMORY_IDLE_BYTES: u64 = 4 << 20;
/// If giving memory back has brought less than this, in bytes, the next attempt comes later.
pub const TRIM_GAIN_BYTES_MIN: usize = 8 << 20;
/// Longest pause between such attempts.
pub const TRIM_PAUSE_MAX: Duration = Duration::from_secs(32);
/// Largest cache of a mount, in bytes: a larger number is taken for a wrong unit.
pub const MEMORY_BYTES_MAX: usize = 1 << 40;

/// Findings of a check that are printed; further ones are counted.
pub const FINDINGS_SHOWN_MAX: u64 = 1000;
/// Threads that verify blocks: enough requests in flight for a fast disk, and one core each for checksums.
pub const VERIFY_THREADS: usize = 4;
/// Bytes of names, attributes and small contents read at a time by a tree walk: each directory on the way
/// down keeps one page.
pub const WALK_PAGE_BYTES: usize = 256 << 10;
/// Files larger than this share extents with the brick that they came from, in bytes: smaller ones are
/// in the metadata by default.
pub const SHARED_BYTES_MIN: u64 = 64 << 10;
/// Interval at which files that an import has brought meanwhile are looked for: as much as it may write in
/// that time is stored twice.
pub const REFLINK_PASS_EVERY: Duration = Duration::from_secs(5);
/// Extents of a file read at a time.
pub const EXTENTS_PAGE: usize = 1024;

/// A process that has not told its figures by then counts as down in a scrape. Prometheus waits 10 s for all
/// of a machine unless told otherwise.
pub const SCRAPE_PATIENCE: Duration = Duration::from_secs(3);
/// Where `shoal metrics --listen` is usually asked to listen.
pub const METRICS_LISTEN_EXAMPLE: &str = "127.0.0.1:9747";

/// Where a server keeps its data unless told otherwise.
pub const SERVER_DATA_DEFAULT: &str = "/var/lib/shoal";
/// Where a client looks for its credentials.
pub const CREDENTIALS_DEFAULT: &str = "/etc/shoal/client";
/// Default validity of a join token, in hours: a day of setting up machines.
pub const TOKEN_HOURS_DEFAULT: u32 = 24;
/// Longest validity of a token, in hours: a month. A forgotten token should not stay valid for longer.
pub const TOKEN_HOURS_MAX: u32 = 31 * 24;
/// How often digests are taken again while replicas are at different indexes.
pub const DIGEST_ATTEMPTS: u32 = 10;
/// The port of a server.
pub const PORT_DEFAULT: u16 = 7470;

/// Interval at which a node or client asks for a newer cluster map: changes take effect everywhere within
/// about two rounds.
pub const MAP_POLL: Duration = Duration::from_millis(700);
/// How long a command waits until a change of the map has reached the node that acts on it.
pub const MAP_NEWS_PATIENCE: Duration = Duration::from_secs(2);
/// A node that was asked to copy a block is waited for so long; then the block is copied without it.
pub const COPY_REPLY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time-out of a short request to a node, which may be busy or have to be connected first.
pub const NODE_REPLY_WAIT_MAX: Duration = Duration::from_secs(3);
/// Time-out of a node's report, after which it is shown as disconnected.
pub const REPORT_PATIENCE: Duration = Duration::from_secs(2);
/// Time-out of reports with digests, for which all metadata is read.
pub const DIGEST_PATIENCE: Duration = Duration::from_secs(50);
/// Time-out of a page of a replica's state, or of the checkpoint that it comes from.
pub const STATE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a change of the cluster map is retried while its group has no leader: an election, or the restart
/// of a node.
pub const EXECUTE_PATIENCE: Duration = Duration::from_secs(12);
/// How long a request to a volume's leader is retried while there is none: somewhat longer than an election
/// takes.
pub const LEADER_PATIENCE: Duration = Duration::from_secs(6);
/// Interval at which a server that has started retries to record that in the cluster map.
pub const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// Pause between these attempts.
pub const EXECUTE_PAUSE: Duration = Duration::from_millis(150);
/// Interval at which a node compares what it runs with the map; it also does so whenever the map changes.
pub const MANAGE_EVERY: Duration = Duration::from_millis(300);
/// A disk is waited for so long when it is asked for its free room. Shorter than [`REPORT_PATIENCE`]: the
/// other bricks of the node are reported.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(1);
/// A disk that has not answered for so long is shown as one that hangs.
pub const DISK_HANGS_AFTER: Duration = Duration::from_secs(10);
/// Interval at which opening a brick or replica is retried: a disk may have been mounted meanwhile.
pub const REOPEN_AFTER: Duration = Duration::from_secs(5);
/// Least time for which a removed replica is kept, so that its group reaches it while it is removed.
pub const REPLICA_GRACE: Duration = Duration::from_secs(30);
/// After a directory of a retired brick was deleted, the next one waits for this many times as long as that
/// took. So deletion takes at most a fifth of a disk's time.
pub const RETIRE_REST_FACTOR: u32 = 4;
/// Longest such wait, since a server that stops waits for it.
pub const RETIRE_REST_MAX: Duration = Duration::from_secs(1);
/// Least free space for a new brick, in bytes. About 200 MiB are never granted to clients (the log, unwritten
/// metadata, the reserve), and a client reserves up to 256 MiB ahead.
pub const BRICK_FREE_BYTES_MIN: u64 = 512 << 20;
/// Least free space for a new server's data directory, in bytes: the logs, stores and compactions of the
/// cluster map and a few volumes.
pub const DATA_FREE_BYTES_MIN: u64 = 512 << 20;
/// A follower that has seen a request for a rebalance asks the leader only then whether it has completed it:
/// by then the leader has seen the request, too.
pub const REBALANCE_NEWS_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the leader of the cluster map's group looks for drained bricks.
pub const TIDY_EVERY: Duration = Duration::from_secs(2);
/// Sessions whose addresses a server remembers, for `volume status NAME clients`: far more than there are
/// mounts in one cluster.
pub const HEARD_SESSIONS_MAX: usize = 1 << 16;
/// Refused requests that are logged per minute; further ones are only counted.
pub const REFUSALS_LOGGED_MAX: u64 = 30;
/// How long a mount asks its servers for the cluster map before it reports that none answers; the last round
/// is completed. A running server answers within milliseconds, and one that is down takes a connection's
/// time-out of 1.5 s per round.
pub const MOUNT_MAP_PATIENCE: Duration = Duration::from_secs(4);
/// Before a mount is removed by force, its process is told, if it answers within this time.
pub const ABANDON_PATIENCE: Duration = Duration::from_millis(500);
/// How long to wait for the process of a mount that was removed by force, so that the mount point can be used
/// again.
pub const ABANDONED_END_PATIENCE: Duration = Duration::from_secs(5);
/// Time-out of joining: it takes a change of the map, and a key.
pub const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// Time-out for the first replica of a cluster to elect itself.
pub const INIT_PATIENCE: Duration = Duration::from_secs(30);
/// Time-out of counting the blocks on a brick, for which the records of all blocks of its volume are read.
pub const COUNT_PATIENCE: Duration = Duration::from_secs(20);
/// The file that SIGUSR1 has a process write its state to, beside its log or in its data directory.
pub const DUMP_FILE: &str = "state-dump.txt";
/// Requests in flight that a state dump lists: some pages.
pub const DUMP_LINES_MAX: usize = 256;
/// A read or write of a block that takes longer is logged: no healthy disk takes so long for 4 MiB.
pub const SLOW_BLOCK: Duration = Duration::from_secs(2);
/// Slow blocks of a brick that are logged in each [`SLOW_BLOCKS_LOGGED_PERIOD`].
pub const SLOW_BLOCKS_LOGGED_MAX: u64 = 10;
/// See [`SLOW_BLOCKS_LOGGED_MAX`].
pub const SLOW_BLOCKS_LOGGED_PERIOD: Duration = Duration::from_secs(60);
/// Longest value of `slow-operation`, in seconds: a day.
pub const SLOW_OPERATION_S_MAX: usize = 86_400;
/// Events that a node keeps, of the present run of its server: some hundred bytes each.
pub const EVENTS_KEPT_MAX: usize = 1000;
/// Letters of an event.
pub const EVENT_TEXT_MAX: usize = 400;
/// How often a node looks for what has happened.
pub const EVENTS_LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often `shoal events --follow` asks.
pub const EVENTS_FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// A node that has not answered so often in a row is down.
pub const NODE_DOWN_AFTER: u32 = 2;
/// A brick is filling up when so many percent of its disk are in use.
pub const BRICK_FULL_PERCENT: u64 = 90;
/// It has room again below this.
pub const BRICK_ROOM_PERCENT: u64 = 87;
/// `cluster status` names so many full bricks of a volume, and counts the others.
pub const FULL_BRICKS_NAMED_MAX: usize = 3;
/// A node's clock is off when it differs by more, in milliseconds. Times of files are corrected anyway; logs
/// and certificates are not.
pub const CLOCK_OFF_MS: u64 = 1000;
/// How often a mount asks for questions of administrators about what it does.
pub const ROUND_POLL: Duration = Duration::from_secs(1);
/// How long such a question waits for the mounts' answers: some of their [`ROUND_POLL`]s.
pub const ROUND_PATIENCE: Duration = Duration::from_secs(4);
/// How often it is checked whether they have answered.
pub const ROUND_LOOK_EVERY: Duration = Duration::from_millis(100);
/// A question older than this is not told to mounts any more.
pub const ROUND_LIFE: Duration = Duration::from_secs(10);
/// Questions about a volume that a node keeps at a time: `shoal top` asks two at once, and several
/// administrators may look.
pub const ROUNDS_KEPT_MAX: usize = 8;
/// Longest answer of a mount, in bytes: some times what all kinds of requests, or [`TOP_FILES_MAX`], take.
pub const ROUND_REPLIES_BYTES_MAX: usize = 64 << 10;
/// Answers of mounts that a node keeps until the next question, in bytes: thousands of mounts.
pub const ROUND_REPLIES_KEPT_BYTES_MAX: usize = 64 << 20;
/// Answers of mounts in one message between nodes, in bytes.
pub const ROUND_REPLIES_PAGE_BYTES: usize = 1 << 20;
/// Files that `volume top` lists of each mount, at most and unless told otherwise, as in GlusterFS.
pub const TOP_FILES_MAX: u32 = 100;
/// Files of all mounts together whose paths are looked up for `volume top`; others are shown by number.
pub const TOP_PATHS_MAX: usize = 1024;
/// How often `shoal top` asks unless told otherwise, in seconds: mounts look for questions once a second.
pub const TOP_INTERVAL_S_DEFAULT: f64 = 2.0;
/// Shortest interval of `shoal top`, in seconds: see [`ROUND_POLL`].
pub const TOP_INTERVAL_S_MIN: f64 = 1.0;
/// Longest interval of `shoal top`, in seconds: an hour.
pub const TOP_INTERVAL_S_MAX: f64 = 3600.0;
/// Intervals that `shoal top` keeps for its charts: more than a terminal has columns.
pub const TOP_HISTORY_MAX: usize = 512;
/// Answers that wait to be shown by `shoal top`.
pub const TOP_NEWS_MAX: usize = 16;
/// Nodes or mounts that `shoal top` names in a note; further ones are counted.
pub const TOP_NAMES_SHOWN_MAX: usize = 3;
/// `shoal top` says that nothing has come after so many intervals.
pub const TOP_SILENCE_INTERVALS: f64 = 4.0;
/// Rows of each table that `shoal top` prints as text.
pub const TOP_TEXT_ROWS_MAX: usize = 100;
/// Longest wait of `shoal top --once` for its figures, beside its intervals: an election and a node that does
/// not answer.
pub const TOP_ONCE_PATIENCE: Duration = Duration::from_secs(30);
/// How often `shoal top` asks for the state of the nodes.
pub const TOP_CLUSTER_EVERY: Duration = Duration::from_secs(4);
/// How long `shoal top` waits for a key before it looks for news: as long as a key may take to show.
pub const TOP_KEY_WAIT: Duration = Duration::from_millis(100);
/// How often `shoal top --batch` can be asked to repeat.
pub const TOP_BATCH_MAX: u64 = 1_000_000;
/// How long a mount looks for a volume that the first server does not know yet, or does not know as started.
pub const MOUNT_NEWS_PATIENCE: Duration = Duration::from_secs(2);

/// Where a server shows its web page unless told otherwise: only to this machine.
pub const WEB_LISTEN_DEFAULT: &str = "127.0.0.1:7471";
/// The port of the web page.
pub const WEB_PORT_DEFAULT: u16 = 7471;
/// How often an open page refreshes itself, in seconds.
pub const WEB_REFRESH_S: u64 = 3;
/// How often what changes quickly is asked for an open page. Mounts look for questions once a second.
pub const WEB_REQUEST_PERIOD: Duration = Duration::from_secs(3);
/// How often what changes slowly, or what each volume's leader is asked for, is asked for an open page.
pub const WEB_SLOW_REQUEST_PERIOD: Duration = Duration::from_secs(5);
/// For how long a page counts as open after it was last asked for: some of its refreshes.
pub const WEB_WANTED_FOR: Duration = Duration::from_secs(15);
/// An answer of this age is shown at once. For a newer one the page would have to wait.
pub const WEB_FRESH_FOR: Duration = Duration::from_secs(12);
/// How long a page waits for its first answers; a node that is down takes [`REPORT_PATIENCE`].
pub const WEB_FIRST_PATIENCE: Duration = Duration::from_secs(3);
/// How long a server that stops waits for questions of its pages that are open.
pub const WEB_STOP_PATIENCE: Duration = Duration::from_secs(4);
/// Questions of pages that are open at a time. One that waits for an election must not hold up all others.
pub const WEB_QUERY_THREADS: usize = 4;
/// Volumes whose activity is watched for pages at a time.
pub const WEB_VOLUMES_WATCHED_MAX: usize = 4;
/// The time that charts show.
pub const WEB_WINDOW: Duration = Duration::from_secs(600);
/// Points that are kept for the charts of a volume: what comes in [`WEB_WINDOW`], and some.
pub const WEB_POINTS_MAX: usize = 256;
/// Events that are kept for pages.
pub const WEB_EVENTS_KEPT_MAX: usize = 1000;
/// Rows of a table before the list is cut into pages: some screens, and some tens of KiB.
pub const WEB_ROWS_MAX: usize = 100;
/// Volumes on the overview.
pub const WEB_VOLUMES_SHOWN_MAX: usize = 20;
/// Bricks on the overview.
pub const WEB_BRICKS_SHOWN_MAX: usize = 12;
/// Events on the overview.
pub const WEB_EVENTS_SHOWN_MAX: usize = 8;
/// Warnings on the overview.
pub const WEB_WARNINGS_SHOWN_MAX: usize = 12;
/// Connections of browsers at a time; further ones wait.
pub const WEB_CONNECTIONS_MAX: usize = 64;
/// Pages that are made at a time; further requests are told to come back.
pub const WEB_PAGES_MAX: usize = 16;
/// A browser's connection on which nothing moves for so long is closed.
pub const WEB_IDLE_MAX: Duration = Duration::from_secs(30);
/// Longest form that a browser may send, in bytes: a token.
pub const WEB_FORM_BYTES_MAX: usize = 4 << 10;
