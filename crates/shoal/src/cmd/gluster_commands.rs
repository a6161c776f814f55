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

/// The answer to a command line that names such a command.
pub fn answer(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (name, instead) = COMMANDS.iter().find(|(name, _)| name == word)?;
    let is_unknown = error.kind() == ErrorKind::InvalidSubcommand;
    is_unknown.then(|| format!("{name} is a command of GlusterFS: {instead}"))
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
