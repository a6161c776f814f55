//! `shoal manual`: manual pages and shell completions, for packages (`make install`).

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write manual pages and shell completions below a directory, at their places in /usr/share
#[derive(Debug, Args)]
pub struct Manual {
    /// The directory that stands for /usr/share
    #[arg(value_name = "DIR")]
    share: PathBuf,
}

/// Where the completions of a shell are looked for, and under which name.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "shoal"),
    (Shell::Zsh, "zsh/site-functions", "_shoal"),
    (Shell::Fish, "fish/vendor_completions.d", "shoal.fish"),
];

impl Manual {
    /// Writes all of them.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let pages = self.share.join("man/man1");
        make_dir(&pages)?;
        clap_mangen::generate_to(super::Cli::command(), &pages)
            .with_context(|| format!("writing manual pages to {}", pages.display()))?;
        for (shell, dir, name) in COMPLETIONS {
            let dir = self.share.join(dir);
            make_dir(&dir)?;
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut super::Cli::command(), "shoal", &mut text);
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn make_dir(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_visible_command_has_a_page_and_each_shell_its_completions() {
        let dir = tempfile::tempdir().expect("a directory");
        let manual = Manual { share: dir.path().to_owned() };
        assert!(manual.run().expect("written") == ExitCode::SUCCESS);
        let read = |path: &str| fs::read_to_string(dir.path().join(path)).unwrap_or_default();
        for command in super::super::Cli::command().get_subcommands().filter(|command| !command.is_hide_set())
        {
            let page = read(&format!("man/man1/shoal-{}.1", command.get_name()));
            assert!(page.contains(".SH SYNOPSIS"), "{}", command.get_name());
        }
        assert!(read("man/man1/shoal.1").contains("clustered POSIX file system"));
        for (_, at, name) in COMPLETIONS {
            assert!(read(&format!("{at}/{name}")).contains("volume"), "{at}/{name}");
        }
    }
}
