//! A mounted volume that cleans up after itself.

use crate::world::World;
use shoal_client::Client;
use shoal_fuse::{MountError, MountOptions, Mounted, Stats};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A user and group without rights.
pub const UNPRIVILEGED: u32 = 65_534;

pub struct Volume {
    pub world: World,
    pub client: Arc<Client>,
    pub mounted: Mounted,
    root: PathBuf,
    _dir: TempDir,
}

impl Volume {
    pub fn mount() -> Volume {
        Volume::mount_with(MountOptions::default())
    }

    pub fn mount_with(options: MountOptions) -> Volume {
        Volume::mount_world(World::with_inline(64 << 10), options)
    }

    pub fn mount_world(world: World, options: MountOptions) -> Volume {
        let client = world.mount();
        Volume::mount_client(world, client, options)
    }

    pub fn mount_client(world: World, client: Arc<Client>, options: MountOptions) -> Volume {
        let dir = tempfile::Builder::new().prefix("shoal-fuse-").tempdir().expect("a directory");
        // Other users have access too.
        sys_open_up(dir.path());
        let root = dir.path().join("mnt");
        fs::create_dir(&root).expect("a mount point");
        let mounted = shoal_fuse::mount(client.clone(), &root, options).expect("mounts");
        Volume { world, client, mounted, root, _dir: dir }
    }

    /// Mounts the volume again: nothing is cached in the client or the kernel.
    pub fn remount(self) -> Volume {
        Volume::mount_world(self.end(), MountOptions::default())
    }

    /// Unmounts, and returns the in-memory cluster.
    pub fn end(self) -> World {
        self.unmount();
        self.client.close().expect("everything is committed");
        self.world
    }

    /// Unmounts. Processes that other tests have just started may hold copies of this process's files for a
    /// moment.
    pub fn unmount(&self) {
        for _ in 0..500 {
            match self.mounted.unmount() {
                Err(MountError::Busy { .. }) => std::thread::sleep(Duration::from_millis(10)),
                outcome => return outcome.expect("no program uses it"),
            }
        }
        panic!("{} stays in use", self.root.display());
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn stats(&self) -> Stats {
        self.mounted.stats()
    }

    /// Requests that the kernel sends while the action runs, by kind.
    pub fn requests(&self, action: impl FnOnce()) -> Vec<(&'static str, u64)> {
        let before = self.stats();
        action();
        let after = self.stats();
        let grown = |op: &shoal_fuse::OpStats| (op.name, op.count - before.count(op.name));
        after.ops.iter().map(grown).filter(|(_, count)| *count > 0).collect()
    }

    /// Runs a shell command in the root directory.
    pub fn shell(&self, script: &str) -> Output {
        self.command(script).output().expect("a shell")
    }

    /// Runs a shell command in the root directory as a user without rights.
    pub fn shell_unprivileged(&self, script: &str) -> Output {
        use std::os::unix::process::CommandExt;
        self.command(script).uid(UNPRIVILEGED).gid(UNPRIVILEGED).output().expect("a shell")
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["60", "sh", "-c", script]).current_dir(&self.root);
        command
    }
}

fn sys_open_up(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("our own directory");
}

/// What a command printed, less the last newline; it must have succeeded.
#[track_caller]
pub fn printed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_string()
}
