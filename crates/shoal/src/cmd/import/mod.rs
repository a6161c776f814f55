//! `shoal import`: what becomes of a volume of GlusterFS.

mod brick;
mod info;
mod plan;
mod reflink;
mod volfile;

pub use brick::Shown;

use super::local::{Local, Mode};
use super::volume::{self, gluster};
use crate::show;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use plan::Plan;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Moves volumes of GlusterFS in: shows what becomes of them, creates them, copies files from bricks.
#[derive(Debug, Args)]
pub struct Import {
    #[command(flatten)]
    local: Local,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Volfile(Volfile),
    Brick(brick::Brick),
    Reflink(reflink::Reflink),
}

/// Reads how a volume was configured, and prints what becomes of each part and the commands that create it.
///
/// FILE is a volume file (of a client, a server, or a single process), the output of `gluster volume info
/// NAME`, or a directory of `/var/lib/glusterd/vols`. Exit code 0: everything has a counterpart or is not
/// needed, or the volume was created, 1: an option is left out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gluster volume info web >web.txt && shoal import volfile web.txt
  shoal import volfile /var/lib/glusterd/vols/web
  shoal import volfile web.vol --create             creates the volume as it was shown

The bricks are new directories beside the old ones: files are copied through a mount of each volume.")]
struct Volfile {
    /// Volume file, output of `gluster volume info`, or glusterd's directory of a volume
    file: PathBuf,
    /// Name of the volume, if it shall be another one
    #[arg(long)]
    name: Option<String>,
    /// Node of bricks that a volume file names without a host
    #[arg(long, default_value = "localhost")]
    host: String,
    /// What is appended to the path of each brick: the old ones keep their files
    #[arg(long, default_value = ".shoal")]
    suffix: String,
    /// Create the volume
    #[arg(long)]
    create: bool,
}

impl Import {
    pub fn run(self, mode: Mode) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Volfile(volfile) => volfile.run(&self.local),
            Command::Brick(brick) => brick.run(mode),
            Command::Reflink(reflink) => reflink.run(),
        }
    }
}

/// What is to be done, and what was said about it.
#[derive(PartialEq, Eq, Debug)]
struct Commands {
    name: String,
    /// The words of `volume create` after the name.
    create: Vec<String>,
    /// Options of ours.
    set: Vec<(String, String)>,
    /// An option was left out that changes what the volume does.
    left_out: bool,
    report: String,
}

fn commands(plan: &Plan, name: &str, suffix: &str) -> Commands {
    let mut create: Vec<String> = plan.redundancy.to_string().split(' ').map(str::to_owned).collect();
    create.extend(plan.bricks.iter().map(|brick| format!("{}{suffix}", brick.trim_end_matches('/'))));
    let (mut set, mut left_out, mut notes) = (Vec::new(), false, plan.notes.clone());
    for (key, value) in &plan.options {
        let what = match gluster::answer(key, value) {
            Some(gluster::Answer::Set(ours, value)) => {
                set.push((ours.to_owned(), value.clone()));
                format!("{ours} {value}")
            }
            Some(gluster::Answer::NotNeeded(why)) => format!("not needed: {why}"),
            Some(gluster::Answer::Refused(why)) => {
                left_out = true;
                format!("left out: {why}")
            }
            None => match shoal_cluster::options::check(key, value) {
                Ok(()) => {
                    set.push((key.clone(), value.clone()));
                    format!("{key} {value}")
                }
                Err(why) => {
                    left_out = true;
                    format!("left out: {why}")
                }
            },
        };
        notes.push((format!("{key} {value}"), what));
    }
    let width = notes.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
    let mut report = String::new();
    for (what, becomes) in &notes {
        // Writing to a string cannot fail.
        let _ = writeln!(report, "{what:width$}  {becomes}");
    }
    Commands { name: name.to_owned(), create, set, left_out, report }
}

/// Reads a file in whichever of the forms it is.
fn read(file: &Path, host: &str) -> anyhow::Result<Plan> {
    let named = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let (path, name) = match file.is_dir() {
        true => (file.join("info"), named(file)),
        false => (file.to_owned(), file.parent().and_then(named)),
    };
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let is_line = |begins: &str| text.lines().any(|line| line.trim_start().starts_with(begins));
    let plan = if is_line("Volume Name:") {
        info::of_text(&text)
    } else if is_line("brick-0=") {
        info::of_glusterd(&name.unwrap_or_default(), &text)
    } else {
        volfile::parse(&text).and_then(|all| plan::of_translators(&all, host))
    };
    plan.and_then(Plan::checked).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
}

impl Volfile {
    fn run(self, local: &Local) -> anyhow::Result<ExitCode> {
        let plan = read(&self.file, &self.host)?;
        let Some(name) = self.name.as_ref().or(plan.name.as_ref()) else {
            bail!("{} does not say the volume's name: say --name NAME", self.file.display());
        };
        let commands = commands(&plan, name, &self.suffix);
        print!("{}", commands.report);
        let program = show::program();
        println!("\n{program} volume create {name} {}", commands.create.join(" "));
        for (key, value) in &commands.set {
            println!("{program} volume set {name} {key} {value}");
        }
        if self.create {
            println!();
            volume::create(local, name.clone(), &commands.create)?;
            volume::change_settings(local, name, commands.set)?;
            if commands.left_out {
                eprintln!("note: options were left out of volume {name}: the lines above say which, and why");
            }
        }
        Ok(ExitCode::from(exit_code(commands.left_out, self.create)))
    }
}

/// A volume that was created is a success, so that `&&` goes on: the notes say what was left out of it.
fn exit_code(left_out: bool, created: bool) -> u8 {
    u8::from(left_out && !created)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_that_leaves_an_option_out_exits_with_1_unless_the_volume_was_created() {
        assert_eq!((exit_code(false, false), exit_code(true, false)), (0, 1));
        assert_eq!((exit_code(false, true), exit_code(true, true)), (0, 0));
    }

    #[test]
    fn commands_name_new_bricks_and_the_options_that_are_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("web.txt");
        let text = "Volume Name: web\nType: Distributed-Disperse\nNumber of Bricks: 2 x (2 + 1) = 6\nBrick1: n1:/a\n\
                    Brick2: n2:/a/\nOptions Reconfigured:\nfeatures.read-only: on\nnfs.disable: off\n\
                    performance.readdir-ahead: on\nauth.allow: 10.0.0.0/8\n";
        fs::write(&file, text).expect("written");
        let plan = read(&file, "h").expect("it is understood");
        let made = commands(&plan, "web", ".shoal");
        assert_eq!(made.create.join(" "), "disperse 3 redundancy 1 n1:/a.shoal n2:/a.shoal");
        let set: Vec<String> = made.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(set, ["read-only=on", "auth.allow=10.0.0.0/8"]);
        assert!(made.left_out && made.report.contains("nfs.disable off"), "{}", made.report);
        assert!(made.report.contains("not needed"), "{}", made.report);
        let error = read(Path::new("/no/such/file"), "h").expect_err("it is not there");
        assert!(error.to_string().contains("/no/such/file"));
        for (kind, layout) in [
            ("Replicate", "1 x (0 + 3) = 3"),
            ("Disperse", "1 x (0 + 3) = 3"),
            ("Replicate", "1 x (18446744073709551615 + 2) = 1"),
        ] {
            let text = format!("Volume Name: web\nType: {kind}\nNumber of Bricks: {layout}\nBrick1: n1:/a\n");
            fs::write(&file, text).expect("written");
            assert!(read(&file, "h").is_err(), "{kind} {layout}");
        }
        fs::write(&file, "replica_count=2\narbiter_count=3\nbrick-0=n1:-a\n").expect("written");
        assert!(read(&file, "h").is_err(), "there are fewer than no copies");
        fs::write(&file, "nonsense").expect("written");
        assert!(format!("{:#}", read(&file, "h").expect_err("nonsense")).contains("line 1"));
    }
}
