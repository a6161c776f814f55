//! The subcommands, one module each.

mod bench;
mod client;
mod cluster;
mod cluster_mount;
mod csi;
mod dump;
mod events;
mod export;
mod fileinfo;
mod fsck;
mod gluster_commands;
pub mod helper;
mod import;
mod inode_of;
mod local;
mod manual;
mod metrics;
mod mount;
mod peer;
mod remount;
mod request;
mod scheme;
mod scrub;
mod serve;
mod server;
mod sizes;
mod stats;
mod status;
mod sync;
mod tier;
mod top;
mod tune;
mod umount;
mod up;
mod volume;

pub use serve::Serve;

use crate::daemon;
use crate::guard::GuardMount;
use crate::show;
use clap::{Parser, Subcommand};
use local::Mode;
use std::process::ExitCode;

const EXAMPLES: &str = "\
On one machine:
  shoal up                               serve run/data and mount it on run/mnt, until Ctrl-C
  shoal up --data /srv/shoal --mount /mnt/shoal --background
  shoal umount /mnt/shoal                write everything back and stop
  shoal fsck --data /srv/shoal           check everything, while it is not mounted

On several:
  shoal cluster init                     on the first one: begins a cluster, prints a token
  shoal peer join TOKEN                  on the others
  shoal volume create web replica 3 node1:/srv/web node2:/srv/web node3:/srv/web
  shoal volume start web
  shoal mount node1,node2,node3:/web /mnt/web
  shoal cluster status                   what runs, and what needs attention
  shoal events                           what has happened
  shoal tier pin /mnt/web/db hot         keep this directory on the hot tier of its volume
  shoal scheme /mnt/web/old disperse 6   store this directory in shards
  shoal top web                          what a volume does, live

Anywhere:
  shoal status                           what is mounted, by which process, how full
  shoal stats /mnt/web --watch 1         what it is doing
  shoal dump /mnt/web                    what it holds, and what it waits for
  shoal metrics --listen 127.0.0.1:9747  figures of this machine, for Prometheus
  shoal bench /mnt/web /srv/plain        measure directories side by side
  shoal tune web --suite untar           which caches pay for themselves under a workload

SHOAL_LOG=debug makes it talk more; in the background it talks to DATA/shoal.log.";

/// Shoal, a clustered POSIX file system.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// `script`: ask for no confirmation, as with GlusterFS
    #[arg(long, global = true, hide = true, value_enum, default_value = "interactive")]
    mode: Mode,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Up),
    Mount(mount::Mount),
    Umount(umount::Umount),
    Sync(sync::Sync),
    Status(status::Status),
    Stats(stats::Stats),
    Top(top::Top),
    Dump(dump::Dump),
    Fileinfo(fileinfo::Fileinfo),
    Events(events::Events),
    Metrics(metrics::Metrics),
    Bench(bench::Bench),
    Tune(tune::Tune),
    Fsck(fsck::Fsck),
    Scrub(scrub::Scrub),
    Export(export::Export),
    Import(import::Import),
    Server(server::ServerCommand),
    Cluster(cluster::Cluster),
    Peer(peer::Peer),
    Pool(peer::Pool),
    Volume(volume::Volume),
    Tier(tier::Tier),
    Scheme(scheme::Scheme),
    Client(client::Client),
    Csi(csi::Csi),
    #[command(hide = true)]
    Serve(Serve),
    #[command(hide = true)]
    ServeMount(cluster_mount::ServeMount),
    #[command(hide = true)]
    GuardMount(GuardMount),
    #[command(hide = true)]
    Manual(manual::Manual),
}

impl Cli {
    /// Carries the command out; returns the exit code.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mode = self.mode;
        match self.command {
            Command::Up(up) => up.run(),
            Command::Mount(mount) => mount.run(),
            Command::Serve(serve) => daemon::run_in_background(&serve),
            Command::ServeMount(serve) => daemon::run_in_background(&serve.located()),
            Command::GuardMount(guard) => guard.run(),
            Command::Server(server) => server.run(),
            Command::Csi(csi) => csi.run(),
            command => {
                end_with_the_pipe();
                match command {
                    Command::Umount(umount) => umount.run(),
                    Command::Sync(sync) => sync.run(),
                    Command::Status(status) => status.run(),
                    Command::Stats(stats) => stats.run(),
                    Command::Top(top) => top.run(),
                    Command::Dump(dump) => dump.run(),
                    Command::Fileinfo(fileinfo) => fileinfo.run(),
                    Command::Events(events) => events.run(),
                    Command::Metrics(metrics) => metrics.run(),
                    Command::Bench(bench) => bench.run(),
                    Command::Tune(tune) => tune.run(),
                    Command::Fsck(fsck) => fsck.run(),
                    Command::Scrub(scrub) => scrub.run(),
                    Command::Export(export) => export.run(),
                    Command::Import(import) => import.run(mode),
                    Command::Cluster(cluster) => cluster.run(),
                    Command::Peer(peer) => peer.run(mode),
                    Command::Pool(pool) => pool.run(),
                    Command::Volume(volume) => volume.run(mode),
                    Command::Tier(tier) => tier.run(),
                    Command::Scheme(scheme) => scheme.run(),
                    Command::Client(client) => client.run(mode),
                    Command::Manual(manual) => manual.run(),
                    Command::Up(_)
                    | Command::Mount(_)
                    | Command::Serve(_)
                    | Command::ServeMount(_)
                    | Command::GuardMount(_)
                    | Command::Csi(_)
                    | Command::Server(_) => unreachable!("handled above"),
                }
            }
        }
    }
}

/// Prints why the command line is not understood, and exits.
pub fn end_with(error: &clap::Error) -> ! {
    match gluster_commands::answer(error) {
        // The usage would only hide it.
        Some(answer) => eprintln!("shoal: {}", show::runnable(&answer)),
        // A closed standard error changes nothing: the exit code tells.
        None => drop(error.print()),
    }
    std::process::exit(error.exit_code())
}

/// `shoal stats | head` ends quietly, as other programs do. A serving process does not use this: it must
/// survive a closed terminal.
fn end_with_the_pipe() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: the default action runs no code of this program.
    if let Err(errno) = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) } {
        tracing::debug!(%errno, "SIGPIPE");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parses(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_consistent_and_every_command_says_what_it_does() {
        Cli::command().debug_assert();
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    /// Longer lines of a table would be broken. Prose is broken where the terminal ends.
    #[test]
    fn examples_and_tables_of_every_command_are_100_columns_wide_at_most() {
        fn check(command: &clap::Command, long: &mut Vec<String>) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines = text.lines().filter(|line| line.starts_with(' ') && line.chars().count() > 100);
            long.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
            command.get_subcommands().for_each(|command| check(command, long));
        }
        let mut long = Vec::new();
        check(&Cli::command(), &mut long);
        assert!(long.is_empty(), "{}", long.join("\n"));
    }

    #[test]
    fn what_a_glusterfs_administrator_types_is_understood() {
        for line in [
            "shoal peer probe node2",
            "shoal peer status --json",
            "shoal peer detach node2 force",
            "shoal pool list",
            "shoal volume create web replica 3 a:/b b:/b c:/b force",
            "shoal volume start web force",
            "shoal volume stop web --yes",
            "shoal volume info",
            "shoal volume status web --digest --json",
            "shoal volume set web auth.allow 10.0.0.0/8,192.168.0.1",
            "shoal volume set web heal.bytes-per-second 0",
            "shoal volume reset web",
            "shoal volume get web all",
            "shoal volume add-brick web d:/b",
            "shoal volume remove-brick web a:/b start",
            "shoal volume remove-brick web a:/b b:/b commit --yes",
            "shoal volume replace-brick web a:/b d:/b commit force",
            "shoal volume heal web",
            "shoal volume heal web info",
            "shoal volume heal web full",
            "shoal volume rebalance web start",
            "shoal volume digest web --data /srv/shoal",
            "shoal cluster --data /srv/shoal status",
            "shoal client issue laptop --out /tmp/laptop",
            "shoal --mode=script volume delete web",
            "shoal volume delete web --mode=script",
            "shoal volume status",
            "shoal volume status all clients",
            "shoal volume status web detail --json",
            "shoal volume status web tasks",
            "shoal volume heal web info summary",
            "shoal volume heal web info split-brain",
            "shoal volume set help",
            "shoal volume set web heal.bytes-per-second 50MB auth.allow *",
            "shoal volume reset web auth.allow force",
            "shoal volume rename web www",
            "shoal volume scrub web status",
            "shoal volume bitrot web scrub pause",
            "shoal volume clear-locks web /a/file kind granted posix 0,0-10",
            "shoal volume rebalance web stop",
            "shoal volume profile web info incremental peek",
            "shoal volume top web read-perf list-cnt 10",
            "shoal csi --servers node1,node2 --volume web -o noatime",
            "shoal tune web --suite untar,git --layer locks,cache --try readers=8 --set --json",
            "shoal tune node1:/web --suite small-read --files 100 -o cache=64 --rounds 3 --mounts 2",
            "shoal top",
            "shoal top web --interval 5",
            "shoal top web --batch 3 --json",
        ] {
            if let Err(error) = parses(line) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn contradictory_arguments_are_refused_before_any_server_is_contacted() {
        for line in [
            "shoal volume create web",
            "shoal volume heal web everything",
            "shoal volume rebalance web",
            "shoal peer detach node2 please",
            "shoal cluster token --hours 0",
            "shoal client",
            "shoal volume status web everything",
            "shoal volume heal web info everything",
            "shoal volume scrub web",
            "shoal volume set",
            "shoal --mode=robot volume list",
            "shoal bench",
            "shoal csi --servers node1",
            "shoal csi --servers node1 --volume web --endpoint tcp://0.0.0.0:80",
            "shoal bench /tmp --suite none",
            "shoal bench /tmp --rounds 0",
            "shoal bench /tmp --compare a.json",
            "shoal tune web",
            "shoal tune --suite untar",
            "shoal tune web --suite none",
            "shoal tune web --suite untar --layer luck",
            "shoal tune web --suite untar --try luck=1",
            "shoal top web --interval 0.1",
            "shoal top web --once --batch 3",
            "shoal top web --batch 0",
        ] {
            assert!(parses(line).is_err(), "{line}");
        }
    }
}
