//! What to do instead of those commands of GlusterFS that do not exist here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands by name, and what to do instead.
const COMMANDS: &[(&str, &str)] = &[
    ("barrier", "there is no barrier: `shoal sync PATH` makes durable what a mount has written"),
    ("geo-replication", "there is no geo-replication yet: copy from a mount with rsync"),
    ("get-state", "`shoal cluster status --json` and `shoal volume info --json` tell the state"),
    ("inode-quota", "there are no quotas yet"),
    (
        "log",
        "a server logs to the journal of shoal-server, or to DATA/shoal.log; `shoal events` is its digest",
    ),
    ("quota", "there are no quotas yet"),
    (
        "reset-brick",
        "`shoal volume replace-brick NAME HOST:/BRICK HOST:/BRICK`, twice the same place, fills it anew",
    ),
    ("snapshot", "there are no snapshots yet: back up from a mount"),
    ("statedump", "`shoal dump` prints what a server holds, `shoal dump MOUNTPOINT` what a mount holds"),
];

/// Words after a command of GlusterFS that exists here, by the word, and what to do instead.
const WORDS: &[(&str, &str)] = &[(
    "fix-layout",
    "there are no layouts: new files use added bricks at once, and `shoal volume rebalance NAME start` moves blocks",
)];

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
