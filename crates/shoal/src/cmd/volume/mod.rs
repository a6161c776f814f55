//! `shoal volume`.

mod activity;
pub(super) mod gluster;
pub(super) mod grammar;
mod run;
mod tiering;

pub(super) use run::{change_settings, create, volumes};

use super::local::{Confirmation, Local, Output};
use clap::{Args, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  shoal volume create web replica 3 node1:/srv/web node2:/srv/web node3:/srv/web
  shoal volume create web replica 2 arbiter 1 node1:/srv/web node2:/srv/web node3
  shoal volume create archive disperse 6 redundancy 2 node1:/srv/a node2:/srv/a ... node6:/srv/a
  shoal volume start web
  shoal volume info
  shoal volume status web
  shoal volume set web auth.allow 10.0.0.0/8
  shoal volume add-brick web node4:/srv/web && shoal volume rebalance web start
  shoal volume remove-brick web node1:/srv/web start
  shoal volume remove-brick web node1:/srv/web status
  shoal volume remove-brick web node1:/srv/web commit
  shoal volume replace-brick web node2:/srv/web node4:/srv/web commit force
  shoal volume heal web info
  shoal volume status web clients               which machines have it mounted
  shoal volume profile web info                 what bricks and mounts did, and how long it took
  shoal volume top web read                     the files that are read most
  shoal volume digest web

What loses something asks first; -y answers. `shoal volume COMMAND --help` explains each.";

const STATUS_HELP: &str = "\
Examples:
  shoal volume status web
  shoal volume status all detail   bricks with their disks and contents; reads about all blocks
  shoal volume status web clients  mounts: machine, address, mount point, since when, what they hold
  shoal volume status web tasks    healing, rebalancing, bricks that are being removed";

const CLEAR_LOCKS_HELP: &str = "\
blocked: requests that wait; they fail with ENOLCK. granted: locks that are held. all: both.
The program that held a lock is not told, and goes on as if it had it: stop it first.
Only locks of mounts with `locks=cluster` are kept by the servers.
GlusterFS's inode and entry locks do not exist here.

Example: shoal volume clear-locks web /mail/box kind granted posix";

const PROFILE_HELP: &str = "\
Bricks and mounts always count: `start` begins an interval, and `stop` does nothing.
info: everything since each process began, and since the last `start` or `info`, which begins the next interval.
info peek: the interval goes on. info incremental [peek]: the interval only. info cumulative: the former only.
Latencies are in powers of two; averages are exact. A brick's calls are reads and writes of blocks. Those of a \
mount are requests of its kernel: what the kernel answers from its caches is not among them.
Mounts on all machines answer, within about a second; those that do not are listed.

Example: shoal volume profile web start; sleep 60; shoal volume profile web info incremental";

const TOP_HELP: &str = "\
open, read, write, opendir, readdir: the files or directories with the most requests of that kind, of each mount.
Any other request of fuse(4) may be named, too: lookup, getattr, create, unlink, rename, fsync, getlk, ...
Requests about names are counted for their directory. Only requests that reach the mount's process are counted: \
the kernel answers the others from its caches. open is not among them with locks=local, opendir never.
read-perf, write-perf: the files with the most bytes, and bytes per second since it has been counting.
clear: begin to count anew. list-cnt N: so many of each mount, 100 at most.
A mount keeps 1,024 files of each kind, or up to twice as many. A count that may be too high, because the file \
was forgotten meanwhile, is shown as a range.

Examples:
  shoal volume top web read list-cnt 10
  shoal volume top web lookup              the directories in which names are looked for
  shoal volume top web write-perf";

const CONVERT_HELP: &str = "\
The new copies or shards of a block are complete, and were read back, before the old ones are deleted.
`force`: also if blocks survive fewer losses then, or several copies or shards of a block are on one node.

Examples:
  shoal volume convert web disperse 6 redundancy 2
  shoal volume convert web disperse 12 redundancy 4
  shoal volume convert web status
  shoal volume convert web replica 3";

const TIER_HELP: &str = "\
The hot tier has a scheme of its own, and the volume keeps its own on all other bricks. Left out: as many copies as \
the volume has, or one more than it has parity shards. Settings: tier.demote-after, \
tier.promote-reads, tier.high-watermark, tier.low-watermark, tier.bytes-per-second, tier.pause (`volume set help`).

Examples:
  shoal volume tier web attach replica 2 node1:/fast/web node2:/fast/web
  shoal volume tier web plan
  shoal volume tier web detach start; shoal volume tier web detach status
  shoal volume tier web detach commit";

/// Makes volumes, changes them and shows their health.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Volume {
    #[command(flatten)]
    local: Local,
    #[command(subcommand)]
    command: Command,
}

/// Words after a volume's name. They are parsed here, because clap would not keep their order.
#[derive(Debug, Args)]
struct Words {
    /// In this order, as the usage shows
    #[arg(required = true, value_name = "WHAT")]
    words: Vec<String>,
}

/// What `volume status` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusOf {
    /// Bricks with their disks and contents
    Detail,
    /// Mounts
    Clients,
    /// Healing, rebalancing, bricks that are being removed
    Tasks,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a volume. `replica 2 arbiter 1`: the last node of each three keeps metadata and no blocks.
    /// `disperse N redundancy M`: each block is in N shards, any M of which may be lost. `force` allows two
    /// copies or shards of a block on one node, and a volume that stands still when any node is down
    #[command(
        override_usage = "shoal volume create NAME [replica N [arbiter 1] | disperse N [redundancy M]] [transport tcp] \
                          HOST:/BRICK... [force]"
    )]
    Create {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
    },
    /// Lets a volume be mounted
    Start {
        /// The volume's name
        name: String,
        /// Accepted for compatibility with GlusterFS
        #[arg(value_parser = ["force"], hide = true)]
        force: Option<String>,
    },
    /// Stops a volume: its mounts fail until it is started again
    Stop {
        /// The volume's name
        name: String,
        /// Accepted for compatibility with GlusterFS
        #[arg(value_parser = ["force"], hide = true)]
        force: Option<String>,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Deletes a volume that is stopped, and everything in it
    Delete {
        /// The volume's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Shows volumes as they are configured
    Info {
        /// The volume's name; all if left out
        name: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Lists the names of all volumes
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Renames a volume. Its mounts continue; /etc/fstab has to be changed
    Rename {
        /// The volume's name
        name: String,
        /// Its new name
        to: String,
    },
    /// Shows the running parts of a volume: its bricks, and the replicas of its metadata
    #[command(after_help = STATUS_HELP)]
    Status {
        /// The volume's name; all if left out, or for `all`
        name: Option<String>,
        /// What to show of it
        #[arg(conflicts_with = "digest")]
        what: Option<StatusOf>,
        /// With a digest of each metadata replica; reads all metadata
        #[arg(long)]
        digest: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Changes settings; `volume set help` lists them
    #[command(
        override_usage = "shoal volume set NAME KEY VALUE [KEY VALUE]...\n       shoal volume set help"
    )]
    Set {
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        output: Output,
    },
    /// Resets a setting, or all of them, to the default
    Reset {
        /// The volume's name
        name: String,
        /// The setting; all if left out, or for `all`
        key: Option<String>,
        /// Accepted for compatibility with GlusterFS
        #[arg(value_parser = ["force"], hide = true)]
        force: Option<String>,
    },
    /// Shows settings
    Get {
        /// The volume's name
        name: String,
        /// The setting
        #[arg(default_value = "all")]
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Adds bricks; `rebalance NAME start` then moves blocks to them. `force` deletes a retired brick of this
    /// cluster that lies there
    #[command(override_usage = "shoal volume add-brick NAME HOST:/BRICK... [force]")]
    AddBrick {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
    },
    /// Removes bricks: `start` drains them, `commit` removes them once they are empty
    #[command(
        override_usage = "shoal volume remove-brick NAME HOST:/BRICK... start|status|stop|commit|force"
    )]
    RemoveBrick {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        output: Output,
    },
    /// Replaces a brick, which may be dead, by a new one; its copies are made at once. `force` deletes a
    /// retired brick of this cluster that lies there
    #[command(override_usage = "shoal volume replace-brick NAME OLDHOST:/BRICK NEWHOST:/BRICK commit force")]
    ReplaceBrick {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
    },
    /// Puts a hot tier of fast bricks before a volume: new content is stored there, and moves when it is not
    /// used. `plan` shows what would move and why. `detach start` empties the tier, `commit` removes it then
    #[command(
        override_usage = "shoal volume tier NAME attach [replica N | disperse N [redundancy M]] HOST:/BRICK... [force]\n       \
                          shoal volume tier NAME status|plan\n       \
                          shoal volume tier NAME detach start|status|stop|commit",
        after_help = TIER_HELP
    )]
    Tier {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        confirmation: Confirmation,
        #[command(flatten)]
        output: Output,
    },
    /// Looks for blocks that lack copies and makes them; `info` shows the progress. Exit code 1: some still
    /// lack copies
    Heal {
        /// The volume's name
        name: String,
        /// info: show the progress; full: examine all blocks
        #[arg(value_parser = ["info", "full"])]
        what: Option<String>,
        /// After info: numbers only
        #[arg(value_parser = ["summary", "split-brain"])]
        more: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Changes a volume from copies to shards, back, or to another number of copies, while it is used. Blocks
    /// that it has are stored anew in the background, at most as fast as heal.bytes-per-second
    #[command(
        override_usage = "shoal volume convert NAME replica N | disperse N redundancy M [force]\n       \
                          shoal volume convert NAME status",
        after_help = CONVERT_HELP
    )]
    Convert {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        output: Output,
    },
    /// Spreads blocks evenly over all bricks; `stop` ends that
    #[command(override_usage = "shoal volume rebalance NAME start|status|stop")]
    Rebalance {
        /// The volume's name
        name: String,
        /// What to do
        #[arg(value_parser = ["start", "status", "stop"])]
        what: String,
        /// Accepted for compatibility with GlusterFS
        #[arg(value_parser = ["force"], hide = true)]
        force: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Shows what scrubbing the bricks has found; starts, pauses or resumes it
    #[command(
        after_help = "Each node reads its bricks through again and again, slowly, and replaces what is damaged from other copies."
    )]
    Scrub {
        /// The volume's name
        name: String,
        /// What to do
        #[arg(value_parser = ["status", "start", "ondemand", "pause", "resume"])]
        what: String,
        #[command(flatten)]
        output: Output,
    },
    /// `scrub` as GlusterFS spells it: bitrot NAME scrub status|ondemand|pause|resume
    #[command(override_usage = "shoal volume bitrot NAME scrub status|ondemand|pause|resume")]
    Bitrot {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        output: Output,
    },
    /// Clears fcntl and flock locks that programs hold on a file
    #[command(
        override_usage = "shoal volume clear-locks NAME PATH kind blocked|granted|all posix [0,START-LENGTH]",
        after_help = CLEAR_LOCKS_HELP
    )]
    ClearLocks {
        /// The volume's name
        name: String,
        /// The file, as a path from the volume's root
        path: String,
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        output: Output,
    },
    /// Shows what the bricks and mounts of a volume have done, and how long that took
    #[command(
        override_usage = "shoal volume profile NAME start|stop|info [peek|incremental [peek]|cumulative]",
        after_help = PROFILE_HELP
    )]
    Profile {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        output: Output,
    },
    /// Shows the files and directories of a volume with the most requests, by mount
    #[command(
        override_usage = "shoal volume top NAME open|read|write|opendir|readdir|REQUEST|read-perf|write-perf|clear \
                          [list-cnt N]",
        after_help = TOP_HELP
    )]
    Top {
        /// The volume's name
        name: String,
        #[command(flatten)]
        words: Words,
        #[command(flatten)]
        output: Output,
    },
    /// Compares the metadata replicas of a volume. Exit code 1: they differ, or not all could be compared
    Digest {
        /// The volume's name, or `cluster` for the cluster map
        name: String,
        #[command(flatten)]
        output: Output,
    },
}
