//! `shoal umount`.

use crate::control::{self, Request, Synced};
use crate::flush::flush;
use crate::limits::{ABANDON_PATIENCE, ABANDONED_END_PATIENCE, FLUSH_PATIENCE, HOLDER_GRACE};
use crate::mounts::{self, Health, Mount};
use crate::{data_dir, show};
use anyhow::{Context, bail};
use clap::Args;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Pause between two checks whether a process has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Unmounts a volume: writes everything back and waits until the process that served it has ended.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  shoal umount /mnt/shoal\n  shoal umount --force /mnt/shoal    (servers do not answer, programs hang)"
)]
pub struct Umount {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Remove the mount now, even if it is in use or does not answer; programs that use it continue until
    /// they close their files
    #[arg(short, long)]
    lazy: bool,
    /// Remove the mount now and abort every call that waits for it, whatever the servers do; what was not
    /// written back is lost
    #[arg(short, long)]
    force: bool,
}

impl Umount {
    /// An unmount requested by umount(8).
    pub fn of(mountpoint: PathBuf, lazy: bool, force: bool) -> Umount {
        Umount { mountpoint, lazy, force }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        let shown = self.mountpoint.display().to_string();
        let found = mounts::at(&self.mountpoint).with_context(|| shown.clone())?;
        let Some(mount) = found else {
            bail!("nothing is mounted on {shown}; `shoal status` lists the volumes mounted here");
        };
        if !mount.is_shoal() {
            bail!("what is mounted on {shown} is not Shoal ({}): use umount(8) for it", mount.kind);
        }
        let server = data_dir::user_of(&mount.home());
        if self.force {
            take_away(&mount)?;
            let end = Instant::now() + ABANDONED_END_PATIENCE;
            while server.is_some() && data_dir::user_of(&mount.home()) == server && Instant::now() < end {
                std::thread::sleep(LOOK_AGAIN);
            }
            println!(
                "Took {shown} away: every call that waited on it has failed, and what was not written back may be lost."
            );
            return Ok(ExitCode::SUCCESS);
        }
        match mount.health() {
            Health::Dead => {
                detach(&mount)?;
                println!("Removed the dead mount {shown}: the process that served it was gone.");
                return Ok(ExitCode::SUCCESS);
            }
            Health::Hung if !self.lazy => bail!(
                "the process that serves {shown} ({}{}) does not answer; its log is in {}. `shoal umount --lazy {shown}` \
                 takes the mount away all the same, and `--force` ends the calls that wait on it, too",
                server.map_or("unknown".into(), |pid| format!("process {pid}")),
                if mount.source.is_absolute() {
                    ""
                } else {
                    ", which may wait for a majority of the cluster's nodes"
                },
                mount.home().display()
            ),
            _ => {}
        }
        if self.lazy {
            let users = mount.users_listed();
            detach(&mount)?;
            match server.filter(|_| !users.is_empty() && !mount.is_mounted()) {
                Some(pid) => println!(
                    "Detached {shown}. Process {pid} serves it until these programs have ended:\n{users}\n\
                     `kill {pid}` ends it before: their calls fail then, and what was written is kept."
                ),
                None => println!("Detached {shown}."),
            }
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(why) = write_back(&mount)? {
            eprintln!("shoal: {shown}: {why}");
        }
        let unmount = || umount2(&mount.point, MntFlags::UMOUNT_NOFOLLOW);
        match mounts::retry_while_busy(|errno| *errno == Errno::EBUSY, unmount) {
            Ok(()) => {}
            Err(Errno::EBUSY) => bail!("{}", mount.why_busy()),
            Err(Errno::EPERM) => bail!("unmounting {shown} takes root"),
            Err(errno) => return Err(errno).with_context(|| format!("unmounting {shown}")),
        }
        // If it is mounted elsewhere as well, by a bind mount, the process continues.
        if let Some(pid) = server.filter(|_| !mount.is_mounted()) {
            wait_for_end(&mount, &pid);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes back while the mount exists, so that a failure can still be reported. It also keeps umount(2)
/// itself short.
fn write_back(mount: &Mount) -> anyhow::Result<Option<String>> {
    let bar = show::spinner("writing back");
    let outcome = flush(mount, Some(FLUSH_PATIENCE));
    bar.finish_and_clear();
    let point = mount.point.display();
    outcome.with_context(|| {
        format!(
            "not everything written to {point} is on disk, so it stays mounted; the log in {} may say why. \
             `shoal umount --lazy {point}` gives it up",
            mount.home().display()
        )
    })
}

/// Aborts every call on a mount, and removes it. This never waits for the process behind it.
fn take_away(mount: &Mount) -> anyhow::Result<()> {
    let (tell, told) = mpsc::channel();
    let home = mount.home();
    // The thread ends with this process at the latest.
    std::thread::spawn(move || tell.send(control::request::<Synced>(&home, &Request::Abandon).is_ok()));
    // A process that does not answer learns of the end from the kernel.
    let _ = told.recv_timeout(ABANDON_PATIENCE);
    match umount2(&mount.point, MntFlags::MNT_FORCE | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => Ok(()),
        // The calls were aborted, but a program still has its working directory or an open file on the mount.
        Err(Errno::EBUSY) => detach(mount),
        Err(Errno::EPERM) => bail!("unmounting {} takes root", mount.point.display()),
        Err(errno) => Err(errno).with_context(|| format!("unmounting {}", mount.point.display())),
    }
}

fn detach(mount: &Mount) -> anyhow::Result<()> {
    umount2(&mount.point, MntFlags::MNT_DETACH)
        .with_context(|| format!("unmounting {}", mount.point.display()))
}

/// The process holds its lock until it ends. Another mount namespace may keep it alive without limit, so this
/// wait is bounded.
fn wait_for_end(mount: &Mount, pid: &str) {
    let home = mount.home();
    let bar = show::spinner("waiting for the server to end");
    let begun = Instant::now();
    let mut look = HOLDER_GRACE;
    while data_dir::user_of(&home).is_some_and(|user| user == pid) {
        std::thread::sleep(LOOK_AGAIN);
        if begun.elapsed() > look {
            if let Some(holder) = mounts::holder(&mount.device) {
                bar.suspend(|| {
                    eprintln!(
                        "shoal: unmounted here, with everything written back; process {pid} goes on, because {holder} has the \
                         volume mounted in a mount namespace of its own"
                    )
                });
                break;
            }
            look += HOLDER_GRACE;
        }
    }
    bar.finish_and_clear();
}
