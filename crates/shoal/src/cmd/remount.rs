//! `mount -o remount,ro` and `remount,rw`: changes the flags of a mount that is there.
//!
//! The kernel does it: mount(2) refuses to make a mount read-only while a file is open for writing, and
//! writes dirty pages back before it does. What these pages were written to, the client's journal, is
//! committed then: when the command returns, nothing of the mount is left to be written.

use crate::control::{self, Request, Status};
use crate::flush::flush;
use crate::limits::FLUSH_PATIENCE;
use crate::mounts::{self, Health, Mount};
use crate::options::{Flag, Options};
use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::mount::MsFlags;
use std::path::Path;
use std::process::ExitCode;

/// Every flag, as the kernel shows it and as mount(2) takes it.
const FLAGS: [(Flag, &str, MsFlags); 4] = [
    (Flag::ReadOnly, "ro", MsFlags::MS_RDONLY),
    (Flag::NoDev, "nodev", MsFlags::MS_NODEV),
    (Flag::NoSuid, "nosuid", MsFlags::MS_NOSUID),
    (Flag::NoExec, "noexec", MsFlags::MS_NOEXEC),
];

/// Changes the mount at a mount point.
pub fn remount(point: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let shown = point.display();
    let Some(mount) = mounts::at(point).with_context(|| format!("mount point {shown}"))? else {
        bail!(
            "nothing is mounted on {shown}, so there is nothing to remount: leave `remount` out to mount it"
        );
    };
    if !mount.is_shoal() {
        bail!("what is mounted on {shown} is not Shoal ({}), so it cannot be remounted as such", mount.kind);
    }
    match mount.health() {
        Health::Alive => {}
        Health::Dead => bail!("the process that served {shown} is gone: mount it anew, without `remount`"),
        Health::Hung => {
            bail!("the process that serves {shown} does not answer; its log is in {}", mount.home().display())
        }
    }
    let before = current(&mount);
    let flags = changed(before, options);
    check(&mount, options, before.contains(MsFlags::MS_RDONLY) && !flags.contains(MsFlags::MS_RDONLY))?;
    let becomes_read_only = flags.contains(MsFlags::MS_RDONLY) && !before.contains(MsFlags::MS_RDONLY);
    let write_back = || {
        flush(&mount, Some(FLUSH_PATIENCE)).with_context(|| {
            format!(
                "not everything written to {shown} is on disk; the log in {} may say why",
                mount.home().display()
            )
        })
    };
    if becomes_read_only {
        // While it can still be refused.
        write_back().context("it stays writable")?;
    }
    let change = || {
        nix::mount::mount(None::<&str>, &mount.point, None::<&str>, flags | MsFlags::MS_REMOUNT, None::<&str>)
    };
    match mounts::retry_while_busy(|errno| *errno == Errno::EBUSY, change) {
        Ok(()) => {}
        Err(Errno::EBUSY) => bail!("{}", written_to(&mount)),
        Err(Errno::EPERM) => bail!("remounting {shown} takes root"),
        Err(errno) => return Err(errno).with_context(|| format!("remounting {shown}")),
    }
    if becomes_read_only {
        write_back()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Options that are not the kernel's are those that it was mounted with. A volume that is read-only stays so.
fn check(mount: &Mount, options: &Options, becomes_writable: bool) -> anyhow::Result<()> {
    if options.settings().is_empty() && !becomes_writable {
        return Ok(());
    }
    let status: Status =
        control::request(&mount.home(), &Request::Status).context("asking the process behind the mount")?;
    if becomes_writable && status.read_only_volume {
        bail!(
            "volume {0} is read-only: `shoal volume set {0} read-only off` on a node of the cluster changes that",
            status.volume
        );
    }
    let mounted = Options::parse_sloppily(&status.options);
    match options.settings().iter().find(|word| !mounted.settings().contains(word)) {
        None => Ok(()),
        Some(other) => bail!(
            "{other} cannot be changed while {} is mounted: unmount it and mount it anew. `remount` changes ro, rw, nodev, \
             nosuid and noexec",
            mount.point.display()
        ),
    }
}

/// The flags that a mount has.
fn current(mount: &Mount) -> MsFlags {
    let shown = |word| mount.flags.split(',').any(|flag| flag == word);
    FLAGS.iter().filter(|(_, word, _)| shown(*word)).map(|(_, _, flag)| *flag).collect()
}

/// What comes of those flags.
fn changed(before: MsFlags, options: &Options) -> MsFlags {
    let mut flags = before;
    for (flag, on) in &options.flags {
        let bits = FLAGS.iter().filter(|(known, _, _)| known == flag).map(|(_, _, bits)| *bits);
        flags.set(bits.collect(), *on);
    }
    flags
}

/// Which programs keep a mount from becoming read-only, and what to do about it.
fn written_to(mount: &Mount) -> String {
    let point = mount.point.display();
    let writers = mount.writers();
    let list = match writers.is_empty() {
        true => "  (no process of this user's; root sees all)".to_owned(),
        false => writers.iter().map(|writer| format!("  {writer}")).collect::<Vec<_>>().join("\n"),
    };
    format!(
        "files on {point} are open for writing:\n{list}\nIt stays writable. End these programs and try again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(flags: &str) -> Mount {
        let (kind, device) = (shoal_fuse::FSTYPE.to_owned(), "0:1".to_owned());
        Mount { point: "/mnt/web".into(), kind, source: "node1:/web".into(), device, flags: flags.to_owned() }
    }

    #[test]
    fn remount_changes_named_flags_and_keeps_the_rest() {
        let before = current(&mount("rw,nodev,noexec,relatime"));
        assert_eq!(before, MsFlags::MS_NODEV | MsFlags::MS_NOEXEC);
        let after = |words: &str| changed(before, &words.parse().unwrap());
        assert_eq!(after("remount,ro"), before | MsFlags::MS_RDONLY);
        assert_eq!(after("remount,ro,rw,exec,nosuid"), MsFlags::MS_NODEV | MsFlags::MS_NOSUID);
        assert_eq!(current(&mount("ro,relatime")), MsFlags::MS_RDONLY);
    }
}
