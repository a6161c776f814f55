//! Programs that a benchmark runs.

use crate::interrupt::{self, Group};
use anyhow::{Context, bail};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a program whose output matters only if it fails.
pub fn quietly(command: &mut Command) -> anyhow::Result<()> {
    interrupt::check()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().with_context(|| format!("{command:?}"))?;
    let group = Group::of(&child);
    let out = child.wait_with_output().with_context(|| format!("{command:?}"))?;
    drop(group);
    interrupt::check()?;
    if !out.status.success() {
        bail!("{command:?} ended with {}:\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(())
}

/// Runs a bash script in a directory.
pub fn bash(dir: &Path, script: &str) -> anyhow::Result<()> {
    bash_with(dir, script, &[])
}

/// Runs a bash script in a directory, with arguments: `$1` is the first.
pub fn bash_with(dir: &Path, script: &str, arguments: &[&Path]) -> anyhow::Result<()> {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script, "bash"]).args(arguments).current_dir(dir);
    quietly(&mut command)
}

/// The programs among `names` that are not installed.
pub fn missing(names: &[&'static str]) -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    names.iter().copied().filter(|name| !found(name)).collect()
}

/// The fields of a process in proc_pid_stat(5), from its state on. `None`: there is no such process.
pub fn stat_of(process: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain blanks.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_program_is_an_error_with_its_message() {
        let error = bash(Path::new("/"), "echo broken >&2; false").unwrap_err().to_string();
        assert!(error.contains("broken"), "{error}");
        bash_with(Path::new("/"), "test \"$1\" = '/a b'", &[Path::new("/a b")]).unwrap();
        assert_eq!(missing(&["bash", "no-such-program-at-all"]), ["no-such-program-at-all"]);
    }
}
