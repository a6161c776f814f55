//! Slow disks: file systems on loop devices whose requests the kernel limits.

use anyhow::{Context, bail};
use shoal_suites::programs::quietly;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the kernel takes limits of devices (version 1 of control groups), for all processes that are in the
/// root group.
const LIMITS: &str = "/sys/fs/cgroup/blkio";

/// What a disk does at most.
#[derive(Clone, Copy)]
pub struct Speed {
    /// Requests each second, reads and writes counted apart.
    pub requests: u64,
    /// Bytes each second, reads and writes counted apart.
    pub bytes: u64,
}

/// A file system on a loop device. Dropping it unmounts and removes it.
pub struct SlowDisk {
    point: PathBuf,
    device: PathBuf,
    image: PathBuf,
    /// Its number, as the limits want it.
    number: String,
}

impl SlowDisk {
    /// Makes one of so many bytes, mounted at `point`.
    pub fn new(point: &Path, bytes: u64) -> anyhow::Result<SlowDisk> {
        let image = point.with_extension("image");
        File::create(&image)?.set_len(bytes).with_context(|| image.display().to_string())?;
        quietly(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        let out = Command::new("losetup").args(["--find", "--show"]).arg(&image).output()?;
        if !out.status.success() {
            bail!("losetup: {}", String::from_utf8_lossy(&out.stderr));
        }
        let device = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
        let meta = fs::metadata(&device).with_context(|| device.display().to_string())?;
        if !meta.file_type().is_block_device() {
            bail!("{} is no device", device.display());
        }
        let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
        let disk = SlowDisk { point: point.to_owned(), device, image, number: format!("{major}:{minor}") };
        fs::create_dir_all(point)?;
        quietly(Command::new("mount").arg(&disk.device).arg(point))?;
        Ok(disk)
    }

    /// Limits its speed; `None`: not at all. Answers whether the kernel can do that.
    pub fn limit(&self, speed: Option<Speed>) -> anyhow::Result<bool> {
        // 0 removes a limit.
        let Speed { requests, bytes } = speed.unwrap_or(Speed { requests: 0, bytes: 0 });
        for (file, limit) in
            [("read_iops", requests), ("write_iops", requests), ("read_bps", bytes), ("write_bps", bytes)]
        {
            let path = Path::new(LIMITS).join(format!("blkio.throttle.{file}_device"));
            if !path.exists() {
                return Ok(false);
            }
            fs::write(&path, format!("{} {limit}", self.number))
                .with_context(|| path.display().to_string())?;
        }
        Ok(true)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A benchmark that fails says why; what is left then is for the administrator.
        let _ = self.limit(None);
        let _ = quietly(Command::new("umount").arg(&self.point));
        let _ = quietly(Command::new("losetup").arg("--detach").arg(&self.device));
        let _ = fs::remove_file(&self.image);
    }
}

/// A file system in memory. Dropping it unmounts it.
pub struct MemoryDisk(PathBuf);

impl MemoryDisk {
    /// Makes one of so many bytes, mounted at `point`.
    pub fn new(point: &Path, bytes: u64) -> anyhow::Result<MemoryDisk> {
        fs::create_dir_all(point)?;
        let size = format!("size={bytes}");
        quietly(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(point))?;
        Ok(MemoryDisk(point.to_owned()))
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        let _ = quietly(Command::new("umount").arg(&self.0));
    }
}
