//! What to do instead of those commands of GlusterFS that do not exist here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands by name, and what to do instead.
const COMMANDS: &[(&str, &str)] = &[
    ("attach-tier", "`shoal volume tier NAME attach HOST:/BRICK...` attaches a hot tier"),
    ("barrier", "there is no barrier: `shoal sync PATH` makes durable what a mount has written"),
    (
        "detach-tier",
        "`shoal volume tier NAME detach start`, and `detach commit` when `detach status` says so",
    ),
    ("geo-replication", "there is no geo-replication yet: copy from a mount with rsync"),
    ("get-state", "`shoal cluster status --json` and `shoal volume info --json` tell the state"),
    ("global", "settings belong to a volume: `shoal volume set NAME KEY VALUE`"),
    ("inode-quota", "there are no quotas yet"),
    (
        "log",
        "a server logs to the journal of shoal-server, or to DATA/shoal.log; `shoal events` is its digest",
    ),
    ("nfs-ganesha", "there is no NFS server inside: let nfs-ganesha export a mount, as docs/ADMIN.md shows"),
    ("quota", "there are no quotas yet"),
    (
        "reset-brick",
        "`shoal volume replace-brick NAME HOST:/BRICK HOST:/BRICK`, twice the same place, fills it anew",
    ),
    ("snapshot", "there are no snapshots yet: back up from a mount"),
    ("statedump", DUMP),
    (
        "sync",
        "nodes learn every change of the cluster map by themselves: `shoal peer status` shows their connections",
    ),
    ("version", "`shoal --version` prints that of the program, `shoal cluster status` that of each server"),
];

const DUMP: &str = "`shoal dump` prints what a server holds, `shoal dump MOUNTPOINT` what a mount holds";
const HEALS: &str = "healing always runs; the setting heal.bytes-per-second bounds it";
const HEAL_INFO: &str =
    "`shoal volume heal NAME info` shows how many blocks lack copies, and how far healing is";

/// Words after a command of GlusterFS that exists here, by the word, and what to do instead.
const WORDS: &[(&str, &str)] = &[
    ("bitd", "bricks are read through by their servers: `shoal volume scrub NAME status`"),
    ("callpool", DUMP),
    ("disable", HEALS),
    ("enable", HEALS),
    ("fd", DUMP),
    (
        "fix-layout",
        "there are no layouts: new files use added bricks at once, and `shoal volume rebalance NAME start` moves \
         blocks",
    ),
    ("granular-entry-heal", HEALS),
    ("heal-failed", HEAL_INFO),
    ("healed", HEAL_INFO),
    ("inode", DUMP),
    (
        "mem",
        "`shoal metrics` shows the memory of servers and mounts of this machine, `shoal dump` what it is for",
    ),
    ("shd", "blocks are healed by the servers: `shoal volume heal NAME info`"),
    ("split-brain", "a majority decides every change, so there is no split brain to resolve"),
    ("statistics", HEAL_INFO),
];

/// The answer to a command line that names such a command or word.
pub fn answer(error: &clap::Error) -> Option<String> {
    let (kind, table, what) = match error.kind() {
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, COMMANDS, "a command"),
        ErrorKind::InvalidValue => (ContextKind::InvalidValue, WORDS, "a word"),
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(kind) else { return None };
    let (name, instead) = table.iter().find(|(name, _)| name == word)?;
    Some(format!("{name} is {what} of GlusterFS: {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::Cli;
    use clap::Parser;

    #[test]
    fn command_of_glusterfs_is_answered_with_what_to_do_instead() {
        let said = |line: &str| answer(&Cli::try_parse_from(line.split_whitespace()).unwrap_err());
        let quota = said("shoal volume quota web limit-usage /d 1GB").expect("an answer");
        assert!(quota.starts_with("quota is a command of GlusterFS: there are no quotas"), "{quota}");
        assert!(said("shoal snapshot create s1 web").is_some());
        let layout = said("shoal volume rebalance web fix-layout start").expect("an answer");
        assert!(layout.starts_with("fix-layout is a word of GlusterFS: there are no layouts"), "{layout}");
        for (line, told) in [
            ("shoal volume heal web statistics heal-count", "heal NAME info"),
            ("shoal volume heal web enable", "always runs"),
            ("shoal volume heal web info heal-failed", "heal NAME info"),
            ("shoal volume heal web split-brain bigger-file /f", "no split brain"),
            ("shoal volume status web mem", "shoal metrics"),
            ("shoal volume status web fd", "shoal dump"),
            ("shoal volume status web shd", "heal NAME info"),
            ("shoal volume sync node2 all", "peer status"),
            ("shoal volume attach-tier web replica 2 a:/b c:/d", "tier NAME attach"),
            ("shoal nfs-ganesha enable", "no NFS server"),
            ("shoal global help", "volume set"),
            ("shoal version", "shoal --version"),
        ] {
            let text = said(line).unwrap_or_default();
            assert!(text.contains("of GlusterFS: ") && text.contains(told), "{line}: {text:?}");
        }
        assert_eq!(said("shoal volume rebalance web begin"), None);
        assert_eq!(said("shoal volume strat web"), None, "a misspelt command of our own");
        assert_eq!(said("shoal volume start"), None);
    }

    #[test]
    fn command_that_exists_is_not_listed() {
        for (name, _) in COMMANDS {
            let error = Cli::try_parse_from(["shoal", "volume", name]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSubcommand, "{name}");
        }
    }
}
